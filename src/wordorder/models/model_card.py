"""Write model cards: the README.md beside a saved model, with what it is, how it scored and how it is loaded."""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from huggingface_hub import EvalResult, ModelCard, ModelCardData

from wordorder.encodings import CATALOG
from wordorder.files import write_text
from wordorder.models.saved_folder import fields_of

CARD = "README.md"

PIPELINES: dict[str, tuple[str, str]] = {
    "ForMaskedLM": ("fill-mask", "AutoModelForMaskedLM"),
    "ForSequenceClassification": ("text-classification", "AutoModelForSequenceClassification"),
    "ForTokenClassification": ("token-classification", "AutoModelForTokenClassification"),
    "ForQuestionAnswering": ("question-answering", "AutoModelForQuestionAnswering"),
    "ForCausalLM": ("text-generation", "AutoModelForCausalLM"),
    "LMHeadModel": ("text-generation", "AutoModelForCausalLM"),  # transformers' GPT-2
    "ForConditionalGeneration": ("translation", "AutoModelForSeq2SeqLM"),
    "Model": ("feature-extraction", "AutoModel"),
}
"""The hub's name of a task, and the Auto class that loads the model, by the end of the name of the model's class."""

_HUB = "hub:"
_COUNTS = ("tokens", "examples")  # among scores: how many predictions they are of, no metric
_SHOWN = {
    "encoding": "encoding",
    "encoding_options": "its options",
    "memory": "memory",
    "memory_length": "slots of memory",
    "segment_length": "tokens of a segment",
    "max_position_embeddings": "longest text, tokens",
    "vocab_size": "vocabulary",
    "hidden_size": "channels",
    "num_hidden_layers": "layers",
    "num_attention_heads": "heads",
    "id2label": "classes",
}
"""Field of a model's config.json -> what the card calls it."""
_LOADING = """Install `wordorder[models]` first; no code is taken from this folder.

```python
from transformers import {auto}, AutoTokenizer

import wordorder.models  # makes transformers' Auto classes and pipelines know the model

folder = "path/to/this/folder"  # or the name of its repository on the hub
model = {auto}.from_pretrained(folder).eval()
tokenizer = AutoTokenizer.from_pretrained(folder)
```"""


def write_card(
    folder: Path,
    *,
    title: str,
    summary: str,
    data: str | None = None,
    scores: Mapping[str, Mapping[str, Any]] | None = None,
    sections: Sequence[tuple[str, str]] = (),
) -> None:
    """Write README.md beside a saved model, in the place of an earlier one.

    Args:
        data: what the scores are of; "hub:NAME" is a data set of the hub, which makes a link of it.
        scores: metric -> value, by split.
        sections: heading and Markdown, in order; they come last.
    """
    config = fields_of(json.loads((folder / "config.json").read_text(encoding="utf-8")))
    metrics = [
        (split, name, value)
        for split, values in (scores or {}).items()
        for name, value in values.items()
        if isinstance(value, int | float) and not isinstance(value, bool) and name not in _COUNTS
    ]
    body = [f"# {code(title)}", summary, "## What it is", _table(("", ""), _about(config))]
    if metrics:
        rows = [(split, code(name), f"{value:.6g}", _count((scores or {})[split])) for split, name, value in metrics]
        body += ["## Scores", _table(("split", "metric", "value", "over"), rows)]
    body += ["## How to load it", _LOADING.format(auto=task_of_architecture(config)[1])]
    for heading, text in sections:
        body += [f"## {heading}", text]
    card = ModelCard(f"---\n{_metadata(config, title, data, metrics)}\n---\n\n" + "\n\n".join(body) + "\n")
    write_text(folder / CARD, str(card))


def code(text: object) -> str:
    """Return text from data as a line of code, which also a cell of a table may hold."""
    return f"`{' '.join(str(text).replace('`', chr(39)).split())}`".replace("|", "\\|")


def task_of_architecture(config: Mapping[str, Any]) -> tuple[str, str]:
    """Return the hub's name of a model's task, and the Auto class that loads it."""
    name = str((config.get("architectures") or ["Model"])[0])
    return next(task for ending, task in PIPELINES.items() if name.endswith(ending) or ending == "Model")


def _metadata(
    config: Mapping[str, Any], title: str, data: str | None, metrics: Sequence[tuple[str, str, float]]
) -> str:
    """Return the card's metadata as the hub reads them, in YAML."""
    tag, name = task_of_architecture(config)[0], (data or "local data").removeprefix(_HUB)
    on_hub = data is not None and data.startswith(_HUB)
    results = [
        EvalResult(
            task_type=tag,
            dataset_type=name if on_hub else "local",
            dataset_name=name,
            dataset_split=split,
            metric_type=metric,
            metric_name=f"{split} {metric}",
            metric_value=value,
        )
        for split, metric, value in metrics
    ]
    kinds = [config.get("model_type"), config.get("encoding"), config.get("memory")]
    kinds.append("regression" if config.get("problem_type") == "regression" else tag)
    card_data: Any = ModelCardData(
        library_name="wordorder",
        pipeline_tag=tag,
        tags=list(dict.fromkeys(["wordorder", *(str(kind) for kind in kinds if kind not in (None, "none"))])),
        datasets=[name] if on_hub else None,
        metrics=list(dict.fromkeys(result.metric_type for result in results)) or None,
        model_name=title,
        eval_results=results or None,
    )
    return card_data.to_yaml()


def _about(config: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return what config.json says of the model, as rows."""
    left_out = {"memory_length"} if config.get("memory") in (None, "none") else {"max_position_embeddings"}
    encodings = [CATALOG.get(name) for name in re.split(r"[+,*\s]+", str(config.get("encoding")))]
    if not any(encoding is not None and encoding.bounded for encoding in encodings):
        left_out.add("max_position_embeddings")
    if "Classification" not in str(config.get("architectures")) or config.get("problem_type") == "regression":
        left_out.add("id2label")
    rows = [("class", code((config.get("architectures") or [config.get("model_type")])[0]))]
    for name, shown in _SHOWN.items():
        value = config.get(name)
        if name not in left_out and value not in (None, {}, []):
            rows.append((shown, code(", ".join(map(str, value.values())) if name == "id2label" else value)))
    return rows


def _count(scores: Mapping[str, object]) -> str:
    return next((f"{scores[name]:,} {name}" for name in _COUNTS if name in scores), "")


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(line)} |" for line in (head, ["---"] * len(head), *rows))
