"""`make gpu` on a CPU: its steps, what becomes of one that fails, and what it would tune."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).resolve().parents[2]
CPU = torch.device("cpu")


@pytest.fixture
def small(script):
    """The benchmark of attention, and one of its sections at a CPU's size."""
    benchmark = script("gpu_attention")
    names = (benchmark.OURS, benchmark.WRITTEN_OUT)
    return benchmark, benchmark.Sizes(bias="tupe-r", tokens=9, batch=1, heads=2, candidates=names)


@pytest.mark.slow
def test_a_dry_run_does_every_step_in_two_minutes(tmp_path, script):
    command = ["make", "gpu", "DRY=1", f"OUT={tmp_path}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
    found = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in tmp_path.glob("*.json")}
    assert set(found) == {"gpu-tests", "gpu-attention", "gpu-tuning", "gpu-training"}
    assert all(results["dry"] and results["finished"] for results in found.values())
    assert sum(results["seconds"] for results in found.values()) < 120
    assert found["gpu-tests"]["tests"]["skipped"] > 20
    benchmark = script("gpu_attention")
    sections = found["gpu-attention"]["sections"]
    assert list(sections) == [sizes.name for sizes in benchmark.SECTIONS]
    assert all(benchmark.LIMIT in rows for rows in sections.values())
    assert all(rows[benchmark.WRITTEN_OUT]["error"] < 1e-4 for rows in list(sections.values())[:-1])
    assert {goal.section for goal in benchmark.GOALS} <= set(sections)
    assert found["gpu-attention"]["memory_step"]["flops_ratio"] > 1
    arms = found["gpu-training"]["arms"]
    assert {"none", "rope", "t5", "tupe-r"} <= set(arms)
    assert all(row["steps_per_second"] > 0 for row in arms.values())


def test_a_step_that_fails_stops_no_other_and_is_named_at_the_end(script, monkeypatch, tmp_path):
    gpu, ran = script("gpu"), []
    monkeypatch.setattr(gpu, "start", lambda step, out, dry: ran.append(step) or step not in ("tests", "tuning"))
    monkeypatch.setattr(sys, "argv", ["gpu.py", "--dry", "--out", str(tmp_path)])
    with pytest.raises(SystemExit, match="failed: tests, tuning"):
        gpu.main()
    assert ran == ["tests", "attention", "tuning", "training"]
    assert sum(gpu.LIMITS.values()) < 600


def test_outcomes_are_read_and_missing_packages_are_no_failures(script, tmp_path):
    (tmp_path / "junit.xml").write_text(
        """<testsuites><testsuite>
<testcase classname="tests.a" name="good"/>
<testcase classname="tests.a" name="poor"><failure message="assert 1 == 2&#10;more">long</failure></testcase>
<testcase classname="tests.a" name="none"><skipped message="no"/></testcase>
<testcase classname="" name="tests.b"><error message="collection failure">
E   ModuleNotFoundError: No module named 'peft'</error></testcase>
</testsuite></testsuites>""",
        encoding="utf-8",
    )
    assert script("gpu").outcomes_of(tmp_path / "junit.xml") == {
        "tests": {"passed": 1, "failed": 1, "skipped": 1},
        "failed": ["tests.a.poor: assert 1 == 2"],
        "left_out": ["tests.b: peft is not installed"],
    }


@pytest.mark.parametrize("causal", [False, True])
def test_a_wrong_gradient_is_not_timed(small, monkeypatch, causal):
    benchmark, sizes = small
    sizes = benchmark.replace(sizes, causal=causal)
    monkeypatch.setitem(benchmark.BACKENDS, benchmark.OURS, "reference")
    rows = benchmark.section_of(sizes, CPU, torch.float32, rounds=2)
    assert all(row["share"] > 0 for row in rows.values())
    assert rows[benchmark.OURS]["error"] < 1e-5
    right = benchmark.Problem._ours

    def without_factors(self, backend, qkv, terms):
        wrong = [terms[0].detach() + 0.1 * (terms[0] - terms[0].detach()), *terms[1:]] if backend == "sdpa" else terms
        return right(self, backend, qkv, wrong)

    monkeypatch.setattr(benchmark.Problem, "_ours", without_factors)
    rows = benchmark.section_of(sizes, CPU, torch.float32, rounds=2)
    assert "share" in rows[benchmark.OURS]
    assert rows[benchmark.WRITTEN_OUT]["failed"].startswith("not timed: its error is")


def test_the_reference_of_the_benchmark_is_the_formula(small):
    benchmark, sizes = small
    problem = benchmark.Problem(benchmark.replace(sizes, causal=True), CPU, torch.float32)
    q, k, v, a, c, table = (leaf.detach().double() for leaf in (*problem.qkv, *problem.terms))
    far = torch.arange(9)[None] - torch.arange(9)[:, None]
    scores = (q @ k.mT) / 128**0.5 + a @ c.mT + table[:, far + 8]
    expected = scores.masked_fill(far > 0, -torch.inf).softmax(-1) @ v
    torch.testing.assert_close(problem.reference()[0].detach(), expected, rtol=1e-10, atol=1e-10)
