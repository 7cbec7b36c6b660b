"""The card beside a run's model: its numbers, its recipe, and no folder of the machine that it was trained on."""

import re
import tomllib

import pytest
from huggingface_hub import ModelCard

from wordorder.training import read_recipe, run
from wordorder.training.runs.model_card import without_folders, write_run_card


@pytest.fixture(scope="module")
def done(shared_recipe_file):
    return run(read_recipe(shared_recipe_file, ["training.max_steps=2", "training.evaluate_every=1"]), progress=False)


def test_the_numbers_of_the_card_are_those_of_the_run(done):
    card = ModelCard.load(done.model_dir / "README.md")
    assert (card.data.library_name, card.data.pipeline_tag) == ("wordorder", "fill-mask")
    for result in card.data.eval_results:
        assert result.metric_value == done.metrics[result.dataset_split][result.metric_type]
    splits = {result.dataset_split for result in card.data.eval_results}
    assert splits == {split for split in ("validation", "test") if split in done.metrics}
    assert card.data.datasets is None  # files are no data set of the hub
    assert f"{done.metrics['parameters']:,} parameters" in card.text
    assert "torch 2" in card.text
    assert "wordorder 0" in card.text


def test_the_recipe_in_the_card_is_the_resolved_one_without_places_on_this_machine(done, tmp_path_factory):
    text = (done.model_dir / "README.md").read_text()
    assert str(tmp_path_factory.getbasetemp()) not in text
    told = tomllib.loads(text.split("```toml\n")[1].split("```")[0])
    written = tomllib.loads((done.model_dir.parent / "recipe.toml").read_text())
    assert told["model"] == written["model"]
    assert told["training"] | {"output_dir": ""} == written["training"] | {"output_dir": ""}
    assert told["data"]["source"] == "*.txt"


def test_a_card_says_that_scores_are_optimistic_and_names_hub_data(done, tmp_path):
    folder = done.model_dir.parent
    for name in ("recipe.toml", "environment.json", "data.json"):
        (tmp_path / name).write_text((folder / name).read_text())
    recipe = (folder / "recipe.toml").read_text()
    source = tomllib.loads(recipe)["data"]["source"]
    (tmp_path / "recipe.toml").write_text(recipe.replace(source, "hub:owner/set"))
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text((done.model_dir / "config.json").read_text())
    write_run_card(tmp_path / "model", tmp_path, {**done.metrics, "optimistic": True})
    card = ModelCard.load(tmp_path / "model" / "README.md")
    assert card.data.datasets == ["owner/set"]
    assert "its scores are **optimistic**" in card.text


@pytest.mark.parametrize(("kind", "told"), [("character", False), ("wordpiece", True)])
def test_a_model_of_letters_has_no_perplexity_of_words(done, tmp_path, kind, told):
    recipe = (done.model_dir.parent / "recipe.toml").read_text()
    (tmp_path / "recipe.toml").write_text(re.sub(r'^kind = "\w+"', f'kind = "{kind}"', recipe, count=1, flags=re.M))
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text((done.model_dir / "config.json").read_text())
    scores = {"perplexity": 3.0, "word_perplexity": 2.5e8}
    write_run_card(tmp_path / "model", tmp_path, {**done.metrics, "test": scores})
    metrics = {result.metric_type for result in ModelCard.load(tmp_path / "model" / "README.md").data.eval_results}
    assert "perplexity" in metrics
    assert ("word_perplexity" in metrics) == told


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        ("/there/me/x/*.txt", "*.txt"),
        ("~/y", "y"),
        ("C:\\Users\\me\\z.csv", "z.csv"),
        ("sotu", "sotu"),
        ("hub:a/b", "hub:a/b"),
        ("data/a.txt", "data/a.txt"),
    ],
)
def test_paths_that_begin_at_a_root_are_shown_by_their_last_part(path, shown):
    assert without_folders(path) == shown
