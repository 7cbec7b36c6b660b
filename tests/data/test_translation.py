"""Sentence pairs: from files of lines or columns to batches, with nothing lost unseen and nothing leaked."""

import json

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
import torch
from documents import read_documents, settings

from wordorder.data import LengthGroupedEpochOrder, TokenizerConfig
from wordorder.errors import BadInput
from wordorder.tasks import prepare

ENGLISH = "a man and two women walk with the small dog over green grass".split()
GERMAN = "ein mann und zwei frauen gehen mit dem kleinen hund über grünes gras".split()


def sentences(count, *, offset=0, most=9):
    """Pairs whose words correspond; every sentence is different on both sides."""
    random = np.random.default_rng(offset)
    for number in range(offset, offset + count):
        words = random.integers(0, len(ENGLISH), 2 + number % most)
        yield tuple(
            " ".join([*(language[word] for word in words), f"{number}."]).capitalize() for language in (ENGLISH, GERMAN)
        )


def write_lines(folder, name, pairs, ending="\n"):
    folder.mkdir(parents=True, exist_ok=True)
    paths = folder / f"{name}.en", folder / f"{name}.de"
    for side, path in enumerate(paths):
        path.write_bytes("".join(pair[side] + "\n" for pair in pairs).encode() + ending.encode()[1:])
    return tuple(map(str, paths))


def fields(split, paths):
    return {f"{split}source": paths[0], f"{split}target_source": paths[1]}


def config(*, length=24, **given):
    return settings(task="translation", **{"length": length, **given})


def load(sections, cache, kind="word", **tokenizer):
    return prepare(*sections, TokenizerConfig(kind=kind, vocab_size=500, **tokenizer), seed=0, cache_dir=cache)


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def given(tmp_path_factory):
    folder = tmp_path_factory.mktemp("corpus")
    names = {"": ("train", 60, 0), "validation_": ("val", 8, 100), "test_": ("test", 9, 200)}
    found = {}
    for split, (name, count, offset) in names.items():
        found |= fields(split, write_lines(folder, name, list(sentences(count, offset=offset))))
    return found


def test_sources_and_targets_are_written_as_the_model_needs_them(given, cache):
    data = load(config(**given), cache)
    cls, sep = data.tokenizer.cls_token_id, data.tokenizer.sep_token_id
    pairs = list(sentences(60))
    assert (len(data.train), len(data.validation), len(data.test)) == (60, 8, 9)
    for number, (english, german) in enumerate(pairs):
        example = data.train[(3, number)]
        assert example["input_ids"].tolist() == data.tokenizer(english)["input_ids"]
        assert example["input_ids"][[0, -1]].tolist() == [cls, sep]
        assert example["labels"].tolist() == data.tokenizer(german, add_special_tokens=False)["input_ids"] + [sep]
        assert data.train.references[number] == german
        assert data.train.lengths[number] == len(example["input_ids"]) + len(example["labels"])


@pytest.mark.parametrize("kind", ["bpe", "wordpiece", "byte", "character"])
def test_every_tokeniser_learns_both_languages(given, cache, kind):
    data = load(config(length=200, **given), cache, kind=kind)
    english, german = next(sentences(1))
    assert data.tokenizer.decode(data.train[0]["input_ids"], skip_special_tokens=True).strip() == english
    assert data.tokenizer.decode(data.train[0]["labels"], skip_special_tokens=True).strip() == german
    assert data.statistics["train"]["unknown_fraction"] == data.statistics["train"]["target_unknown_fraction"] == 0


def test_the_tokeniser_sees_the_training_pairs_alone(given, cache):
    vocabulary = load(config(**given), cache).tokenizer.get_vocab()
    assert {"gras", "grass", "59"} <= vocabulary.keys()
    assert not {"100", "107", "200", "208"} & vocabulary.keys()


