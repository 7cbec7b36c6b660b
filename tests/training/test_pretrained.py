"""A recipe that starts from a saved model: what it takes from the folder, what it may change, and what it refuses."""

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

from wordorder.errors import BadInput
from wordorder.models import build_model
from wordorder.training import read_recipe, run
from wordorder.training.runs.fit import make_config

FINE_TUNING = """
[data]
source = "{source}"
validation_fraction = 0.2

[task]
name = "classification"

[model]
pretrained = "{model}"

[training]
output_dir = "{folder}/fine-tuned"
max_steps = 3
batch_size = 4
learning_rate = 1e-3
evaluate_every = 3
trackers = []
device = "cpu"
"""


@pytest.fixture(scope="session")
def saved(shared_recipe_file):
    """A masked language model after a few steps: the folder of its run."""
    folder = shared_recipe_file.parent / "pre-trained"
    run(read_recipe(shared_recipe_file, ["training.max_steps=3"]), progress=False, output_dir=folder)
    return folder


@pytest.fixture
def fine_tuning(tmp_path, corpus, saved):
    path = tmp_path / "fine.toml"
    path.write_text(FINE_TUNING.format(source=f"{corpus}/*/*.txt", model=saved / "model", folder=tmp_path))
    return path


def faults(path, *overrides):
    with pytest.raises(BadInput) as error:
        read_recipe(path, overrides)
    return error.value.faults


def test_network_sizes_encoding_length_and_tokeniser_come_from_the_folder(fine_tuning, saved, tmp_path):
    recipe = read_recipe(fine_tuning)
    assert (recipe.network, recipe.model["encoding"], recipe.model["hidden_size"]) == ("encoder", "tupe-a", 16)
    assert recipe.data.length == 32
    assert (recipe.tokenizer.kind, recipe.tokenizer.path) == ("existing", str(saved / "model"))
    assert recipe.pretrained == str(saved / "model")
    again = tmp_path / "again.toml"
    again.write_text(recipe.to_toml())
    assert read_recipe(again).to_dict() == recipe.to_dict()


def test_the_body_is_the_saved_one_and_the_head_is_drawn_from_the_seed(fine_tuning, saved, tmp_path, capfd):
    """No step moves a weight, so what is saved is what was started from."""
    recipe = read_recipe(fine_tuning, ["training.learning_rate=1e-30", "training.weight_decay=0", "training.seed=7"])
    result = run(recipe)
    before, after = (load_file(folder / "model.safetensors") for folder in (saved / "model", result.model_dir))
    body = [name for name in after if name.startswith("model.")]
    assert len(body) > 10
    assert all(torch.equal(after[name], before[name]) for name in body)
    from wordorder.tasks import prepare

    config = make_config(recipe, prepare(recipe.data, recipe.task, recipe.tokenizer, seed=7))
    drawn = build_model(config, "classification", seed=7).state_dict()
    head = [name for name in after if not name.startswith("model.")]
    assert head
    for name in head:
        torch.testing.assert_close(after[name], drawn[name], rtol=0, atol=1e-20)  # a bias of 0 took steps of 1e-30
    report = json.loads((tmp_path / "fine-tuned" / "pretrained.json").read_text())
    assert report["new"] == sorted(head, key=report["new"].index)
    assert report["loaded"] == len(body)
    assert all(name.startswith("head.") for name in report["unused"])
    assert report["unused"]
    shown = capfd.readouterr().err
    assert f"weights from {saved / 'model'}; new: {', '.join(report['new'])}; not used: head." in shown


def test_the_same_task_goes_on_with_its_head(recipe_file, saved, tmp_path):
    text = recipe_file.read_text()
    start, end = text.index("[tokenizer]"), text.index("[training]")
    recipe_file.write_text(f'{text[:start]}[model]\npretrained = "{saved / "model"}"\n{text[end:]}')
    recipe = read_recipe(recipe_file, ["training.learning_rate=1e-30", "training.weight_decay=0"])
    result = run(recipe, progress=False)
    before, after = (load_file(folder / "model.safetensors") for folder in (saved / "model", result.model_dir))
    assert before.keys() == after.keys()
    assert all(torch.equal(after[name], before[name]) for name in before)
    assert json.loads((tmp_path / "run" / "pretrained.json").read_text())["new"] == []


