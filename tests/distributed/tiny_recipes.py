"""The tiny recipes that one process and two train: three tasks, no dropout but where a test asks for it."""

import os
from contextlib import contextmanager

import torch

from wordorder.models import build_config, build_model
from wordorder.training import read_recipe, run
from wordorder.training.loop.loop import Loop

RECIPE = """
[data]
source = "{source}"
length = 16
validation_fraction = 0.2
test_fraction = 0.2

[task]
name = "masked-lm"

[tokenizer]
kind = "byte"

[model]
network = "encoder"
hidden_size = 16
num_hidden_layers = 2
num_attention_heads = 2
max_position_embeddings = 32
encoding = "tupe-r"
hidden_dropout_prob = 0.0
attention_probs_dropout_prob = 0.0

[training]
max_steps = 4
# nearly plain gradient descent at a rate of 0.1, in which rounding does not grow: AdamW without averages and with an
# epsilon far above every gradient
learning_rate = 1000.0
adam_beta1 = 0.0
adam_beta2 = 0.0
adam_epsilon = 10000.0
max_grad_norm = 0.0
log_every = 1
evaluate_every = 2
trackers = []
device = "cpu"
"""

TWICE = "training.batch_size=8"
"""Micro-batches of four examples, two in a step."""
LANES = (
    "task.name=causal-lm",
    "task.packing=lanes",
    "task.eval_lanes=3",
    "model.network=decoder",
    "model.encoding=transformer-xl",
    "model.memory=look-ahead",
    "model.memory_length=24",
)
# seven examples to train on: the second step of an epoch has three, of which process 1 gets two, or one, or none
FEW = ("data.limit_documents=11", "data.length=32", "task.truncate=true")
TASKS = {
    "masked-lm": (TWICE,),
    "lanes": (*LANES, TWICE),
    "segments": (*LANES, "training.segments_per_step=2"),
    "classification": ("task.name=classification", *FEW, "training.epochs=2"),
    "regression": (
        "task.name=regression",
        "data.source={corpus}/numbers.csv",
        "training.epochs=1",
    ),
}
"""Name -> overrides, for `train`."""

ADAM_DEFAULTS = ("training.adam_beta1=0.9", "training.adam_beta2=0.999", "training.adam_epsilon=1e-8")
DROPOUT = (
    "model.hidden_dropout_prob=0.2",
    *ADAM_DEFAULTS,
    "training.learning_rate=0.001",
    "training.max_steps=6",
    "training.evaluate_every=3",
    "training.save_every=3",
)
ADAM = (*ADAM_DEFAULTS, "training.learning_rate=0.01", "training.max_grad_norm=1.0")

NETWORKS = {
    "encoder": ("encoder", "masked-lm", {"encoding": "tupe-r"}),
    "decoder": (
        "decoder",
        "causal-lm",
        {"encoding": "transformer-xl", "memory": "look-ahead", "memory_length": 8, "segment_length": 8},
    ),
}


def network(name):
    kind, task, fields = NETWORKS[name]
    sizes = {"vocab_size": 40, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
    quiet = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    config = build_config(kind, **sizes, **quiet, max_position_embeddings=32, pad_token_id=0, **fields)
    return build_model(config, task, seed=0)


def train(folder, corpus, *overrides, rows, resume=False, recorded=None):
    """Train in this process, alone or as one of several: `rows` are those of a batch in one process.

    Args:
        folder: the run folder.
        corpus: of the fixture.
        *overrides: of the recipe; {corpus} is filled in.
        rows: examples of a micro-batch of this process.
        resume: go on.
        recorded: a list that gets the gradients of each step.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    path = folder.parent / f"{folder.name}-{rows}-{os.environ.get('RANK', 'alone')}.toml"
    path.write_text(RECIPE.format(source=f"{corpus}/*/*.txt"))
    settings = [text.replace("{corpus}", str(corpus)) for text in overrides]
    recipe = read_recipe(path, ["training.batch_size=4", f"training.micro_batch_size={rows}", *settings])
    with gradients_in(recorded):
        return run(recipe, output_dir=folder, resume=resume, progress=False)


@contextmanager
def gradients_in(recorded):
    """Keep the gradients that each optimizer step gets."""
    original = Loop.clip

    def record(self):
        norm = original(self)
        if recorded is not None:
            named = self.training.parts.model.named_parameters()
            recorded.append({name: weight.grad.clone() for name, weight in named if weight.grad is not None})
        return norm

    Loop.clip = record
    try:
        yield
    finally:
        Loop.clip = original


def flat(recorded):
    """The gradients of all steps by name, for a file of safetensors."""
    return {f"{step} {name}": grad for step, grads in enumerate(recorded) for name, grad in grads.items()}


def losses(result):
    """The training loss of each step."""
    return [row["loss"] for row in result.curve if "loss" in row]


def largest_difference(one, other):
    """Of two dicts of tensors of the same names."""
    assert one.keys() == other.keys()
    return max(float((one[name] - other[name]).abs().max()) for name in one)


def close(one, other, within=1e-6):
    """Whether two nested results have the same numbers."""
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(close(one[name], other[name], within) for name in one)
    return abs(one - other) <= within * max(1.0, abs(other))


torch.set_num_threads(1)
