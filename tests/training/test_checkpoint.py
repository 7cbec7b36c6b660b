import errno
import json
import shutil
from pathlib import Path

import pytest
from safetensors import SafetensorError

from wordorder.errors import RunFailed
from wordorder.files import write_json
from wordorder.training.checkpoints.checkpoint import (
    checkpoints,
    clean,
    damage,
    find_newest,
    rotate,
    run_folder_fault,
    write_checkpoint,
)


def make(folder, step):
    def fill(staging):
        (staging / "weights").write_bytes(b"w" * 1000)
        (staging / "state.json").write_text(json.dumps({"step": step}))

    return write_checkpoint(folder, step, fill)


def names(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture
def three(tmp_path):
    for step in (5, 10, 100):
        make(tmp_path, step)
    return tmp_path


def test_checkpoints_are_found_by_number(three):
    (three / "checkpoint-x").mkdir()
    assert [step for step, _ in checkpoints(three)] == [5, 10, 100]
    assert find_newest(three).newest == three / "checkpoint-100"
    assert find_newest(three / "missing").newest is None


def test_a_link_to_a_checkpoint_elsewhere_is_passed_over(three, tmp_path_factory):
    elsewhere = make(tmp_path_factory.mktemp("elsewhere"), 200)
    (three / "checkpoint-200").symlink_to(elsewhere)
    found = find_newest(three)
    assert found.newest == three / "checkpoint-100"
    assert [(path.name, "is a link" in fault) for path, fault in found.passed_over] == [("checkpoint-200", True)]


def test_a_checkpoint_under_the_number_of_another_step_is_passed_over(tmp_path):
    state = {"step": 15, "steps": 20, "log": []}
    for step in (15, 999):
        write_checkpoint(tmp_path, step, lambda to: (to / "state.json").write_text(json.dumps(state)))
    found = find_newest(tmp_path)
    assert found.newest == tmp_path / "checkpoint-15"
    assert "is that of step 15" in found.passed_over[0][1]


def cut(path):
    path.write_bytes(path.read_bytes()[:-1])


def flip(path):
    content = bytearray(path.read_bytes())
    content[500] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize(
    "harm",
    [
        lambda folder: cut(folder / "weights"),
        lambda folder: flip(folder / "weights"),
        lambda folder: (folder / "weights").unlink(),
        lambda folder: (folder / "manifest.json").unlink(),
        lambda folder: (folder / "manifest.json").write_text("{"),
        lambda folder: (folder / "manifest.json").write_text("{}"),
        lambda folder: (folder / "manifest.json").write_text("[1]"),
    ],
)
def test_a_harmed_checkpoint_is_passed_over(three, harm):
    harm(three / "checkpoint-100")
    assert damage(three / "checkpoint-100")
    assert find_newest(three).newest == three / "checkpoint-10"


@pytest.mark.parametrize(
    ("harm", "fault"),
    [
        (lambda folder: cut(folder / "weights"), "weights has 999 bytes, 1000 were written"),
        (lambda folder: flip(folder / "weights"), "weights is not as it was written: its SHA-256 is another"),
        (lambda folder: (folder / "weights").unlink(), "weights is missing"),
        (lambda folder: (folder / "more").write_bytes(b""), "more is not in manifest.json"),
        (lambda folder: (folder / "manifest.json").unlink(), "manifest.json is missing"),
        (lambda folder: (folder / "manifest.json").write_text("{}"), "manifest.json names no file"),
        (lambda folder: (folder / "manifest.json").write_text("[1]"), "manifest.json is not what was written"),
        (lambda folder: (folder / "manifest.json").write_text("[" * 100_000), "manifest.json is not what was written"),
    ],
)
def test_what_is_wrong_with_a_harmed_checkpoint_is_said(three, harm, fault):
    harm(three / "checkpoint-100")
    found = find_newest(three)
    assert found.newest == three / "checkpoint-10"
    assert found.passed_over == ((three / "checkpoint-100", fault),)


def test_every_file_that_is_wrong_is_named(three):
    for path in (three / "checkpoint-100").iterdir():
        if path.name != "manifest.json":
            cut(path)
    (three / "checkpoint-10" / "weights").unlink()
    (three / "checkpoint-5" / "weights").unlink()
    found = find_newest(three)
    assert found.newest is None
    assert [path.name for path, _ in found.passed_over] == ["checkpoint-5", "checkpoint-10", "checkpoint-100"]
    assert (
        found.passed_over[2][1] == "state.json has 12 bytes, 13 were written, weights has 999 bytes, 1000 were written"
    )


FULL = {
    "system": OSError(errno.ENOSPC, "No space left on device"),
    "safetensors": SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)"),
    "tokenizers": Exception("No space left on device (os error 28)"),
}


