"""Classification sets as they are: words set apart by spaces, empty texts, no special tokens, official splits."""

import json
from itertools import permutations

import pytest
from documents import settings

from wordorder.data import TokenizerConfig
from wordorder.errors import BadInput
from wordorder.tasks import prepare
from wordorder.tasks.classification import label_names
from wordorder.tasks.preparation import read

WORDS = TokenizerConfig(kind="whitespace", lowercase=True, min_frequency=2, add_special_tokens=False)


def write(path, rows):
    path.write_text("".join(json.dumps({"text": text, "label": label}) + "\n" for text, label in rows))


def reviews(count, start=0):
    return [(f"it 's a {('dull', 'fine')[i % 2]} film , number{i} !", i % 2) for i in range(start, start + count)]


def load(source, tmp_path, tokenizer=WORDS, **fields):
    data, options = settings(**{"source": str(source), "task": "classification", "length": 8} | fields)
    return prepare(data, options, tokenizer, seed=0, cache_dir=tmp_path / "cache")


def test_examples_are_the_words_and_nothing_else(tmp_path):
    write(tmp_path / "all.jsonl", reviews(40))
    prepared = load(tmp_path, tmp_path, folds=5)
    words = prepared.tokenizer.convert_ids_to_tokens(prepared.train[0]["input_ids"])
    assert words[:3] == ["it", "'s", "a"]
    assert words[4:] == ["film", ",", "[UNK]", "!"]  # number0 occurs once
    assert prepared.tokenizer("It 's a film")["input_ids"] == prepared.tokenizer.convert_tokens_to_ids(
        ["it", "'s", "a", "film"]
    )
    batch = prepared.collate([prepared.train[0], prepared.train[1]])
    assert batch["input_ids"].shape == (2, 8)
    assert not {2, 3, 4} & set(batch["input_ids"].flatten().tolist())


def test_a_saved_tokeniser_gives_the_same_examples(tmp_path):
    write(tmp_path / "all.jsonl", reviews(40))
    prepared = load(tmp_path / "all.jsonl", tmp_path, folds=5)
    prepared.tokenizer.save_pretrained(tmp_path / "model")
    again = load(
        tmp_path / "all.jsonl", tmp_path, TokenizerConfig(kind="existing", path=str(tmp_path / "model")), folds=5
    )
    assert again.test[0]["input_ids"].tolist() == prepared.test[0]["input_ids"].tolist()
    assert again.statistics == prepared.statistics


def test_a_long_text_uses_the_room_that_special_tokens_leave_free(tmp_path):
    write(tmp_path / "all.jsonl", [(" ".join(f"w{i}" for i in range(30)) + f" n{n}", n % 2) for n in range(12)])
    assert {len(ids) for ids in _examples(load(tmp_path, tmp_path, truncate=True).train)} == {8}
    assert sum(map(len, _examples(load(tmp_path, tmp_path, max_pieces=9).train))) == 10 * 31


def _examples(dataset):
    return [dataset[index]["input_ids"] for index in range(len(dataset))]


def test_empty_texts_are_counted_and_texts_without_a_token_are_one_unknown_word(tmp_path):
    # U+200B is no white space, so the row is kept; BERT's normaliser takes it away
    rows = [*reviews(40), ("", 1), ("  ", 0), ("\u200b", 1)]
    write(tmp_path / "all.jsonl", rows)
    words = TokenizerConfig(kind="word", add_special_tokens=False)
    prepared = load(tmp_path, tmp_path, words, folds=2, validation_fraction=0.2)
    assert prepared.statistics["dropped_empty"] == 2
    parts = {name: prepared.statistics[name] for name in ("train", "validation", "test")}
    assert sum(part["without_tokens"] for part in parts.values()) == 1
    assert sum(part["documents"] for part in parts.values()) == 41
    examples = [ids for part in (prepared.train, prepared.validation, prepared.test) for ids in _examples(part)]
    assert min(map(len, examples)) == 1
    assert [ids.tolist() for ids in examples if len(ids) == 1] == [[prepared.tokenizer.unk_token_id]]


def test_a_protocol_without_validation_has_one_dataset_for_both(tmp_path):
    write(tmp_path / "all.jsonl", reviews(40))
    prepared = load(tmp_path, tmp_path, folds=5, protocol="best-checkpoint-on-test")
    assert prepared.validation is prepared.test
    assert (len(prepared.train), len(prepared.test)) == (32, 8)


def test_every_fold_has_data_of_its_own(tmp_path):
    write(tmp_path / "all.jsonl", reviews(40))
    folds = [load(tmp_path, tmp_path, folds=5, fold=k) for k in range(5)]
    assert len({fold.statistics["fingerprint"] for fold in folds}) == 5
    assert sum(len(fold.test) for fold in folds) == 40


def test_official_splits_are_kept_but_for_training_texts_that_the_test_has(tmp_path):
    test = reviews(12)
    write(tmp_path / "train.jsonl", [*reviews(80, start=100), test[3], test[4]])
    write(tmp_path / "test.jsonl", test)
    prepared = load(tmp_path, tmp_path, validation_fraction=0.1)
    assert prepared.statistics["dropped_duplicates"] == 2
    counts = {name: prepared.statistics[name]["documents"] for name in ("train", "validation", "test")}
    assert counts == {"train": 72, "validation": 8, "test": 12}
    assert prepared.label_names == ("0", "1")
    with pytest.raises(BadInput, match=r"data\.folds divides all texts"):
        load(tmp_path, tmp_path, folds=5)


def test_a_word_that_looks_like_a_special_token_is_none(tmp_path):
    write(tmp_path / "all.jsonl", [(f"{text} [SEP] [MASK]", label) for text, label in reviews(40)])
    prepared = load(tmp_path, tmp_path, TokenizerConfig(kind="whitespace", add_special_tokens=False), folds=5)
    assert not {2, 3, 4} & {int(token) for ids in _examples(prepared.train) for token in ids}
    words = prepared.tokenizer
    assert words("a [MASK] b")["input_ids"][1] == words.mask_token_id


def test_classes_that_are_the_same_number_have_one_order():
    labels = ["10", "01", "1", "2", "02", "002"]
    assert {label_names(set(order)) for order in permutations(labels)} == {("01", "1", "002", "02", "2", "10")}


def test_a_linked_text_has_the_class_of_the_folder_where_it_is_named(tmp_path):
    for name in ("site-a", "site-b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / f"{name}.txt").write_text(f"A text of {name}.")
    for name in ("left", "right"):
        (tmp_path / "classes" / name).mkdir(parents=True)
    (tmp_path / "classes" / "left" / "1.txt").symlink_to(tmp_path / "site-a" / "site-a.txt")
    (tmp_path / "classes" / "right" / "1.txt").symlink_to(tmp_path / "site-b" / "site-b.txt")
    texts = read(*settings(source=f"{tmp_path}/classes/*/*.txt", task="classification"), to_learn=False)
    assert sorted(texts.strings("label")) == ["left", "right"]
