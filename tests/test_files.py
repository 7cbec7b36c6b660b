import errno
import json
from pathlib import Path

import pytest

from wordorder import files
from wordorder.streams import printable


def test_trying_a_folder_leaves_nothing_behind(tmp_path: Path):
    assert files.check_writable(tmp_path / "a" / "b") is None
    assert not list(tmp_path.iterdir())
    (tmp_path / "c").mkdir()
    assert files.check_writable(tmp_path / "c") is None
    assert not list((tmp_path / "c").iterdir())


def test_processes_that_try_the_same_folder_do_not_disturb_each_other(tmp_path, monkeypatch):
    def no_change(path, *arguments, **options):
        raise AssertionError(f"{path} is changed, which another process may be looking at")

    for method in ("mkdir", "rmdir", "touch", "write_bytes", "unlink"):
        monkeypatch.setattr(Path, method, no_change)
    assert files.check_writable(tmp_path / "run") is None


def test_a_link_to_nothing_is_no_folder(tmp_path: Path):
    (tmp_path / "link").symlink_to(tmp_path / "nothing")
    assert files.check_writable(tmp_path / "link") == "No such file or directory"


def test_a_full_disk_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "out").mkdir()
    files.write_files(tmp_path / "out", {"a": b"old a", "b": b"old b"})

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        files.write_files(tmp_path / "out", {"a": b"new a", "b": b"new b"})
    assert {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()} == {"a": b"old a", "b": b"old b"}


def test_a_folder_that_cannot_be_made_says_why(tmp_path: Path):
    (tmp_path / "file").write_bytes(b"")
    assert files.check_writable(tmp_path / "file" / "below") == "Not a directory"


def test_a_folder_is_made_with_its_parents_and_each_is_flushed_into_the_one_above(tmp_path, monkeypatch):
    flushed = []
    monkeypatch.setattr(files, "sync_folder", flushed.append)
    files.make_folder(tmp_path / "a" / "b")
    assert (tmp_path / "a" / "b").is_dir()
    assert flushed == [tmp_path, tmp_path / "a"]
    files.make_folder(tmp_path / "a" / "b")
    assert len(flushed) == 2


@pytest.mark.parametrize("number", [errno.EINVAL, errno.ENOTSUP, errno.EIO])
def test_a_file_system_that_cannot_flush_folders_is_no_fault_and_a_broken_one_is(tmp_path, monkeypatch, number):
    def fsync(handle):
        raise OSError(number, "told")

    monkeypatch.setattr(files.os, "fsync", fsync)
    if number == errno.EIO:
        with pytest.raises(OSError, match="told"):
            files.sync_folder(tmp_path)
    else:
        files.sync_folder(tmp_path)


def test_the_system_s_errors_are_known_also_where_a_library_in_rust_tells_them():
    told = [OSError(28, "No space left"), Exception("No space left on device (os error 28)"), ValueError("no")]
    assert [files.of_the_system(error) for error in told] == [True, True, False]


@pytest.mark.parametrize("taken_by", ["file", "link", "folder"])
def test_nothing_is_left_of_what_had_the_name_of_a_folder(tmp_path: Path, taken_by: str):
    final, new, other = tmp_path / "checkpoint-1", tmp_path / ".new", tmp_path / "other"
    for folder in (new, other):
        folder.mkdir()
        (folder / "kept").touch()
    {"file": final.touch, "link": lambda: final.symlink_to(other), "folder": final.mkdir}[taken_by]()
    files.replace_folder(new, final)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["checkpoint-1", "other"]
    assert [path.name for path in (*final.iterdir(), *other.iterdir())] == ["kept", "kept"]
    assert not final.is_symlink()


@pytest.mark.parametrize(("name", "said"), [("a\0b", "embedded null byte"), ("a" * 300, "File name too long")])
@pytest.mark.parametrize("below", ["", "/below"])
@pytest.mark.parametrize("above", ["", "missing/"])
def test_a_name_that_no_folder_can_have_says_why(tmp_path: Path, name: str, said: str, above: str, below: str):
    assert files.check_writable(Path(f"{tmp_path}/{above}{name}{below}")) == said
    assert not list(tmp_path.iterdir())


def test_json_holds_no_control_characters_and_reads_back_the_same(tmp_path: Path):
    letters = [chr(code) for code in (*range(0xA0), 0x61C, 0x200E, 0x2028, 0x202E, 0x2066, 0xDC80, ord("ë"))]
    value = {"".join(letters): [f"\\{letter}\\\\{letter}" for letter in letters]}
    files.write_json(tmp_path / "a.json", value)
    text = (tmp_path / "a.json").read_text(encoding="utf-8")
    assert json.loads(text) == value
    assert "ë" in text
    assert "".join(text.split("\n")) == printable("".join(text.split("\n")))
