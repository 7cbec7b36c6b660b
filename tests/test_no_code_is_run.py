"""The sources hold no way to run what a file says, but for the places that are listed here with their reason."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[1] / "src" / "wordorder"

UNPICKLERS = {
    "pickle",
    "_pickle",
    "cPickle",
    "cloudpickle",
    "dill",
    "joblib",
    "shelve",
    "marshal",
    "jsonpickle",
    "yaml",
}
"""Modules whose readers run, or can be made to run, what they read."""

RUNNERS = {"eval", "exec", "compile", "__import__"}
"""Builtins that run text, or import by a name that is text."""

CALLS = {
    "torch": {"load", "save"},
    "torch.hub": {"load"},
    "torch.serialization": {"load", "save"},
    "torch.jit": {"load"},
    "torch.export": {"load"},
    "torch.package": {"PackageImporter"},
    "torch.distributed.checkpoint": {"load", "load_state_dict", "async_save", "save"},
    "pandas": {"read_pickle"},
    "np": {"load"},
    "numpy": {"load"},
    "os": set("system popen execl execlp execv execve execvp posix_spawn spawnl spawnv startfile".split()),
    "subprocess": {"run", "call", "check_call", "check_output", "Popen", "getoutput"},
    "runpy": {"run_path", "run_module"},
    "importlib": {"import_module"},
    "tarfile": {"open"},
    "shutil": {"unpack_archive"},
    "builtins": RUNNERS,
}
"""Functions of modules that unpickle, start processes, import by name or unpack archives into a folder."""

ALLOWED = {
    "papers/weights.py: torch.load": "imports nothing, and calls a closed list of names",
    "papers/weights.py: weights_only=True": "the same",
    "own_classes.py: exec": "the file that the user names by --use or --arm, and nothing else",
    "own_classes.py: compile": "the same",
    "registry.py: import_module": "names and classes of the package: literal tables",
    "cli/main.py: import_module": "looks whether typer and rich are installed",
    "tasks/catalog.py: import_module": "a task's file, by its name in a literal table",
    "training/runs/fit.py: subprocess.run": "asks git for the commit of this package",
}
"""File and call -> why it runs nothing that a file says."""

READERS = {
    "models/saved_folder.py: from_pretrained": "checks the folder first",
    "data/tokenizers.py: from_pretrained": "one class, which looks for no code",
}
"""Where transformers may read a folder."""


def findings(package: Path) -> Iterator[str]:
    """Every call, import and argument that could run what a file says, as "file: what"."""
    for path in sorted(package.rglob("*.py")):
        where = path.relative_to(package).as_posix()
        tree = ast.parse(path.read_text(encoding="utf-8"))
        called = dict(name for node in ast.walk(tree) for name in _other_names(node))
        for node in ast.walk(tree):
            for what in _found(node, called):
                yield f"{where}: {what}"


def _other_names(node: ast.AST) -> Iterator[tuple[str, str]]:
    """What a module calls another one -> its own name: `import torch as t`, `from torch import serialization`."""
    if isinstance(node, ast.Import):
        yield from ((alias.asname, alias.name) for alias in node.names if alias.asname)
    elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
        yield from ((alias.asname or alias.name, f"{node.module}.{alias.name}") for alias in node.names)


def _found(node: ast.AST, called: dict[str, str]) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (f"imports {alias.name}" for alias in node.names if alias.name.split(".")[0] in UNPICKLERS)
    elif isinstance(node, ast.ImportFrom):
        module = node.module or ""
        if module.split(".")[0] in UNPICKLERS:
            yield f"imports {module}"
        yield from (
            f"imports {module}.{a.name}" for a in node.names if a.name in CALLS.get(module, set()) - {"import_module"}
        )
    elif isinstance(node, ast.Call):
        yield from _of_call(node, called)


def _of_call(call: ast.Call, called: dict[str, str]) -> Iterator[str]:
    if isinstance(call.func, ast.Name) and (call.func.id in RUNNERS or call.func.id == "import_module"):
        yield call.func.id
    if isinstance(call.func, ast.Attribute):
        first, dot, rest = ast.unparse(call.func.value).partition(".")
        owner = called.get(first, first) + dot + rest
        if call.func.attr in CALLS.get(owner, set()):
            yield call.func.attr if call.func.attr == "import_module" else f"{owner}.{call.func.attr}"
    for keyword in call.keywords:
        harmless = isinstance(keyword.value, ast.Constant) and keyword.value.value is False
        if keyword.arg in ("trust_remote_code", "allow_pickle") and not harmless:
            yield f"{keyword.arg}={ast.unparse(keyword.value)}"
        if keyword.arg in ("weights_only", "shell", "allow_all_kernels"):
            yield f"{keyword.arg}={ast.unparse(keyword.value)}"


def test_nothing_runs_what_a_file_says():
    found = set(findings(PACKAGE))
    assert found - ALLOWED.keys() == set()
    assert ALLOWED.keys() - found == set(), "no longer needed: take it from the list"


def test_transformers_reads_folders_in_two_places_only():
    found: set[str] = set()
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr == "from_pretrained"
            ):
                found.add(f"{path.relative_to(PACKAGE).as_posix()}: from_pretrained")
                local = {k.arg: ast.unparse(k.value) for k in node.keywords}
                assert local.get("local_files_only") == "True", f"{path}:{node.lineno} may fetch from the Hub"
    assert found == READERS.keys()


@pytest.mark.parametrize(
    "line",
    [
        "import pickle",
        "from pickle import loads",
        "import yaml",
        "import torch\ntorch.load('x')",
        "from torch import load",
        "import torch as t\nt.load('x')",
        "from torch import serialization\nserialization.load('x')",
        "import torch\ntorch.jit.load('x')",
        "import torch.distributed.checkpoint as dcp\ndcp.load({})",
        "from torch.distributed import checkpoint\ncheckpoint.load({})",
        "import os as o\no.execl('sh')",
        "import numpy as np\nnp.load('x', allow_pickle=True)",
        "eval('1')",
        "exec('1')",
        "__import__('os')",
        "import os\nos.system('ls')",
        "import subprocess\nsubprocess.run(['ls'])",
        "from subprocess import Popen",
        "import runpy\nrunpy.run_path('x')",
        "import importlib\nimportlib.import_module(name)",
        "kind.from_pretrained('x', trust_remote_code=True)",
        "kind.from_pretrained('x', trust_remote_code=asked)",
        "torch_load('x', weights_only=True)",
    ],
)
def test_a_planted_line_is_found(tmp_path: Path, line: str):
    (tmp_path / "planted.py").write_text(line + "\n", encoding="utf-8")
    assert len(list(findings(tmp_path))) >= 1


def test_a_line_that_does_no_harm_is_not_found(tmp_path: Path):
    harmless = ["import json, torch", "json.load(f)", "torch.ones(1)", "model.eval()", "f(trust_remote_code=False)"]
    (tmp_path / "planted.py").write_text("\n".join(harmless), encoding="utf-8")
    assert list(findings(tmp_path)) == []
