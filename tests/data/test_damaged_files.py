"""Files of rows: every row is read, and what cannot be read is named, or skipped and counted."""

import csv
import gzip
import io
import json
import os
import random
import tracemalloc
from pathlib import Path

import pytest
from documents import settings

from wordorder.data import ReadingLog
from wordorder.data.readers import ENDINGS, READERS, Fault, Note, Reading, Row, format_of
from wordorder.data.readers.lines import lines_of
from wordorder.errors import BadInput
from wordorder.tasks.preparation import read as read_texts

TEXTS = ["One, two.", 'He said "three"\nand left.', "Viërr — fünf 😀", "\tsix", "seven\r\neight"]


def write(path, texts=TEXTS):
    rows = [{"text": text, "n": number} for number, text in enumerate(texts)]
    if path.name.endswith((".jsonl", ".jsonl.gz")):
        content = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()
        path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    elif path.suffix == ".parquet":
        pytest.importorskip("pyarrow")
        from pyarrow import Table, parquet

        parquet.write_table(Table.from_pylist(rows), path, row_group_size=2)
    else:
        file = io.StringIO(newline="")
        writer = csv.DictWriter(file, ["text", "n"])
        writer.writeheader()
        writer.writerows(rows)
        path.write_bytes(("\ufeff" + file.getvalue()).encode())
    return path


def read(path, **fields):
    """The texts of a file, and the log of what was passed over."""
    log = ReadingLog(skip=True)
    texts = read_texts(*settings(source=str(path), task="masked-lm", skip_unreadable=True, **fields), log)
    return [document.text for document in texts], log


def found_in(path, columns=None):
    return list(READERS[format_of(path)].read(path, Reading(columns=columns)))


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz", "a.csv", "a.parquet"])
def test_every_row_is_read(tmp_path, name):
    found = found_in(write(tmp_path / name))
    # an end of a line within quotes is the same in every file
    assert [one.values["text"] for one in found] == [
        text.replace("\r\n", "\n") if name == "a.csv" else text for text in TEXTS
    ]


def test_a_table_without_quotes_or_names(tmp_path):
    (tmp_path / "a.tsv").write_text('1\ta "quoted\n2\tb\n')
    found = found_in(tmp_path / "a.tsv", ("n", "text"))
    assert [one.values for one in found] == [{"n": "1", "text": 'a "quoted'}, {"n": "2", "text": "b"}]


ENDS = {
    "a.jsonl": [b"", b'{"text": "one"}', b'{"text": "two"}'],
    "a.csv": [b"", b"text,n", b"one,1", b'"two",2'],
    "a.tsv": [b"", b"text\tn", b"one\t1", b" \t ", b"two\t2"],
}


@pytest.mark.parametrize("name", ENDS)
@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_lines_may_end_in_any_way_and_blank_ones_are_passed_over(tmp_path, name, end):
    (tmp_path / name).write_bytes(end.join(ENDS[name]))
    found = found_in(tmp_path / name)
    assert [one.values.get("text") for one in found] == ["one", "two"]
    lines = len(ENDS[name]) - 1 - (name == "a.tsv"), len(ENDS[name])
    assert [one.place for one in found] == [f"line {line}" for line in lines]
    texts = read_texts(*settings(source=str(tmp_path / name), task="masked-lm"))
    assert ([document.text for document in texts], texts.empty) == (["one", "two"], 0)


