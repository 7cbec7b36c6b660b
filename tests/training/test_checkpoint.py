import errno
import json

import pytest

from wordorder.durable import is_whole, write_json
from wordorder.errors import RunFailed
from wordorder.training.checkpoint import check_writable, checkpoints, clean, newest_valid, rotate, write_checkpoint


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
    assert newest_valid(three) == three / "checkpoint-100"
    assert newest_valid(three / "missing") is None


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
    assert not is_whole(three / "checkpoint-100")
    assert newest_valid(three) == three / "checkpoint-10"


@pytest.mark.parametrize("when", ["first", "last"])
def test_a_full_disk_leaves_the_last_good_checkpoint(three, when):
    def fill(staging):
        if when == "last":
            (staging / "weights").write_bytes(b"half")
        raise OSError(errno.ENOSPC, "No space left on device")

    before = names(three)
    with pytest.raises(RunFailed, match=r"checkpoint-200 .*No space left.*last good checkpoint is .*checkpoint-100"):
        write_checkpoint(three, 200, fill)
    assert names(three) == before


def test_an_interrupted_save_is_no_checkpoint_and_is_cleaned_up(three):
    (three / ".saving-200").mkdir()
    (three / ".saving-200" / "weights").write_bytes(b"half")
    (three / ".deleting-checkpoint-1").mkdir()
    assert newest_valid(three) == three / "checkpoint-100"
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


def test_looking_whether_a_folder_can_be_written_leaves_nothing(tmp_path):
    assert check_writable(tmp_path / "a" / "b") is None
    assert names(tmp_path) == []


def test_a_folder_that_cannot_be_written_is_a_fault(tmp_path):
    (tmp_path / "file").write_text("")
    for folder in (tmp_path / "file" / "run", tmp_path / "file"):
        assert "cannot be written" in (check_writable(folder) or "")


def test_json_that_fails_leaves_the_old_file(tmp_path):
    write_json(tmp_path / "a.json", {"loss": 1})
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json(tmp_path / "a.json", {"loss": float("nan")})
    assert json.loads((tmp_path / "a.json").read_text()) == {"loss": 1}
    assert names(tmp_path) == ["a.json"]
