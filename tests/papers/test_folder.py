"""The folder of a conversion appears whole or not at all, and nobody's files are lost."""

import os

import pytest
import torch
import tupe_reference as ref

from wordorder.errors import BadInput, RunFailed
from wordorder.papers import folder
from wordorder.papers.tupe import convert_tupe

FILES = ["README.md", "config.json", "conversion.json", "model.safetensors"]


def listing(place):
    return sorted(path.relative_to(place).as_posix() for path in place.rglob("*"))


@pytest.fixture
def checkpoint(tmp_path_factory):
    return ref.save(tmp_path_factory.mktemp("checkpoint") / "model.pt", ref.weights(dtype=torch.float32))


@pytest.fixture
def convert(checkpoint):
    def convert(out_dir, **options):
        return convert_tupe(checkpoint, out_dir, **options)

    return convert


@pytest.mark.parametrize("name", ["out", "deep/er/out"])
def test_a_new_folder_has_these_files_for_the_same_readers(tmp_path, convert, name):
    convert(tmp_path / name)
    assert listing(tmp_path / name) == FILES
    assert listing((tmp_path / name).parent) == ["out", *(f"out/{file}" for file in FILES)]
    assert len({path.stat().st_mode for path in (tmp_path / name).iterdir()}) == 1


def test_an_empty_folder_may_be_there(tmp_path, convert):
    (tmp_path / "out").mkdir()
    convert(tmp_path / "out")
    assert listing(tmp_path / "out") == FILES


def test_a_folder_with_something_in_it_is_kept(tmp_path, convert):
    convert(tmp_path / "out")
    (tmp_path / "out" / "tokenizer.json").write_text("old")
    before = listing(tmp_path)
    with pytest.raises(BadInput, match=r"is not empty.*--overwrite"):
        convert(tmp_path / "out")
    assert listing(tmp_path) == before


def test_an_earlier_conversion_is_found_again_after_a_crash_between_the_two_moves(tmp_path, convert):
    convert(tmp_path / "out")
    convert(tmp_path / "other")
    for name in ("out", "other"):  # another conversion may be at work there
        (tmp_path / name).rename(tmp_path / f".replaced-{name}")
    with pytest.raises(BadInput, match=r"is not empty.*--overwrite"):
        convert(tmp_path / "out")
    assert listing(tmp_path / "out") == FILES
    assert (tmp_path / ".replaced-other").is_dir()


def test_an_earlier_conversion_is_replaced_on_demand(tmp_path, convert):
    convert(tmp_path / "out")
    (tmp_path / "out" / "tokenizer.json").write_text("old")
    convert(tmp_path / "out", overwrite=True)
    assert listing(tmp_path) == ["out", *(f"out/{file}" for file in FILES)]


@pytest.mark.parametrize("other", ["thesis.tex", "conversion.json/"])
def test_files_of_somebody_else_are_not_replaced(tmp_path, convert, other):
    if other.endswith("/"):
        (tmp_path / "out" / other).mkdir(parents=True)
    else:
        convert(tmp_path / "out")
        (tmp_path / "out" / other).write_text("years")
    before = listing(tmp_path)
    with pytest.raises(BadInput, match=f"is no earlier conversion .it holds more: {other.rstrip('/')}"):
        convert(tmp_path / "out", overwrite=True)
    assert listing(tmp_path) == before


def test_a_trained_model_is_not_replaced(tmp_path, convert):
    (tmp_path / "mine").mkdir()
    for name in ("config.json", "model.safetensors"):
        (tmp_path / "mine" / name).write_text("trained")
    with pytest.raises(BadInput, match=r"mine is no earlier conversion \(it has no conversion\.json\)"):
        convert(tmp_path / "mine", overwrite=True)
    assert (tmp_path / "mine" / "model.safetensors").read_text() == "trained"


def test_a_file_in_the_way_is_named(tmp_path, convert):
    (tmp_path / "file").write_text("x")
    with pytest.raises(BadInput, match="is not a folder"):
        convert(tmp_path / "file")
    with pytest.raises((BadInput, RunFailed), match=r"file/out.* be written"):
        convert(tmp_path / "file" / "out")
    assert listing(tmp_path) == ["file"]


def test_a_link_is_followed(tmp_path, convert):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    convert(tmp_path / "link")
    (tmp_path / "real" / "tokenizer.json").write_text("old")
    convert(tmp_path / "link", overwrite=True)
    assert (tmp_path / "link").is_symlink()
    assert listing(tmp_path / "real") == FILES


def test_when_the_last_step_fails_the_earlier_folder_comes_back(tmp_path, convert, monkeypatch):
    convert(tmp_path / "out")
    (tmp_path / "out" / "tokenizer.json").write_text("old")
    before, rename = listing(tmp_path), os.rename

    def refuse(source, target, **options):
        if ".replaced-" not in str(source) + str(target):
            raise OSError(5, "planted")
        rename(source, target, **options)

    monkeypatch.setattr("os.rename", refuse)
    with pytest.raises(RunFailed, match="planted"):
        convert(tmp_path / "out", overwrite=True)
    assert listing(tmp_path) == before


@pytest.mark.parametrize("step", ["save_file", "sync_files"])
def test_a_full_disk_leaves_nothing_new(tmp_path, convert, monkeypatch, step):
    def full(*arguments, **options):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(folder, step, full)
    with pytest.raises(RunFailed, match=r"could not be written: .*No space left"):
        convert(tmp_path / "out")
    assert listing(tmp_path) == []


def test_a_name_that_is_too_long_is_bad_input(tmp_path, convert):
    with pytest.raises(BadInput, match=r"OUT_DIR '.*' cannot be written: .*long"):
        convert(tmp_path / ("x" * 5000))
