import math
from types import SimpleNamespace

import pytest
import torch
from sklearn.metrics import f1_score

from wordorder.training.scores import Tally, score

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
    tally = Tally(CPU)
    for logits, labels in batches:
        tally.add(logits, labels)
    loss, accuracy, count = by_hand(batches)
    found = tally.scores()
    assert found["loss"] == pytest.approx(loss, rel=1e-6)
    assert found["accuracy"] == accuracy
    assert found["tokens"] == count
    assert found["perplexity"] == pytest.approx(math.exp(loss), rel=1e-5)


def test_logits_of_labelled_tokens_alone_give_the_same_scores():
    dense, sparse = Tally(CPU), Tally(CPU)
    for logits, labels in masked_batches([(3, 5), (1, 63)]):
        dense.add(logits, labels)
        sparse.add(logits[labels != -100], labels)
    assert sparse.scores() == dense.scores()


def test_macro_f1_is_that_of_scikit_learn():
    made = torch.Generator().manual_seed(1)
    logits, labels = torch.randn(200, 4, generator=made), torch.randint(0, 3, (200,), generator=made)
    logits[:, 3] -= 100  # class 3 occurs nowhere, and is left out
    tally = Tally(CPU, classes=4)
    for start in range(0, 200, 33):
        tally.add(logits[start : start + 33], labels[start : start + 33])
    found = tally.scores()
    assert found["macro_f1"] == pytest.approx(f1_score(labels, logits.argmax(-1), average="macro"))
    assert found["examples"] == 200
    assert "perplexity" not in found


def test_sums_over_processes_are_added():
    tally = Tally(CPU, classes=2)
    tally.add(torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]]), torch.tensor([0, 0, 1]))
    before = tally.scores()
    tally.reduce(lambda tensor: 3 * tensor)
    assert tally.scores() == before | {"examples": 9}


def test_nothing_to_predict_is_not_a_number():
    tally = Tally(CPU)
    tally.add(torch.zeros(1, 2, 3), torch.full((1, 2), -100))
    assert math.isnan(tally.scores()["loss"])


def test_a_huge_loss_has_a_finite_perplexity():
    tally = Tally(CPU)
    tally.add(torch.tensor([[1e6, 0.0]]), torch.tensor([1]))
    assert math.isfinite(tally.scores()["perplexity"])


def test_a_model_is_scored_without_gradients():
    seen = []

    def model(logits, labels):
        seen.append(torch.is_grad_enabled())
        return SimpleNamespace(logits=logits)

    batches = [{"logits": logits, "labels": labels} for logits, labels in masked_batches([(2, 3), (4, 5)])]
    found = score(model, batches, device=CPU).scores()
    assert seen == [False, False]
    assert found["loss"] == pytest.approx(by_hand((b["logits"], b["labels"]) for b in batches)[0], rel=1e-6)