@pytest.mark.parametrize("ending", [".jsonl", ".csv", ".parquet"])
def test_columns_give_the_same_pairs_as_lines(given, cache, tmp_path, ending):
    rows = [{"en": f" {english} ", "de": german} for english, german in sentences(60)]
    path = tmp_path / f"pairs{ending}"
    if ending == ".parquet":
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    elif ending == ".csv":
        path.write_text("en,de\n" + "".join(f"{row['en']},{row['de']}\n" for row in rows))
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    columns = {"source": str(path), "text_column": "en", "target_column": "de"}
    of_lines = {name: value for name, value in given.items() if not name.startswith(("validation", "test"))}
    one, other = read_documents(config(**columns)), read_documents(config(**of_lines))
    assert [(d.text, d.pair) for d in one] == [(d.text, d.pair) for d in other] == list(sentences(60))
    data = load(config(**columns), cache)
    assert len(data.train) + len(data.validation) + len(data.test) == 60


def test_empty_lines_at_the_end_are_passed_over_and_others_counted(tmp_path, cache):
    pairs = list(sentences(40))
    pairs[5], pairs[7], pairs[9] = ("", "nichts"), ("nothing", "  "), ("", "")
    english, german = write_lines(tmp_path, "train", pairs, ending="\n\n")  # as the files of Multi30k end
    with open(german, "a") as file:
        file.write("\n \n")
    data = load(config(source=english, target_source=german), cache)
    assert data.statistics["dropped_empty"] == 3
    assert sum(len(part) for part in (data.train, data.validation, data.test)) == 37


def test_only_a_line_feed_ends_a_line(tmp_path):
    (tmp_path / "a").write_bytes("\ufeffone\u2028still one\r\ntwo\x0cstill\rtwo\r\n".encode())
    (tmp_path / "b").write_bytes(b"eins\nzwei\n")
    found = read_documents(config(source=str(tmp_path / "a"), target_source=str(tmp_path / "b")))
    assert [(d.text, d.pair) for d in found] == [("one\u2028still one", "eins"), ("two\x0cstill\rtwo", "zwei")]


def test_a_damaged_line_costs_its_pair_alone(tmp_path, cache):
    lines = [f"line {number}" for number in range(20)]
    (tmp_path / "a").write_bytes("\n".join(lines).replace("line 7", "l\udcffne 7").encode("utf-8", "surrogateescape"))
    (tmp_path / "b").write_text("\n".join(f"Zeile {number}" for number in range(20)))
    files = {"source": str(tmp_path / "a"), "target_source": str(tmp_path / "b")}
    found = read_documents(config(**files, skip_unreadable=True))
    numbers = [number for number in range(20) if number != 7]
    assert [(d.text, d.pair) for d in found] == [(f"line {number}", f"Zeile {number}") for number in numbers]
    with pytest.raises(BadInput, match="line 8 is not UTF-8"):
        read_documents(config(**files))


def test_long_pairs_are_left_out_of_training_and_cut_elsewhere(tmp_path, cache):
    long = ("long " * 30 + "end", "lang")
    sources = {}
    for split, name, offset in (("", "train", 0), ("validation_", "val", 100), ("test_", "test", 200)):
        pairs = [*sentences(10, offset=offset, most=4), (f"{long[0]} {name}", f"{long[1]} {name}")]
        pairs.append((f"short {name}", f"{long[0]} {name}"))
        sources |= fields(split, write_lines(tmp_path, name, pairs))
    data = load(config(length=12, **sources), cache)
    assert (len(data.train), len(data.validation), len(data.test)) == (10, 12, 12)
    counts = [(data.statistics[name]["dropped_long"], data.statistics[name]["cut"]) for name in ("train", "test")]
    assert counts == [(2, 0), (0, 2)]
    cut, other = data.test[10], data.test[11]
    assert len(cut["input_ids"]) == 12
    assert cut["input_ids"][-1] == other["labels"][-1] == data.tokenizer.sep_token_id
    assert len(other["labels"]) == 12  # the decoder reads [CLS] and all of them but the last
    assert data.test.references[11].endswith("end test")  # what translations are compared with is whole
    assert load(config(length=12, truncate=True, **sources), cache).statistics["train"]["cut"] == 2
    fits = load(config(length=8, **sources), cache)
    assert max(len(e["input_ids"]) for e in fits.train) <= 8
    assert max(len(e["labels"]) for e in fits.train) <= 8


