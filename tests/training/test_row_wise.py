"""`optim = "row_wise_adam"`: the same steps as AdamW's for the rows in use, and none for the others."""

import json
import random

import pytest
import torch
from safetensors.torch import load_file
from torch import nn
from torch.testing import assert_close
from transformers import TrainingArguments

from wordorder import RowWiseAdam
from wordorder.errors import BadInput
from wordorder.training import read_recipe, run
from wordorder.training.row_wise import RowWiseTrainer, with_dense_gradients

WORDS = [f"word{number}" for number in range(12)]

RECIPE = """
[data]
source = "{source}"
task = "classification"
validation_fraction = 0.2
test_source = "none"
truncate = true

[tokenizer]
kind = "whitespace"
min_frequency = 1
add_special_tokens = false

[model]
network = "classifier"
architecture = "bag-of-words"
hidden_size = 8
max_position_embeddings = 32
hidden_dropout_prob = 0.0
initializer_range = 0.5
encoding = "complex-order"

[training]
output_dir = "{folder}/run"
max_steps = 8
per_device_train_batch_size = 4
learning_rate = 1e-2
logging_steps = 1
eval_steps = 4
report_to = "none"
use_cpu = true
optim = "row_wise_adam"
"""


def recipe_of(folder, *, words):
    """A recipe on texts in two classes that draw ``words`` of twelve words in any order."""
    draw = random.Random(0)
    rows = [{"label": f"class{n % 2}", "text": " ".join(draw.sample(WORDS, words))} for n in range(40)]
    source, path = folder / "texts.jsonl", folder / "recipe.toml"
    source.write_text("\n".join(json.dumps(row) for row in rows))
    path.write_text(RECIPE.format(source=source, folder=folder))
    return path


def go(path, *overrides, folder):
    found = run(read_recipe(path, overrides), output_dir=folder, progress=False)
    state = json.loads((folder / "checkpoint-8" / "trainer_state.json").read_text())
    return load_file(found.model_dir / "model.safetensors"), state["log_history"]


@pytest.mark.parametrize(
    "overrides",
    [
        ("training.max_grad_norm=0.05", "training.gradient_accumulation_steps=2"),
        ("training.max_grad_norm=0", "training.lr_scheduler_type=cosine", "training.warmup_steps=2"),
        ("model.encoding=none", "training.adam_beta1=0.5", "training.adam_beta2=0.9", "training.adam_epsilon=1e-3"),
        ("training.bf16=true",),
    ],
    ids=["clipped and accumulated", "schedule", "betas", "autocast"],
)
def test_it_is_adamw_step_for_step_where_every_step_uses_every_row(tmp_path, overrides):
    path = recipe_of(tmp_path, words=len(WORDS))
    ours, log = go(path, *overrides, folder=tmp_path / "ours")
    dense, dense_log = go(path, *overrides, "training.optim=adamw_torch", folder=tmp_path / "dense")
    assert ours.keys() == dense.keys()
    for name in ours:
        assert_close(ours[name], dense[name], rtol=1e-4, atol=1e-6)
    steps = [[entry for entry in entries if "loss" in entry] for entries in (log, dense_log)]
    assert len(steps[0]) == 8
    for name in ("loss", "grad_norm", "learning_rate"):
        assert_close(*(torch.tensor([entry[name] for entry in entries]) for entries in steps), rtol=1e-4, atol=1e-6)


def weights_of(folder):
    return {step: load_file(folder / f"checkpoint-{step}" / "model.safetensors") for step in (1, 8)}


@pytest.mark.parametrize("optim", ["row_wise_adam", "adamw_torch"])
def test_rows_without_a_gradient_do_not_move(tmp_path, optim):
    path = recipe_of(tmp_path, words=3)
    settings = (f"training.optim={optim}", "training.keep_steps=[1]", "training.per_device_train_batch_size=1")
    settings += ("training.gradient_accumulation_steps=1", "training.weight_decay=0.5", "model.encoding=none")
    go(path, *settings, folder=tmp_path / "run")
    one_step = weights_of(tmp_path / "run")[1]["model.network.words.embedding.weight"]
    go(path, *settings, "training.learning_rate=1e-30", folder=tmp_path / "still")
    start = weights_of(tmp_path / "still")[1]["model.network.words.embedding.weight"]
    moved = int((one_step != start).any(dim=1).sum())
    # decay moves all rows of a dense table but those that are 0
    assert moved == 3 if optim == "row_wise_adam" else moved > len(WORDS)