@pytest.mark.slow
def test_a_resumed_run_does_not_start_again_from_the_folder(fine_tuning, saved, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(saved / "model", copy)
    recipe = read_recipe(fine_tuning, ["training.max_steps=6", f"model.pretrained={copy}"])
    whole = run(recipe, progress=False, output_dir=tmp_path / "whole")
    run(recipe, progress=False)
    (copy / "model.safetensors").write_bytes(b"")
    folder = tmp_path / "fine-tuned"
    (folder / "metrics.json").unlink()
    shutil.rmtree(folder / "model")
    shutil.rmtree(folder / "checkpoint-6")
    assert [path.name for path in folder.glob("checkpoint-*")] == ["checkpoint-3"]
    assert run(recipe, resume=True, progress=False).metrics["test"] == whole.metrics["test"]


def test_a_checkpoint_and_a_fine_tuned_model_are_folders_to_start_from_too(fine_tuning, saved, tmp_path):
    first = run(read_recipe(fine_tuning, [f"model.pretrained={saved}/checkpoint-3"]), progress=False)
    recipe = read_recipe(fine_tuning, [f"model.pretrained={first.model_dir}"])
    report = run(recipe, progress=False, output_dir=tmp_path / "second")
    assert report.metrics["steps"] == 3
    assert json.loads((tmp_path / "second" / "pretrained.json").read_text())["new"]  # a head is never taken over


def test_dropouts_and_what_else_moves_no_weight_may_be_changed(fine_tuning):
    overrides = ["model.hidden_dropout_prob=0.5", "model.classifier_dropout=0.3", "model.initializer_range=0.1"]
    recipe = read_recipe(fine_tuning, overrides)
    assert (recipe.model["hidden_dropout_prob"], recipe.model["classifier_dropout"]) == (0.5, 0.3)
    assert recipe.model["initializer_range"] == 0.1
    assert read_recipe(fine_tuning).model["hidden_dropout_prob"] == 0.2  # the folder's
    assert read_recipe(fine_tuning, ["model.hidden_size=16", "model.network=encoder"]).model["hidden_size"] == 16


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("model.hidden_size=32", ["model.hidden_size: is 16 in ", "got 32; leave it out"]),
        ("model.encoding=rope", ["model.encoding: is 'tupe-a' in ", "got 'rope'"]),
        ("model.max_position_embeddings=64", ["model.max_position_embeddings: is 32"]),
        ("model.network=decoder", ["model.network: ", "holds a encoder, got 'decoder'"]),
        ("model.hidden_sise=16", ["unknown model field 'hidden_sise'", "hidden_size"]),
        ("tokenizer.kind=byte", ["[tokenizer]: comes with the saved model", "leave the section out"]),
        ("data.length=64", ["data.length", "64", "max_position_embeddings=32"]),
        ("model.pretrained=nowhere", ["model.pretrained: nowhere holds no model (no config.json)"]),
        ("model.pretrained=3", ["model.pretrained: must be the folder of a saved model, got 3"]),
        ("model.pretrained=runs/{arm}/model", ["{arm} is an arm's name, but there is no [compare]"]),
    ],
)
def test_what_does_not_fit_the_folder_is_one_fault_before_any_work(fine_tuning, override, words):
    (found,) = faults(fine_tuning, override)
    assert [word for word in words if word not in found] == [], found


def test_every_conflict_is_said_at_once_beside_other_faults(fine_tuning):
    found = faults(fine_tuning, "model.hidden_size=32", "model.encoding=rope", "training.max_stepps=3", "task.name=x")
    assert len(found) == 4


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"model_type": "electra"}, "holds a model of type 'electra'; valid: wordorder-encoder"),
        ({"hidden_size": 17}, "hidden_size must be a multiple of num_attention_heads"),
        (None, "config.json cannot be read"),
        ([], "does not hold a configuration"),
    ],
)
def test_a_config_that_is_none_of_ours_is_refused(fine_tuning, saved, tmp_path, change, words):
    copy = tmp_path / "copy"
    shutil.copytree(saved / "model", copy)
    config = json.loads((copy / "config.json").read_text())
    changed = "{" if change is None else json.dumps(config | change if isinstance(change, dict) else change)
    (copy / "config.json").write_text(changed)
    (found,) = faults(fine_tuning, f"model.pretrained={copy}")
    assert words in found


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("adapter_config.json", "holds adapters (adapter_config.json); merge them into the model"),
        ("quantization_config", "quantization_config: quantised models are not read"),
        ("transformers_weights", "transformers_weights: other weights than model.safetensors"),
        ("configuration_files", "configuration_files: another configuration than config.json"),
    ],
)
def test_what_would_be_read_from_elsewhere_is_refused(fine_tuning, saved, tmp_path, name, words):
    copy = tmp_path / "copy"
    shutil.copytree(saved / "model", copy)
    if name.endswith(".json"):
        (copy / name).write_text("{}")
    else:
        config = json.loads((copy / "config.json").read_text())
        (copy / "config.json").write_text(json.dumps({**config, name: {"a": "b"}}))
    (found,) = faults(fine_tuning, f"model.pretrained={copy}")
    assert words in found
    assert found.startswith("model.pretrained: ")


