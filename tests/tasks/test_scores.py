import math
from functools import partial
from types import SimpleNamespace

import pytest
import torch
from scipy.stats import pearsonr, spearmanr
from sklearn.metrics import f1_score, matthews_corrcoef
from torch.nn import functional

from wordorder.data import Text, Texts
from wordorder.errors import BadInput
from wordorder.tasks import TASKS, task_options
from wordorder.tasks.classification import ClassificationOptions
from wordorder.tasks.scores import CausalTally, ClassTally, NumberTally, TextTally, TokenTally, bleu_signature, score
from wordorder.tasks.translation import TranslationOptions

CPU = torch.device("cpu")


def masked_batches(sizes, vocabulary=11):
    made = torch.Generator().manual_seed(0)
    for rows, columns in sizes:
        labels = torch.randint(0, vocabulary, (rows, columns), generator=made)
        labels[torch.rand(rows, columns, generator=made) < 0.6] = -100
        yield torch.randn(rows, columns, vocabulary, generator=made), labels


def by_hand(batches):
    """One prediction after the other, in float64."""
    losses, hits = [], []
    for logits, labels in batches:
        for row, label in zip(logits.flatten(0, -2).double(), labels.flatten().tolist(), strict=True):
            if label != -100:
                losses.append(-math.log(float(row[label].exp() / row.exp().sum())))
                hits.append(int(row.argmax()) == label)
    return sum(losses) / len(losses), sum(hits) / len(hits), len(losses)


def test_scores_weigh_every_token_alike():
    batches = list(masked_batches([(3, 5), (1, 63), (7, 2)]))
    tally = TokenTally(CPU)
    for logits, labels in batches:
        tally.add(logits, labels)
    loss, accuracy, count = by_hand(batches)
    found = tally.scores()
    assert found["loss"] == pytest.approx(loss, rel=1e-6)
    assert found["accuracy"] == accuracy
    assert found["tokens"] == count
    assert found["perplexity"] == pytest.approx(math.exp(loss), rel=1e-5)


def test_logits_of_labelled_tokens_alone_give_the_same_scores():
    dense, sparse = TokenTally(CPU), TokenTally(CPU)
    for logits, labels in masked_batches([(3, 5), (1, 63)]):
        dense.add(logits, labels)
        sparse.add(logits[labels != -100], labels)
    assert sparse.scores() == dense.scores()


@pytest.mark.parametrize("split", [1, 2, 3])
def test_running_text_is_divided_by_its_characters_and_words(split):
    logits, labels = torch.randn(3, 6, 11), torch.randint(0, 11, (3, 6))
    labels[2, 4:] = -100
    labels[:, 0] = -100  # nothing stands before the first token
    tally = CausalTally(CPU, characters=40, words=9)
    tally.add(logits[:split], labels[:split])
    if split < 3:
        tally.add(logits[split:, :], labels[split:])
    losses = [
        -float(logits[row, place - 1].double().log_softmax(-1)[labels[row, place]])
        for row in range(3)
        for place in range(1, 6)
        if labels[row, place] != -100
    ]
    found = tally.scores()
    assert found["tokens"] == len(losses) == 13
    assert found["loss"] == pytest.approx(sum(losses) / 13, rel=1e-6)
    assert found["bits_per_character"] == pytest.approx(sum(losses) / math.log(2) / 40, rel=1e-6)
    assert found["word_perplexity"] == pytest.approx(math.exp(sum(losses) / 9), rel=1e-5)


def in_batches(tally, predictions, labels, size=33):
    for start in range(0, len(labels), size):
        tally.add(predictions[start : start + size], labels[start : start + size])
    return tally


@pytest.mark.parametrize("classes", [2, 4])
def test_scores_of_classes_are_those_of_scikit_learn(classes):
    made = torch.Generator().manual_seed(1)
    seen = classes - 1 if classes > 2 else classes
    logits, labels = torch.randn(200, classes, generator=made), torch.randint(0, seen, (200,), generator=made)
    logits[:, seen:] -= 100  # the last of four classes occurs nowhere, and is left out
    found = in_batches(ClassTally(CPU, classes), logits, labels).scores()
    predicted = logits.argmax(-1)
    assert found["macro_f1"] == pytest.approx(f1_score(labels, predicted, average="macro"))
    assert found["matthews_correlation"] == pytest.approx(matthews_corrcoef(labels, predicted))
    assert found.get("f1") == (pytest.approx(f1_score(labels, predicted)) if classes == 2 else None)
    assert found["accuracy"] == pytest.approx(float((predicted == labels).float().mean()))
    assert found["examples"] == 200
    assert "perplexity" not in found