class Recorder:
    def __init__(self):
        self.said, self.advised = [], []
        self.say, self.advise = self.said.append, self.advised.append

    def __getattr__(self, _name):
        return lambda *_: None


def test_a_run_says_what_it_updates_by_row(tmp_path):
    path, heard = recipe_of(tmp_path, words=3), Recorder()
    run(read_recipe(path, ["training.weight_decay=0.1"]), output_dir=tmp_path / "run", progress=heard)
    tables = "model.network.words.embedding.waves"
    expected = f"row_wise_adam updates only the rows in use of {tables}.amplitude (17, 8), {tables}.frequency (17, 8)"
    assert heard.said[0] == f"{expected}; weight_decay leaves these tables alone"
    assert not heard.advised


def test_tied_tables_stay_dense_and_that_is_said(recipe_file, tmp_path):
    heard = Recorder()
    settings = ["training.optim=row_wise_adam", "training.max_steps=4"]
    ours = run(read_recipe(recipe_file, settings), output_dir=tmp_path / "ours", progress=heard)
    assert [line for line in heard.advised if "tie_word_embeddings=false" in line] == heard.advised != []
    settings[0] = "training.optim=adamw_torch_fused"
    dense = run(read_recipe(recipe_file, settings), output_dir=tmp_path / "dense", progress=False)
    weights = [load_file(found.model_dir / "model.safetensors") for found in (ours, dense)]
    for name in weights[0]:
        assert_close(weights[0][name], weights[1][name], rtol=1e-4, atol=1e-6)


def test_tables_have_no_weight_decay_and_other_weights_have_the_trainer_s(tmp_path):
    model = nn.Sequential(nn.Embedding(9, 4), nn.Linear(4, 2))
    args = TrainingArguments(
        output_dir=str(tmp_path), use_cpu=True, report_to="none", weight_decay=0.1, learning_rate=0.2,
        adam_beta1=0.3, adam_beta2=0.4, adam_epsilon=0.5,
    )  # fmt: skip
    optimizer = RowWiseTrainer(model, args, meter=None, row_wise=True).create_optimizer()
    assert isinstance(optimizer, RowWiseAdam)
    decayed, others = optimizer.param_groups
    assert (decayed["weight_decay"], others["weight_decay"]) == (0.1, 0)
    assert [tuple(weight.shape) for weight in decayed["params"]] == [(2, 4)]
    assert [tuple(weight.shape) for weight in others["params"]] == [(9, 4), (2,)]
    assert (decayed["lr"], decayed["betas"], decayed["eps"]) == (0.2, (0.3, 0.4), 0.5)
    plain = RowWiseTrainer(model, args, meter=None).create_optimizer()
    assert not isinstance(plain, RowWiseAdam)


def test_clipping_sees_the_sum_of_a_token_s_rows():
    gradients = []
    for sparse in (True, False):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Embedding(9, 4, sparse=sparse), nn.Linear(4, 2))
        for ids in (torch.tensor([1, 1, 5]), torch.tensor([5, 7, 7])):
            model(ids).square().sum().backward()
        norm = nn.utils.clip_grad_norm_(with_dense_gradients(model), 0.1)
        gradients.append([norm, *(weight.grad.to_dense() for weight in model.parameters())])
    for ours, dense in zip(*gradients, strict=True):
        assert_close(ours, dense)


def test_what_it_cannot_do_is_refused_before_anything_starts(recipe_file, monkeypatch):
    with pytest.raises(BadInput, match="row_wise_adam, adamw_torch"):
        read_recipe(recipe_file, ["training.optim=row_wise_adem"])
    with pytest.raises(BadInput, match="optim_args: 'row_wise_adam' has none, got 'a=1'"):
        read_recipe(recipe_file, ["training.optim=row_wise_adam", "training.optim_args=a=1"])
    monkeypatch.setattr(TrainingArguments, "world_size", 2)
    read_recipe(recipe_file, [])
    with pytest.raises(BadInput, match="'row_wise_adam' trains in one process, got 2"):
        read_recipe(recipe_file, ["training.optim=row_wise_adam"])
