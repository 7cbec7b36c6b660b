import pytest
import torch
from torch import nn

from wordorder.models import build_config, build_model
from wordorder.networks import token_tables

SIZES = {"vocab_size": 50, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
WAVES = "encoder.embedding.waves"


def tables_of(network, task, **fields):
    model = build_model(build_config(network, **{**SIZES, **fields}), task, seed=0)
    found = token_tables(model)
    ids = torch.randint(1, 50, (2, 6))
    sides = {"input_ids": ids, **({"decoder_input_ids": ids} if task == "translation" else {})}
    model(**sides).logits.square().sum().backward()
    unused = [word for word in range(50) if word not in ids]
    tables = [(name, w.grad) for name, w in model.named_parameters() if w.grad is not None and w.shape[0] == 50]
    assert {name for name, gradient in tables if not gradient[unused].any()} == found.keys()
    return sorted(found)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, []),  # tied
        ({"tie_word_embeddings": False}, ["model.encoder.embedding.weight"]),
        ({"encoding": "learned+t5", "tie_word_embeddings": False}, ["model.encoder.embedding.weight"]),
        ({"encoding": "complex-order"}, [f"model.{WAVES}.frequency"]),
        ({"encoding": "complex-order", "encoding_options": {"frequency": "word-sharing"}}, []),
        (
            {"encoding": "complex-order", "encoding_options": {"phase": True}, "tie_word_embeddings": False},
            [f"model.{WAVES}.{name}" for name in ("amplitude", "frequency", "phase")],
        ),
    ],
)
def test_tables_that_only_look_ups_read_have_gradients_in_the_rows_of_the_batch_alone(fields, expected):
    assert tables_of("encoder", "masked-lm", **fields) == expected


def test_other_networks():
    assert tables_of("decoder", "causal-lm", tie_word_embeddings=False) == ["model.decoder.embedding.weight"]
    assert tables_of("classifier", "classification", architecture="bag-of-words", encoding="none", num_labels=3) == [
        "model.network.words.embedding.weight"
    ]
    both = tables_of("seq2seq", "translation", share_embeddings=False, tie_word_embeddings=False)
    assert [name.split(".")[-3] for name in both] == ["decoder", "encoder"]
    assert tables_of("seq2seq", "translation", share_embeddings=True) == []


def test_frozen_tables_and_those_of_one_row_are_left_out():
    table = nn.Embedding(5, 2)
    assert list(token_tables(nn.Sequential(table))) == ["0.weight"]
    table.requires_grad_(False)
    assert token_tables(nn.Sequential(table)) == {}
