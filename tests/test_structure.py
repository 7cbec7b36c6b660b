"""The shape of the core: no import circles, folders that one can read, constructors that one can call."""

import sys
from collections import defaultdict
from pathlib import Path

import pytest
import torch

import wordorder
from tools.house import (
    ARGUMENTS,
    FILES,
    FOLDERS_WITH_MORE,
    WIDER,
    circles,
    constructors,
    files_by_folder,
    graph_of,
    modules,
)
from wordorder.memory import LookAheadMemory, SegmentRecurrence

SRC = Path(wordorder.__file__).parent
CORE = ("ops", "encodings", "attention", "memory", "networks", "models", "papers")

LEAVES = {
    "attention/choice.py": "a table of backends",
    "networks/options.py": "norms and feed-forward networks",
}
"""Files of a step with memory that know neither memory nor steps."""


def test_the_core_has_no_import_circle():
    known = modules()
    assert len(known) > 200
    found = [group for group in circles(graph_of(known)) if any(name.split(".")[1] in CORE for name in group)]
    assert not found


def test_a_folder_of_the_core_has_at_most_sixteen_files():
    more = {folder for folder, files in files_by_folder().items() if files > FILES and folder.split("/")[0] in CORE}
    assert more == set(FOLDERS_WITH_MORE)


def test_a_constructor_of_the_core_takes_at_most_twelve_arguments():
    wide = {name for folder in CORE for count, name, _ in constructors(SRC / folder) if count > ARGUMENTS}
    assert wide == set(WIDER)


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
