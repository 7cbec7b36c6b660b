"""The recipe that the tests of the command line start from."""

import pytest

RECIPE = """
[data]
source = "corpus.txt"

[task]
name = "masked-lm"

[tokenizer]
kind = "word"
vocab_size = 64

[model]
network = "encoder"
encoding = "tupe-r"
hidden_size = 16
num_hidden_layers = 1
num_attention_heads = 2
intermediate_size = 32
max_position_embeddings = 16

[training]
max_steps = 4
batch_size = 4
learning_rate = 1e-2
output_dir = "run"
"""


@pytest.fixture(scope="session")
def recipe_text() -> str:
    """A model that trains on corpus.txt in a second, into run/."""
    return RECIPE


@pytest.fixture(autouse=True)
def width_of_a_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    """Print tables as wide as in a pipe, whatever the width of the terminal that make or pytest was called from."""
    monkeypatch.delenv("COLUMNS", raising=False)