@pytest.mark.parametrize("error", FULL.values(), ids=FULL)
@pytest.mark.parametrize("when", ["first", "last"])
def test_a_full_disk_leaves_the_last_good_checkpoint(three, when, error):
    def fill(staging):
        if when == "last":
            (staging / "weights").write_bytes(b"half")
        raise error

    before = names(three)
    with pytest.raises(RunFailed, match=r"checkpoint-200 .*No space left.*last good checkpoint is .*checkpoint-100"):
        write_checkpoint(three, 200, fill)
    assert names(three) == before


def test_another_error_in_a_save_keeps_its_kind(three):
    def fill(staging):
        raise TypeError("a fault of the program")

    before = names(three)
    with pytest.raises(TypeError, match="a fault of the program"):
        write_checkpoint(three, 200, fill)
    assert names(three) == before


def test_a_checkpoint_that_cannot_take_its_place_leaves_the_one_that_was_there(three, monkeypatch):
    rename, before = Path.rename, (three / "checkpoint-100" / "manifest.json").read_bytes()

    def refuse(self, target):
        if self.name == ".saving-100":
            raise OSError(errno.EIO, "Input/output error")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", refuse)
    with pytest.raises(RunFailed, match=r"Input/output error; the last good checkpoint is .*checkpoint-100"):
        make(three, 100)
    assert names(three) == ["checkpoint-10", "checkpoint-100", "checkpoint-5"]
    assert (three / "checkpoint-100" / "manifest.json").read_bytes() == before


@pytest.mark.parametrize("new_is_there", [False, True])
def test_a_replacement_that_was_broken_off_is_ended(three, new_is_there):
    (three / "checkpoint-100").rename(three / ".replaced-checkpoint-100")
    if new_is_there:
        make(three, 100)  # removes what it replaced
        shutil.copytree(three / "checkpoint-10", three / ".replaced-checkpoint-100")
    clean(three)
    assert names(three) == ["checkpoint-10", "checkpoint-100", "checkpoint-5"]
    assert find_newest(three).newest == three / "checkpoint-100"


def test_what_killed_runs_left_is_removed_and_nothing_else(three):
    for name in (".probe-12", ".curve.jsonl.77", ".metrics.json.1", ".unit_scores.safetensors.9"):
        (three / name).write_text("")
    for name in (".deleting-checkpoint-1-0f", ".saving-model"):
        (three / name).mkdir()
        (three / name / "file").write_text("")
    for name in (".gitignore", ".notes.txt", "curve.jsonl"):
        (three / name).write_text("")
    clean(three)
    kept = [".gitignore", ".notes.txt", "checkpoint-10", "checkpoint-100", "checkpoint-5", "curve.jsonl"]
    assert names(three) == kept


def test_an_interrupted_save_is_no_checkpoint_and_is_cleaned_up(three):
    (three / ".saving-200").mkdir()
    (three / ".saving-200" / "weights").write_bytes(b"half")
    (three / ".deleting-checkpoint-1").mkdir()
    assert find_newest(three).newest == three / "checkpoint-100"
    clean(three)
    assert names(three) == ["checkpoint-10", "checkpoint-100", "checkpoint-5"]


@pytest.mark.parametrize(
    ("keep", "best", "left"),
    [
        (None, None, [5, 10, 100]),
        (2, None, [10, 100]),
        (2, 5, [5, 100]),
        (1, None, [100]),
        (1, 5, [5, 100]),
        (1, 100, [100]),
        (3, 5, [5, 10, 100]),
    ],
)
def test_the_newest_and_the_best_are_kept(three, keep, best, left):
    rotate(three, keep=keep, best=three / f"checkpoint-{best}" if best else None)
    assert [step for step, _ in checkpoints(three)] == left
    assert len(names(three)) == len(left)


def test_a_damaged_checkpoint_of_a_later_step_does_not_push_out_the_one_just_written(three):
    cut(three / "checkpoint-100" / "weights")
    make(three, 20)
    rotate(three, keep=1, best=None, step=20)
    assert [step for step, _ in checkpoints(three)] == [20, 100]
    assert find_newest(three).newest == three / "checkpoint-20"


def test_a_checkpoint_is_removed_beside_what_an_earlier_removal_left(three):
    stuck = three / ".deleting-checkpoint-5"
    stuck.mkdir()
    (stuck / "file").write_text("")
    rotate(three, keep=2, best=None)
    assert names(three) == [".deleting-checkpoint-5", "checkpoint-10", "checkpoint-100"]


def test_looking_whether_a_folder_can_be_written_leaves_nothing(tmp_path):
    assert run_folder_fault(tmp_path / "a" / "b") is None
    assert names(tmp_path) == []


def test_a_folder_that_cannot_be_written_is_a_fault(tmp_path):
    (tmp_path / "file").write_text("")
    for folder in (tmp_path / "file" / "run", tmp_path / "file"):
        assert "cannot be written" in (run_folder_fault(folder) or "")


def test_json_that_fails_leaves_the_old_file(tmp_path):
    write_json(tmp_path / "a.json", {"loss": 1})
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json(tmp_path / "a.json", {"loss": float("nan")})
    assert json.loads((tmp_path / "a.json").read_text()) == {"loss": 1}
    assert names(tmp_path) == ["a.json"]
