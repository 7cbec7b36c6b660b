"""The recipes of the package and of evidence/ pass every check, and say what TUPE's paper says."""

import re
import tomllib
from pathlib import Path

import pytest

from wordorder.comparison.arms import resolve_arms
from wordorder.data import TokenizerConfig, load_tokenizer
from wordorder.errors import BadInput
from wordorder.models import build_config, build_model
from wordorder.tasks.translation import TARGETS
from wordorder.training import read_recipe
from wordorder.training.recipe.files import packaged_recipes
from wordorder.training.recipe.sections import SOURCES

ROOT = Path(__file__).resolve().parents[2]
EVIDENCE = ROOT / "evidence" / "recipes"
RECIPES = packaged_recipes() | {str(path.relative_to(ROOT)): path for path in sorted(EVIDENCE.rglob("*.toml"))}
"""What a command names -> file."""
GLUE = {name: EVIDENCE / "fine_tuning" / f"{name}.toml" for name in ("cola", "mrpc", "rte", "sst2", "stsb")}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder that has the saved models which recipes name: a small one for every arm and seed."""
    place = tmp_path_factory.mktemp("place")
    tokenizer = load_tokenizer(TokenizerConfig(kind="byte"), ["text"], cache_dir=place / "cache")
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "max_position_embeddings": 512}
    for arm, encoding in (("bert-a", "learned"), ("bert-r", "learned+t5"), ("tupe-a", "tupe-a"), ("tupe-r", "tupe-r")):
        model = build_model(build_config("encoder", vocab_size=261, encoding=encoding, **sizes), "masked-lm", seed=0)
        for seed in range(3):
            for run in ("bert_base", "small_pretraining"):
                model.save_pretrained(place / "runs" / run / arm / f"seed-{seed}" / "model")
                tokenizer.save_pretrained(place / "runs" / run / arm / f"seed-{seed}" / "model")
    return place


def read(path, place, monkeypatch):
    """Read a recipe from the folder where the names in it lead somewhere; one without data gets some."""
    data = place / "data" / path.stem
    monkeypatch.chdir(place)
    monkeypatch.setenv("WORDORDER_DATA", str(data))
    tables = tomllib.loads(path.read_text(encoding="utf-8"))
    given = tables.get("data", {})
    for source in [*map(given.get, SOURCES), *map(tables.get("task", {}).get, TARGETS)]:
        if source not in ("sotu", "none", None):
            (data / source).parent.mkdir(parents=True, exist_ok=True)
            (data / source).touch()
    return read_recipe(path, [] if "source" in given else ["data.source=sotu"])


def test_the_rate_rises_for_a_like_share_of_the_steps(place, monkeypatch):
    """A warm-up for 550 steps is none for 6,000. TUPE's own recipe has its paper's 1%; one recipe is counted alone."""
    for name in RECIPES.keys() - {f"evidence/recipes/{name}.toml" for name in ("bert_base", "complex_order_cost")}:
        training = read(RECIPES[name], place, monkeypatch).training
        warmup, steps = training.warmup_steps, training.max_steps
        assert 0.04 <= (warmup / steps if warmup >= 1 else warmup) <= 0.15, name


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_passes_every_check_and_says_how_it_is_run(name, place, monkeypatch):
    path = RECIPES[name]
    recipe = read(path, place, monkeypatch)
    if recipe.compare is not None:
        assert [arm.name for arm in resolve_arms(recipe)] == [arm.name for arm in recipe.compare.arms]
    header = [line for line in path.read_text(encoding="utf-8").splitlines() if line.startswith("#")]
    assert any(re.search(rf"wordorder (compare|train|cost) {name}( |$)", line) for line in header)
    for word in ("/", "~", "\\"):
        assert not str(tomllib.loads(path.read_text()).get("data", {}).get("source", "")).startswith(word)


def test_bert_base_has_the_papers_hyper_parameters(place, monkeypatch):
    path = EVIDENCE / "bert_base.toml"
    recipe = read(path, place, monkeypatch)
    model, training, data = recipe.model, recipe.training, recipe.data
    sizes = ("num_hidden_layers", "hidden_size", "num_attention_heads", "intermediate_size", "max_position_embeddings")
    assert [model[name] for name in sizes] == [12, 768, 12, 3072, 512]
    assert (model["encoding"], model["norm_placement"], model["hidden_act"]) == ("tupe-r", "post", "gelu")
    assert (model["hidden_dropout_prob"], model["attention_probs_dropout_prob"]) == (0.1, 0.1)
    assert (recipe.tokenizer.kind, recipe.tokenizer.vocab_size, recipe.tokenizer.lowercase) == ("bpe", 32768, True)
    assert (data.length, recipe.task.mask_probability, recipe.task.packing) == (
        512,
        0.15,
        "full-sentences-across-documents",
    )
    assert (training.max_steps, training.warmup_steps, training.learning_rate) == (1_000_000, 10_000, 1e-4)
    assert training.batch_size == 256
    adam = ("adam_beta1", "adam_beta2", "adam_epsilon", "max_grad_norm", "weight_decay", "decay_all_parameters")
    assert [getattr(training, name) for name in adam] == [0.9, 0.999, 1e-6, 1.0, 0.01, True]
    assert training.lr_schedule == "linear"
    assert training.keep_steps == (100_000, 300_000, 600_000, 1_000_000)
    with pytest.raises(BadInput, match=r"\[data\]: source is missing; give it here or by --set data\.source=\.\.\."):
        read_recipe(path)


@pytest.mark.parametrize("name", GLUE)
def test_fine_tuning_has_the_papers_hyper_parameters(name, place, monkeypatch):
    recipe = read(GLUE[name], place, monkeypatch)
    training, compare = recipe.training, recipe.compare
    assert compare is not None
    assert (compare.grid, len(compare.seeds)) == ((2e-5, 3e-5, 4e-5, 5e-5), 5)
    assert (training.epochs, training.batch_size) == (10, 32)
    assert (training.warmup_steps, training.lr_schedule) == (0.06, "linear")
    adam = ("adam_beta1", "adam_beta2", "adam_epsilon", "max_grad_norm", "weight_decay", "decay_all_parameters")
    assert [getattr(training, name) for name in adam] == [0.9, 0.999, 1e-6, 1.0, 0.01, True]
    metric = {"cola": "matthews_correlation", "stsb": "pearson"}.get(name, "accuracy")
    assert training.select == metric
    assert recipe.data.test_source == "none"
    assert getattr(recipe.task, "label_scale", 1) == (5 if name == "stsb" else 1)
    assert (recipe.task.pair_column is not None) == (name in ("mrpc", "rte", "stsb"))
    assert recipe.task.truncate
    assert [arm.name for arm in compare.arms] == ["bert-a", "bert-r", "tupe-a", "tupe-r"]


def test_the_readme_of_evidence_has_every_recipe_and_its_links_lead_somewhere():
    folder = EVIDENCE.parent
    text = (folder / "README.md").read_text(encoding="utf-8")
    links = [link for link in re.findall(r"\]\(([^)]+)\)", text) if "://" not in link]
    assert all((folder / link).exists() for link in links)
    names = re.findall(r"^\| `([\w/]+)` \|", text, flags=re.MULTILINE)
    assert len(names) == len(set(names)) == len(RECIPES)
    assert {f"evidence/recipes/{name}.toml" for name in names} >= {name for name in RECIPES if name.endswith(".toml")}
