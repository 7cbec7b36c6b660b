"""The pages that are made by scripts are those that the scripts make now, and the scripts say what the files say."""

import importlib
import json
import math
import re
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree

import pytest

from wordorder.comparison.results_file import parse_results

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch):
    """A script of evidence/ by its name, as a module."""
    monkeypatch.syspath_prepend(str(ROOT / "evidence"))
    monkeypatch.syspath_prepend(str(ROOT / "evidence" / "publish"))

    def load(name: str) -> ModuleType:
        return importlib.import_module(name)

    return load


def page(name: str) -> str:
    return (ROOT / "docs" / name).read_text(encoding="utf-8")


def test_the_command_reference_is_that_of_the_command_line(script):
    publish = script("publish_commands")
    assert publish.put(page("command-line.md")) == page("command-line.md"), "run publish_commands.py"


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
        told = re.sub(r"-\n +", "-", told)  # names that are broken at the end of a line
        options = {name for name in re.findall(r"--[a-z-]+", told) if name != "--help"}
        rows = [row.split("`: ") for row in block.splitlines() if row.startswith("- `")]
        assert options - shared <= set(re.findall(r"--[a-z-]+", " ".join(row[0] for row in rows)))
        assert all(len(row) == 2 and row[1].strip() for row in rows), "every argument has a meaning"
        example = re.findall(r"```bash\n(wordorder .*)\n```", block)
        assert len(example) == 1
        assert set(re.findall(r"--[a-z-]+", example[0])) <= options


def test_the_figures_of_a_comparison_are_drawn_from_its_json_where_a_page_shows_them(script, tmp_path, monkeypatch):
    publish = script("publish_demo")
    results = json.loads((ROOT / "evidence/results/demo.json").read_text(encoding="utf-8"))
    (tmp_path / "docs" / "figures").mkdir(parents=True)
    (tmp_path / "page.md").write_text("![Curves](figures/demo_learning_curves.png)")
    monkeypatch.setattr(publish, "ROOT", tmp_path)
    monkeypatch.setattr(publish, "PAGES", (tmp_path / "page.md",))
    publish.publish_figures("demo", results)
    (drawn,) = (tmp_path / "docs" / "figures").iterdir()
    assert drawn.name == "demo_learning_curves.png"
    assert drawn.read_bytes().startswith(b"\x89PNG")


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
    assert publish.page_of(page("performance.md")) == page("performance.md"), "run publish_performance.py"
    made = publish.figures()
    assert {path.name for path in (ROOT / "docs" / "figures").glob("performance_*.svg")} == set(made)
    for name, chart in made.items():
        assert (ROOT / "docs" / "figures" / name).read_text(encoding="utf-8") == f"{chart}\n", name
        assert f'--8<-- "docs/figures/{name}"' in page("performance.md")


def test_the_figure_of_attention_by_distance_is_that_of_the_committed_results(script):
    publish = script("publish_attention_by_distance")
    results = json.loads((publish.RESULTS / "attention-by-distance.json").read_text(encoding="utf-8"))
    assert publish.FIGURE.read_text(encoding="utf-8") == f"{publish.chart_of(results)}\n"
    assert f'--8<-- "docs/figures/{publish.FIGURE.name}"' in page("memory.md")


def test_the_page_of_backends_is_that_of_the_committed_results(script):
    publish = script("publish_backends")
    assert publish.page_of(page("backends.md")) == page("backends.md"), "run publish_backends.py"


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


def test_a_kernel_that_spills_in_a_loop_is_named_below_the_table(script):
    row = {"kernel": "k", "blocks": "", "registers": 9, "shared": 2048, "matrix": ["mma.sync"], "spills": 0}
    row |= {"inside": 0}
    rows = [row | {"target": "a"}, row | {"target": "b", "spills": 4, "inside": 2, "shared": 0}]
    rows += [row | {"kernel": "l", "target": "a", "spills": 8}]
    results = {"shared_limits": {"a": 4096, "b": 4096}, "rows": rows, "compiler": {"triton": "3"}}
    table = script("publish_backends").kernels_table(results)
    assert "| a | up to 9 | up to 2 of 4 KiB |" in table
    assert "| b | up to 9 | up to 0 of 4 KiB |" in table
    assert table.endswith("1 of 3 kernels spill registers outside of inner loops, 1 inside:\n\n- k, b: **4 bytes**")
    calm = script("publish_backends").kernels_table(results | {"rows": rows[:1], "shared_limits": {"a": 4096}})
    assert calm.endswith("0 of 1 kernels spill registers outside of inner loops, 0 inside.")


