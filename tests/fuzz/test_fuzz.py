"""Spoilt files give results or typed errors, within limits of time and memory; past failures stay mended.

A hundred or so inputs a target in a plain run; `make fuzz` asks for 10,000 by the variable WORDORDER_FUZZ. What fails
is written to build/fuzz/<target>; once it is mended it belongs into seeds/<target>, and is read again from then on.
"""

import hashlib
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from targets import TARGETS, check, folder_of

SEEDS = Path(__file__).resolve().parent / "seeds"
FAILED = Path(__file__).resolve().parents[2] / "build" / "fuzz"
ASKED = int(os.environ.get("WORDORDER_FUZZ", "0"))
SLOW = {
    "model-folder": 40,
    "recipe": 60,
    "checkpoint": 100,
    "command-line": 80,
}
"""Inputs in a plain run, of targets that read for more than a millisecond."""


def read_a_good_one(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Read a good file without limits: libraries load meanwhile, which is not the spoilt files' fault."""
    monkeypatch.chdir(folder_of(name))
    TARGETS[name].read(TARGETS[name].good(), folder_of(name))


@pytest.mark.slow
@pytest.mark.parametrize("name", list(TARGETS))
@pytest.mark.timeout(3600)
def test_spoilt_files_give_typed_errors(name: str, monkeypatch: pytest.MonkeyPatch):
    read_a_good_one(name, monkeypatch)  # without this what fails might fail for another reason

    @settings(
        max_examples=ASKED or SLOW.get(name, 200),
        deadline=None,
        database=None,
        derandomize=not ASKED,
        phases=(Phase.generate, Phase.shrink) if ASKED else (Phase.generate,),
        suppress_health_check=list(HealthCheck),
    )
    @given(TARGETS[name].inputs())
    def fuzz(content: bytes):
        try:
            check(name, content)
        except AssertionError:
            place = FAILED / name
            place.mkdir(parents=True, exist_ok=True)
            (place / hashlib.sha256(content).hexdigest()[:16]).write_bytes(content)
            raise

    fuzz()


@pytest.mark.parametrize(
    "seed",
    sorted(path for path in SEEDS.rglob("*") if path.is_file()),
    ids=lambda path: f"{path.parent.name}/{path.name}",
)
def test_past_failures_stay_mended(seed: Path):
    check(seed.parent.name, seed.read_bytes())


def test_every_folder_of_seeds_is_a_target():
    assert {path.name for path in SEEDS.iterdir()} <= TARGETS.keys()
