"""Limits on what a file may ask for: sizes, depth, names, and what a safetensors header claims."""

import glob
import json
import os
import struct
import tracemalloc
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict
from safetensors.torch import save_file

from wordorder import limits
from wordorder.limits import (
    check_depth,
    is_plain_name,
    matches,
    one_line,
    parse_json,
    parse_toml,
    read_json,
    read_model,
    read_toml,
    safetensors_header,
)


def nested(levels: int) -> object:
    value: object = 1
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 100_000, "[" * 101 + "]" * 101])
def test_json_that_is_nested_too_deep_is_one_fault(text: str):
    with pytest.raises(ValueError, match=r"nested|Expecting"):
        parse_json(text)


def test_what_is_nested_as_deep_as_allowed_is_read():
    assert parse_json(json.dumps(nested(100))) == nested(100)
    with pytest.raises(ValueError, match="more than 100 deep"):
        parse_json(json.dumps(nested(101)))
    check_depth({"a": nested(99)})
    with pytest.raises(ValueError, match="deep"):
        check_depth({"a": nested(100)})


@pytest.mark.parametrize("text", [b"\xff", b"", b"{", b"[1,]", b"1" * 5000, b"nul"])
def test_what_is_no_json_is_a_value_error(text: bytes):
    with pytest.raises(ValueError):  # noqa: PT011  # each has another message, of the parser
        parse_json(text)


@pytest.mark.parametrize(
    "text", ["a = " + "[" * 5000, "a = " + "9" * 5000, ".".join("a" * 2000) + " = 1", "[a", "a = 1" * 300_000]
)
def test_toml_is_bounded_alike(text: str):
    with pytest.raises(ValueError):  # noqa: PT011  # each has another message, of the parser
        parse_toml(text)


DEEP = ".".join("a" * 30_000)


@pytest.mark.parametrize(
    "text",
    [
        f"{DEEP} = 1",
        f"[{DEEP}]",
        f"[[{DEEP}]]",
        f"value = {{{DEEP} = 1}}",
        " . ".join(['"a"'] * 30_000) + " = 1",
        f's = """x"""""\n{DEEP} = 1',  # two quotation marks of the string stand before its end
        f"s = '''x'''\nt = '#' # \"\n{DEEP} = 1",
    ],
)
def test_a_dotted_toml_key_is_counted_before_it_is_parsed(text: str):
    tracemalloc.start()
    with pytest.raises(ValueError, match="dotted key of more than 16 parts"):
        parse_toml(text)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20 * 2**20  # the parser takes 5 GB


@pytest.mark.parametrize(
    "text",
    [
        ".".join("abcdefghijklmnop") + " = 1",
        f"a = '{DEEP}' # {DEEP}",
        f'a = "{DEEP}\\" {DEEP}"',
        f'a = """\n{DEEP}\n"""',
        f"a = '''\n{DEEP}'''",
        "a = [" + ", ".join(["0.5"] * 99) + "]",
    ],
)
def test_dots_elsewhere_are_no_parts_of_a_key(text: str):
    assert list(parse_toml(text)) == ["a"]


def test_only_plain_files_of_bounded_size_are_read(tmp_path: Path):
    (tmp_path / "a.json").write_text("[1]")
    assert read_json(tmp_path / "a.json") == [1]
    with pytest.raises(ValueError, match="has 3 bytes, more than the 2"):
        read_json(tmp_path / "a.json", most=2)
    with pytest.raises(IsADirectoryError):
        read_json(tmp_path)
    os.mkfifo(tmp_path / "pipe")  # which would never end
    with pytest.raises(ValueError, match="is no file"):
        read_toml(tmp_path / "pipe")
    with pytest.raises(FileNotFoundError):
        read_json(tmp_path / "missing")


@pytest.mark.parametrize(
    "name",
    ["", ".", "..", "../x", "a/b", "/etc/passwd", "a\\b", "C:x", "a\x00b", "a\nb", "x" * 300, None, 3, ["a"], "\u2028"],
)
def test_names_that_lead_elsewhere_are_not_plain(name: object):
    assert not is_plain_name(name)


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


