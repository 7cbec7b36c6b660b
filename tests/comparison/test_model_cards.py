"""The cards of compared arms hold the table and the verdict, also when names would be Markdown."""

import json

from comparison_example import example_results, read
from huggingface_hub import ModelCard

from wordorder.comparison.compare import _write_cards
from wordorder.comparison.report.table import markdown_table
from wordorder.comparison.report.verdict import verdict

RECIPE = '[data]\nsource = "sotu"\ntask = "masked-lm"\n[model]\nnetwork = "encoder"\nencoding = "rope"\n'
CONFIG = {"model_type": "wordorder-encoder", "encoding": "rope", "architectures": ["WordOrderEncoderForMaskedLM"]}


def filled(folder, results, *, leave_out=()):
    for row in results["rows"]:
        run = folder / row["model"].removesuffix("/model")
        (run / "model").mkdir(parents=True)
        (run / "recipe.toml").write_text(RECIPE)
        (run / "metrics.json").write_text(json.dumps({"validation": {"loss": 2.0}, "test": {"loss": row["loss"]}}))
        if row["arm"] not in leave_out:
            (run / "model" / "config.json").write_text(json.dumps(CONFIG))


def test_each_card_has_the_table_and_the_verdict(tmp_path):
    results = example_results({"rope": 39.9, "none": 311.0, "tupe-r": 33.5})
    filled(tmp_path, results, leave_out=("none",))
    _write_cards(read(results), tmp_path)
    found = {path.parent.parent.relative_to(tmp_path).as_posix() for path in tmp_path.glob("*/*/model/README.md")}
    assert found == {f"{arm}/seed-{seed}" for arm in ("rope", "tupe-r") for seed in range(3)}
    card = ModelCard.load(tmp_path / "rope/seed-1/model/README.md")
    assert card.data.model_name == "demo: rope, seed 1"
    assert markdown_table(read(results)).strip() in card.text
    assert verdict(read(results)).headline[0] in card.text
    own = next(row["loss"] for row in results["rows"] if (row["arm"], row["seed"]) == ("rope", 1))
    assert next(r.metric_value for r in card.data.eval_results if r.dataset_split == "test") == own


def test_a_name_of_an_arm_is_shown_and_does_nothing(tmp_path):
    results = example_results({"rope": 39.9, "none": 50.0})
    for entry in (*results["rows"], *results["summary"]):
        entry["arm"] = entry["arm"].replace("none", "<img src=x>|[a](b)")
    results["arms"][1]["name"] = "<img src=x>|[a](b)"
    filled(tmp_path, {"rows": [row for row in results["rows"] if row["arm"] == "rope"]})
    _write_cards(read(results), tmp_path)
    text = (tmp_path / "rope/seed-0/model/README.md").read_text()
    assert "<img" not in text
    assert "](b)" not in text.replace("\\]", "")
    assert "| &lt;img src=x&gt;\\|" in text
