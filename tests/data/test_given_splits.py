"""Splits that the recipe gives: files of their own, no test at all, hidden labels; and the files that GLUE comes in."""

import json

import pytest
from documents import read_documents, settings, split_documents

from wordorder.data import TokenizerConfig
from wordorder.errors import BadInput
from wordorder.tasks import prepare


def write_rows(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def rows_of(name, count, **fields):
    return [{"text": f"{name} {i}", "label": i % 2, **fields} for i in range(count)]


def parts(source, task="classification", **fields):
    sections = settings(source=str(source), task=task, **fields)
    split = split_documents(read_documents(sections), sections)
    return {name: [d.text for d in part] for name, part in split.parts().items()}


@pytest.fixture
def files(tmp_path):
    for name, count in (("first", 30), ("second", 4), ("third", 6)):
        write_rows(tmp_path / f"{name}.jsonl", rows_of(name, count))
    return tmp_path


def test_validation_and_test_have_files_of_their_own(files):
    found = parts(
        files / "first.jsonl",
        validation_source=str(files / "second.jsonl"),
        test_source=str(files / "thi*.jsonl"),
    )
    assert found["train"] == [f"first {i}" for i in range(30)]
    assert found["validation"] == [f"second {i}" for i in range(4)]
    assert found["test"] == [f"third {i}" for i in range(6)]


def test_validation_texts_that_are_all_in_the_test_are_refused(files):
    both = str(files / "second.jsonl")
    with pytest.raises(
        BadInput, match=r"data.validation_source .*second.jsonl has no text that data.test_source has not"
    ):
        parts(files / "first.jsonl", validation_source=both, test_source=both)


def test_training_texts_that_are_all_held_out_too_are_refused(files):
    source = str(files / "first.jsonl")
    with pytest.raises(BadInput, match=r"has no training text that validation and test do not have: .*\(30 copies\)"):
        parts(source, validation_source=str(files / "second.jsonl"), test_source=source)


def test_what_has_no_file_is_taken_from_the_training_texts(files):
    found = parts(files / "first.jsonl", test_source=str(files / "third.jsonl"), validation_fraction=0.2)
    assert (len(found["train"]), len(found["validation"]), len(found["test"])) == (24, 6, 6)
    assert set(found["train"] + found["validation"]) == {f"first {i}" for i in range(30)}


def test_a_given_file_takes_the_place_of_the_sources_own_split(tmp_path):
    for name, count in (("train", 10), ("dev", 4), ("test", 4), ("other", 6)):
        write_rows(tmp_path / f"{name}.jsonl", rows_of(name, count))
    found = parts(tmp_path / "[td]*.jsonl", test_source=str(tmp_path / "other.jsonl"))
    assert [texts[0] for texts in found.values()] == ["train 0", "dev 0", "other 0"]
    assert len(found["test"]) == 6


def test_without_a_test_nothing_is_taken_for_it(files, tmp_path):
    found = parts(files / "first.jsonl", test_source="none", validation_fraction=0.2)
    assert (len(found["train"]), len(found["validation"]), found["test"]) == (24, 6, [])
    for name, count in (("train", 10), ("dev", 4), ("test", 4)):
        write_rows(tmp_path / "official" / f"{name}.jsonl", rows_of(name, count))
    assert parts(tmp_path / "official", test_source="none")["test"] == []


@pytest.mark.parametrize("hidden", [{"label": None}, {"label": ""}, {}])
def test_a_test_split_whose_labels_are_hidden_is_left_out(tmp_path, hidden):
    write_rows(tmp_path / "train.jsonl", rows_of("train", 20))
    write_rows(tmp_path / "dev.jsonl", rows_of("dev", 4))
    write_rows(tmp_path / "test.jsonl", [{"text": f"test {i}", **hidden} for i in range(4)])
    assert parts(tmp_path)["test"][0].startswith("train")
    assert parts(tmp_path, test_source="none")["test"] == []
    write_rows(tmp_path / "test_labelled.jsonl", rows_of("labelled", 4))
    assert parts(tmp_path)["test"] == [f"labelled {i}" for i in range(4)]
    assert parts(tmp_path, task="masked-lm")["test"] == [f"test {i}" for i in range(4)] + [
        f"labelled {i}" for i in range(4)
    ]


def test_hidden_labels_of_a_test_that_was_asked_for_are_faults(files):
    write_rows(files / "hidden.jsonl", [{"text": "a", "label": None}, {"text": "b", "label": None}])
    with pytest.raises(BadInput) as caught:
        parts(files / "first.jsonl", test_source=str(files / "hidden.jsonl"))
    assert ["has no label" in fault for fault in caught.value.faults] == [True, True]


@pytest.mark.parametrize("name", ["validation_source", "test_source"])
def test_a_file_that_is_not_there_is_named_by_its_option(files, name):
    with pytest.raises(BadInput, match=rf"data\.{name} .*nowhere\.jsonl does not exist"):
        parts(files / "first.jsonl", **{name: str(files / "nowhere.jsonl")})


def test_a_pair_is_a_copy_only_where_both_texts_are_the_same(tmp_path):
    def pairs(*texts):
        return [{"text": first, "second": second, "label": i % 2} for i, (first, second) in enumerate(texts)]

    write_rows(tmp_path / "train.jsonl", pairs(("a", "x"), ("a", "y"), ("b", "x"), ("c", "z")))
    write_rows(tmp_path / "dev.jsonl", pairs(("a", "y"), ("d", "x")))
    sections = settings(source=str(tmp_path), task="classification", pair_column="second", test_source="none")
    split = split_documents(read_documents(sections), sections)
    assert [(d.text, d.pair) for d in split.train] == [("a", "x"), ("b", "x"), ("c", "z")]
    assert split.dropped_duplicates == 1


# GLUE's own files: tabs, no quoting, sometimes no line of names.


def test_quotation_marks_of_a_tsv_file_are_characters(tmp_path):
    (tmp_path / "a.tsv").write_text('sentence\tgold\n"Bad" film\t0\nan "inch too long\t1\n\nGood\t1\n')
    sections = settings(
        source=str(tmp_path / "a.tsv"), task="classification", text_column="sentence", label_column="gold"
    )
    assert [(d.text, d.label) for d in read_documents(sections)] == [
        ('"Bad" film', "0"),
        ('an "inch too long', "1"),
        ("Good", "1"),
    ]


@pytest.mark.parametrize(("ending", "separator"), [(".tsv", "\t"), (".csv", ",")])
def test_columns_without_a_line_of_names_are_named_by_the_recipe(tmp_path, ending, separator):
    lines = [("gj04", "1", "", "The sailors rode."), ("gj04", "0", "*", "Sailors the rode."), ("l", "1", "", "Yes.")]
    path = tmp_path / f"cola{ending}"
    path.write_text("\n".join(separator.join(line) for line in lines))
    columns = ("origin", "label", "mark", "text")
    sections = settings(source=str(path), task="classification", columns=columns)
    assert [(d.text, d.label) for d in read_documents(sections)] == [(line[3], line[1]) for line in lines]
    with pytest.raises(BadInput, match=r"line 1 has 4 fields where data\.columns names 2"):
        read_documents(settings(source=str(path), task="classification", columns=("text", "label")))


ARTICLES = """\x20
 = Homarus gammarus = \n \n The lobster is <unk> . It weighs 5 @,@ 000 grams .
 \n = = Description = = \n \n It is large .
 = 0 = \n broken off , no title
 \n = Frank O 'Neill = \n \n A hockey player .
"""


def test_wikitext_is_cut_into_its_articles_and_nothing_is_lost(tmp_path):
    path = tmp_path / "wiki.valid.tokens"
    path.write_text(ARTICLES)
    texts = [d.text for d in read_documents(settings(source=str(path), task="masked-lm"))]
    assert "".join(texts) == ARTICLES
    assert len(texts) == 2
    assert texts[1].split()[:5] == ["=", "Frank", "O", "'Neill", "="]
    assert "= = Description = =" in texts[0]
    assert "= 0 =" in texts[0]


def test_a_file_of_tokens_without_titles_is_cut_as_any_text(tmp_path):
    path = tmp_path / "wiki.tokens"
    path.write_text("word\n\n" * 2000)
    assert len(read_documents(settings(source=str(path), task="masked-lm"))) > 20


def test_wikitexts_three_files_are_official_splits(tmp_path):
    for part in ("train", "valid", "test"):
        (tmp_path / f"wiki.{part}.tokens").write_text(f" \n = {part} = \n \n text of {part} .\n")
    documents = read_documents(settings(source=str(tmp_path), task="masked-lm"))
    assert [(d.text.split()[1], d.split) for d in documents] == [
        ("test", "test"),
        ("train", "train"),
        ("valid", "validation"),
    ]


# Regression: labels that are numbers.


def scored(values):
    return [{"text": f"text number {i} of them all", "label": value} for i, value in enumerate(values)]


def test_numbers_are_divided_by_the_scale_and_reach_the_batches(tmp_path):
    write_rows(tmp_path / "train.jsonl", scored([i / 10 for i in range(51)]))
    write_rows(tmp_path / "dev.jsonl", [{"text": "one", "label": 5.0}, {"text": "two", "label": "2.50"}])
    data, options = settings(
        source=str(tmp_path), task="regression", length=16, label_scale=5, test_source="none", truncate=True
    )
    prepared = prepare(data, options, TokenizerConfig(kind="byte"), seed=0, cache_dir=tmp_path / "cache")
    batch = prepared.collate(prepared.validation.__getitems__([0, 1]))
    assert batch["labels"].tolist() == [1.0, 0.5]
    assert batch["labels"].dtype.is_floating_point
    assert (prepared.test, prepared.label_names) == (None, ())
    assert list(prepared.statistics)[:2] == ["train", "validation"]


def test_numbers_that_are_all_different_can_be_split_by_share(tmp_path):
    write_rows(tmp_path / "a.jsonl", scored([i / 7 for i in range(40)]))
    found = parts(tmp_path / "a.jsonl", task="regression", test_fraction=0.1, validation_fraction=0.1)
    assert [len(texts) for texts in found.values()] == [32, 4, 4]


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ([1, "high", "low", 2], "regression needs numbers, got 'high', 'low'; classes need task classification"),
        ([1, "nan"], "regression needs numbers, got 'nan'"),
        ([*"abcdefg"], "got 'a', 'b', 'c', 'd', 'e' and 2 more"),
        ([3, 3.0, "3"], "for every document; there is nothing to learn"),
    ],
)
def test_labels_that_are_no_numbers_to_learn(tmp_path, values, words):
    write_rows(tmp_path / "a.jsonl", scored(values))
    with pytest.raises(BadInput) as caught:
        parts(tmp_path / "a.jsonl", task="regression")
    assert words in caught.value.faults[0]
    assert caught.value.faults[0].startswith("task.label_column 'label'")


def test_a_limit_takes_no_test_from_training_where_there_is_one(tmp_path):
    write_rows(tmp_path / "train.jsonl", rows_of("first", 300))
    write_rows(tmp_path / "test.jsonl", rows_of("last", 2))
    with pytest.raises(BadInput, match="limit_documents 10 leaves no text of the test split"):
        parts(tmp_path, limit_documents=10)
    assert all(text.startswith("last") for text in parts(tmp_path, limit_documents=300)["test"])
