"""The pages that are made by scripts are those that the scripts make now, and the scripts say what the files say."""

import importlib
import json
import re
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree

import pytest

from wordorder.comparison.results_file import parse_results

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch):
    """A script of benchmarks/ by its name, as a module."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))

    def load(name: str) -> ModuleType:
        return importlib.import_module(name)

    return load


def page(name: str) -> str:
    return (ROOT / "docs" / name).read_text(encoding="utf-8")


def test_the_command_reference_is_that_of_the_command_line(script):
    publish = script("publish_commands")
    assert publish.put(page("command-line.md")) == page("command-line.md"), "run benchmarks/publish_commands.py"


def test_the_reference_names_every_command_and_what_its_help_shows(script):
    from typer.testing import CliRunner

    from wordorder.cli.app import app

    publish = script("publish_commands")
    reference = publish.reference()
    shared = {name.split()[0] for name in publish.SHARED}
    assert all(f"\n- `{name}`: {meaning}\n" in reference for name, meaning in publish.SHARED.items())
    for command in app.registered_commands:
        block = reference[reference.index(f"### {command.name}\n") :].split("\n### ")[0]
        told = CliRunner().invoke(app, [str(command.name), "--help"], env={"COLUMNS": "250"}).output
        options = {name for name in re.findall(r"--[a-z-]+", told) if name != "--help"}
        rows = [row.split("`: ") for row in block.splitlines() if row.startswith("- `")]
        assert options - shared <= set(re.findall(r"--[a-z-]+", " ".join(row[0] for row in rows)))
        assert all(len(row) == 2 and row[1].strip() for row in rows), "every argument has a meaning"
        example = re.findall(r"```bash\n(wordorder .*)\n```", block)
        assert len(example) == 1
        assert set(re.findall(r"--[a-z-]+", example[0])) <= options


def test_types_limits_and_defaults_are_read_from_the_signature(script):
    reference = script("publish_commands").reference()
    assert re.search(r"^- `--top( N)?`: .* \(≥ 1; default `5`\)$", reference, flags=re.MULTILINE)
    assert re.search(r"^- `--top-p( P)?`: .* \(≥ 0, ≤ 1\)$", reference, flags=re.MULTILINE)
    assert re.search(r"^- `--split.*default `test`\)$", reference, flags=re.MULTILINE)
    assert re.search(r"^- `--stop-at-end/--no-stop-at-end`: .* \(on by default\)$", reference, flags=re.MULTILINE)
    assert re.search(r"^- `--context.*segment`?[,|] ?`?sliding`?[,|] ?`?memory", reference, flags=re.MULTILINE)


def test_a_command_without_an_example_is_refused(script):
    with pytest.raises(ValueError, match="has no example"):
        script("publish_commands").described(page)


def test_the_performance_page_and_its_figures_are_those_of_the_committed_results(script):
    publish = script("publish_performance")
    assert publish.page_of(page("performance.md")) == page("performance.md"), "run benchmarks/publish_performance.py"
    made = publish.figures()
    assert {path.name for path in (ROOT / "docs" / "figures").glob("performance_*.svg")} == set(made)
    for name, chart in made.items():
        assert (ROOT / "docs" / "figures" / name).read_text(encoding="utf-8") == f"{chart}\n", name
        assert f'--8<-- "docs/figures/{name}"' in page("performance.md")


def test_the_page_of_backends_is_that_of_the_committed_results(script):
    publish = script("publish_backends")
    assert publish.page_of(page("backends.md")) == page("backends.md"), "run benchmarks/publish_backends.py"


def test_the_page_of_backends_says_that_no_gpu_has_run_until_one_has(script, tmp_path):
    publish = script("publish_backends")
    assert publish.gpu_section(publish.gpu_results(tmp_path)) == publish.NOT_YET
    measured = {"share": 0.8, "share_quartiles": [0.7, 0.9], "milliseconds": 2.0, "tflops": 300.0}
    goal = {"section": "tupe-r, 512 tokens", "goal": "at least 0.9", "found": 0.8, "met": False}
    rows = {"wordorder, triton": measured, "FlexAttention": {"failed": "out of memory"}}
    shared = {"dry": False, "gpu": {"name": "H100"}, "versions": {"torch": "2.13.0"}, "finished": False}
    (tmp_path / "gpu-attention.json").write_text(
        json.dumps(
            shared
            | {"limit": "FlashAttention", "dtype": "torch.bfloat16", "sections": {goal["section"]: rows}}
            | {"goals": [goal], "memory": {"8,192": {"wordorder, triton": {"bytes": 2**21}}}}
        )
    )
    said = publish.gpu_section(publish.gpu_results(tmp_path))
    assert "No GPU" not in said
    assert "| tupe-r, 512 tokens | wordorder, triton | 0.80 | 0.70 to 0.90 | 2.000 | 300 |" in said
    assert "not measured: out of memory" in said
    assert "| tupe-r, 512 tokens | at least 0.9 | 0.80 | missed |" in said
    assert "| 8,192 tokens | 2 |" in said
    assert "H100, torch 2.13.0. Stopped at its time limit." in said
    (tmp_path / "gpu-training.json").write_text(json.dumps(shared | {"dry": True, "arms": {}}))
    with pytest.raises(ValueError, match="dry run"):
        publish.gpu_section(publish.gpu_results(tmp_path))


def test_a_kernel_that_spills_is_marked_in_its_table(script):
    row = {"kernel": "k", "blocks": "", "registers": 9, "shared": 2048, "matrix": ["mma.sync"], "spills": 0}
    row |= {"inside": 0}
    rows = [row | {"target": "a"}, row | {"target": "b", "spills": 4, "inside": 2, "shared": 0}]
    rows += [row | {"kernel": "l", "target": "a", "spills": 8}]
    results = {"shared_limits": {"a": 4096, "b": 4096}, "rows": rows, "compiler": {"triton": "3"}}
    table = script("publish_backends").kernels_table(results)
    assert "| k | 9 registers, 2 KiB, `mma.sync` | 9 registers, `mma.sync`, **spills 4, 2 times in a loop** |" in table
    assert "| l | 9 registers, 2 KiB, `mma.sync`, spills 8 bytes around loops |" in table
    assert "1 of 3 spill" in table


def test_the_overview_compares_eager_with_eager_and_names_what_is_compiled(script):
    publish = script("publish_performance")
    for question, _, _, ours, others in publish.OVERVIEW:
        if "compiled" in ours:
            assert "torch.compile" in question
            assert not others
    rows = [row for row in publish.overview().splitlines() if row.startswith("| complex-order embedding<br>")]
    eager = publish.results_of("complex-embedding")["sections"]
    of_passes = eager["embedding, forward and backward, 8,192 tokens drawn evenly"]["complex-order"]
    assert len(rows) == 1
    assert f"| {of_passes['ratio']:.2f} (" in rows[0]


def test_every_benchmark_that_is_measured_is_on_the_performance_page(script):
    shown = set(script("publish_performance").names_of(page("performance.md")))
    files = {
        path.stem: json.loads(path.read_text(encoding="utf-8")) for path in (ROOT / "benchmarks/results").glob("*")
    }
    assert shown == {
        name for name, content in files.items() if "machine" in content and "milliseconds" in json.dumps(content)
    }


def test_a_chart_puts_larger_ratios_further_to_the_right(script):
    rows = [("a & b", "limit", 1.0, 1.0, 1.0), ("c", "ours", 2.0, 1.5, 3.0), ("d", "other", 9.0, 8.0, 9.5)]
    root = ElementTree.fromstring(script("charts").ratios("times", rows))
    space = "{http://www.w3.org/2000/svg}"
    bars = [
        (float(bar.get("x1")), float(bar.get("x2")))
        for bar in root.iter(f"{space}line")
        if bar.get("x1") != bar.get("x2")
    ]
    assert all(low < high for low, high in bars)
    assert bars == sorted(bars)
    assert [text.text for text in root.iter(f"{space}text") if text.get("text-anchor") == "end"] == [
        "a & b", "1.00", "c", "2.00", "d", "9.00",
    ]  # fmt: skip


def test_names_at_the_ends_of_lines_do_not_overlap(script):
    heights = script("charts")._apart([100, 101, 40])
    assert heights == [100, 116, 40]


def test_the_decision_page_is_that_of_the_committed_results(script):
    publish = script("publish_choice")
    assert publish.page_of(page("choose.md")) == page("choose.md"), "run benchmarks/publish_choice.py"
    assert set(re.findall(r"<!-- ([a-z-]+)-table -->", page("choose.md"))) == {"advice", *publish.TASKS}
    assert "\n<!-- catalogue: costs -->\n" in page("choose.md")


def comparison(seeds: int, scores: dict[str, float], *, spread: float = 0.001, flops: dict[str, int] | None = None):
    """A results file of made-up perplexities: every seed moves all arms alike, and each arm a little by itself."""
    rows = [
        {"arm": arm, "seed": seed, "perplexity": score * (1 + 0.01 * seed + spread * ((7 * seed + len(arm)) % 5))}
        for arm, score in scores.items()
        for seed in range(seeds)
    ]
    from wordorder.comparison.results_file import Row
    from wordorder.comparison.statistics.summary import summarise

    arms = [{"name": arm, "flops_per_token": (flops or {}).get(arm, 100)} for arm in scores]
    recipe = {"compare": {}, "data": {}, "training": {}, "model": {}}
    planned = {"arms": len(arms), "seeds": list(range(seeds)), "runs": len(rows), "rates": []}
    results = {"arms": arms, "rows": rows, "recipe": recipe, "planned": planned, "task": "masked-lm", "name": "made up"}
    summary = [entry.as_json() for entry in summarise(Row.model_validate(row) for row in rows)]
    return {**results, "summary": summary, "failed": [], "metric": "perplexity"}


def test_advice_claims_what_the_corrected_test_claims(script):
    said = " ".join(
        script("choice_rules").advice(parse_results(comparison(8, {"none": 9.0, "good": 4.0, "poor": 8.0})))
    )
    assert "**good** has the lowest test masked-token perplexity." in said
    assert "claimed to be better than poor and none" in said
    assert "survey" not in said


def test_advice_names_the_cheapest_of_those_that_cannot_be_told_apart(script):
    flops = {"first": 150, "second": 100, "none": 90}
    results = comparison(8, {"none": 9.0, "first": 4.0, "second": 4.0}, spread=0.05, flops=flops)
    said = " ".join(script("choice_rules").advice(parse_results(results)))
    best, level = ("first", "second") if "**first**" in said else ("second", "first")
    assert f"**{best}** has" in said
    assert f"Not distinguishable from it: {level}." in said
    assert "Of these second takes the fewest FLOPs per token at these sizes." in said
    for budget in (
        {"match": "flops"},
        # narrower layers, not the encoding, save these FLOPs
        {"match": "parameters", "arms": {"second": {"changed": {"model.intermediate_size": [256, 208]}}}},
    ):
        assert "FLOPs" not in " ".join(script("choice_rules").advice(parse_results(results | {"budget": budget})))
    unchanged = {"match": "parameters", "arms": {"second": {"changed": {}}}}
    assert "fewest FLOPs" in " ".join(script("choice_rules").advice(parse_results(results | {"budget": unchanged})))


def test_advice_claims_nothing_with_few_seeds_and_where_nothing_is_better_than_the_baseline(script):
    rules = script("choice_rules")
    few = " ".join(rules.advice(parse_results(comparison(3, {"none": 9.0, "good": 4.0}))))
    assert few.startswith("A survey, no claim: 3 seeds (claims take 6). **good**")
    level = " ".join(rules.advice(parse_results(comparison(8, {"none": 4.001, "other": 4.0}, spread=0.05))))
    assert "**other**" in level
    assert "Nothing is claimed to be better than no positions at all." in level
    assert "cost" not in level


def test_there_is_no_advice_where_nothing_is_told_apart_from_luck(script):
    rules = script("choice_rules")
    assert rules.quality_sentences(parse_results(comparison(1, {"none": 9.0, "good": 4.0}))) == [
        "No advice: 1 seed per arm, so that no difference can be told from luck."
    ]
    (said,) = rules.quality_sentences(parse_results(comparison(3, {"none": 4.0, "other": 4.001}, spread=0.05)))
    assert said == "No advice: 3 seeds (claims take 6), and the ranges of all arms overlap."


def memories(scores: dict[str, float], parameters: dict[str, int]):
    results = comparison(8, scores)
    for arm in results["arms"]:
        arm["overrides"] = {} if arm["name"] == "none" else {"model.memory": arm["name"]}
        arm["parameters"] = {"total": parameters[arm["name"]]}
    return results


def test_memories_are_recommended_only_where_one_of_them_helps(script):
    rules, equal = script("choice_rules"), {"none": 100, "recurrence": 100, "look-ahead": 100}
    said = " ".join(rules.advice(parse_results(memories({"none": 4.0, "recurrence": 5.0, "look-ahead": 6.0}, equal))))
    assert said == (
        "No advice which memory to take: no arm with a memory is claimed to be better than the one without (none), so "
        "that the experiment has no positive control. Claimed to be worse than it: recurrence and look-ahead."
    )
    fewer = equal | {"recurrence": 90, "look-ahead": 60}
    said = " ".join(rules.advice(parse_results(memories({"none": 4.0, "recurrence": 5.0, "look-ahead": 6.0}, fewer))))
    assert said.endswith("It has 100 parameters, those with a memory 60 to 90: the set-up decides.")
    said = " ".join(rules.advice(parse_results(memories({"none": 5.0, "recurrence": 4.0, "look-ahead": 6.0}, equal))))
    assert said.startswith("**recurrence** has the lowest")


def test_times_within_the_margin_are_not_told_apart(script):
    rows = {
        name: {"ratio": ratio, "ratio_quartiles": [low, 1.2]}
        for name, ratio, low in (("none", 1, 1), ("a", 1.04, 0.999), ("b", 1.04, 1.001), ("c", 1.01, 1.001))
    }
    assert script("choice_rules").dearer(rows) == ({"a": pytest.approx(0.04), "b": pytest.approx(0.04)}, ["c"])


def test_advice_on_longer_texts_gives_ratios_with_their_range_over_seeds(script):
    probe = {
        **{"title": "Longer texts", "x": "tokens", "value": "perplexity", "higher_is_better": False},
        "x_kind": "number",
        "rows": [
            {"arm": arm, "group": "all tokens", "seed": seed, "x": x, "value": value + seed * (x > 64)}
            for arm, values in {"good": (4.0, 4.8), "none": (10.0, 12.0), "poor": (8.0, 20.0)}.items()
            for x, value in zip((64, 1024), values, strict=True)
            for seed in (0, 1)
        ],
        "skipped": [{"arm": "table", "reason": "longer than its table"}],
    }
    results = comparison(8, {"none": 9.0, "good": 4.0, "poor": 8.0, "table": 5.0}) | {
        "probes": {"extrapolation": probe}
    }
    (said,) = script("choice_rules").length_sentences(parse_results(results))
    assert said == (
        "Perplexity on texts of 16 times the length over that at the length of training (lowest to highest seed): "
        "none 1.25 (1.20 to 1.30), good 1.32 (1.20 to 1.45), poor 2.56 (2.50 to 2.62); table cannot read them."
    )