def test_scores_of_very_many_classes_take_no_table_of_all_pairs():
    classes = 100_000  # whose pairs would be 80 GB
    made = torch.Generator().manual_seed(3)
    labels = torch.randint(0, classes, (300,), generator=made)
    predicted = torch.where(torch.rand(300, generator=made) < 0.5, labels, labels.flip(0))
    tally = ClassTally(CPU, classes)
    for label, prediction in zip(labels.split(100), predicted.split(100), strict=True):
        tally.add(torch.nn.functional.one_hot(prediction, classes).float(), label)
    found = tally.scores()
    assert found["macro_f1"] == pytest.approx(f1_score(labels, predicted, average="macro"))
    assert found["matthews_correlation"] == pytest.approx(matthews_corrcoef(labels, predicted), rel=1e-12)
    assert found["accuracy"] == pytest.approx(float((predicted == labels).float().mean()))


def test_classes_of_processes_are_joined_and_what_filled_up_is_left_out():
    labels, predicted = torch.tensor([0, 1, 1, 2, 2, 0]), torch.tensor([0, 1, 2, 2, 1, 0])
    logits = torch.nn.functional.one_hot(predicted, 3).float()
    whole = in_batches(ClassTally(CPU, 3), logits, labels).scores()
    mine, theirs = in_batches(ClassTally(CPU, 3), logits[:4], labels[:4]), torch.stack((labels, predicted), dim=1)[4:]
    padded = torch.cat((theirs.float(), torch.full((1, 2), math.nan)))
    mine.reduce(lambda tensor: tensor, lambda rows: torch.cat((rows, padded)))
    assert {name: mine.scores()[name] for name in ("macro_f1", "matthews_correlation")} == pytest.approx(
        {name: whole[name] for name in ("macro_f1", "matthews_correlation")}
    )


@pytest.mark.parametrize("labels", [[0, 0, 0], [1, 1, 1], [0, 1, 1]])
def test_one_class_alone_has_no_matthews_correlation(labels):
    tally = ClassTally(CPU, 2)
    tally.add(torch.tensor([[1.0, 0.0]] * 3), torch.tensor(labels))
    assert tally.scores()["matthews_correlation"] == 0
    assert tally.scores()["f1"] == 0


def numbers(count=101):
    made = torch.Generator().manual_seed(2)
    labels = torch.rand(count, generator=made)
    return labels[:, None] + 0.5 * torch.randn(count, 1, generator=made), labels


def test_scores_of_numbers_are_those_of_scipy():
    predicted, labels = numbers()
    found = in_batches(NumberTally(CPU), predicted, labels).scores()
    assert found["pearson"] == pytest.approx(pearsonr(predicted[:, 0], labels).statistic, abs=1e-6)
    assert found["spearmanr"] == pytest.approx(spearmanr(predicted[:, 0], labels).statistic)
    assert found["loss"] == pytest.approx(float(((predicted[:, 0] - labels) ** 2).mean()), rel=1e-6)
    assert found["examples"] == 101
    assert found["pearson"] != pytest.approx(found["spearmanr"], abs=1e-4)


@pytest.mark.parametrize("equal", ["predictions", "labels"])
def test_equal_numbers_have_no_correlation(equal):
    predicted, labels = numbers(5)
    tally = NumberTally(CPU)
    tally.add(predicted * (equal != "predictions"), labels * (equal != "labels"))
    found = tally.scores()
    assert (found["pearson"], found["spearmanr"]) == (0, 0)
    assert math.isfinite(found["loss"])


def test_a_model_that_diverged_has_a_loss_that_is_not_a_number():
    tally = NumberTally(CPU)
    tally.add(torch.tensor([[math.nan], [1.0]]), torch.tensor([0.0, 1.0]))
    assert math.isnan(tally.scores()["loss"])


def test_sums_over_processes_are_added():
    tally = ClassTally(CPU, 2)
    tally.add(torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]]), torch.tensor([0, 0, 1]))
    before = tally.scores()
    tally.reduce(lambda tensor: 3 * tensor, lambda rows: rows)
    assert tally.scores() == pytest.approx(before | {"examples": 9})


def test_numbers_of_processes_are_joined_and_what_filled_up_is_left_out():
    predicted, labels = numbers(7)
    whole = in_batches(NumberTally(CPU), predicted, labels).scores()
    mine = in_batches(NumberTally(CPU), predicted[:4], labels[:4])
    theirs = torch.cat((torch.stack((predicted[4:, 0], labels[4:]), dim=1), torch.full((1, 2), math.nan)))
    mine.reduce(lambda tensor: tensor, lambda rows: torch.cat((rows, theirs)))
    assert mine.scores() == pytest.approx(whole)


