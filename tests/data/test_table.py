"""Texts in the cache: the table of an earlier run is used while the files are as they were, and never after."""

import json
import os
import shutil
import time
from pathlib import Path

import pyarrow.parquet
import pytest
from documents import read_documents, settings

from wordorder.data import Text, Texts, cache, table
from wordorder.data.reading_log import ReadingLog
from wordorder.errors import BadInput
from wordorder.tasks.preparation import read

ROWS = [{"text": f"Text {number}.", "label": "ab"[number % 2]} for number in range(30)]


def write(path: Path, rows=ROWS, *, age: float = 10.0) -> Path:
    """Write rows that were changed so many seconds ago: the time of a file that is younger proves nothing."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    os.utime(path, (time.time() - age,) * 2)
    return path


@pytest.fixture
def reads(monkeypatch):
    """How often the rows of a source were read."""
    calls, original = [], table._read

    def counting(*arguments):
        calls.append(arguments)
        return original(*arguments)

    monkeypatch.setattr(table, "_read", counting)
    return calls


def config(source, task="classification", **fields):
    return settings(source=str(source), task=task, **fields)


def test_a_second_run_takes_the_table_of_the_first(tmp_path, reads):
    path = write(tmp_path / "a.jsonl", [*ROWS, {"text": " ", "label": "a"}])
    first = read(*config(path), cache_dir=tmp_path / "cache")
    second = read(*config(path), cache_dir=tmp_path / "cache")
    assert len(reads) == 1
    assert list(first) == list(second) == [Text(**row) for row in ROWS]
    assert first.empty == second.empty == 1
    if (maps := Path("/proc/self/maps")).exists():
        (mapped,) = (tmp_path / "cache" / "texts").glob("*.arrow")
        assert str(mapped) in maps.read_text(), "mapped, not read"


def test_what_was_passed_over_is_said_again(tmp_path, reads):
    rows = [*ROWS, {"text": 5, "label": "a"}]
    path, logs = write(tmp_path / "a.jsonl", rows), [ReadingLog(skip=True) for _ in range(2)]
    for log in logs:
        read(*config(path, skip_unreadable=True), log, cache_dir=tmp_path / "cache")
    assert len(reads) == 1
    assert logs[0].lines() == logs[1].lines()
    assert logs[1].summary()["unreadable"]["count"] == 1


@pytest.mark.parametrize(
    "change",
    [
        lambda path: write(path, ROWS[:-1]),
        lambda path: write(path, [*ROWS[:-1], {"text": "Text 99.", "label": "b"}], age=5),  # of the same size
        lambda path: os.utime(path, (time.time() - 7,) * 2),
    ],
    ids=["size", "content", "time"],
)
def test_a_changed_file_is_read_again(tmp_path, reads, change):
    path = write(tmp_path / "a.jsonl")
    read(*config(path), cache_dir=tmp_path / "cache")
    change(path)
    found = read(*config(path), cache_dir=tmp_path / "cache")
    assert len(reads) == 2
    assert [text.text for text in found] == [json.loads(line)["text"] for line in path.read_text().splitlines()]


@pytest.mark.parametrize("fields", [{"label_column": "text"}, {"file_encoding": "cp1252"}, {"skip_unreadable": True}])
def test_another_way_to_read_is_another_table(tmp_path, reads, fields):
    path = write(tmp_path / "a.jsonl", [{"text": "ab"[n % 2] * 9, "label": "ab"[n % 2]} for n in range(9)])
    read(*config(path), cache_dir=tmp_path / "cache")
    read(*config(path, **fields), cache_dir=tmp_path / "cache")
    assert len(reads) == 2


def test_a_file_that_was_written_just_now_proves_nothing(tmp_path, reads):
    """Two versions of one size within a tick of the clock have the same stamp."""
    path = write(tmp_path / "a.jsonl", age=0)
    for _ in range(2):
        read(*config(path), cache_dir=tmp_path / "cache")
    assert len(reads) == 2


def test_a_cut_or_damaged_table_is_made_again(tmp_path, reads):
    path, folder = write(tmp_path / "a.jsonl"), tmp_path / "cache"
    read(*config(path), cache_dir=folder)
    (file,) = (folder / "texts").glob("*.arrow")
    whole = file.read_bytes()
    middle = len(whole) // 2
    for number, damaged in enumerate((whole[:-1], b"", whole[:middle] + b"\x01" + whole[middle + 1 :]), start=2):
        file.write_bytes(damaged)
        assert list(read(*config(path), cache_dir=folder)) == [Text(**row) for row in ROWS]
        assert len(reads) == number
    file.with_suffix(".json").unlink()  # a run that was killed before it wrote its note
    read(*config(path), cache_dir=folder)
    assert len(reads) == 5


def test_a_killed_run_leaves_nothing_that_counts(tmp_path, monkeypatch):
    path = write(tmp_path / "a.jsonl")
    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", lambda *names: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            read(*config(path), cache_dir=tmp_path / "cache")
    assert list((tmp_path / "cache" / "texts").iterdir()) == []
    assert len(read(*config(path), cache_dir=tmp_path / "cache")) == 30


def test_a_folder_that_cannot_be_written_is_a_warning(tmp_path, reads):
    path = write(tmp_path / "a.jsonl")
    (tmp_path / "file").write_text("")
    for _ in range(2):
        with pytest.warns(UserWarning, match="cannot cache in .*set WORDORDER_CACHE"):
            assert len(read(*config(path), cache_dir=tmp_path / "file" / "cache")) == 30
    assert len(reads) == 2


def test_a_full_disk_is_one_line(tmp_path, monkeypatch):
    path = write(tmp_path / "a.jsonl")

    def full(*names):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(cache.os, "replace", full)
    with pytest.raises(BadInput, match=r"has no room for the cache of the texts: make room, or set WORDORDER_CACHE"):
        read(*config(path), cache_dir=tmp_path / "cache")


def test_what_could_not_be_read_for_a_while_is_read_the_next_time(tmp_path, monkeypatch):
    (tmp_path / "in").mkdir()
    paths = [write(tmp_path / "in" / name) for name in ("a.jsonl", "b.jsonl")]
    sections, original = config(tmp_path / "in", skip_unreadable=True), Path.open

    def refuse(path, *arguments):
        if path == paths[1]:
            raise PermissionError(13, "Permission denied")
        return original(path, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "open", refuse)
        assert len(read(*sections, cache_dir=tmp_path / "cache")) == 30
    assert len(read(*sections, cache_dir=tmp_path / "cache")) == 60


def test_a_write_that_fails_is_no_fault_of_a_file(tmp_path, monkeypatch):
    path = write(tmp_path / "a.jsonl")

    def fail(self, text):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(table._Writer, "add", fail)
    with pytest.raises(OSError, match="Input/output error"):
        read(*config(path, skip_unreadable=True), cache_dir=tmp_path / "cache")


def test_a_copy_that_keeps_size_and_time_is_another_file(tmp_path, reads):
    path, other = write(tmp_path / "a.jsonl"), tmp_path / "b.jsonl"
    write(other, [row | {"label": "ba"[number % 2]} for number, row in enumerate(ROWS)])
    os.utime(other, ns=(path.stat().st_mtime_ns,) * 2)
    first = read(*config(path), cache_dir=tmp_path / "cache")
    shutil.copy2(other, path)
    second = read(*config(path), cache_dir=tmp_path / "cache")
    assert [text.label for text in first] != [text.label for text in second]


def test_texts_of_many_batches_are_in_order(monkeypatch):
    monkeypatch.setattr(table, "_ROWS", 7)
    texts = [Text(text=f"Text {number}.", label=str(number), length=number) for number in range(50)]
    found = Texts.of(texts)
    assert list(found) == texts
    rows = table.np.array([0, 6, 7, 20, 49])
    assert list(found.strings("text", rows)) == [texts[row].text for row in rows]
    assert list(found.column("label", rows)) == [texts[row].label for row in rows]
    assert list(found.column("label", rows)[1:3]) == ["6", "7"]
    assert found.numbers("length").tolist() == list(range(50))
    assert [value.ljust(12, b"\0") for value in found.hashes("text_hash").tolist()] == [
        table.short_hash(text.text) for text in texts
    ]


# columns, delimiters, quotation marks and encodings that the recipe names


def test_a_column_may_lie_within_another(tmp_path):
    rows = [
        {"messages": [{"role": "user", "content": f"Question {n}"}], "meta": {"class": "ab"[n % 2]}} for n in range(6)
    ]
    path = write(tmp_path / "chat.jsonl", rows)
    found = read_documents(config(path, text_column="messages.0.content", label_column="meta.class"))
    assert [(one.text, one.label) for one in found] == [(f"Question {n}", "ab"[n % 2]) for n in range(6)]
    with pytest.raises(BadInput, match=r"has no column 'messages.1.content'; its columns are messages, meta"):
        read_documents(config(path, text_column="messages.1.content", label_column="meta.class"))


@pytest.mark.parametrize(
    ("content", "fields", "texts"),
    [
        ("text;n\none, two;1\n", {"delimiter": ";"}, ["one, two"]),
        ('text,n\n"one ""two""",1\n', {}, ['one "two"']),
        ('text,n\n"one,1\n', {"quoting": "none"}, ['"one']),
        ("text|n\na|1\n", {"delimiter": "|"}, ["a"]),
    ],
)
def test_tables_are_read_as_the_recipe_says(tmp_path, content, fields, texts):
    (tmp_path / "a.csv").write_text(content)
    assert [one.text for one in read_documents(config(tmp_path / "a.csv", "masked-lm", **fields))] == texts


