"""Files that gzip packed, and SCAN's commands with their actions."""

import gzip
import json

import pytest
from documents import read_documents, settings, split_documents

from wordorder.data import TokenizerConfig
from wordorder.data.readers import READERS, Reading
from wordorder.data.readers.text import is_scan
from wordorder.errors import BadInput
from wordorder.tasks import prepare

ROWS = [{"text": f"Text {n} of ö.", "label": "ab"[n % 2]} for n in range(9)]
PACKED = gzip.compress("".join(json.dumps(row) + "\n" for row in ROWS).encode(), mtime=0)


def test_a_packed_file_is_read_as_the_plain_one(tmp_path):
    for name in ("train", "test"):
        (tmp_path / f"{name}.jsonl.gz").write_bytes(PACKED)
    sections = settings(source=str(tmp_path), task="classification")
    documents = read_documents(sections)
    assert [(d.text, d.label) for d in documents if d.split == "train"] == [(r["text"], r["label"]) for r in ROWS]
    assert {d.split for d in documents} == {"train", "test"}
    (tmp_path / "other.gz").write_bytes(PACKED)
    assert len(read_documents(sections)) == 18


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"not packed at all", "is not a gzip file"),
        (PACKED[:-12], "is cut off: its end is missing"),
        (PACKED[:30] + b"\xff\xff\xff" + PACKED[33:], "is damaged"),
        (gzip.compress(b"\xff\xfe", mtime=0), "line 1 is not UTF-8: byte 0 of the line is 0xff"),
        (gzip.compress(b'{"text": "a"}\n[1]\n', mtime=0), "line 2 is not a JSON object"),
        (gzip.compress(b"", mtime=0), "is empty"),
    ],
    ids=["not packed", "cut off", "damaged", "not UTF-8", "not an object", "empty"],
)
def test_a_damaged_file_is_one_line(tmp_path, content, words):
    (tmp_path / "texts.jsonl.gz").write_bytes(content)
    with pytest.raises(BadInput) as error:
        read_documents(settings(source=str(tmp_path / "texts.jsonl.gz"), task="masked-lm"))
    (fault,) = error.value.faults
    assert words in fault
    assert "texts.jsonl.gz" in fault


COMMANDS = [
    ("walk", "I_WALK"),
    ("jump twice", "I_JUMP I_JUMP"),
    ("jump and jump", "I_JUMP I_JUMP"),
    ("look", "I_LOOK"),
    ("run", "I_RUN"),
]
LONG = ("run around right twice and walk", "I_TURN_RIGHT I_RUN " * 23 + "I_WALK I_WALK")


def write_scan(folder, name, pairs):
    (folder / name).write_text("".join(f"IN: {command} OUT: {actions}\n" for command, actions in pairs))


def test_scan_keeps_its_splits_and_commands_that_mean_the_same(tmp_path):
    write_scan(tmp_path, "tasks_train_length.txt", COMMANDS[:2] + COMMANDS[3:])
    write_scan(tmp_path, "tasks_test_length.txt", [COMMANDS[2], LONG])
    sections = settings(source=str(tmp_path), task="translation", length=50)
    split = split_documents(read_documents(sections), sections)
    assert [(d.text, d.pair) for d in split.test] == [COMMANDS[2], (LONG[0], LONG[1])]
    # "jump twice" stays in training, though the test has its actions under another command
    train = [d.text for part in (split.train, split.validation) for d in part]
    assert sorted(train) == ["jump twice", "look", "run", "walk"]
    assert split.dropped_duplicates == 0


def test_forty_eight_actions_are_whole(tmp_path):
    write_scan(tmp_path, "train.txt", [*COMMANDS, ("turn right", "I_TURN_RIGHT")])
    write_scan(tmp_path, "test.txt", [LONG, ("turn left", "I_TURN_LEFT")])
    data, options = settings(source=str(tmp_path), task="translation", length=50)
    prepared = prepare(data, options, TokenizerConfig(kind="whitespace"), seed=0, cache_dir=tmp_path / "cache")
    example = prepared.test[0]
    assert len(example["labels"]) == 49  # and [SEP]
    assert prepared.statistics["test"]["cut"] == 0
    assert prepared.tokenizer.decode(example["labels"], skip_special_tokens=True).split() == LONG[1].split()


def test_single_files_of_commands_are_sources_too(tmp_path):
    write_scan(tmp_path, "a.txt", COMMANDS)
    write_scan(tmp_path, "b.txt", [LONG])
    source, test = str(tmp_path / "a.txt"), str(tmp_path / "b.txt")
    documents = read_documents(settings(source=source, test_source=test, task="translation"))
    assert [d.split for d in documents] == [None] * 5 + ["test"]
    # for other tasks it is a text like any other
    assert len(read_documents(settings(source=source, task="causal-lm"))) == 1


def test_a_line_of_another_form_is_named(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("IN: walk OUT: I_WALK\n\nIN: look I_LOOK\n")
    assert is_scan(path)
    with pytest.raises(
        BadInput, match=r"a.txt line 3 is not of the form 'IN: command OUT: actions': 'IN: look I_LOOK'"
    ):
        read_documents(settings(source=str(path), task="translation"))
    path.write_text("A plain text.\nIN: walk OUT: I_WALK\n")
    assert not is_scan(path)
    with pytest.raises(BadInput, match=r"or one of lines like SCAN's, IN: \.\.\. OUT: "):
        read_documents(settings(source=str(path), task="translation"))


def test_two_columns_of_one_name_are_refused(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    parquet.write_table(pyarrow.table([["a"], ["b"]], names=["text", "text"]), tmp_path / "a.parquet")
    (fault,) = READERS["parquet"].read(tmp_path / "a.parquet", Reading())
    assert "two of its columns have the same name" in fault.text


def test_a_text_that_cannot_be_opened_is_no_scan_and_its_reader_says_why(tmp_path, monkeypatch):
    path = tmp_path / "a.txt"
    path.write_text("IN: jump OUT: I_JUMP\n")

    def refuse(self, *args, **options):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(type(path), "open", refuse)
    assert not is_scan(path)