def test_a_folder_without_a_tokeniser_needs_one(fine_tuning, saved, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(saved / "model", copy)
    (copy / "tokenizer.json").rename(tmp_path / "tokenizer.json")
    (found,) = faults(fine_tuning, f"model.pretrained={copy}")
    assert "has no tokenizer.json; name one by tokenizer.kind=existing and its path" in found
    named = ["tokenizer.kind=existing", f"tokenizer.path={tmp_path}/tokenizer.json"]
    assert read_recipe(fine_tuning, [f"model.pretrained={copy}", *named]).tokenizer.path == f"{tmp_path}/tokenizer.json"


@pytest.mark.parametrize("harm", ["missing", "shape", "pickled", "cut", "index"])
def test_weights_that_are_not_the_bodys_are_bad_input_before_a_folder_is_made(fine_tuning, saved, tmp_path, harm):
    copy = tmp_path / "copy"
    shutil.copytree(saved / "model", copy)
    file = copy / "model.safetensors"
    weights = load_file(file)
    name = next(name for name in weights if name.endswith("layers.0.feedforward.inner.weight") or "layers.0" in name)
    if harm == "missing":
        save_file({other: weight for other, weight in weights.items() if other != name}, file)
        words = f"has no {name}, which the model needs"
    elif harm == "shape":
        save_file({**weights, name: torch.zeros(3, 5)}, file)
        words = rf"{name} has the shape \(3, 5\), not "
    elif harm == "index":
        (copy / "model.safetensors.index.json").write_text("{}")
        words = "no weights can be read from safetensors"
    else:
        words = "no weights can be read from safetensors, the only format taken"
        file.write_bytes(file.read_bytes()[:-100])
        if harm == "pickled":
            torch.save(weights, copy / "pytorch_model.bin")
            file.unlink()
    with pytest.raises(BadInput, match=words):
        run(read_recipe(fine_tuning, [f"model.pretrained={copy}"]), progress=False)
    assert not (tmp_path / "fine-tuned").exists()


def test_weights_in_shards_are_read(fine_tuning, saved, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(saved / "model", copy)
    weights = load_file(copy / "model.safetensors")
    (copy / "model.safetensors").unlink()
    names = sorted(weights)
    shards = {"a.safetensors": names[::2], "b.safetensors": names[1::2]}
    for file, own in shards.items():
        save_file({name: weights[name] for name in own}, copy / file)
    index = {"weight_map": {name: file for file, own in shards.items() for name in own}}
    (copy / "model.safetensors.index.json").write_text(json.dumps(index))
    settings = ["training.learning_rate=1e-30", "training.weight_decay=0"]
    result = run(read_recipe(fine_tuning, [f"model.pretrained={copy}", *settings]), progress=False)
    after = load_file(result.model_dir / "model.safetensors")
    assert all(torch.equal(after[name], weights[name]) for name in after if name.startswith("model."))


def test_a_seed_stands_for_itself_in_the_folders_name(fine_tuning, saved, tmp_path):
    for seed in (0, 4):
        shutil.copytree(saved / "model", tmp_path / f"seed-{seed}" / "model")
    pattern = f"model.pretrained={tmp_path}/seed-{{seed}}/model"
    assert read_recipe(fine_tuning, [pattern]).pretrained == f"{tmp_path}/seed-0/model"
    assert read_recipe(fine_tuning, [pattern, "training.seed=4"]).pretrained == f"{tmp_path}/seed-4/model"
    run(read_recipe(fine_tuning, [pattern]), progress=False, seed=4)
    report = json.loads((tmp_path / "fine-tuned" / "pretrained.json").read_text())
    assert report["folder"] == f"{tmp_path}/seed-4/model"
    with pytest.raises(BadInput, match="seed-5/model holds no model"):
        run(read_recipe(fine_tuning, [pattern]), progress=False, seed=5, output_dir=tmp_path / "five")
