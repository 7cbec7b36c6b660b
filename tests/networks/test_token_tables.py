import pytest
import torch
from torch import nn

from wordorder.models import build_config, build_model
from wordorder.networks import token_tables, use_sparse_gradients

SIZES = {"vocab_size": 50, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
WAVES = "encoder.embedding.waves"


def tables_of(network, task, **fields):
    model = build_model(build_config(network, **{**SIZES, **fields}), task, seed=0)
    found = use_sparse_gradients(model)
    ids = torch.randint(1, 50, (2, 6))
    sides = {"input_ids": ids, **({"decoder_input_ids": ids} if task == "translation" else {})}
    model(**sides).logits.square().sum().backward()
    sparse = {name for name, weight in model.named_parameters() if weight.grad is not None and weight.grad.is_sparse}
    assert sparse == found.keys() == token_tables(model).keys()
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
def test_tables_that_only_look_ups_read_get_sparse_gradients(fields, expected):
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
    assert list(use_sparse_gradients(nn.Sequential(table))) == ["0.weight"]
    assert table.sparse
    table.requires_grad_(False)
    assert use_sparse_gradients(nn.Sequential(table)) == {}
    assert not table.sparse
