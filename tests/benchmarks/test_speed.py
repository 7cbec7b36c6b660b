"""The benchmarks of speed run at small sizes, and write ratios to what they compare with."""

import json
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.fixture
def results_of(tmp_path: Path, script, monkeypatch: pytest.MonkeyPatch):
    """Run a benchmark and return the JSON that it writes."""

    def run(name: str, *arguments: str):
        monkeypatch.setattr(sys, "argv", [name, *arguments, "--json", str(tmp_path / "speed.json")])
        runpy.run_path(str(BENCHMARKS / name), run_name="__main__")
        return json.loads((tmp_path / "speed.json").read_text(encoding="utf-8"))

    return run


def test_training_steps_of_every_encoding_are_timed(results_of):
    sizes = ["--length", "16", "--batch", "2", "--width", "16", "--layers", "1", "--rounds", "2"]
    networks = results_of("training_step.py", *sizes)["networks"]
    assert list(networks) == ["encoder", "decoder"]
    assert "cope" in networks["decoder"].keys() - networks["encoder"].keys()
    for rows in networks.values():
        assert rows["none"]["ratio"] == 1
        assert all(row["ratio"] > 0 for row in rows.values())


@pytest.mark.slow
def test_a_stream_with_memory_holds_the_same_bytes_to_the_end(results_of):
    rows = results_of("streaming.py", "--segment", "4", "--slots", "6", "--tokens", "80")["streaming"]
    assert [row["memory"] for row in rows] == ["look-ahead", "segment-recurrence", "none"]
    for row in rows:
        first, last = row["cache_bytes"]
        assert first < last if row["memory"] == "none" else first == last
        pace = row["milliseconds_per_token"]
        assert row["last_to_first"] == pytest.approx(pace[-1] / pace[0])


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")  # of other libraries
def test_the_benchmark_of_attention_writes_what_the_pages_show(script, monkeypatch: pytest.MonkeyPatch):
    benchmark, publish_demo, timing = (script(name) for name in ("attention", "publish_demo", "timing"))
    monkeypatch.setattr(benchmark, "STACKS", ((16, 2, 24, 1, 2),))
    monkeypatch.setattr(benchmark, "CURVE", (64, 128))
    operations = benchmark.operations
    monkeypatch.setattr(benchmark, "operations", lambda b, h, n, *rest: operations(1, 2, 40, *rest))
    monkeypatch.setattr(benchmark, "alone", lambda *what: {"bytes": 2**20, "seconds": 1.0})
    sections = benchmark.measure(("operation", "long", "stack", "memory"), wall=False, rounds=2)
    for rows in sections.values():
        assert rows.get("SDPA, no position", {"ratio": 1})["ratio"] == 1
        assert all(row.get("ratio", 1) > 0 for row in rows.values())
    document = {"limit": "SDPA, no position", "clock": "CPU time", "machine": timing.machine(), "sections": sections}
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
        [sys.executable, "-c", f"import sys; sys.path.append({str(BENCHMARKS)!r}); {script}"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    assert 19 < float(text) < 25
