"""What each architecture can learn of word order with each encoding: does word 1 stand before word 2?"""

from functools import cache

import pytest
import torch

from wordorder.models import build_config, build_model

ARCHITECTURES = ["bag-of-words", "convolution", "recurrent", "transformer"]
ENCODINGS = ["none", "learned", "sinusoidal", "complex-vanilla", "complex-order"]
COMPLEX = [("complex-vanilla", True), ("complex-order", True)]
PAIRS = [(a, e, c) for a in ARCHITECTURES for e, c in [*((e, False) for e in ENCODINGS), *COMPLEX]]


def texts(count, generator):
    """Texts of 4 to 8 words, 0 where padding is, each with one 1 and one 2; label: the 1 stands first."""
    x = torch.randint(3, 12, (count, 8), generator=generator)
    lengths = torch.randint(4, 9, (count,), generator=generator)
    x[torch.arange(8) >= lengths[:, None]] = 0
    where = torch.stack([torch.randperm(int(length), generator=generator)[:2] for length in lengths])
    x[torch.arange(count), where[:, 0]], x[torch.arange(count), where[:, 1]] = 1, 2
    return x, (where[:, 0] < where[:, 1]).long()


@cache
def batches(steps):
    """The same texts for every model: a batch for each step, and those to test it on."""
    generator = torch.Generator().manual_seed(0)
    return [texts(128, generator) for _ in range(steps)], texts(400, generator)


def accuracy_after(steps, **fields):
    config = build_config(
        "classifier",
        vocab_size=12,
        hidden_size=16,
        num_attention_heads=2,
        filters=16,
        pad_token_id=0,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        initializer_range=0.2,
        max_position_embeddings=8,
        num_labels=2,
        **fields,
    )
    model, (training, (x, labels)) = build_model(config, "classification", seed=0), batches(steps)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    for ids, answers in training:
        optimizer.zero_grad()
        model(ids, attention_mask=(ids > 0).long(), labels=answers).loss.backward()
        optimizer.step()
    with torch.no_grad():
        logits = model.eval()(x, attention_mask=(x > 0).long()).logits
    return (logits.argmax(1) == labels).float().mean().item()


@pytest.mark.parametrize(("architecture", "encoding", "complex_valued"), PAIRS)
def test_order_is_learned_where_there_is_order_to_see(architecture, encoding, complex_valued):
    blind = {
        "bag-of-words": encoding != "complex-order",  # a sum; added positions have the same sum in every order
        "transformer": encoding in ("none", "complex-vanilla"),
        # windows and recurrences see order by themselves
    }
    found = accuracy_after(60, architecture=architecture, encoding=encoding, complex_valued=complex_valued)
    if blind.get(architecture, False):
        assert 0.4 < found < 0.6
    else:
        assert found > 0.9


def test_encodings_of_attention_too():
    assert accuracy_after(60, architecture="transformer", encoding="tupe-r") > 0.9
    assert accuracy_after(80, architecture="transformer", encoding="complex-vanilla+rope", complex_valued=True) > 0.9