def test_no_side_of_a_test_pair_is_in_training(tmp_path, cache):
    pairs = list(sentences(200))
    for number in range(0, 100, 4):
        pairs[number + 1] = (pairs[number][0], pairs[number + 1][1])  # the same source twice
        pairs[number + 2] = (pairs[number + 2][0], pairs[number + 1][1])  # and through a target a third pair
    english, german = write_lines(tmp_path, "all", pairs)
    halves = {"test_fraction": 0.2, "validation_fraction": 0.2}
    data = load(config(length=99, source=english, target_source=german, **halves), cache, kind="bpe")
    train, validation, test = (
        {data.tokenizer.decode(e[side], skip_special_tokens=True) for e in part for side in ("input_ids", "labels")}
        for part in (data.train, data.validation, data.test)
    )
    assert not (train | validation) & test
    assert not train & validation
    assert len(data.train) + len(data.validation) + len(data.test) == 200
    assert data.statistics["dropped_duplicates"] == 0


def test_official_splits_lose_training_pairs_that_share_a_side_with_the_test(tmp_path, cache):
    train, test = list(sentences(30)), list(sentences(5, offset=100))
    train[3], train[8] = (test[0][0], "anders"), ("different", test[1][1])
    sources = fields("", write_lines(tmp_path, "train", train)) | fields("test_", write_lines(tmp_path, "test", test))
    data = load(config(validation_fraction=0.1, **sources), cache)
    assert data.statistics["dropped_duplicates"] == 2
    assert len(data.train) + len(data.validation) == 28
    assert len(data.test) == 5


def test_official_splits_lose_no_more_than_what_shares_a_side(tmp_path, cache):
    """What shares a sentence with a dropped pair only tells nothing of the test."""
    train, test = list(sentences(30)), list(sentences(5, offset=100))
    train[3], train[4] = (test[0][0], "anders"), ("different", "anders")
    # other white space is no other sentence
    train[5], train[6] = (f"{test[1][0].replace(' ', '  ')}", "so"), ("but", test[2][1].replace(" ", "\t"))
    sources = fields("", write_lines(tmp_path, "train", train)) | fields("test_", write_lines(tmp_path, "test", test))
    data = load(config(validation_fraction=0.1, **sources), cache)
    assert data.statistics["dropped_duplicates"] == 3
    assert len(data.train) + len(data.validation) == 27


def test_batches_pad_each_side_by_itself(given, cache):
    data = load(config(**given), cache)
    order = LengthGroupedEpochOrder(data.train.lengths, batch_size=8, seed=0)
    for start in range(0, 56, 8):
        examples = data.train.__getitems__(list(order)[start : start + 8])
        batch = data.collate(examples)
        for row, example in enumerate(examples):
            size, targets = len(example["input_ids"]), len(example["labels"])
            assert torch.equal(batch["input_ids"][row, :size], example["input_ids"])
            assert (batch["input_ids"][row, size:] == data.tokenizer.pad_token_id).all()
            assert torch.equal(batch["labels"][row, :targets], example["labels"])
            assert (batch["labels"][row, targets:] == -100).all()
            assert batch["attention_mask"][row].sum() == size if "attention_mask" in batch else size
    alone = data.collate(data.train.__getitems__([0]))
    assert alone.keys() == {"input_ids", "labels"}


def test_no_side_is_padded_beyond_the_length(given, cache):
    data = load(config(length=11, **given), cache)
    batch = data.collate(data.train.__getitems__(range(len(data.train))))
    assert batch["input_ids"].shape[1] == 11
    assert batch["labels"].shape[1] <= 11


