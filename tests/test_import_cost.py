"""`import wordorder` costs torch at most, and the command's help does not even cost that."""

import json
import subprocess
import sys
import time

import pytest

from wordorder import EXPORTS

LOADED = """
import json, sys
before = set(sys.modules)
{statement}
print(json.dumps(sorted({{name.split(".")[0] for name in set(sys.modules) - before}})))
"""

HEAVY = {
    "torch",
    "transformers",
    "datasets",
    "tokenizers",
    "numpy",
    "matplotlib",
    "scipy",
    "sklearn",
    "pandas",
}


def loaded_by(statement: str) -> set[str]:
    """Name the top-level modules that a statement adds to a fresh interpreter."""
    command = [sys.executable, "-c", LOADED.format(statement=statement)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return set(json.loads(done.stdout.splitlines()[-1]))


def test_import_wordorder_loads_the_standard_library_only():
    assert loaded_by("import wordorder") & HEAVY == set()


def test_the_plain_torch_names_load_nothing_but_torch():
    # What torch itself takes when it is there (NumPy, tqdm) is torch's affair; sympy it loads late.
    torch_alone = loaded_by("import torch, torch.utils.checkpoint, sympy")
    ours = loaded_by("import wordorder; [getattr(wordorder, name) for name in wordorder.EXPORTS]")
    assert ours - torch_alone - set(sys.stdlib_module_names) == {"wordorder"}


def test_an_encoder_loads_its_own_encoding_and_the_backends_that_it_may_take():
    program = """
import json, sys, torch, wordorder
encoder = wordorder.Encoder(50, width=16, layers=1, heads=2, encoding="tupe-r")
encoder(torch.randint(50, (2, 8)))
modules = {name: module for name, module in sys.modules.items() if name.startswith("wordorder")}
files = {name: module.__file__ for name, module in modules.items() if module.__file__}
print(json.dumps({name: len(open(file, encoding="utf-8").readlines()) for name, file in files.items()}))
"""
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    names = json.loads(done.stdout.splitlines()[-1])
    largest = sorted(names, key=names.get)[:-6:-1]
    assert sum(names.values()) <= 6_000, f"import what only some need where it is used, as backends do; {largest}"
    encodings = {name for name in names if name.startswith("wordorder.encodings.")} - {
        f"wordorder.encodings.{part}" for part in ("build", "catalog", "composition", "pattern", "places", "terms")
    }
    assert encodings == {"wordorder.encodings.tupe", "wordorder.encodings.t5"}
    assert not any(name.startswith(("wordorder.models", "wordorder.memory.segment")) for name in names)


def test_reading_results_loads_no_transformers():
    assert "transformers" not in loaded_by("from wordorder.comparison import read_results")


def test_import_wordorder_takes_under_three_seconds():
    command = [sys.executable, "-X", "importtime", "-c", "import wordorder"]
    started = time.perf_counter()
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert time.perf_counter() - started < 3
    assert "wordorder" in done.stderr


@pytest.mark.parametrize("arguments", [["--help"], ["train", "--help"], ["list", "--help"], ["compare", "--help"]])
def test_help_loads_no_heavy_module(arguments: list[str]):
    statement = f"""
import contextlib, io
sys.argv = ["wordorder", *{arguments!r}]
from wordorder.cli.main import main
with contextlib.redirect_stdout(io.StringIO()) as text, contextlib.suppress(SystemExit):
    main()
assert "Usage" in text.getvalue(), text.getvalue()
"""
    # (typer itself loads pydantic to read the arguments of a command)
    heavy = HEAVY | {"pydantic"} if arguments == ["--help"] else HEAVY
    assert loaded_by(statement) & heavy == set()


def test_every_exported_name_is_there():
    import wordorder

    for name in EXPORTS:
        assert getattr(wordorder, name) is not None
    assert set(EXPORTS) <= set(dir(wordorder))


def test_an_unknown_name_raises_with_the_known_ones():
    import wordorder

    with pytest.raises(AttributeError, match=r"'Encoderr'.*Encoder"):
        wordorder.Encoderr  # noqa: B018 - the access itself is under test


@pytest.mark.parametrize("first", ["import wordorder.attention", "pass"])
def test_attention_is_callable_whether_or_not_its_folder_is_loaded(first: str):
    statement = f"{first}; import wordorder; assert callable(wordorder.attention); import wordorder.attention.attend"
    loaded_by(statement + "; assert callable(wordorder.attention)")