def test_headlines_hold_the_ratios_of_their_files_and_name_what_is_compiled(script):
    publish = script("publish_performance")
    for sentence, _, numbers in publish.HEADLINES:
        assert sentence.count("{}") == len(numbers)
        assert ("torch.compile" in sentence) == any("compiled" in candidate for _, candidate, *_ in numbers)
    (line,) = (row for row in publish.headlines().splitlines() if row.startswith("- **A complex-order embedding**"))
    timed = publish.results_of("complex-embedding")["sections"]
    of_passes = timed["embedding, forward and backward, 8,192 tokens drawn evenly"]
    eager, compiled = (of_passes[name]["ratio"] for name in ("complex-order", "complex-order, compiled"))
    assert f"takes {eager:.2f} times as long as `nn.Embedding`, and {compiled:.2f} times under" in line


def test_short_tables_name_the_limit_and_what_differs_between_sections(script):
    tables = script("speed_tables")
    (left_out,) = tables.IN_FIGURES_ONLY
    times = {"plain": {"ratio": 1.0}, "ours": {"ratio": 1.254}, left_out: {"ratio": 9.0}}
    found = tables.speed_table({"sections": {"step, 2 x 8, float32": times, "step, 2 x 9, float32": times}})
    assert found.splitlines() == [
        "| Step, float32 | 2 x 8 | 2 x 9 |",
        "| :--- | ---: | ---: |",
        "| plain | 1.00 | 1.00 |",
        "| ours | 1.25 | 1.25 |",
    ]
    networks = {"encoder": {"none": {"ratio": 1.0}}, "decoder": {"none": {"ratio": 1.0}, "cope": {"ratio": 1.2}}}
    encodings = tables.speed_table({"settings": {}, "networks": networks, "limit": "none"})
    assert "| cope | not defined | 1.20 |" in encodings
    assert encodings.endswith("The other 1 take 1.00 to 1.00 times as long as `none`.")
    curve = {str(2**n): {"bytes": 2**20 * n, "seconds": 0.04} for n in range(10, 14)}
    assert "| 8,192 | 13 | 0.0 |" in (lengths := tables.speed_table({"sections": {"training step": curve}}))
    assert "| 4,096 |" not in lengths


