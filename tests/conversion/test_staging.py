"""The folder appears whole or not at all, and nobody's files are lost."""

import os

import pytest
import torch
import tupe_reference as ref

from wordorder.conversion import convert_tupe, hugging_face_folder
from wordorder.conversion.hugging_face_folder import staged_folder
from wordorder.errors import BadInput, RunFailed


def listing(folder):
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*"))


def fill(out_dir, text="new", **options):
    with staged_folder(out_dir, **options) as folder:
        (folder / "conversion.json").write_text(text)


@pytest.mark.parametrize("name", ["out", "deep/er/out"])
def test_a_new_folder_appears_when_it_is_whole(tmp_path, name):
    with staged_folder(tmp_path / name) as folder:
        (folder / "conversion.json").write_text("{}")
        assert not (tmp_path / name).exists()
    assert (tmp_path / name / "conversion.json").read_text() == "{}"
    assert all(not part.startswith(".") for path in listing(tmp_path) for part in path.split("/"))


@pytest.mark.parametrize("name", ["out", "deep/er/out"])
@pytest.mark.parametrize("error", [BadInput, KeyboardInterrupt])
def test_nothing_is_left_of_a_failure(tmp_path, name, error):
    def half(folder):
        (folder / "conversion.json").write_text("{}")
        raise error("planted")

    with pytest.raises(error, match="planted"), staged_folder(tmp_path / name) as folder:
        half(folder)
    assert listing(tmp_path) == []


def test_an_empty_folder_may_be_there(tmp_path):
    (tmp_path / "out").mkdir()
    fill(tmp_path / "out")
    assert listing(tmp_path) == ["out", "out/conversion.json"]


def test_a_folder_with_something_in_it_is_kept(tmp_path):
    fill(tmp_path / "out", "old")
    with pytest.raises(BadInput, match=r"is not empty.*--overwrite"):
        fill(tmp_path / "out")
    assert (tmp_path / "out" / "conversion.json").read_text() == "old"


def test_an_earlier_conversion_is_found_again_after_a_crash_between_the_two_moves(tmp_path):
    fill(tmp_path / "out", "old")
    fill(tmp_path / "other", "other")
    for name in ("out", "other"):  # another conversion may be at work there
        (tmp_path / name).rename(tmp_path / f".replaced-{name}")
    with pytest.raises(BadInput, match=r"is not empty.*--overwrite"):
        fill(tmp_path / "out")
    assert (tmp_path / "out" / "conversion.json").read_text() == "old"
    assert (tmp_path / ".replaced-other").is_dir()


def test_an_earlier_conversion_is_replaced_on_demand_and_kept_until_then(tmp_path):
    fill(tmp_path / "out", "old")
    (tmp_path / "out" / "tokenizer.json").write_text("old")
    with pytest.raises(BadInput, match="planted"), staged_folder(tmp_path / "out", overwrite=True):
        raise BadInput("planted")
    assert (tmp_path / "out" / "conversion.json").read_text() == "old"
    fill(tmp_path / "out", overwrite=True)
    assert listing(tmp_path) == ["out", "out/conversion.json"]
    assert (tmp_path / "out" / "conversion.json").read_text() == "new"


@pytest.mark.parametrize("other", ["thesis.tex", "conversion.json/"])
def test_files_of_somebody_else_are_not_replaced(tmp_path, other):
    if other.endswith("/"):
        (tmp_path / "out" / other).mkdir(parents=True)
    else:
        fill(tmp_path / "out")
        (tmp_path / "out" / other).write_text("years")
    before = listing(tmp_path)
    with pytest.raises(BadInput, match=f"holds more than an earlier conversion .{other.rstrip('/')}"):
        fill(tmp_path / "out", overwrite=True)
    assert listing(tmp_path) == before


def test_a_trained_model_is_not_replaced(tmp_path):
    (tmp_path / "mine").mkdir()
    for name in ("config.json", "model.safetensors"):
        (tmp_path / "mine" / name).write_text("trained")
    with pytest.raises(BadInput, match=r"mine is no earlier conversion \(it has no conversion\.json\)"):
        fill(tmp_path / "mine", overwrite=True)
    assert (tmp_path / "mine" / "model.safetensors").read_text() == "trained"


def test_a_file_in_the_way_is_named(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(BadInput, match="is not a folder"):
        fill(tmp_path / "file")
    with pytest.raises(BadInput, match="cannot be written"):
        fill(tmp_path / "file" / "out")
    assert listing(tmp_path) == ["file"]


def test_a_link_is_followed(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    fill(tmp_path / "link")
    fill(tmp_path / "link", "newer", overwrite=True)
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real" / "conversion.json").read_text() == "newer"
    assert listing(tmp_path) == ["link", "real", "real/conversion.json"]


def test_when_the_last_step_fails_the_earlier_folder_comes_back(tmp_path, monkeypatch):
    fill(tmp_path / "out", "old")

    def full(path):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(hugging_face_folder, "sync_files", full)
    with pytest.raises(RunFailed, match="No space left"):
        fill(tmp_path / "out", overwrite=True)
    monkeypatch.undo()

    rename = os.rename

    def refuse(source, target, **options):
        if ".replaced-" not in str(source) + str(target):
            raise OSError(5, "planted")
        rename(source, target, **options)

    monkeypatch.setattr("os.rename", refuse)
    with pytest.raises(RunFailed, match="planted"):
        fill(tmp_path / "out", overwrite=True)
    assert (tmp_path / "out" / "conversion.json").read_text() == "old"
    assert listing(tmp_path) == ["out", "out/conversion.json"]


def test_all_files_are_for_the_same_readers(tmp_path):
    convert_tupe(ref.save(tmp_path / "model.pt", ref.weights(dtype=torch.float32)), tmp_path / "out")
    assert len({path.stat().st_mode for path in (tmp_path / "out").iterdir()}) == 1


def test_a_full_disk_while_the_weights_are_written_leaves_nothing(tmp_path, monkeypatch):
    path = ref.save(tmp_path / "model.pt", ref.weights(dtype=torch.float32))

    def full(tensors, filename, metadata):
        filename.write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("wordorder.conversion.hugging_face_folder.save_file", full)
    with pytest.raises(RunFailed, match=r"could not be written: .*No space left"):
        convert_tupe(path, tmp_path / "out")
    assert listing(tmp_path) == ["model.pt"]


def test_a_name_that_is_too_long_is_bad_input(tmp_path):
    with (
        pytest.raises(BadInput, match=r"OUT_DIR '.*' cannot be written: .*long"),
        staged_folder(tmp_path / ("x" * 5000)),
    ):
        pass
