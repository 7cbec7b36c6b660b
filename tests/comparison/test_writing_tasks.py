"""Comparisons of language models and of translators: which number leads, and which way is better."""

import json

import pytest
from comparison_example import read
from comparison_stand_in import STAND_IN

from wordorder.comparison import compare
from wordorder.comparison.report.html import report_page
from wordorder.comparison.report.table import columns, markdown_table
from wordorder.comparison.report.verdict import ranked, verdict
from wordorder.errors import BadInput

CAUSAL = ("task.name=causal-lm", "model.network=decoder")
TRANSLATION = ("task.name=translation", "task.target_column=party", "model.network=seq2seq", "data.length=8")
ARMS = {name: {"model.encoding": name} for name in ("none", "rope", "alibi")}


@pytest.fixture
def results_of(make_recipe, tmp_path, monkeypatch):
    monkeypatch.setenv("STAND_IN_LOG", str(tmp_path / "log"))
    monkeypatch.setattr("wordorder.comparison.report.figures.write_figures", lambda results, folder: [])
    monkeypatch.setattr("wordorder.comparison.engines.local.release_memory", lambda: None)

    def run(*overrides, **compared):
        path = compare(make_recipe(*overrides, arms=ARMS, **compared), progress=False, pipeline=STAND_IN)
        return json.loads(path.read_text()), (path.parent / "table.md").read_text()

    return run


def test_the_translator_with_the_highest_bleu_leads(results_of):
    results, table = results_of(*TRANSLATION)
    assert (results["task"], results["metric"], results["bleu_signature"]) == ("translation", "bleu", "nrefs:1|made up")
    assert [entry.arm for entry in ranked(read(results))] == ["rope", "alibi", "none"]
    assert verdict(read(results)).sentence.startswith("rope is best: BLEU 29.9")
    assert ", 5.0 above alibi, " in verdict(read(results)).sentence
    assert [row["bleu"] for row in results["rows"] if row["arm"] == "rope"] == pytest.approx([30.0, 29.9, 29.8])
    lines = [line for line in table.splitlines() if line.startswith("|")]
    assert lines[0].startswith("| Model | test BLEU | Difference from none | Test perplexity | Parameters |")
    assert [line.split(" | ")[0] for line in lines[2:5]] == ["| rope", "| alibi", "| none"]
    assert "corpus BLEU of the translations of the test split, 0 to 100 (higher is better)" in table
    assert "BLEU is sacrebleu's, nrefs:1\\|made up." in table


def test_the_language_model_with_the_lowest_perplexity_leads(results_of):
    results, table = results_of(*CAUSAL)
    assert results["metric"] == "perplexity"
    assert "bleu_signature" not in results
    assert [entry.arm for entry in ranked(read(results))] == ["rope", "alibi", "none"]
    assert verdict(read(results)).sentence.startswith("rope is best: perplexity 7.4")
    assert "| Model | Test perplexity | Difference from none | Test bits per character | Parameters |" in table
    assert "mean loss in bits over all characters of the test split" in table
    beside = next(column for column in columns(read(results)) if column.key == "bits_per_character")
    assert beside.value(read(results).summary[1], read(results).arms[1]) == pytest.approx(2.01 / 3)


def test_another_headline_puts_bleu_beside_it(results_of):
    results, table = results_of(*TRANSLATION, "training.select=accuracy")
    assert "| Model | Test accuracy | Difference from none | Test perplexity | test BLEU | Parameters |" in table
    assert ranked(read(results))[0].arm == "rope"


@pytest.mark.parametrize("overrides", [CAUSAL, TRANSLATION])
def test_the_page_draws_the_costs_and_no_second_score(results_of, overrides):
    results, _ = results_of(*overrides)
    page = report_page(read(results))
    assert "Test perplexity" in page
    view = json.loads(page.split('id="view-json">')[1].split("</script>")[0])
    assert {"parameters", "flops_per_token", "tokens_per_second"} <= {cost["key"] for cost in view["costs"]}
    assert all([set(point) for point in own["points"]] == [{"name", "cost", "quality"}] * 3 for own in view["costs"])


def test_a_grid_judged_by_bleu_needs_bleu_while_training(results_of):
    with pytest.raises(
        BadInput, match=r"compare\.grid judges the rates by BLEU.*translate_while_training=true"
    ) as caught:
        results_of(*TRANSLATION, grid=[0.001, 0.002])
    assert len(caught.value.faults) == 1
    results, table = results_of(*TRANSLATION, "task.translate_while_training=true", grid=[0.001, 0.002])
    assert {entry["arm"]: entry["learning_rate"] for entry in results["grid"] if entry["chosen"]} == dict.fromkeys(
        ARMS, 0.002
    )
    assert table == markdown_table(read(results))
