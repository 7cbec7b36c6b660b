"""Tests of `cosine_similarity.py`, which stand beside it where it is added."""

import json
import random

import pytest
import torch
from torch.nn import functional as F

from wordorder.comparison import compare
from wordorder.errors import BadInput
from wordorder.inference import evaluate_model_dir
from wordorder.models import build_config, build_model
from wordorder.tasks import model_class
from wordorder.training import read_recipe, run

RECIPE = """
[data]
source = "{folder}/pairs.jsonl"
length = 32

[task]
name = "cosine-similarity"
pair_column = "other"

[tokenizer]
kind = "wordpiece"
vocab_size = 120

[model]
network = "encoder"
encoding = "rope"
hidden_size = 16
num_hidden_layers = 1
num_attention_heads = 2
max_position_embeddings = 32

[training]
output_dir = "{folder}/run"
max_steps = 40
batch_size = 16
learning_rate = 3e-3
evaluate_every = 20
select = "mean_absolute_error"
device = "cpu"

[compare]
seeds = [0, 1]

[[compare.arms]]
name = "rope"
"model.encoding" = "rope"

[[compare.arms]]
name = "tupe-r"
"model.encoding" = "tupe-r"
"""
CLS, SEP = 2, 3


@pytest.fixture
def recipe_file(tmp_path, monkeypatch):
    monkeypatch.setenv("WORDORDER_CACHE", str(tmp_path / "cache"))
    chance, words = random.Random(0), [f"w{number}" for number in range(40)]
    rows = []
    for number in range(200):
        alike = bool(number % 2)
        texts = [" ".join(chance.choices(words[:20] if side else words[20:], k=6)) for side in (True, alike)]
        rows.append(json.dumps({"text": texts[0], "other": texts[1], "label": 0.9 if alike else -0.5}))
    (tmp_path / "pairs.jsonl").write_text("\n".join(rows))
    (tmp_path / "pairs.toml").write_text(RECIPE.format(folder=tmp_path))
    return tmp_path / "pairs.toml"


@pytest.mark.parametrize("encoding", ["rope", "tupe-r"])
def test_each_text_is_read_by_itself(encoding):
    sizes = {"vocab_size": 20, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "cls_token_id": CLS}
    config = build_config("encoder", encoding=encoding, **sizes)
    model = build_model(config, model_class("encoder", "cosine-similarity"), seed=0).eval()
    pairs = [([CLS, 5, 6, 7, SEP], [CLS, 8, SEP]), ([CLS, 9, SEP], [CLS, 6, 5, SEP])]
    rows = [one + other for one, other in pairs]
    width = max(map(len, rows))
    padded = torch.tensor([row + [0] * (width - len(row)) for row in rows])
    labels = torch.tensor([0.5, -1.0])
    found = model(padded, torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row in rows]), labels=labels)
    means = [[model.model(torch.tensor([text])).last_hidden_state[0].mean(0) for text in pair] for pair in pairs]
    cosines = torch.stack([one @ other / (one.norm() * other.norm()) for one, other in means])
    torch.testing.assert_close(found.logits, cosines)
    torch.testing.assert_close(found.loss, F.mse_loss(cosines, labels))


def test_it_is_trained_evaluated_and_compared(recipe_file):
    recipe = read_recipe(recipe_file)
    done = run(recipe, progress=False)
    errors = {row["step"]: row["validation_mean_absolute_error"] for row in done.curve if "validation_loss" in row}
    assert errors[done.metrics["best_step"]] == min(errors.values())
    assert done.metrics["test"]["pearson"] > 0.9
    scores = evaluate_model_dir(done.model_dir, recipe.data.source)
    assert scores == pytest.approx(done.metrics["test"], rel=1e-5)
    path = compare(recipe, output_dir=recipe_file.parent / "compared", progress=False)
    results = json.loads(path.read_text())
    assert [(row["arm"], row["seed"]) for row in results["rows"]] == [
        (arm, seed) for seed in (0, 1) for arm in ("rope", "tupe-r")
    ]
    assert results["metric"] == "mean_absolute_error"
    assert "Test mean absolute error" in (path.parent / "table.md").read_text()


def test_wrong_data_is_refused(recipe_file):
    single = recipe_file.with_name("single.toml")
    single.write_text(recipe_file.read_text().replace('pair_column = "other"\n', ""))
    with pytest.raises(BadInput, match="pair_column is missing"):
        read_recipe(single)
    pairs = recipe_file.with_name("pairs.jsonl")
    pairs.write_text(pairs.read_text().replace("0.9", "4.5"))
    with pytest.raises(BadInput, match=r"must lie in -1 \.\. 1, got 4\.5"):
        run(read_recipe(recipe_file), progress=False)
