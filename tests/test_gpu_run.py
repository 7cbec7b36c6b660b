"""`make gpu` on a CPU: its steps, what becomes of one that fails, and what it would tune."""

import importlib
import json
import re
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).resolve().parents[1]
CPU = torch.device("cpu")


@pytest.fixture
def script(monkeypatch):
    """A script of benchmarks/ by its name, as a module."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module


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


def is_running(process: str) -> bool:
    """Tell whether a process is there and not a zombie that its parent has not looked at yet."""
    try:
        return " Z " not in Path(f"/proc/{process}/stat").read_text(encoding="utf-8")
    except OSError:
        return False


@pytest.mark.slow
def test_a_step_that_outruns_its_limit_is_stopped_with_what_it_started(script, monkeypatch, tmp_path, capfd):
    gpu = script("gpu")
    monkeypatch.setattr(gpu, "DRY_LIMIT", 4)  # a busy machine starts Python slowly
    monkeypatch.setattr(gpu, "__file__", str(tmp_path / "step.py"))
    (tmp_path / "step.py").write_text(
        "import subprocess\n"
        "child = subprocess.Popen(['sleep', '57'])\n"
        "print('child', child.pid, flush=True)\nchild.wait()",
        encoding="utf-8",
    )
    started = time.monotonic()
    assert not gpu.start("training", tmp_path, dry=True)
    assert time.monotonic() - started < 40
    said = capfd.readouterr().out
    assert "training: stopped at its limit" in said
    (child,) = re.findall(r"child (\d+)", said)
    deadline = time.monotonic() + 20
    while is_running(child) and time.monotonic() < deadline:  # a signal takes a moment
        time.sleep(0.1)
    assert not is_running(child)
    monkeypatch.setattr(gpu, "DRY_LIMIT", 60)
    (tmp_path / "step.py").write_text("import sys\nprint(sys.argv[1:])\nsys.exit(3)\n", encoding="utf-8")
    assert not gpu.start("training", tmp_path, dry=True)
    said = capfd.readouterr().out
    assert "'--step', 'training'" in said
    assert "failed with status 3" in said
    (tmp_path / "step.py").write_text("", encoding="utf-8")
    assert gpu.start("training", tmp_path, dry=True)


def test_a_step_that_fails_stops_no_other_and_is_named_at_the_end(script, monkeypatch, tmp_path):
    gpu, ran = script("gpu"), []
    monkeypatch.setattr(gpu, "start", lambda step, out, dry: ran.append(step) or step not in ("tests", "tuning"))
    monkeypatch.setattr(sys, "argv", ["gpu.py", "--dry", "--out", str(tmp_path)])
    with pytest.raises(SystemExit, match="failed: tests, tuning"):
        gpu.main()
    assert ran == ["tests", "attention", "tuning", "training"]
    assert sum(gpu.LIMITS.values()) < 600


@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU is there")
def test_without_a_gpu_the_way_out_is_named(script, monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "argv", ["gpu.py", "--out", str(tmp_path)])
    with pytest.raises(SystemExit, match="make gpu DRY=1"):
        script("gpu").main()


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


def test_goals_stand_beside_what_was_found(script):
    benchmark = script("gpu_attention")
    rows = {benchmark.LIMIT: {"share": 1.0}, benchmark.OURS: {"share": 0.8}, benchmark.WRITTEN_OUT: {"share": 0.5}}
    memory = {"8,192": {benchmark.OURS: {"bytes": 10}}, "32,768": {benchmark.OURS: {"bytes": 41}}}
    sections = {"tupe-r, 8,192 tokens": rows, "tupe-r, 2,048 tokens": rows}
    found = benchmark.reached({"sections": sections, "memory": memory, "memory_step": {"time_over_flops": 1.2}})
    assert [goal["met"] for goal in found] == [None, True, None, None, None, None, False, None, None, True, False]
    assert found[6]["found"] == pytest.approx(1.6)
    assert all(goal["met"] is None for goal in benchmark.reached({"sections": {}, "memory": {}}))


def test_the_fastest_blocks_are_kept_and_those_that_fail_are_named(small, monkeypatch, interpreter):
    from wordorder.attention.triton import configurations, operators

    benchmark, _ = small
    shape = configurations.Shape(64, True, 2, "sm_90")
    table = {kernel: configurations.blocks(kernel, shape) for kernel in ("forward", "query_gradients", "key_gradients")}
    monkeypatch.setattr(benchmark, "TUNED", (("tupe-r", 64),))
    monkeypatch.setattr(benchmark.Problem, "step", lambda self, name: None)

    def timed(run, device, repeats):
        """Return less for smaller blocks; no more than one kernel has others than those of the table."""
        now = {kernel: operators.blocks(kernel, shape) for kernel in table}
        assert sum(now[kernel] != table[kernel] for kernel in table) <= 1
        if any(blocks.warps == 4 for blocks in now.values()):
            raise RuntimeError("out of shared memory\nand more")
        return float(sum(blocks.rows * blocks.keys for blocks in now.values()))

    monkeypatch.setattr(benchmark, "milliseconds", timed)
    written = []
    found = benchmark.tune(CPU, dry=False, write=lambda document: written.append(len(document["rows"])))
    assert written == [1, 2, 3]
    assert found["failed"]
    rest = sum(blocks.rows * blocks.keys for blocks in table.values())
    for row, (kernel, blocks) in zip(found["rows"], table.items(), strict=True):
        candidates = configurations.CANDIDATES[kernel]
        start = candidates.index(tuple(blocks))
        tried = candidates[start : start + 4]
        best = min((sizes for sizes in tried if sizes[2] != 4), key=lambda sizes: (sizes[0] * sizes[1], sizes))
        assert row == {
            "kernel": kernel,
            **asdict(shape),
            "blocks": list(best),
            "milliseconds": float(rest - blocks.rows * blocks.keys + best[0] * best[1]),
        }
        for sizes in tried:
            named = f"{kernel}, {sizes}: RuntimeError: out of shared memory" in found["failed"]
            assert named == (sizes[2] == 4)
