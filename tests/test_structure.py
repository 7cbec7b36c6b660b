"""The shape of the core: no import circles, folders that one can read, constructors that one can call."""

import ast
import sys
from collections import Counter, defaultdict
from pathlib import Path

import pytest
import torch

import wordorder
from wordorder.memory import LookAheadMemory, SegmentRecurrence

SRC = Path(wordorder.__file__).parent
CORE = ("ops", "encodings", "attention", "memory", "networks", "models")

FILES = 16
FOLDERS_WITH_MORE = {"encodings": "one file per published encoding"}

ARGUMENTS = 12
WIDER = {
    "TransformerOptions": "sizes and style of a network in one value, so that nothing else repeats them",
    "Call": "a record of what is known of a call, which a pure function reads",
    "WordOrderConfig": "the keys of Hugging Face's config.json",
    "WordOrderClassifierConfig": "the keys of Hugging Face's config.json",
}

LEAVES = {
    "attention/choice.py": "a table of backends",
    "networks/options.py": "norms and feed-forward networks",
}
"""Files of a step with memory that know neither memory nor steps."""


def modules(source=SRC):
    """Files by module name."""
    found = {}
    for file in source.rglob("*.py"):
        parts = file.relative_to(source.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = file
    return found


def imported(file, known):
    """Modules of the package that a file imports anywhere: in functions and for type checkers too."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                if full in known or node.module in known:
                    yield full if full in known else node.module


def circles(graph):
    """Groups of modules that all reach each other (Tarjan 1972)."""
    index, low, stack, found = {}, {}, [], []

    def visit(module):
        index[module] = low[module] = len(index)
        stack.append(module)
        for other in graph[module]:
            if other not in index:
                visit(other)
            if other in stack:
                low[module] = min(low[module], low[other])
        if low[module] == index[module]:
            group = stack[stack.index(module) :]
            del stack[stack.index(module) :]
            if len(group) > 1:
                found.append(sorted(group))

    for module in graph:
        if module not in index:
            visit(module)
    return found


def graph_of(known):
    return {name: sorted({other for other in imported(file, known) if other != name}) for name, file in known.items()}


def test_the_core_has_no_import_circle():
    known = modules()
    assert len(known) > 300
    found = [group for group in circles(graph_of(known)) if any(name.split(".")[1] in CORE for name in group)]
    assert not found


def test_a_planted_circle_is_found(tmp_path):
    for name, text in {
        "one": "from wordorder.two import f",
        "two": "def f():\n    from wordorder import three",
        "three": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from wordorder.one import g",
        "four": "from wordorder.one import g",
    }.items():
        (tmp_path / "wordorder").mkdir(exist_ok=True)
        (tmp_path / "wordorder" / f"{name}.py").write_text(text)
    found = circles(graph_of(modules(tmp_path / "wordorder")))
    assert found == [["wordorder.one", "wordorder.three", "wordorder.two"]]


def test_a_folder_of_the_core_has_at_most_sixteen_files():
    count = Counter(str(file.parent.relative_to(SRC)) for file in modules().values())
    more = {folder for folder, files in count.items() if files > FILES and folder.split("/")[0] in CORE}
    assert more == set(FOLDERS_WITH_MORE)


def arguments_of(node):
    """How many arguments a class's constructor has, self left out; fields of a dataclass."""
    for part in node.body:
        if isinstance(part, ast.FunctionDef) and part.name == "__init__":
            return len(part.args.args) - 1 + len(part.args.kwonlyargs)
    if any("dataclass" in ast.unparse(d) or ast.unparse(d) == "strict" for d in node.decorator_list):
        return sum(isinstance(p, ast.AnnAssign) and "ClassVar" not in ast.unparse(p.annotation) for p in node.body)
    return 0


def test_a_constructor_of_the_core_takes_at_most_twelve_arguments():
    wide = {}
    for folder in CORE:
        for file in (SRC / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(file.read_text())):
                if isinstance(node, ast.ClassDef) and arguments_of(node) > ARGUMENTS:
                    wide[node.name] = arguments_of(node)
    assert set(wide) == set(WIDER)


@pytest.mark.parametrize("memory", [LookAheadMemory(8), SegmentRecurrence(8)], ids=["look-ahead", "recurrence"])
def test_a_decoder_step_with_memory_is_in_nine_files(memory):
    decoder = wordorder.Decoder(50, width=16, layers=3, heads=2, encoding="rope", memory=memory).eval()
    ids, seen = torch.randint(50, (2, 8)), defaultdict(set)

    def note(frame, event, _):
        file = Path(frame.f_code.co_filename)
        if event == "call" and SRC in file.parents:
            seen[str(file.relative_to(SRC))].add(frame.f_code.co_name)

    with torch.no_grad():
        state = decoder(ids).memory
        sys.setprofile(note)
        try:
            decoder(ids, memory=state)
        finally:
            sys.setprofile(None)
    backends = ("attention/tiles/", "attention/sdpa.py", "attention/reference.py")
    folders = ("networks/", "memory/", "attention/")
    walked = [file for file in seen if file.startswith(folders) and not file.startswith(backends)]
    assert len(set(walked) - set(LEAVES)) <= 9, sorted(walked)
    assert {"memory/step.py", "networks/stack.py", "attention/attend.py"} <= set(walked)


@pytest.mark.parametrize("file", ["memory/step.py", "memory/look_ahead.py", "memory/segment_recurrence.py"])
def test_memory_takes_no_callbacks(file):
    assert "Callable" not in (SRC / file).read_text()
