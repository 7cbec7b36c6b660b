import pytest
from torch import nn

from wordorder.encodings import ComplexOrderEmbedding
from wordorder.inspection import cost
from wordorder.inspection.traffic import traffic
from wordorder.models import build_config
from wordorder.networks import TextEmbedding

V, D, N = 1000, 8, 30


def test_a_matrix_moves_ten_times():
    model = nn.Linear(6, 5)
    moved = traffic(model, tokens=N)
    assert moved.dense == moved.row_wise == 4 * 10 * (30 + 5)


def test_a_table_moves_whole_or_by_the_rows_that_tokens_read():
    moved = traffic(nn.Embedding(V, D), tokens=N)
    assert moved.dense == 4 * (3 * N * D + 8 * V * D)
    assert moved.row_wise == 4 * (3 * N * D + 8 * N * D)
    few = traffic(nn.Embedding(7, D), tokens=N)
    assert few.row_wise == few.dense


@pytest.mark.parametrize(
    ("options", "tables", "shared"),
    [
        ({}, 2 * [D], 0),
        ({"phase": True}, 3 * [D], 0),
        ({"frequency": "word-sharing"}, [D], D),
        ({"frequency": "dimension-sharing"}, [D, 1], 0),
        ({"amplitude": "dimension-sharing"}, [1, D], 0),
    ],
)
def test_schemes_of_complex_order(options, tables, shared):
    moved = traffic(ComplexOrderEmbedding(V, D, **options), tokens=N)
    assert moved.dense == sum(4 * (3 * N * row + 8 * V * row) for row in tables) + 4 * 10 * shared
    assert moved.row_wise == sum(4 * 11 * N * row for row in tables) + 4 * 10 * shared


def test_frozen_tables_and_tied_ones():
    frozen = ComplexOrderEmbedding(V, D, frequency_trainable=False)
    assert traffic(frozen, tokens=N) == traffic(nn.Embedding(V, D), tokens=N)
    tied = nn.ModuleList([nn.Embedding(V, D), nn.Linear(D, V, bias=False)])
    assert isinstance(tied[0], nn.Embedding)
    tied[1].weight = tied[0].weight
    assert traffic(tied, tokens=N).row_wise == 4 * 10 * V * D


def test_tables_of_positions_are_never_read_by_row():
    model = TextEmbedding(V, width=D, encoding="learned", max_positions=100)
    moved = traffic(model, tokens=N)
    assert moved.dense - moved.row_wise == 4 * 8 * (V - N) * D


def test_cost_says_it_for_a_model():
    config = build_config("encoder", encoding="complex-order", vocab_size=V, hidden_size=D, num_hidden_layers=1,
                          num_attention_heads=2, tie_word_embeddings=False)  # fmt: skip
    found = cost(config, "masked-lm", length=10, batch_size=3)
    saved = found["moved_bytes"] - found["moved_row_wise_bytes"]
    assert saved == 2 * 4 * 8 * (V - 30) * D
