"""The examples run, shortened."""

import ast
import importlib
import json
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from wordorder.comparison.results_file import parse_results

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = ROOT / "examples"


def output_of(name: str, *arguments: str, folder: Path) -> str:
    """Run an example in a folder of its own and give what it printed."""
    command = [sys.executable, str(EXAMPLES / name), *arguments]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        cwd=folder,
        env={**os.environ, "WORDORDER_CACHE": str(folder / "cache")},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_swap_the_encoding_shows_that_order_pays(tmp_path: Path):
    text = output_of("swap_the_encoding.py", "--steps", "60", "--encodings", "none", "tupe-r", folder=tmp_path)
    losses = {line.split()[0]: float(line.split()[-1]) for line in text.splitlines()}
    assert list(losses) == ["none", "tupe-r"]
    assert losses["tupe-r"] < losses["none"]


@pytest.mark.slow
def test_pretrain_on_your_text_fills_a_mask(tmp_path: Path):
    for number in range(8):
        text = (
            f"the people of the united states number {number} went to the house and spoke of peace and of war . " * 40
        )
        (tmp_path / f"{number}.txt").write_text(text, encoding="utf-8")
    text = output_of("pretrain_on_your_text.py", "*.txt", "--steps", "4", folder=tmp_path)
    assert "test perplexity" in text
    assert len([line for line in text.splitlines() if line.startswith("0.")]) == 3


@pytest.mark.slow
def test_an_encoding_of_ones_own_passes_the_suite_and_is_worth_something(tmp_path: Path):
    text = output_of("own_encoding.py", folder=tmp_path)
    assert "fault" not in text
    assert "word order is visible" in text
    losses = {line.split()[0]: float(line.split()[-1]) for line in text.splitlines() if " loss " in line}
    assert losses["neighbours"] < losses["none"]


@pytest.fixture
def printed_by(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """Run an example in this process, which has the libraries loaded already, and give what it printed."""

    def run(name: str, *arguments: str) -> str:
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "argv", [name, *arguments])
        runpy.run_path(str(EXAMPLES / name), run_name="__main__")
        return capsys.readouterr().out

    return run


@pytest.fixture
def letters(tmp_path: Path) -> str:
    """A few small texts of which much can be guessed."""
    for number in range(6):
        (tmp_path / f"{number}.txt").write_text(f"the state of the union is {number} times strong . " * 30)
    return "*.txt"


def numbers_in(text: str, pattern: str) -> list[float]:
    return [float(found) for found in re.findall(pattern, text)]


@pytest.mark.slow
def test_fine_tuning_starts_from_the_pre_trained_encoder(printed_by):
    text = printed_by("fine_tune_with_tupe.py", "--steps", "4", "--documents", "12")
    assert "drawn anew: dense.weight, dense.bias, classifier.weight, classifier.bias\n" in text
    assert len(numbers_in(text, r"test accuracy (\d\.\d+)")) == 2


@pytest.mark.slow
def test_streaming_with_memory_writes_what_was_asked_for(printed_by, letters):
    text = printed_by("stream_with_memory.py", letters, "--steps", "6", "--tokens", "40", "--prompt", "the state")
    scores, written = text.split("\nthe state", 1)
    assert len(numbers_in(scores, r"(\d+\.\d+) bits per character")) == 2
    assert len(written.rstrip("\n")) <= 40


def test_a_bag_of_words_tells_the_order_by_complex_order_embeddings_alone(printed_by):
    plain, waves = numbers_in(printed_by("complex_order_classifier.py", "--steps", "200"), r"accuracy (\d\.\d+)")
    assert plain < 0.6
    assert waves > 0.85


def test_a_grafted_bert_is_its_host_until_it_is_trained(printed_by):
    text = printed_by("graft_on_bert.py", "--steps", "100")
    assert text.startswith("GraftedBertForMaskedLM: 10,176 parameters more")
    assert numbers_in(text, r"at most ([\d.e+-]+) apart")[0] < 1e-5
    host, grafted = numbers_in(text, r"loss (\d\.\d+)")
    assert grafted < host - 1
    assert text.endswith("saved and loaded: the same logits\n")


@pytest.mark.slow
def test_a_comparison_in_python_says_how_many_seeds_a_test_needs(printed_by, letters):
    text = printed_by("compare_in_python.py", letters, "--steps", "4")
    sizes = numbers_in(text.replace(",", ""), r"(\d+) parameters")
    assert max(sizes) / min(sizes) < 1.01
    assert "the exact test needs 6: --seeds 6." in text


def test_a_converted_checkpoint_gives_the_logits_of_the_original(printed_by):
    text = printed_by("convert_a_checkpoint.py")
    assert "loads as WordOrderEncoderForMaskedLM\n" in text
    assert numbers_in(text, r"at most ([\d.e+-]+) apart")[0] < 1e-5


def test_the_inspected_maps_prefer_the_period_of_the_text(printed_by, tmp_path: Path):
    text = printed_by("inspect_correlations.py", "--folder", "figures")
    lines = [line for line in text.splitlines() if "prefers" in line]
    distances = [int(number) for line in lines for number in line.split(" at ")[1].split()]
    assert len(distances) == 8
    assert sum(distance % 3 == 0 for distance in distances) >= 7
    for name in ("map-absolute.png", "correlations.png"):
        assert (tmp_path / "figures" / name).read_bytes()[:4] == b"\x89PNG"


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.name)
def test_every_example_is_run_by_a_test_and_says_what_it_shows(path: Path):
    assert f'"{path.name}"' in Path(__file__).read_text(encoding="utf-8")
    header = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    assert f"python examples/{path.name}" in header
    assert "Prints: " in header
    assert "Shows: " in header