def test_every_benchmark_that_is_measured_is_on_the_performance_page(script):
    shown = set(script("publish_performance").names_of(page("performance.md")))
    files = {
        path.stem: json.loads(path.read_text(encoding="utf-8")) for path in (ROOT / "benchmarks/results").glob("*.json")
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
    assert publish.page_of(page("choose.md")) == page("choose.md"), "run publish_choice.py"
    assert "\n<!-- catalogue: costs -->\n" in page("choose.md")


def test_the_table_over_several_tasks_is_that_of_the_committed_results(script):
    publish = script("publish_decision")
    for name, text in publish.pages().items():
        assert text == page(name), "run publish_decision.py"
        assert "<!-- ranks-table -->" in text or "<!-- cells-table -->" in text


def test_the_table_of_the_frequencies_rates_is_that_of_the_committed_results(script):
    publish = script("publish_rates")
    assert publish.page_of(page("classification.md")) == page("classification.md"), "run publish_rates.py"
    assert publish.table() in page("classification.md")


def comparison(seeds: int, scores: dict[str, float], *, spread: float = 0.001):
    """A results file of made-up perplexities: every seed moves all arms alike, and each arm a little by itself."""
    from wordorder.comparison.results_file import Row
    from wordorder.comparison.statistics.summary import summarise

    rows = [
        {"arm": arm, "seed": seed, "perplexity": score * (1 + 0.01 * seed + spread * ((7 * seed + len(arm)) % 5))}
        for arm, score in scores.items()
        for seed in range(seeds)
    ]
    arms = [{"name": arm, "encoding": arm} for arm in scores]
    recipe = {"compare": {}, "data": {}, "training": {}, "model": {}}
    planned = {"arms": len(arms), "seeds": list(range(seeds)), "runs": len(rows), "rates": []}
    results = {"arms": arms, "rows": rows, "recipe": recipe, "planned": planned, "task": "masked-lm", "name": "made up"}
    summary = [entry.as_json() for entry in summarise(Row.model_validate(row) for row in rows)]
    return {**results, "summary": summary, "failed": [], "metric": "perplexity"}


def test_the_best_model_is_recommended_with_those_near_it_that_are_not_significantly_worse(script):
    scores = {"none": 9.0, "first": 3.9, "second": 4.0, "thirds": 4.05, "fourth": 4.1, "far": 4.6, "worse": 4.3}
    found = script("choice_rules").standing_of(parse_results(comparison(8, scores, spread=0.02)))
    assert found.best == "first"
    assert found.beside == ["second", "thirds"], "at most two"
    assert replace(found, above_control=frozenset({"thirds"})).beside == ["thirds"]
    assert found.above_control == {*scores} - {"none"}
    assert found.significant["none"]
    assert found.significant["worse"]
    assert found.distance("far") == pytest.approx(0.18, abs=0.02)


@pytest.mark.parametrize(("seeds", "second", "significant"), [(8, 4.2, True), (3, 4.2, False), (3, 8.0, True)])
def test_few_seeds_are_compared_by_welchs_test(script, seeds: int, second: float, significant: bool):
    results = parse_results(comparison(seeds, {"none": 9.0, "first": 4.0, "second": second}, spread=0.02))
    assert script("choice_rules").standing_of(results).significant["second"] is significant


def test_welchs_tests_are_corrected_for_all_pairs(script):
    """The file tests pairs with its baseline alone; of the others the best model was chosen by the same scores."""
    scores = {"none": 9.0, "first": 4.0, "other": 4.2}
    for others, sure in ({}, True), ({f"m{'o' * size}re": 4.2 for size in range(7)}, False):
        results = comparison(5, scores | others, spread=0.005) | {"baseline": "none"}
        results["recipe"]["compare"]["baseline"] = "none"
        found = script("choice_rules").standing_of(parse_results(results))
        assert found.best == "first"
        assert found.significant["other"] is sure


def test_a_lost_run_is_refused(script):
    results = comparison(3, {"none": 9.0, "good": 4.0})
    results["rows"][-1]["perplexity"] = None
    with pytest.raises(ValueError, match="made up: a run of good has no score"):
        script("choice_rules").standing_of(parse_results(results))


def test_memories_are_named_by_their_flops(script):
    results = comparison(8, {"none": 9.0, "dear": 3.9, "cheap": 4.0}, spread=0.05)
    for arm, flops in zip(results["arms"], (1.0, 4.0, 2.0), strict=True):
        arm |= {"encoding": "rope", "flops_per_token": flops, "overrides": {"model.memory": arm["name"]}}
    found = script("choice_rules").standing_of(parse_results(results))
    assert (found.best, found.beside) == ("dear", ["cheap"])
    assert script("publish_choice").named_in(parse_results(results), found) == ["cheap", "dear"]


def test_fewer_than_three_seeds_recommend_nothing(script):
    assert script("choice_rules").standing_of(parse_results(comparison(2, {"none": 9.0, "good": 4.0}))) is None


def test_a_model_must_beat_the_control_to_be_recommended(script):
    rules = script("choice_rules")
    for score, beaten in ((4.0, True), (8.99, False), (12.0, False)):
        results = parse_results(comparison(8, {"none": 9.0, "other": score}, spread=0.05))
        assert rules.beats_control(results, rules.standing_of(results)) is beaten


def test_the_control_of_memories_is_the_model_without_one(script):
    results = comparison(8, {"rope": 5.0, "recurrence": 4.0})
    results["arms"][1]["overrides"] = {"model.memory": "transformer-xl"}
    results["recipe"]["compare"]["baseline"] = "recurrence"
    assert script("choice_rules").control_of(parse_results(results)) == "rope"


def test_longer_texts_are_judged_by_the_probe(script):
    probe = {
        **{"title": "Longer texts", "x": "tokens", "value": "perplexity", "higher_is_better": False},
        "x_kind": "number",
        "rows": [
            {"arm": arm, "group": "all tokens", "seed": seed, "x": x, "value": value + 0.01 * seed}
            for arm, values in {"none": (10.0, 12.0), "holds": (8.0, 8.4), "grows": (4.0, 20.0)}.items()
            for x, value in zip((64, 1024), values, strict=True)
            for seed in range(3)
        ],
        "skipped": [{"arm": "table", "reason": "longer than its table"}],
    }
    scores = {"none": 10.0, "holds": 8.0, "grows": 4.0, "table": 4.0}
    results = parse_results(comparison(3, scores) | {"probes": {"extrapolation": probe}})
    rules = script("choice_rules")
    assert rules.standing_of(results).best in ("grows", "table")
    longer = rules.standing_of(results, 16)
    assert (longer.best, longer.beside) == ("holds", [])
    assert longer.significant == {"none": True, "grows": True}
    assert rules.growth(results)["grows"] == pytest.approx(5, abs=0.01)
    assert rules.refusing(results) == ["table"]


def test_a_finished_comparison_at_another_width_keeps_its_rates_by_the_width(script, tmp_path):
    from wordorder.training import read_recipe
    from wordorder.training.recipe.toml_text import to_toml

    file = ROOT / "evidence" / "results" / "decision" / "n_back_64.json"
    results = parse_results(json.loads(file.read_text(encoding="utf-8")))
    (tmp_path / "wide.toml").write_text(to_toml(script("wider").wider(results, 128, 3)), encoding="utf-8")
    recipe = read_recipe(tmp_path / "wide.toml")
    assert recipe.model["hidden_size"] == 128
    assert recipe.compare.seeds == (0, 1, 2)
    assert recipe.compare.tune == ()
    for arm, before in zip(recipe.compare.arms, results.arms, strict=True):
        assert recipe.for_arm(arm).training["learning_rate"] == pytest.approx(before.learning_rate / 2)


def test_the_share_of_steps_is_a_geometric_mean_over_seeds(script):
    """The baseline is at its lowest loss, 1.0, after 100 steps; the other one after 25 and after 50."""
    publish = script("publish_scales")
    own = publish.shares(parse_results(with_curves({"slow": [100, 100, 100], "fast": [25, 50, 50]})))
    assert own == {"fast": [0.25, 0.5, 0.5]}
    assert publish.in_words([0.25, 0.5, 0.5]) == "40% [15%, 107%]"  # exp(-4 log(2) / 3 +- 4.303 log(2) / 3)
    assert publish.in_words([0.5, math.inf]) == "never in 1 of 2 seeds"


def with_curves(steps: dict[str, list[int]]):
    """A results file of curves that fall from 2.0 to 1.0 within so many steps, and stay there."""
    found = comparison(3, dict.fromkeys(steps, 4.0))
    for row in found["rows"]:
        row["curve"] = [[0, 2.0], [steps[row["arm"]][row["seed"]], 1.0], [200, 1.0]]
    return {**found, "baseline": "slow"}


def test_every_published_comparison_can_be_run_again_by_its_name(script, monkeypatch):
    from wordorder.training.recipe.packaged import find_recipe

    monkeypatch.chdir(ROOT)
    known = {entry.name: entry for entry in script("train").ALL}
    results = script("publish_demo").RESULTS
    files = {
        str(p.relative_to(results).with_suffix("")): json.loads(p.read_text("utf-8")) for p in results.rglob("*.json")
    }
    assert {name for name, file in files.items() if isinstance(file, dict) and "planned" in file} <= known.keys()
    for entry in known.values():
        recipe = f"evidence/recipes/decision/{entry.recipe}.toml" if entry.wider else entry.recipe
        assert find_recipe(recipe).is_file(), entry.name
        assert entry.wider is None or entry.wider in known


def test_a_comparison_that_takes_its_rates_from_missing_results_is_one_line(script, tmp_path, monkeypatch):
    train = script("train")
    for name in ("ROOT", "RUNS", "RESULTS"):
        monkeypatch.setattr(train, name, tmp_path)
    run = []
    monkeypatch.setattr(train.subprocess, "run", lambda command, **_: run.append(command[1]))
    monkeypatch.setattr("sys.argv", ["train.py", "decision/reverse_128"])
    with pytest.raises(SystemExit, match=r"takes its learning rates from decision/reverse_64, which is missing"):
        train.main()
    assert not run
    monkeypatch.setattr("sys.argv", ["train.py", "decision/reverse_128", "decision/reverse_64"])
    train.main()
    publish = "evidence/publish/publish_demo.py"
    assert run == ["-m", publish, "evidence/wider.py", "-m", publish]