def test_f1_is_that_of_the_positive_class():
    labels, logits = torch.tensor([0, 0, 1, 1, 1, 0]), torch.tensor([0, 1, 1, 1, 0, 0]).long()
    for positive in (0, 1):
        tally = ClassTally(CPU, 2, positive=positive)
        tally.add(functional.one_hot(logits, 2).float(), labels)
        expected = f1_score(labels.numpy(), logits.numpy(), pos_label=positive)
        assert tally.scores()["f1"] == pytest.approx(expected)
    options = ClassificationOptions(positive_class="fraud")
    tally = TASKS["classification"].tally(CPU, options, classes=("fraud", "ok"))
    tally.add(functional.one_hot(logits, 2).float(), labels)
    assert tally.scores()["f1"] == pytest.approx(f1_score(labels.numpy(), logits.numpy(), pos_label=0))
    with pytest.raises(BadInput, match=r"task\.positive_class 'fraud': must be one of two classes; the data has a, b"):
        TASKS["classification"].tally(CPU, options, classes=("a", "b"))


def test_bleu_of_a_script_without_spaces_needs_its_tokenizer():
    sentences = ["\u4eca\u5929\u5929\u6c14\u5f88\u597d\u6211\u4eec\u51fa\u53bb\u8d70\u8d70\u3002"] * 3
    near = [sentence.replace("\u5f88", "\u771f") for sentence in sentences]
    scores = {}
    for tokenizer in ("13a", "zh"):
        tally = TASKS["translation"].tally(CPU, TranslationOptions(bleu_tokenizer=tokenizer))
        tally.add_translations(near, sentences)
        scores[tokenizer] = tally.scores()["bleu"]
        assert f"tok:{tokenizer}" in bleu_signature(tokenizer)
    assert scores["13a"] < 5 < 60 < scores["zh"]
    notes_of = partial(TASKS["translation"].notes, options=TranslationOptions())
    (note,) = notes_of(Texts.of(Text(text="It is fine.", pair=one) for one in sentences))
    assert 'set task.bleu_tokenizer="zh" for Chinese' in note
    assert notes_of(Texts.of([Text(text="It is fine.", pair="Es ist sch\u00f6n.")])) == []


def in_pieces(texts, pieces):
    """The index of the text of each of many pieces, in any order, every text among them."""
    made = torch.Generator().manual_seed(1)
    return torch.cat((torch.arange(texts), torch.randint(texts, (pieces - texts,), generator=made)))[
        torch.randperm(pieces, generator=made)
    ]


@pytest.mark.parametrize("sizes", [[17], [5, 12], [1] * 17])
def test_texts_in_pieces_are_scored_once_each_by_the_mean_of_their_log_probabilities(sizes):
    text_of, classes = in_pieces(6, 17), torch.tensor([0, 2, 1, 1, 0, 2])
    logits = torch.randn(17, 3)
    tally = TextTally(lambda: ClassTally(CPU, 3), CPU, texts=6, width=3)
    tally.keep_units(6)
    for rows, texts in zip(logits.split(sizes), text_of.split(sizes), strict=True):
        tally.add(rows, classes[texts], texts)
    losses, right = [], []
    for text, label in enumerate(classes.tolist()):
        logs = [torch.log(row.double().exp() / row.double().exp().sum()) for row in logits[text_of == text]]
        geometric = torch.exp(sum(logs) / len(logs))
        losses.append(-math.log(float(geometric[label] / geometric.sum())))
        right.append(int(geometric.argmax()) == label)
    scores = tally.scores()
    assert scores["examples"] == 6
    assert scores["loss"] == pytest.approx(sum(losses) / 6, rel=1e-6)
    assert scores["accuracy"] == sum(right) / 6
    assert tally.units.losses.tolist() == pytest.approx(losses, rel=1e-5)
    assert tally.units.right.tolist() == right
    assert tally.units.counts.tolist() == [1] * 6


def test_numbers_of_texts_in_pieces_are_averaged():
    text_of, labels, predicted = in_pieces(6, 17), torch.tensor([0.1, 2.0, -1.0, 1.5, 0.3, 9.0]), torch.randn(17, 1)
    tally = TextTally(lambda: NumberTally(CPU), CPU, texts=6, width=1)
    tally.add(predicted, labels[text_of], text_of)
    means = torch.stack([predicted[text_of == text].mean() for text in range(6)])
    expected = NumberTally(CPU)
    expected.add(means[:, None], labels)
    assert tally.scores() == pytest.approx(expected.scores(), rel=1e-5)