def test_the_benchmark_prints_ratios_to_plain_attention(tmp_path: Path):
    sizes = ["--length", "16", "--batch", "2", "--width", "16", "--layers", "1", "--rounds", "2"]
    text = output_of("../benchmarks/training_step.py", *sizes, "--json", "speed.json", folder=tmp_path)
    networks = json.loads((tmp_path / "speed.json").read_text(encoding="utf-8"))["networks"]
    assert list(networks) == ["encoder", "decoder"]
    assert "cope" in networks["decoder"].keys() - networks["encoder"].keys()
    for rows in networks.values():
        assert rows["none"]["ratio"] == 1
        assert all(name in text and row["ratio"] > 0 for name, row in rows.items())


@pytest.mark.slow
def test_the_benchmark_of_complex_order_prints_ratios_to_a_plain_table(tmp_path: Path):
    sizes = ["--vocabulary", "50", "--width", "8", "--length", "6", "--batch", "2", "--rounds", "2", "--no-compile"]
    sizes += ["--sections", "passes", "step", "step-words"]
    text = output_of("../benchmarks/complex_order.py", *sizes, "--json", "speed.json", folder=tmp_path)
    sections = json.loads((tmp_path / "speed.json").read_text(encoding="utf-8"))["sections"]
    assert list(sections) == [
        "embedding, forward and backward, 12 tokens drawn evenly",
        "embedding with its optimiser step, 12 tokens drawn evenly",
        "embedding with its optimiser step, 12 tokens as frequent as words",
    ]
    for rows in sections.values():
        assert rows["nn.Embedding"]["ratio"] == 1
        assert all(name in text and row["ratio"] > 0 for name, row in rows.items())


@pytest.mark.slow
def test_the_benchmark_of_streaming_counts_what_is_held(tmp_path: Path):
    sizes = ["--segment", "4", "--slots", "6", "--tokens", "80"]
    text = output_of("../benchmarks/streaming.py", *sizes, "--json", "streaming.json", folder=tmp_path)
    rows = json.loads((tmp_path / "streaming.json").read_text(encoding="utf-8"))["streaming"]
    assert [row["memory"] for row in rows] == ["look-ahead", "segment-recurrence", "none"]
    assert [row["tokens"] for row in rows] == [80, 80, 40]
    for row in rows:
        first, last = row["cache_bytes"]
        assert first < last if row["memory"] == "none" else first == last
        assert len(row["milliseconds_per_token"]) == 10
        pace = row["milliseconds_per_token"]
        assert row["last_to_first"] == pytest.approx(pace[-1] / pace[0])
        low, high = row["old_to_young_quartiles"]
        assert 0 < low <= row["old_to_young"] <= high
        assert row["memory"] in text


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")  # of other libraries
def test_the_benchmark_of_attention_writes_what_the_pages_show(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(ROOT / "evidence" / "publish"))
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    # by name: attention is also the name of a folder of the package
    benchmark, publish_demo, timing = (
        importlib.import_module(name) for name in ("attention", "publish_demo", "timing")
    )

    monkeypatch.setattr(benchmark, "STACKS", ((16, 2, 24, 1, 2),))
    monkeypatch.setattr(benchmark, "CURVE", (64, 128))
    operations = benchmark.operations
    monkeypatch.setattr(benchmark, "operations", lambda b, h, n, *rest: operations(1, 2, 40, *rest))
    monkeypatch.setattr(benchmark, "alone", lambda *what: {"bytes": 2**20, "seconds": 1.0})
    found = benchmark.measure(("operation", "long", "stack", "memory"), wall=False, rounds=2)
    for rows in found.values():
        assert rows.get("SDPA, no position", {"ratio": 1})["ratio"] == 1
        assert all(row.get("ratio", 1) > 0 for row in rows.values())
    document = {"limit": "SDPA, no position", "clock": "CPU time", "machine": timing.machine(), "sections": found}
    table = publish_demo.table_of(json.loads(json.dumps(document)))
    assert "| TUPE-R |" in table
    assert "| 128 | 1 | 1.0 |" in table


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="resident memory is read from Linux's /proc")
def test_extra_memory_is_what_a_call_allocates():
    script = (
        "from timing import extra_memory; import torch;"
        "print(extra_memory(lambda: torch.zeros(5_000_000).add_(1)) / 2**20)"
    )
    text = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.append({str(ROOT / 'benchmarks')!r}); {script}"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    assert 19 < float(text) < 25


def test_pace_is_that_of_the_library(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(ROOT / "evidence" / "publish"))
    publish = importlib.import_module("publish_demo")
    curves = {
        ("slow", 0): [[10, 3.0], [20, 2.0], [30, 1.5], [40, 1.4]],
        ("slow", 1): [[10, 3.0], [20, 2.0], [30, 1.5], [40, 1.0]],
        ("fast", 0): [[10, 1.5], [20, 1.3], [30, 1.1], [40, 1.1]],
        ("fast", 1): [[10, 1.5], [20, 1.3], [30, 1.1], [40, 1.1]],
    }
    rows = [{"arm": arm, "seed": seed, "curve": curve} for (arm, seed), curve in curves.items()]
    least = {"name": "x", "task": "masked-lm", "recipe": {}, "planned": {"arms": 1, "seeds": [], "runs": 4}}
    results = parse_results({**least, "rows": rows, "arms": [{"name": "fast"}]})
    assert publish.paces(results, "slow") == {"slow": "baseline", "fast": "never in half of the runs"}
    reached = parse_results({**least, "rows": [rows[0], rows[2]], "arms": [{"name": "fast"}]})
    assert publish.paces(reached, "slow")["fast"] == "15 (15 to 15), 38%"
