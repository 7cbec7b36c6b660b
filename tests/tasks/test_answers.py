"""Answers of generated tasks: what is predicted, how it is scored, and that scores are those of greedy search."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from documents import settings

from wordorder.comparison.statistics.summary import beside, metric_of, quality_of
from wordorder.data import CollateLanes, TokenizerConfig
from wordorder.data.packing import join_answers
from wordorder.data.tokens import tokens_of
from wordorder.errors import BadInput
from wordorder.models import build_config, build_model
from wordorder.tasks import TASKS, model_class, prepare
from wordorder.tasks.causal_lm import CausalLMOptions
from wordorder.tasks.scores import AnswerTally, CausalTally, score
from wordorder.training.loop.carried_memory import score_running_text

CPU, OPTIONS = torch.device("cpu"), CausalLMOptions()
CLS, SEP = 2, 3


def prepared(name, *, packing="segments", length=64, kind="whitespace", **values):
    sizes = {"train_examples": 400, "test_examples": 40, "train_lengths": (6, 12), "test_lengths": (13, 20)}
    sections = settings(source=f"task:{name}", task="causal-lm", packing=packing, length=length, **sizes | values)
    return prepare(*sections, TokenizerConfig(kind=kind), seed=0)


def words(data, ids):
    return data.tokenizer.convert_ids_to_tokens([int(token) for token in ids])


def test_joined_answers_are_marked_token_by_token():
    texts, answers = tokens_of([[10, 11], [12]], SEP), tokens_of([[20], [21]], SEP)
    tokens, predicted = join_answers(texts, answers, sep_id=SEP)
    assert tokens.ids.tolist() == [10, 11, SEP, 20, SEP, 12, SEP, 21, SEP]
    assert predicted.astype(int).tolist() == [0, 0, 0, 1, 0, 0, 0, 1, 0]
    assert tokens.starts.tolist() == [0, 5, 9]


def test_the_answer_alone_has_labels():
    data = prepared("reverse")
    for part in (data.train, data.validation, data.test):
        for number in range(len(part)):
            example = part[(number % 3, number)]
            ids, labels = words(data, example["input_ids"]), example["labels"].tolist()
            middle = ids.index("[SEP]")
            assert ids[0] == "[CLS]"
            assert ids[middle + 1 :] == [*ids[middle - 1 : 0 : -1], "[SEP]"]
            assert labels[: middle + 1] == [-100] * (middle + 1)
            assert labels[middle + 1 :] == example["input_ids"].tolist()[middle + 1 :]


def test_an_answer_of_one_token_has_one_label():
    data = prepared("parity")
    for number in range(len(data.test)):
        example = data.test[number]
        ids, labels = words(data, example["input_ids"]), example["labels"]
        assert ids[-1] == ids[-3] == "[SEP]"
        assert ids[-2] == ("even", "odd")[ids.count("b") % 2]
        assert (labels != -100).nonzero().flatten().tolist() == [len(ids) - 2]
    assert (
        prepared("parity", kind="byte", length=128).test[0]["labels"][-1] == SEP
    )  # words of several bytes have an end


def model_of(data, **fields):
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "max_position_embeddings": 96}
    ends = {"bos_token_id": CLS, "eos_token_id": SEP, "pad_token_id": 0, "encoding": "rope", "initializer_range": 0.1}
    config = build_config("decoder", vocab_size=data.statistics["vocab_size"], **sizes | ends | fields)
    return build_model(config, model_class("decoder", "causal-lm"), seed=0).eval()


@pytest.mark.parametrize("name", ["reverse", "parity", pytest.param("bucket-sort", marks=pytest.mark.slow)])
def test_exact_match_is_the_share_that_greedy_search_writes(name):
    data = prepared(name, test_lengths=(4, 5))
    model = model_of(data)
    torch.manual_seed(0)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(20 if name == "parity" else 150):  # so much that it is right now and then
        batch = data.collate(data.test.__getitems__(list(range(len(data.test)))))
        optimizer.zero_grad()
        model.train()(**batch).loss.backward()
        optimizer.step()
    model.eval()
    tally = TASKS["causal-lm"].tally(CPU, OPTIONS, examples=[data.test])
    batches = [data.collate(data.test.__getitems__(list(range(n, min(n + 7, 40))))) for n in range(0, 40, 7)]
    scores = score(model, batches, tally, device=CPU).scores()
    right = tokens = hits = 0
    for number in range(len(data.test)):
        example = data.test[number]
        wanted = example["labels"][example["labels"] != -100]
        first = int((example["labels"] != -100).nonzero()[0])
        written = model.generate(
            example["input_ids"][None, :first], do_sample=False, max_new_tokens=len(wanted), eos_token_id=None
        )[0, first:]
        right += bool((written == wanted).all())
        true = model(input_ids=example["input_ids"][None]).logits[0, first - 1 : first - 1 + len(wanted)].argmax(-1)
        tokens, hits = tokens + len(wanted), hits + int((true == wanted).sum())
    assert scores["exact_match"] == right / 40
    assert 0 < right < 40
    assert scores["accuracy"] == hits / tokens
    assert (scores["answers"], scores["tokens"]) == (40, tokens)


def test_answers_have_no_scores_of_running_text_and_text_has_none_of_answers(tmp_path):
    scores = AnswerTally(CPU).scores()
    assert {"exact_match", "answers"} <= set(scores)
    assert not {"bits_per_character", "word_perplexity"} & set(scores)
    (tmp_path / "a.txt").write_text("A sentence of a text. " * 900)
    sections = settings(source=str(tmp_path / "a.txt"), task="causal-lm", length=16)
    text = prepare(*sections, TokenizerConfig(kind="byte"), seed=0)
    tally = TASKS["causal-lm"].tally(CPU, OPTIONS, examples=[text.test])
    assert type(tally) is CausalTally
    assert "exact_match" not in tally.scores()


def test_an_answer_with_one_wrong_token_is_wrong():
    labels = torch.tensor([[-100, -100, 1, 2], [-100, 1, 2, -100], [-100, -100, -100, -100]])
    logits = torch.zeros(3, 4, 4)
    for row, place, token in ((0, 1, 1), (0, 2, 2), (1, 0, 1), (1, 1, 3)):
        logits[row, place, token] = 5.0
    tally = AnswerTally(CPU)
    tally.add(logits, labels)
    found = tally.scores()
    assert (found["exact_match"], found["accuracy"], found["answers"], found["tokens"]) == (0.5, 0.75, 2, 4)
    tally.reduce(lambda tensor: tensor * 2, lambda rows: rows)
    assert (tally.scores()["exact_match"], tally.scores()["answers"]) == (0.5, 4)


@pytest.mark.parametrize("reset", ["documents", "never"])
def test_lanes_predict_every_answer_once_and_nothing_else(reset):
    data = prepared("recall", packing="lanes", length=8, reset_memory=reset, eval_lanes=4)
    text = data.test
    assert text.predicted.sum() == 40
    found, read = [], 0
    for lanes in text.scoring_lanes():
        for example in (lanes[number] for number in range(len(lanes))):
            read += len(example["input_ids"])
            found += example["shift_labels"][example["shift_labels"] != -100].tolist()
    assert read == len(text.ids)
    assert sorted(found) == sorted(text.ids[text.predicted].tolist())
    windows = text.windows()
    labels = torch.cat([windows[number]["shift_labels"] for number in range(len(windows))])
    assert labels[labels != -100].tolist() == text.ids[text.predicted].tolist()
    # the word after the key asked for is its value, and the question stands right before the answer
    where = np.flatnonzero(text.predicted)
    assert words(data, text.ids[where - 3]) == ["?"] * 40
    assert words(data, text.ids[where - 1]) == ["[SEP]"] * 40
    epochs = data.train.training_lanes(4, seed=0)
    answers = [
        sorted(
            token
            for number in range(len(epochs))
            for token in epochs[(epoch, number)]["shift_labels"].tolist()
            if token != -100
        )
        for epoch in (0, 1)
    ]
    assert answers[0] == answers[1] == sorted(data.train.ids[data.train.predicted].tolist())


def test_models_with_and_without_memory_are_scored_on_the_same_answers():
    data = prepared("recall", packing="lanes", length=8, reset_memory="documents", eval_lanes=4)
    memory = {"memory": "segment-recurrence", "memory_length": 16, "segment_length": 8, "encoding": "transformer-xl"}
    collate = CollateLanes(padding=0)
    counts = []
    for fields, carries in ((memory, True), ({}, False)):
        tally = TASKS["causal-lm"].tally(CPU, OPTIONS, examples=[data.test])
        streams = data.test.scoring_lanes() if carries else [data.test.windows()]
        for part in streams:
            rows = part.rows if carries else 8
            batches = (
                collate(part.__getitems__(list(range(n, min(n + rows, len(part)))))) for n in range(0, len(part), rows)
            )
            score_running_text(model_of(data, **fields), batches, tally, device=CPU, carries=carries)
        counts.append((tally.scores()["answers"], tally.scores()["tokens"]))
    assert counts == [(40, 40)] * 2


def test_lanes_need_answers_of_one_token():
    with pytest.raises(BadInput, match=r"lanes needs answers of one token each, .* up to 3 of one; set token"):
        prepared("recall", packing="lanes", length=8, kind="byte")


@pytest.mark.parametrize(
    ("task", "generated", "headline"),
    [
        ("causal-lm", True, "exact_match"),
        ("causal-lm", False, "perplexity"),
        ("translation", True, "exact_match"),
        ("translation", False, "bleu"),
        ("classification", True, "accuracy"),
    ],
)
def test_comparisons_rank_by_right_answers(task, generated, headline):
    assert metric_of(task, "loss", generated=generated) == headline
    source = "task:parity" if generated else "a.txt"
    results = SimpleNamespace(task=task, metric=None, recipe=SimpleNamespace(data={"source": source}))
    assert quality_of(results).key == headline
    shown = [metric.key for metric in beside(results)]
    assert ("bits_per_character" in shown) == (task == "causal-lm" and not generated)
    assert headline not in shown
