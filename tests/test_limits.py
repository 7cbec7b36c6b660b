"""JSON and TOML are read or refused in one line; names stay in their folder, globs end."""

import glob
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict

from wordorder.files import (
    is_plain_name,
    matches,
    one_line,
    parse_json,
    path_below,
    read_json,
    read_model,
    read_toml,
)


@pytest.mark.parametrize("text", [b"\xff", b"", b"{", b"[1,]", b"1" * 5000, b"nul", b"[" * 100_000])
def test_what_is_no_json_is_a_value_error(text: bytes):
    with pytest.raises(ValueError):  # noqa: PT011  # each has another message, of the parser
        parse_json(text)


def test_only_plain_files_are_read(tmp_path: Path):
    (tmp_path / "a.json").write_text("[1]")
    assert read_json(tmp_path / "a.json") == [1]
    (tmp_path / "a.toml").write_bytes(b"a = 1\r\n[b]\r\n")
    assert read_toml(tmp_path / "a.toml") == {"a": 1, "b": {}}
    (tmp_path / "a.toml").write_text("a = 1\n", encoding="utf-8-sig")  # as Notepad writes
    assert read_toml(tmp_path / "a.toml") == {"a": 1}
    (tmp_path / "a.toml").write_text("a = [1,")
    with pytest.raises(ValueError, match="at end of document"):
        read_toml(tmp_path / "a.toml")
    with pytest.raises(IsADirectoryError):
        read_json(tmp_path)
    os.mkfifo(tmp_path / "pipe")  # which would never end
    with pytest.raises(OSError, match="it is a pipe or a device"):
        read_toml(tmp_path / "pipe")
    with pytest.raises(FileNotFoundError):
        read_json(tmp_path / "missing")


@pytest.mark.parametrize(
    "name",
    ["", ".", "..", "../x", "a/b", "/etc/passwd", "a\\b", "C:x", "a\x00b", "a\nb", "x" * 300, None, 3, ["a"], "\u2028"],
)
def test_names_that_lead_elsewhere_are_not_plain(name: object):
    assert not is_plain_name(name)


@pytest.mark.parametrize("name", ["", ".", "../x", "a/../../x", "/etc/passwd", "a//b", "a\\..\\x", "link/x"])
def test_a_path_from_outside_never_leaves_its_folder(tmp_path: Path, name: str):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "link").symlink_to(tmp_path)
    assert path_below(tmp_path / "in", "a/b.json") == tmp_path / "in" / "a" / "b.json"
    with pytest.raises(ValueError, match="leads out of its folder"):
        path_below(tmp_path / "in", name)


@given(st.text(st.characters(codec="utf-8"), max_size=30))
def test_a_plain_name_stays_in_its_folder(name: str):
    if is_plain_name(name):
        folder = Path("folder")
        assert os.path.normpath(folder / name) == str(folder / name)
        assert (folder / name).parent == folder


@pytest.mark.parametrize(
    "name", ["model.safetensors", "model-00001-of-00002.safetensors", "é", "...", "a b", ".hidden"]
)
def test_ordinary_names_are_plain(name: str):
    assert is_plain_name(name)


def test_a_message_is_one_short_line_without_control_characters():
    assert one_line("a\n\x1b[2J b\u2028c") == "a \\x1b[2J b c"
    assert one_line(KeyError()) == "KeyError"
    assert len(one_line("x" * 1000)) < 310


class Kept(BaseModel):
    model_config = ConfigDict(strict=True)
    steps: int
    scores: dict[str, float]


def test_all_faults_of_a_file_are_one_error(tmp_path: Path):
    path = tmp_path / "a.json"
    path.write_text('{"steps": "six", "scores": {"loss": null}}')
    with pytest.raises(ValueError, match=r"steps must be a valid integer; scores\.loss must be a valid number"):
        read_model(path, Kept)
    path.write_text('{"scores": {}}')
    with pytest.raises(ValueError, match="steps is missing"):
        read_model(path, Kept)
    path.write_text("[]")
    with pytest.raises(ValueError, match="it must be a valid dictionary"):
        read_model(path, Kept)
    path.write_text('{"steps": 6, "scores": {"loss": 1}}')
    assert read_model(path, Kept).scores == {"loss": 1.0}


def looped(folder: Path) -> Path:
    """Two links to a folder in itself: a walk that follows them never ends."""
    (folder / "a" / "b").mkdir(parents=True)
    for name in ("one", "two", "three"):
        (folder / "a" / name).symlink_to(folder, target_is_directory=True)
    (folder / "a" / "b" / "text.txt").write_text("x")
    return folder


def test_a_glob_does_not_go_round_in_links(tmp_path: Path):
    looped(tmp_path / "texts")
    (tmp_path / "other").symlink_to(tmp_path / "texts" / "a" / "b", target_is_directory=True)
    found = sorted(Path(path).relative_to(tmp_path).as_posix() for path in matches(str(tmp_path / "**" / "*.txt")))
    assert found == ["other/text.txt", "texts/a/b/text.txt"]  # a link that leads elsewhere is followed


@pytest.mark.parametrize("pattern", ["**/*.py", "*/**/test_*.py", "**/data/**/*.py", "./data/*.py", "nowhere/**/*.py"])
def test_a_glob_without_loops_is_the_standard_library_s(pattern: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(Path(__file__).parent)
    paths = sorted(str(Path(path)) for path in matches(pattern))
    assert paths == sorted(str(Path(path)) for path in glob.glob(pattern, recursive=True))