def test_what_is_wrong_with_a_line_of_json_is_counted_in_that_line(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(b'{"text": "one"}\n{"text": \n')
    expected = f"{tmp_path / 'a.jsonl'} line 2 is not JSON: Expecting value: line 1 column 10 (char 9)"
    assert found_in(tmp_path / "a.jsonl")[1] == Fault(expected)
    with pytest.raises(BadInput) as caught:
        read_texts(*settings(source=str(tmp_path / "a.jsonl"), task="masked-lm"))
    (fault,) = caught.value.faults
    assert fault == f"{expected}; set data.skip_unreadable=true to pass over what cannot be read"


DAMAGE = {
    "json": ("a.jsonl", b'{"text": "one"}\n{"text": \n{"text": "three"}\n', "line 2 is not JSON"),
    "list": ("a.jsonl", b'{"text": "one"}\n[1]\n{"text": "three"}\n', "line 2 is not a JSON object"),
    "bytes": ("a.jsonl", b'{"text": "one"}\n{"text": "\xff"}\n{"text": "three"}\n', "line 2 is not UTF-8"),
    "type": ("a.jsonl", b'{"text": "one"}\n{"text": 7}\n{"text": "three"}\n', "holds int, not text"),
    "half": ("a.jsonl", b'{"text": "one"}\n{"text": "\\ud800"}\n{"text": "three"}\n', "half of a surrogate pair"),
    "deep": ("a.jsonl", b'{"text": "one"}\n{"text": ' + b"[" * 9000 + b'\n{"text": "three"}\n', "line 2 is not JSON"),
    "fields": ("a.csv", b"text,n\none,1\ntwo,2,3\nthree,3\n", "has 3 fields where the first line names 2"),
    "quotes": ("a.csv", b'text,n\none,1\n"two" x,2\nthree,3\n', "is not CSV"),
    "cell": ("a.csv", b"text,n\none,1\n\xfe,2\nthree,3\n", "is not UTF-8"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_line_is_named_or_skipped_and_counted(tmp_path, damage):
    name, content, expected = DAMAGE[damage]
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(BadInput) as caught:
        read_texts(*settings(source=str(path), task="masked-lm"))
    (fault,) = caught.value.faults
    assert str(path) in fault
    assert expected in fault
    texts, log = read(path)
    assert texts == ["one", "three"]
    (detail,) = log.summary()["unreadable"].pop("first")
    assert str(path) in detail
    assert expected in detail
    assert log.summary()["unreadable"] | {"first": []} == {"count": 1, "files": {str(path): 1}, "first": []}


def test_lines_and_rows_that_are_skipped_are_each_counted_once_and_are_not_empty(tmp_path):
    rows = [{"text": 17 if n in (3, 5) else f"text {n}", "label": None if n == 7 else "ab"[n % 2]} for n in range(20)]
    path = tmp_path / "a.jsonl"
    path.write_text("\n".join([*map(json.dumps, rows), "{broken", '{"text": " ", "label": "a"}', ""]))
    log = ReadingLog(skip=True)
    data, options = settings(source=str(path), task="classification", skip_unreadable=True)
    texts = read_texts(data, options, log)
    assert (len(texts), texts.empty, log.number("unreadable")) == (17, 1, 4)


def test_files_that_are_cut_off_or_nothing_at_all(tmp_path):
    whole = gzip.compress(b"".join(json.dumps({"text": f"text {n} {n * n}"}).encode() + b"\n" for n in range(3000)))
    (tmp_path / "a.jsonl.gz").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "b.parquet").write_bytes(b"no such thing")
    write(tmp_path / "c.jsonl", ["whole"])
    (tmp_path / "d.txt").write_bytes(b"Caf\xe9")
    for names, expected in (
        ("a.*", r"a\.jsonl\.gz is cut off"),
        ("b.*", "not a Parquet"),
        ("d.*", "d.txt line 1 is not UTF-8"),
    ):
        with pytest.raises(BadInput, match=expected):
            read_texts(*settings(source=str(tmp_path / names), task="masked-lm"))
    texts, log = read(tmp_path / "*")
    assert texts[-1] == "whole"
    assert 500 < len(texts) < 3000
    assert log.number("unreadable") == 3


def test_rows_that_an_open_quotation_mark_swallows_are_named(tmp_path):
    rows = [f"text {n}" for n in range(1, 100)]
    rows[9] = '"' + rows[9]
    (tmp_path / "a.csv").write_text("\n".join(["text", *rows]) + "\n")
    texts, log = read(tmp_path / "a.csv")
    assert texts == rows[:9]
    (fault,) = log.summary()["unreadable"]["first"]
    assert "lines 11 to 100 are not CSV" in fault


def test_a_disk_that_fails_for_a_moment_is_not_damage(tmp_path, monkeypatch):
    parquet = pytest.importorskip("pyarrow.parquet")
    path = write(tmp_path / "a.parquet")

    def fails(*args, **options):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(parquet, "ParquetFile", fails)
    with pytest.raises(OSError, match="Input/output error"):
        list(READERS["parquet"].read(path, Reading()))


def test_a_damaged_row_group_is_skipped(tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    path = write(tmp_path / "a.parquet", [f"text {n} " + "x" * n for n in range(10)])
    content = bytearray(path.read_bytes())
    column = parquet.ParquetFile(path).metadata.row_group(1).column(0)
    start = column.dictionary_page_offset or column.data_page_offset
    content[start : start + column.total_compressed_size] = b"\xff" * column.total_compressed_size
    path.write_bytes(content)
    texts, log = read(path)
    assert [text[:6] for text in texts] == [f"text {n}" for n in (0, 1, 4, 5, 6, 7, 8, 9)]
    (fault,) = log.summary()["unreadable"]["first"]
    assert "row group 1 (rows 3 to 4) cannot be read" in fault


def test_a_wrong_column_is_an_error_even_where_damage_is_skipped(tmp_path):
    write(tmp_path / "a.jsonl")
    with pytest.raises(BadInput, match="has no column 'body'; its columns are text, n; name the right one by"):
        read(tmp_path / "a.jsonl", text_column="body")


@pytest.mark.parametrize("name", [*(f"a{ending}" for ending in ENDINGS), "a.jsonl.gz"])
def test_a_pipe_is_named_and_not_waited_for(tmp_path, name):
    os.mkfifo(tmp_path / name)
    with pytest.raises(BadInput, match=rf"{name} .*it is a pipe or a device, not a file"):
        read_texts(*settings(source=str(tmp_path), task="masked-lm"))


DAMAGED = {
    "empty": b"",
    "zeros": bytes(1_000),
    "noise": random.Random(0).randbytes(1_000),
    "latin-1": "Käse und Brot\n\n".encode("latin-1") * 50,
    "half a mark": "\ufeff".encode()[:2],
    "binary header": b"PAR1" + bytes(100) + b"PAR1",
    "open markup": b"<a><b>text</b" * 20,
}


@pytest.mark.parametrize("content", DAMAGED.values(), ids=DAMAGED)
@pytest.mark.parametrize("name", READERS)
def test_whatever_lies_in_a_file_a_reader_says_and_does_not_raise(tmp_path, name, content):
    path = tmp_path / f"a{READERS[name].endings[0]}"
    path.write_bytes(content)
    for item in READERS[name].read(path, Reading(needed=("text",), alone=True)):
        assert isinstance(item, Row | Fault | Note)
        if isinstance(item, Fault):
            assert str(path) in item.text
    if not content:
        (fault,) = READERS[name].read(path, Reading())
        assert fault == Fault(f"{path} is empty")


class Counted(io.FileIO):
    """A file that counts the bytes that are read from it."""

    count = 0

    def readinto(self, buffer):
        size = super().readinto(buffer)
        Counted.count += size
        return size


@pytest.mark.parametrize("name", ["a.jsonl", "a.csv", "a.tsv"])
def test_zeros_after_a_good_line_are_not_read_to_their_end(tmp_path, monkeypatch, name):
    good = b'{"text": "a"}\n' if name == "a.jsonl" else b"text\na\n"
    (tmp_path / name).write_bytes(good)
    os.truncate(tmp_path / name, 2**26)
    monkeypatch.setattr(Counted, "count", 0)
    monkeypatch.setattr(Path, "open", lambda self, mode: io.BufferedReader(Counted(self, mode)))
    row, broken = found_in(tmp_path / name)
    assert row.values == {"text": "a"}
    line = good.count(b"\n") + 1
    assert broken == Fault(f"{tmp_path / name} line {line} is binary: it holds a byte that is 0")
    assert 0 < Counted.count < 2**22


def test_unpacked_zeros_after_a_good_line_are_not_held_in_memory(tmp_path):
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(b'{"text": "a"}\n' + bytes(2**26)))
    tracemalloc.start()
    row, broken = found_in(tmp_path / "a.jsonl.gz")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert row.values == {"text": "a"}
    assert "line 2 is binary" in broken.text
    assert peak < 2**24


@pytest.mark.parametrize("length", [2**20 - 1, 2**20, 2**20 + 1, 2**21, 2**21 + 7])
@pytest.mark.parametrize("end", ["\n", ""])
def test_a_line_of_any_length_is_one_line(tmp_path, length, end):
    long = json.dumps({"text": "x" * (length - len('{"text": ""}\n'))}) + "\n"
    assert len(long) == length
    (tmp_path / "a.jsonl").write_text(long + long + '{"text": "last"}' + end)
    assert [len(one.values["text"]) for one in found_in(tmp_path / "a.jsonl")] == [length - 13, length - 13, 4]


@pytest.mark.parametrize("length", [2**20 - 1, 2**20, 2**20 + 1])
def test_a_return_within_a_long_line_does_not_end_it(tmp_path, length):
    (tmp_path / "a.txt").write_bytes(b"a" * (length - 1) + b"\rb\nc\n")
    assert [len(line) for _, line in lines_of(tmp_path / "a.txt", end="\n")] == [length + 2, 2]


def test_a_short_line_with_a_zero_is_passed_over_alone(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(b'{"text": "a\0"}\n{"text": "b"}\n')
    broken, row = found_in(tmp_path / "a.jsonl")
    assert "line 1 is binary" in broken.text
    assert row.values == {"text": "b"}
