"""The runs that are killed: a corpus and two models so small that a run takes seconds."""

import random
from pathlib import Path

RECIPE = """
[data]
source = "{corpus}/*.txt"
{data}
[task]
{task}
[tokenizer]
{tokenizer}
[model]
hidden_size = 16
num_hidden_layers = 1
num_attention_heads = 2
max_position_embeddings = 32
hidden_dropout_prob = 0.2
{model}
[training]
output_dir = "run"
max_steps = 16
evaluate_every = 4
log_every = 3
batch_size = 8
micro_batch_size = 4
learning_rate = 3e-3
lr_schedule = "cosine"
trackers = []
device = "cpu"
threads = 1
"""

MODELS = {
    "masked-lm": {
        "data": "",
        "task": 'name = "masked-lm"',
        "tokenizer": "vocab_size = 200",
        "model": 'network = "encoder"\nencoding = "tupe-a"',
    },
    "memory": {
        "data": "length = 16",
        "task": 'name = "causal-lm"\npacking = "lanes"',
        "tokenizer": 'kind = "byte"',
        "model": 'network = "decoder"\nencoding = "transformer-xl"\nmemory = "look-ahead"\nmemory_length = 24',
    },
}
"""A masked language model, and a decoder whose look-ahead memory goes from batch to batch."""


def write_corpus(folder: Path) -> Path:
    """A dozen documents of made-up words."""
    folder.mkdir()
    draw = random.Random(0)
    words = ["".join(draw.choice("abcdefghij") for _ in range(draw.randint(2, 5))) for _ in range(75)]
    for number in range(12):
        text = " ".join(" ".join(draw.choice(words) for _ in range(8)) + "." for _ in range(12))
        (folder / f"{number:02d}.txt").write_text(text)
    return folder