def written(path: Path, header: object, numbers: bytes = b"", length: int | None = None) -> Path:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text) if length is None else length) + text + numbers)
    return path


def test_a_header_is_read_as_safetensors_writes_it(tmp_path: Path):
    tensors = {
        "a": torch.ones(2, 3),
        "b": torch.ones(4, dtype=torch.bfloat16),
        "c": torch.tensor(1),
        "d": torch.ones(0, 5),
    }
    save_file(tensors, tmp_path / "t.safetensors", metadata={"format": "pt"})
    found = safetensors_header(tmp_path / "t.safetensors")
    assert {name: shape.shape for name, shape in found.items()} == {name: tuple(t.shape) for name, t in tensors.items()}
    assert found["b"].kind == "BF16"


def entry(**changes: object) -> dict[str, object]:
    return {"dtype": "F32", "shape": [2], "data_offsets": [0, 8], **changes}


@pytest.mark.parametrize(
    ("header", "said"),
    [
        ({"a": entry(shape=[2**50])}, "invalid shape"),
        ({"a": entry(shape=[2**61])}, "overflow"),
        ({"a": entry(shape=[-2])}, "expected usize"),
        ({"a": entry(shape=[2.0])}, "expected usize"),
        ({"a": entry(dtype="F31")}, "unknown variant"),
        ({"a": entry(dtype=None)}, "header that is wrong"),
        ({"a": entry(data_offsets=[0, 16], shape=[4])}, "header that is wrong"),
        ({"a": entry(data_offsets=[8, 0])}, "invalid offset"),
        ({"a": entry(data_offsets=[0])}, "header that is wrong"),
        ({"a": entry(), "b": entry()}, "invalid offset"),
        ({"a": 3}, "expected struct"),
        ([], "invalid JSON"),
        (b"[" * 5000, "invalid JSON"),
        (b"\xff\xff", "header that is wrong"),
    ],
)
def test_a_header_that_claims_what_is_not_there_is_refused(tmp_path: Path, header: object, said: str):
    path = written(tmp_path / "t.safetensors", header, b"\0" * 8)
    with pytest.raises(ValueError, match=said):
        safetensors_header(path)


def test_the_length_of_a_header_is_bounded_before_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with pytest.raises(ValueError, match="cut short"):
        safetensors_header(written(tmp_path / "t.safetensors", {}, length=2**62))
    (tmp_path / "short.safetensors").write_bytes(b"\x01")
    with pytest.raises(ValueError, match="cut short"):
        safetensors_header(tmp_path / "short.safetensors")
    monkeypatch.setattr(limits, "MOST_HEADER", 20)
    with pytest.raises(ValueError, match="more than the 20"):
        safetensors_header(written(tmp_path / "t.safetensors", {"a": entry()}, b"\0" * 8))


def looped(folder: Path) -> Path:
    """Two links to a folder in itself: a walk that follows them never ends."""
    (folder / "a" / "b").mkdir(parents=True)
    for name in ("one", "two", "three"):
        (folder / "a" / name).symlink_to(folder, target_is_directory=True)
    (folder / "a" / "b" / "text.txt").write_text("x")
    return folder


def test_a_glob_does_not_go_round_in_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    looped(tmp_path / "texts")
    (tmp_path / "other").symlink_to(tmp_path / "texts" / "a" / "b", target_is_directory=True)
    found = sorted(Path(path).relative_to(tmp_path).as_posix() for path in matches(str(tmp_path / "**" / "*.txt")))
    assert found == ["other/text.txt", "texts/a/b/text.txt"]  # a link that leads elsewhere is followed
    monkeypatch.setattr(limits, "MOST_FOLDERS", 2)
    with pytest.raises(ValueError, match="goes through more than 2 folders"):
        list(matches(str(tmp_path / "**" / "*.csv")))


@pytest.mark.parametrize("pattern", ["**/*.py", "*/**/test_*.py", "**/data/**/*.py", "./data/*.py", "nowhere/**/*.py"])
def test_a_glob_without_loops_is_the_standard_library_s(pattern: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(Path(__file__).parent)
    paths = sorted(str(Path(path)) for path in matches(pattern))
    assert paths == sorted(str(Path(path)) for path in glob.glob(pattern, recursive=True))
