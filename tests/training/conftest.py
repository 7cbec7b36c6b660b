"""A small corpus and a tiny recipe on it, for all tests of training."""

import random

import pytest

RECIPE = """
[data]
source = "{source}"
task = "masked-lm"

[tokenizer]
vocab_size = 200

[model]
network = "encoder"
hidden_size = 16
num_hidden_layers = 1
num_attention_heads = 2
max_position_embeddings = 32
encoding = "tupe-a"
hidden_dropout_prob = 0.2

[training]
output_dir = "{folder}/run"
max_steps = 12
per_device_train_batch_size = 4
learning_rate = 3e-3
logging_steps = 1
eval_steps = 4
report_to = "none"
use_cpu = true
"""


@pytest.fixture(scope="session")
def corpus(tmp_path_factory):
    """Two dozen documents of made-up words, in three classes that differ in their words."""
    folder = tmp_path_factory.mktemp("corpus")
    draw = random.Random(0)
    words = ["".join(draw.choice("abcdefghij") for _ in range(draw.randint(2, 5))) for _ in range(75)]
    for number in range(24):
        label = ("left", "middle", "right")[number % 3]
        known = words[25 * (number % 3) :][:30]
        text = " ".join(" ".join(draw.choice(known) for _ in range(8)) + "." for _ in range(12))
        (folder / label).mkdir(exist_ok=True)
        (folder / label / f"{number:02d}.txt").write_text(text)
    return folder


def write_recipe(folder, corpus):
    path = folder / "tiny.toml"
    path.write_text(RECIPE.format(source=f"{corpus}/*/*.txt", folder=folder))
    return path


@pytest.fixture
def recipe_file(tmp_path, corpus):
    """A recipe that trains for twelve steps in a second; its run folder is tmp_path / "run"."""
    return write_recipe(tmp_path, corpus)


@pytest.fixture(scope="session")
def shared_recipe_file(tmp_path_factory, corpus):
    """The same recipe, for runs that several tests only look at."""
    return write_recipe(tmp_path_factory.mktemp("shared"), corpus)