def test_the_content_and_the_files_decide_the_fingerprint(given, cache, tmp_path):
    data = load(config(**given), cache)
    pairs = list(sentences(60))
    same = load(config(**given | fields("", write_lines(tmp_path / "same", "train", pairs))), cache)
    pairs[4] = (pairs[4][0], pairs[4][1].replace(" ", "  ", 1))
    other = load(config(**given | fields("", write_lines(tmp_path / "other", "train", pairs))), cache)
    assert data.statistics["fingerprint"] == same.statistics["fingerprint"] != other.statistics["fingerprint"]


def test_files_that_do_not_fit_are_one_fault(tmp_path):
    english, german = write_lines(tmp_path, "train", list(sentences(30)))
    lines = (tmp_path / "train.de").read_text().splitlines()
    (tmp_path / "short.de").write_text("\n".join(lines[:-1]) + "\n")
    (tmp_path / "empty.de").write_text("\n")
    (tmp_path / "rows.jsonl").write_text(json.dumps({"en": "a", "de": "b"}) + "\n")
    rows = str(tmp_path / "rows.jsonl")
    for given, words in [
        ({"source": english, "target_source": str(tmp_path / "short.de")}, ["30 lines", "29", "of the same number"]),
        ({"source": english, "target_source": str(tmp_path / "empty.de")}, ["empty.de is empty"]),
        ({"source": english, "target_source": str(tmp_path)}, ["is not a file", "one sentence a line"]),
        ({"source": "sotu", "target_source": german}, ["data.source sotu is not a file"]),
        ({"source": english}, ["is a file of lines", "task.target_source", ".jsonl"]),
        ({"source": rows, "text_column": "en"}, ["no column 'target'", "en, de", "task.target_column"]),
        ({"source": rows, "text_column": "fr", "target_column": "de"}, ["no column 'fr'", "data.text_column"]),
        (
            {"source": english, "target_source": german, "validation_source": english},
            ["data.validation_source", "task.validation_target_source"],
        ),
    ]:
        with pytest.raises(BadInput) as caught:
            read_documents(config(**given))
        (fault,) = caught.value.faults
        assert all(word in fault for word in words), fault


def test_pairs_that_are_all_too_long_are_one_fault(given, cache):
    with pytest.raises(BadInput, match=r"all 60 training pairs are longer than data\.length 8; raise it, or set"):
        load(config(length=8, **given), cache, kind="byte")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"task": "causal-lm", "target_source": "x"}, "task.target_source is only for task translation"),
        ({"task": "masked-lm", "target_column": "x"}, "task.target_column is only for task translation"),
        ({"task": "translation", "test_target_source": "x"}, "test_target_source needs the lines that it translates"),
        (
            {"task": "translation", "test_target_source": "x", "test_source": "none"},
            "test_target_source needs the lines that it translates: give data.test_source too",
        ),
        ({"task": "translation", "target_source": 3}, "task.target_source: must be a string"),
        ({"task": "translation", "pair_column": "x"}, "task.pair_column is only for tasks"),
        (
            {"task": "translation", "max_pieces": 2},
            "task.max_pieces is only for tasks classification",
        ),
        (
            {"task": "translation", "mask_probability": 0.3},
            "mask_probability is only for task masked-lm, not for translation",
        ),
        (
            {"task": "causal-lm", "packing": "contiguous"},
            "task.packing: unknown value 'contiguous'; valid values: segments, lanes",
        ),
        ({"task": "translation", "text_column": "target"}, "are both 'target'; name two columns"),
    ],
)
def test_options_that_do_not_go_together(given, words):
    with pytest.raises(BadInput) as caught:
        prepare(*settings(source="file", length=24, **given), TokenizerConfig(), seed=0)
    (fault,) = caught.value.faults
    assert words in fault