def test_a_quoted_field_of_a_tsv_file_is_told_with_its_remedy(tmp_path):
    (tmp_path / "a.tsv").write_text('text\tn\n"He said ""no"" twice"\t1\n')
    log = ReadingLog()
    assert [one.text for one in read_documents(config(tmp_path / "a.tsv", "masked-lm"), log)] == [
        '"He said ""no"" twice"'
    ]
    (note,) = log.lines()
    assert "a.tsv line 2 has a field in quotation marks" in note
    assert 'set data.quoting="standard"' in note
    log = ReadingLog()
    sections = config(tmp_path / "a.tsv", "masked-lm", quoting="standard")
    assert [one.text for one in read_documents(sections, log)] == ['He said "no" twice']
    assert log.lines() == []


@pytest.mark.parametrize("encoding", ["cp1252", "utf-16", "utf-16-le", "shift_jis", "utf-8-sig"])
@pytest.mark.parametrize("name", ["a.csv", "a.txt", "a.jsonl", "a.tsv", "a.tokens"])
def test_a_file_of_another_encoding(tmp_path, encoding, name):
    text = "\u3042\u3044" if encoding == "shift_jis" else "Gr\u00fc\u00dfe"
    content = {
        "a.jsonl": json.dumps({"text": text}, ensure_ascii=False),
        "a.txt": text,
        "a.tokens": text,
    }.get(name, f"text\n{text}")
    (tmp_path / name).write_bytes(f"{content}\n".encode(encoding))
    sections = config(tmp_path / name, "masked-lm", file_encoding=encoding)
    assert [one.text.strip() for one in read_documents(sections)] == [text]


