"""Arms that start from saved models, each from its own, seed by seed: with the package's own data and training."""

import json
import shutil
from dataclasses import replace

import pytest
from comparison_example import read
from safetensors.torch import load_file

from wordorder.comparison import compare, markdown_table
from wordorder.comparison.arms import resolve_arms
from wordorder.comparison.runs import check_folders, identity, runs_of
from wordorder.data import TokenizerConfig, load_tokenizer
from wordorder.errors import BadInput
from wordorder.models import build_config, build_model
from wordorder.training import read_recipe

FINE_TUNING = """
[data]
source = "{folder}/train.jsonl"
validation_source = "{folder}/dev.jsonl"
test_source = "none"

[task]
name = "regression"
label_scale = 5.0
truncate = true

[model]
pretrained = "{folder}/pre/{{arm}}/seed-{{seed}}/model"

[training]
output_dir = "{folder}/fine"
max_steps = 2
batch_size = 8
evaluate_every = 1
select = "spearmanr"
trackers = []

[compare]
seeds = [3, 5]
grid = [1e-3]

[[compare.arms]]
name = "rope"

[[compare.arms]]
name = "tupe-r"
"""


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory):
    """Two arms with two seeds, saved as runs save them, but not trained."""
    folder = tmp_path_factory.mktemp("pre-trained")
    texts = [f"The state of union number {n}." for n in range(12)]
    tokenizer = load_tokenizer(TokenizerConfig(kind="word"), texts, cache_dir=folder / "cache")
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "max_position_embeddings": 16}
    for arm in ("rope", "tupe-r"):
        config = build_config("encoder", vocab_size=len(tokenizer), pad_token_id=0, encoding=arm, **sizes)
        for seed in (3, 5):
            model_dir = folder / arm / f"seed-{seed}" / "model"
            build_model(config, "masked-lm", seed=seed).save_pretrained(model_dir)
            tokenizer.save_pretrained(model_dir)
    return folder


@pytest.fixture
def fine(pretrained, tmp_path):
    """The recipe that fine-tunes them, and copies of them that a test may spoil."""
    shutil.copytree(pretrained, tmp_path / "pre")
    for name, count in (("train", 40), ("dev", 12)):
        rows = [{"text": f"The state of union number {n}.", "label": n % 6} for n in range(count)]
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    path = tmp_path / "fine.toml"
    path.write_text(FINE_TUNING.format(folder=tmp_path))
    return path


@pytest.mark.slow
def test_every_arm_and_seed_starts_from_its_own_folder(fine, tmp_path):
    recipe = read_recipe(fine)
    results = json.loads(compare(recipe, progress=False).read_text())
    assert results["complete"]
    assert (results["metric"], results["split"], results["statistic"]) == ("spearmanr", "validation", "median")
    assert [arm["encoding"] for arm in results["arms"]] == ["rope", "tupe-r"]
    for row in results["rows"]:
        folder = (tmp_path / "fine" / row["model"]).parent
        started = json.loads((folder / "pretrained.json").read_text())
        assert started["folder"] == f"{tmp_path}/pre/{row['arm']}/seed-{row['seed']}/model"
        assert "model.encoder.embedding.weight" in load_file(folder / "model" / "model.safetensors")
        assert {"pearson", "spearmanr", "loss", "validation_loss", "validation_spearmanr"} <= row.keys()
    # The recipe of the results still says where each arm starts, so that it can be run again.
    assert results["recipe"]["model"] == {"pretrained": f"{tmp_path}/pre/{{arm}}/seed-{{seed}}/model"}
    assert "tokenizer" not in results["recipe"]
    table = markdown_table(read(results))
    assert "| Model | Validation Spearman correlation |" in table
    assert "squared error" in (tmp_path / "fine" / "report.html").read_text()
    before = (tmp_path / "fine" / "results.json").stat().st_mtime_ns
    again = json.loads(compare(read_recipe(fine), progress=False).read_text())
    assert again["rows"] == results["rows"]
    assert (tmp_path / "fine" / "results.json").stat().st_mtime_ns > before

    # A model that was trained anew under its path makes the finished runs those of something else.
    shutil.copy(
        tmp_path / "pre" / "rope" / "seed-5" / "model" / "model.safetensors",
        tmp_path / "pre" / "rope" / "seed-3" / "model" / "model.safetensors",
    )
    with pytest.raises(BadInput) as error:
        compare(read_recipe(fine), progress=False)
    (fault,) = error.value.faults
    assert "the saved model that it starts from changed under its name" in fault