def test_pieces_of_a_text_on_two_processes_are_of_one_text():
    text_of, classes, logits = in_pieces(6, 17), torch.tensor([0, 2, 1, 1, 0, 2]), torch.randn(17, 3)

    def tally_of(rows):
        tally = TextTally(lambda: ClassTally(CPU, 3), CPU, texts=6, width=3)
        tally.add(logits[rows], classes[text_of[rows]], text_of[rows])
        return tally

    whole, mine, theirs = tally_of(slice(None)).scores(), tally_of(slice(0, 9)), tally_of(slice(9, None))
    sums = iter((theirs._outputs, theirs._pieces, theirs._labels, theirs._seen))
    mine.reduce(lambda tensor: tensor + next(sums), lambda rows: rows)
    assert mine.scores() == pytest.approx(whole, rel=1e-6)


def tally_of(task, generated, rows):
    """The tally of a task on texts or on a generated task, with some of six rows of predictions counted."""
    text = SimpleNamespace(characters=9, words=2, predicted=object() if generated else None)
    examples = [] if task.labels else [text, text]
    tally = task.tally(
        CPU, task_options({"name": task.name}), classes=["a", "b"] if task.labels == "class" else [], examples=examples
    )
    made = torch.Generator().manual_seed(0)
    logits = torch.randn(6, 3, 1 if task.labels == "number" else 2, generator=made)
    labels = torch.randint(0, 2, (6, 3), generator=made)
    if task.labels:
        logits, labels = logits[:, 0], labels[:, 0].float() if task.labels == "number" else labels[:, 0]
    tally.add(logits[rows], labels[rows])
    if task.translates:
        tally.add_translations(["a b", "c", "d", "e f", "g", "h"][rows], ["a c", "c", "d", "e", "g", "i"][rows])
    return tally


OF_TASKS = pytest.mark.parametrize("generated", [False, True])


@OF_TASKS
@pytest.mark.parametrize("task", TASKS.values(), ids=TASKS)
def test_every_metric_that_a_recipe_may_name_is_a_score(task, generated):
    scores = tally_of(task, generated, slice(None)).scores()
    shown = (*task.metrics_of(generated), task.headline_of(generated), *(() if generated else task.beside))
    assert {"loss", task.progress_metric, *(metric.key for metric in shown)} <= scores.keys()


@OF_TASKS
@pytest.mark.parametrize("task", TASKS.values(), ids=TASKS)
def test_scores_of_two_processes_are_those_of_one(task, generated):
    """Each number of a tally must be reduced: one that is forgotten is of the first process alone."""
    mine, theirs = (tally_of(task, generated, rows) for rows in (slice(0, 4), slice(4, 6)))
    # record what the other process gives, in order; then the first one combines with it
    given = []
    theirs.reduce(lambda tensor: given.append(tensor) or tensor, lambda rows: given.append(rows) or rows)
    of_theirs = iter(given)
    mine.reduce(lambda tensor: tensor + next(of_theirs), lambda rows: torch.cat((rows, next(of_theirs))))
    assert mine.scores() == pytest.approx(tally_of(task, generated, slice(None)).scores(), rel=1e-6)


@pytest.mark.parametrize(
    "tally", [TokenTally(CPU), CausalTally(CPU, characters=0, words=0), ClassTally(CPU, 2), NumberTally(CPU)]
)
def test_nothing_to_predict_is_not_a_number(tally):
    if isinstance(tally, TokenTally):
        tally.add(torch.zeros(1, 2, 3), torch.full((1, 2), -100))
    assert math.isnan(tally.scores()["loss"])


def test_a_huge_loss_has_a_finite_perplexity():
    tally = TokenTally(CPU)
    tally.add(torch.tensor([[1e6, 0.0]]), torch.tensor([1]))
    assert math.isfinite(tally.scores()["perplexity"])


def test_a_model_is_scored_without_gradients():
    seen = []

    def model(logits, labels):
        seen.append(torch.is_grad_enabled())
        return SimpleNamespace(logits=logits)

    batches = [{"logits": logits, "labels": labels} for logits, labels in masked_batches([(2, 3), (4, 5)])]
    found = score(model, batches, TokenTally(CPU), device=CPU).scores()
    assert seen == [False, False]
    assert found["loss"] == pytest.approx(by_hand((b["logits"], b["labels"]) for b in batches)[0], rel=1e-6)


def test_a_batch_of_many_classes_makes_no_matrix_of_them():
    from torch.utils._python_dispatch import TorchDispatchMode

    tally, largest = ClassTally(torch.device("cpu"), 500), [0]

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            out = func(*args, **(kwargs or {}))
            if isinstance(out, torch.Tensor):
                largest[0] = max(largest[0], out.numel())
            return out

    one_hot = torch.eye(500)
    with Watch():
        for label in (3, 3, 499):
            tally.add(one_hot[[label, 7]], torch.tensor([label, label]))
    assert 0 < largest[0] <= 1000
    assert tally.scores()["accuracy"] == 0.5