@pytest.mark.parametrize(("text", "told"), [("Grüße", True), ("Gruesse", False), ("Grüße".encode("cp1252"), False)])
def test_text_that_is_utf_8_where_another_encoding_was_said_is_told_of(tmp_path, text, told):
    (tmp_path / "a.csv").write_bytes(b"text\n" + (text if isinstance(text, bytes) else text.encode()) + b"\n")
    log = ReadingLog()
    for _ in ("read", "from the cache"):
        log = ReadingLog()
        read(*config(tmp_path / "a.csv", "masked-lm", file_encoding="cp1252"), log)
        assert any("reads as UTF-8; is data.file_encoding=cp1252 right?" in note for note in log.notes) == told


@pytest.mark.parametrize("name", ["a.csv.xz", "a.csv.gz", "pipe.csv"])
@pytest.mark.timeout(60)
def test_a_file_that_cannot_be_looked_at_for_utf_8_is_a_fault_in_one_line(tmp_path, name):
    os.mkfifo(tmp_path / name) if name.startswith("pipe") else (tmp_path / name).write_bytes(b"no such format")
    with pytest.raises(BadInput, match=r"is not a .* file, or is damaged|it is a pipe or a device"):
        read(*config(tmp_path / name, "masked-lm", file_encoding="cp1252"))


def test_an_encoding_without_its_mark_is_a_fault(tmp_path):
    for name in ("a.txt", "a.csv"):
        (tmp_path / name).write_bytes(b"text\nplain\n")
        with pytest.raises(BadInput, match=r"is not utf-16: .*set data\.file_encoding to the right one"):
            read(*config(tmp_path / name, "masked-lm", file_encoding="utf-16"))


def test_a_header_that_holds_its_own_delimiter_in_quotes_is_one_column(tmp_path):
    (tmp_path / "a.csv").write_text('"text, cleaned"\n"one, two"\n')
    sections = config(tmp_path / "a.csv", "masked-lm", text_column="text, cleaned")
    assert [one.text for one in read_documents(sections)] == ["one, two"]


def test_a_column_of_parquet_may_have_a_dot_in_its_name(tmp_path):
    rows = [{"a": 1, "a.b": "flat", "c": {"d": "deep"}, "label": "x"}]
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "a.parquet")
    for name, text in (("a.b", "flat"), ("c.d", "deep")):
        sections = config(tmp_path / "a.parquet", "masked-lm", text_column=name)
        assert [one.text for one in read_documents(sections)] == [text]