def test_the_recipes_of_the_runs_name_their_folders(fine, tmp_path):
    recipe = read_recipe(fine)
    arms = resolve_arms(recipe)
    runs = runs_of(arms, recipe.compare, tmp_path / "fine")
    assert [run.recipe.pretrained for run in runs] == [
        f"{tmp_path}/pre/{arm}/seed-{seed}/model" for seed in (3, 5) for arm in ("rope", "tupe-r")
    ]
    assert [run.recipe.model["encoding"] for run in runs] == ["rope", "tupe-r"] * 2


def test_word_vectors_that_changed_under_their_name_are_another_run(fine, tmp_path):
    vectors = tmp_path / "vectors.txt"
    vectors.write_text("union 1 2")
    run = runs_of(resolve_arms(read_recipe(fine)), read_recipe(fine).compare, tmp_path / "fine")[0]
    run = replace(run, recipe=replace(run.recipe, model={**run.recipe.model, "word_vectors": str(vectors)}))
    arm, statistics = run.folder / "arm.json", {None: {"fingerprint": "of the data"}}
    run.folder.mkdir(parents=True)
    former = identity(run, statistics[None])
    arm.write_text(json.dumps(former))
    check_folders([run], statistics)
    vectors.write_text("union 3 4")
    with pytest.raises(BadInput, match=r"the file of model\.word_vectors changed under its name"):
        check_folders([run], statistics)
    vectors.unlink()
    check_folders([run], statistics)


def test_a_missing_folder_is_refused_before_anything_starts(fine, tmp_path):
    recipe = read_recipe(fine)
    shutil.rmtree(tmp_path / "pre" / "tupe-r" / "seed-5" / "model")
    with pytest.raises(BadInput) as error:
        resolve_arms(recipe)
    (fault,) = error.value.faults
    assert fault.startswith("compare.arms 'tupe-r', seed 5: model.pretrained: ")
    assert "holds no model" in fault
    shutil.rmtree(tmp_path / "pre" / "tupe-r" / "seed-3")
    with pytest.raises(BadInput, match=r"arm 'tupe-r': model\.pretrained: .*seed-3/model holds no model"):
        read_recipe(fine)
    shutil.copytree(tmp_path / "pre" / "rope", tmp_path / "pre" / "tupe-r", dirs_exist_ok=True)
    tuned = read_recipe(fine, ["compare.grid=[]", "compare.tune=[1e-3]", "compare.tune_seed=100"])
    with pytest.raises(BadInput, match=r"seed 100: .*seed-100/model holds no model"):
        resolve_arms(tuned)


def test_arms_with_other_tokens_or_lengths_are_refused(fine, tmp_path):
    file = tmp_path / "pre" / "tupe-r" / "seed-5" / "model" / "tokenizer.json"
    file.write_text(file.read_text() + "\n")
    with pytest.raises(BadInput, match=r"'tupe-r', seed 5: the tokeniser of .* arms must see the same tokens"):
        resolve_arms(read_recipe(fine))
    shutil.copy(file, tmp_path / "pre" / "tupe-r" / "seed-3" / "model" / "tokenizer.json")
    with pytest.raises(BadInput, match="'tupe-r' would see other tokens than the recipe's"):
        resolve_arms(read_recipe(fine))
    config = tmp_path / "pre" / "tupe-r" / "seed-3" / "model" / "config.json"
    changed = json.loads(config.read_text()) | {"max_position_embeddings": 12}
    config.write_text(json.dumps(changed))
    with pytest.raises(BadInput, match="'tupe-r' would see other data than the recipe's"):
        resolve_arms(read_recipe(fine))


def test_one_run_of_such_a_recipe_needs_one_folder(fine, tmp_path):
    from wordorder.training import run

    with pytest.raises(BadInput, match="has a folder for each arm; use wordorder compare"):
        run(read_recipe(fine), progress=False)
    folder = f"{tmp_path}/pre/rope/seed-{{seed}}/model"
    result = run(read_recipe(fine, [f"model.pretrained={folder}", "training.seed=5"]), progress=False)
    started = json.loads((result.model_dir.parent / "pretrained.json").read_text())
    assert started["folder"].endswith("rope/seed-5/model")


def test_an_arm_may_name_a_folder_of_its_own(fine, tmp_path):
    text = fine.read_text().replace('name = "tupe-r"', 'name = "other"\n"model.pretrained" = "OWN"')
    fine.write_text(text.replace("OWN", f"{tmp_path}/pre/tupe-r/seed-3/model"))
    arms = {arm.name: arm.recipe for arm in resolve_arms(read_recipe(fine))}
    assert arms["other"].pretrained == f"{tmp_path}/pre/tupe-r/seed-3/model"
    assert arms["rope"].pretrained == f"{tmp_path}/pre/rope/seed-3/model"
