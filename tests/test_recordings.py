"""What the package computes on every CPU is what it computed when the recordings were written, to the last digit.

`evidence/record.py` compares two commits on one machine, floats included; these files hold what no machine changes.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
RECORD = ROOT / "evidence" / "record.py"


@pytest.mark.parametrize(
    "groups",
    [
        ("text", "search"),
        pytest.param(("training", "cost"), marks=[pytest.mark.slow, pytest.mark.timeout(1200)]),
    ],
    ids=" and ".join,
)
def test_values_are_those_that_were_recorded(groups, tmp_path):
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join((str(ROOT / "src"), str(RECORD.parent))),
        "TOKENIZERS_PARALLELISM": "false",
        "OMP_NUM_THREADS": "1",
    }
    command = [sys.executable, RECORD, "--side", "now", ROOT, tmp_path / "now", *groups]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr[-2000:]
    values = json.loads((tmp_path / "now.json").read_text(encoding="utf-8"))
    for group in groups:
        recorded = json.loads((ROOT / "tests" / "recordings" / f"{group}.json").read_text(encoding="utf-8"))
        assert {key: values.get(key) for key in recorded} == recorded