@pytest.mark.parametrize(
    ("content", "remedy"),
    [("text\nGr\u00fc\u00dfe\n".encode("cp1252"), "cp1252"), ("text\na\n".encode("utf-16"), "utf-16")],
)
def test_an_encoding_that_is_not_named_is_asked_for(tmp_path, content, remedy):
    (tmp_path / "a.csv").write_bytes(content)
    with pytest.raises(BadInput, match=rf"is not UTF-8: .* such as {remedy}, say so by data.file_encoding"):
        read(*config(tmp_path / "a.csv", "masked-lm"))


@pytest.mark.parametrize("fields", [{"delimiter": ";"}, {"quoting": "none"}, {"columns": ("text", "more")}])
def test_options_of_tables_are_refused_where_no_file_is_one(tmp_path, fields):
    (name,) = fields
    for ending in ("jsonl", "csv"):
        (tmp_path / f"a.{ending}").write_text('{"text": "a"}\n' if ending == "jsonl" else "text;more\na;b\n")
    with pytest.raises(BadInput, match=rf"data\.{name} is for csv and tsv, and the source has neither; leave it out"):
        read(*config(tmp_path / "a.jsonl", "masked-lm", **fields))
    columns = {"columns": ("text", "more")} if name != "columns" else {}
    beside = {"test_source": str(tmp_path / "a.csv"), "delimiter": ";", **columns, **fields}
    assert len(read(*config(tmp_path / "a.jsonl", "masked-lm", **beside)))


@pytest.mark.parametrize(
    ("fields", "fault"),
    [
        ({"format": "papyrus"}, r"data\.format: unknown value 'papyrus'; valid"),
        ({"file_encoding": "latin-99"}, r"data\.file_encoding: 'latin-99' is no encoding of files"),
        ({"file_encoding": "undefined"}, r"data\.file_encoding: 'undefined' is no encoding of files"),
        ({"file_encoding": "a\0b"}, r"data\.file_encoding: .* is no encoding of files"),
        ({"file_encoding": "idna"}, r"data\.file_encoding: 'idna' is no encoding of files"),
        ({"delimiter": ";;"}, r"data\.delimiter"),
        ({"quoting": "double"}, r"data\.quoting: unknown value 'double'"),
    ],
)
def test_a_wrong_way_to_read_is_named(fields, fault):
    with pytest.raises(BadInput, match=fault):
        config("a.csv", "masked-lm", **fields)


def test_a_format_that_is_named_reads_files_of_any_ending(tmp_path):
    path = write(tmp_path / "export.log")
    assert [one.text for one in read_documents(config(path, "masked-lm", format="jsonl"))] == [r["text"] for r in ROWS]
    with pytest.raises(BadInput, match=r"names no file that ends in .*data\.format says"):
        read(*config(path, "masked-lm"))


@pytest.mark.parametrize("ending", [".gz", ".bz2", ".xz"])
def test_packed_files(tmp_path, ending):
    import bz2
    import gzip
    import lzma

    pack = {".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress}[ending]
    content = "".join(json.dumps(row) + "\n" for row in ROWS).encode()
    path = tmp_path / f"a.jsonl{ending}"
    path.write_bytes(pack(content))
    assert [one.text for one in read_documents(config(path, "masked-lm"))] == [row["text"] for row in ROWS]
    for damaged, words in ((pack(content)[:-5], "is cut off|is damaged"), (b"not packed", "file, or is damaged")):
        path.write_bytes(damaged)
        with pytest.raises(BadInput, match=words):
            read(*config(path, "masked-lm"))


def test_a_long_text_alone_is_cut_line_by_line(tmp_path, monkeypatch):
    from wordorder.data.readers import text as reader

    paragraphs = [f"Paragraph {n}. " + "word " * (n % 90) + ("\n" if n % 3 else "\n\n") for n in range(3000)]
    (tmp_path / "book.txt").write_text("".join(paragraphs))
    whole = [one.text for one in read_documents(config(tmp_path / "book.txt", "masked-lm"))]
    monkeypatch.setattr(reader, "_MOST_WHOLE", 5000)
    (tmp_path / "same.txt").write_text("".join(paragraphs))
    by_line = [one.text for one in read_documents(config(tmp_path / "same.txt", "masked-lm"))]
    assert "".join(by_line) == "".join(whole) == "".join(paragraphs)
    assert all(len(text) >= 10_000 and text.endswith("\n\n") for text in by_line[:-1])
