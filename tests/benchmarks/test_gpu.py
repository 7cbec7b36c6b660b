"""`make gpu` on a CPU: its steps, what becomes of one that fails, and what it would tune."""

import json
import subprocess
import sys
from pathlib import Path

import psutil
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
    assert set(found) == {"gpu-smoke", "gpu-far", "gpu-tests", "gpu-attention", "gpu-tuning", "gpu-training"}
    assert all(results["dry"] and results["finished"] for results in found.values())
    assert sum(results["seconds"] for results in found.values()) < 120
    assert found["gpu-tests"]["tests"]["skipped"] > 20
    benchmark = script("gpu_attention")
    assert all(row["error"] < 1e-4 for row in found["gpu-smoke"]["rows"])
    sections = found["gpu-attention"]["sections"]
    assert list(sections) == [sizes.name for sizes in benchmark.SECTIONS]
    assert all(benchmark.LIMIT in rows for rows in sections.values())
    assert all(rows[benchmark.WRITTEN_OUT]["error"] < 1e-4 for rows in list(sections.values())[:-1])
    assert {goal.section for goal in benchmark.GOALS} <= set(sections)
    assert found["gpu-attention"]["memory_step"]["flops_ratio"] > 1
    far = found["gpu-far"]["sections"]
    assert {name.partition(",")[0] for name in far} == {"t5", "tupe-a", "tupe-r", "fox"}
    assert all(rows[benchmark.FAR]["error"] < 1e-4 for rows in far.values())
    arms = found["gpu-training"]["arms"]
    assert {"none", "rope", "t5", "tupe-r"} <= set(arms)
    assert all(row["steps_per_second"] > 0 for row in arms.values())


def test_a_step_that_fails_stops_no_other_and_is_named_at_the_end(script, monkeypatch, tmp_path):
    gpu, ran = script("gpu"), []
    monkeypatch.setattr(gpu, "start", lambda step, out, dry, queue: ran.append(step) or step not in ("tests", "tuning"))
    monkeypatch.setattr(sys, "argv", ["gpu.py", "--dry", "--out", str(tmp_path)])
    with pytest.raises(SystemExit, match="failed: tests, tuning"):
        gpu.main()
    assert ran == ["smoke", "far", "tests", "attention", "tuning", "training"]


def test_a_part_begins_with_the_smoke_step_and_takes_nine_minutes_at_most(script, monkeypatch, tmp_path):
    gpu = script("gpu")
    assert {step for steps in gpu.PARTS.values() for step in steps} == set(gpu.LIMITS)
    for part, steps in gpu.PARTS.items():
        ran = []
        monkeypatch.setattr(gpu, "start", lambda step, out, dry, queue, ran=ran: ran.append(step) or True)
        argv = ["gpu.py", "--dry", "--out", str(tmp_path), "--part", part, "--queue", "queue.json"]
        monkeypatch.setattr(sys, "argv", argv)
        with pytest.raises(SystemExit) as end:
            gpu.main()
        assert end.value.code is None
        assert ran == steps
        assert ran[0] == "smoke"
        assert sum(gpu.LIMITS[step] for step in steps) <= 9 * 60


def test_a_step_that_is_stopped_leaves_what_it_has_and_no_older_file(script, monkeypatch, tmp_path):
    gpu, file = script("gpu"), tmp_path / "gpu-smoke.json"
    file.write_text('{"finished": true}', encoding="utf-8")

    def stopped(device, dry, write):
        assert not json.loads(file.read_text(encoding="utf-8"))["finished"]
        write({"rows": [1]})
        raise KeyboardInterrupt

    monkeypatch.setattr(gpu, "smoke", stopped)
    with pytest.raises(KeyboardInterrupt):
        gpu.run_step("smoke", file, dry=True)
    assert json.loads(file.read_text(encoding="utf-8"))["rows"] == [1]


@pytest.mark.slow
def test_tests_that_are_stopped_report_what_was_done(script, monkeypatch, tmp_path):
    gpu = script("gpu")
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_slow.py").write_text(
        "import time, pytest\npytestmark = pytest.mark.gpu\n"
        "def test_good(): pass\ndef test_poor(): assert 0\n"
        "def test_long():\n    import pathlib, subprocess\n"
        "    child = subprocess.Popen(['sleep', '60'])\n"
        f"    pathlib.Path({str(tmp_path / 'child')!r}).write_text(str(child.pid))\n    time.sleep(60)\n",
        encoding="utf-8",
    )
    monkeypatch.setattr(gpu, "ROOT", tmp_path)
    monkeypatch.setattr(gpu, "DRY_LIMIT", 22)  # of these pytest has twelve
    results = gpu.gpu_tests(CPU, True, None)
    assert results["tests"] == {"passed": 1, "failed": 1, "skipped": 0}
    assert results["failed"] == ["not done after 12 s", "tests/test_slow.py::test_poor"]
    child = int((tmp_path / "child").read_text())  # what a stopped test has started is gone with it
    assert not psutil.pid_exists(child) or psutil.Process(child).status() == psutil.STATUS_ZOMBIE


def test_lines_of_several_processes_are_read(script):
    log = """
[gw1] [  1%] PASSED tests/a.py::one[x-1]
[gw0] [  2%] SKIPPED tests/a.py::two
[gw0] [  3%] FAILED tests/b.py::three
FAILED tests/b.py::three - assert 0
"""
    assert script("gpu").outcomes_by_line(log, "stopped") == {
        "tests": {"passed": 1, "failed": 1, "skipped": 1},
        "failed": ["stopped", "tests/b.py::three"],
    }


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
    scores = (q @ k.mT) / 128**0.5 + a @ c.mT + table[:, far + benchmark.MAX_DISTANCE]
    expected = scores.masked_fill(far > 0, -torch.inf).softmax(-1) @ v
    torch.testing.assert_close(problem.reference()[0].detach(), expected, rtol=1e-10, atol=1e-10)


def nothing_runs(*arguments, **options):
    raise RuntimeError("out of resources\nmore")


def test_what_fails_everywhere_is_red(small, monkeypatch):
    benchmark, sizes = small
    monkeypatch.setattr(benchmark, "left_out", lambda device: {benchmark.FLEX: "no GPU"})
    monkeypatch.setattr(benchmark, "SECTIONS", (sizes, benchmark.replace(sizes, bias="t5")))
    monkeypatch.setattr(benchmark, "MEMORY", ())
    monkeypatch.setattr(benchmark, "memory_step", lambda *arguments, **options: {})
    monkeypatch.setattr(benchmark, "reached", lambda document: [])
    monkeypatch.setitem(benchmark.BACKENDS, benchmark.OURS, "nobody's")
    document = benchmark.benchmark(CPU, dry=True, write=lambda document: None)
    (line,) = document["failed"]
    assert line.startswith(f"{benchmark.OURS}, in every section: ")
    assert "share" in document["sections"][sizes.name][benchmark.WRITTEN_OUT]


@pytest.mark.usefixtures("interpreter")
def test_a_kernel_of_which_no_blocks_run_is_red(small, monkeypatch):
    benchmark, _ = small
    monkeypatch.setattr(benchmark, "left_out", lambda device: {})
    monkeypatch.setattr(benchmark, "milliseconds", nothing_runs)
    document = benchmark.tune(CPU, dry=True, write=lambda document: None)
    assert document["rows"] == []
    assert "forward, tupe-r, 64 channels" in document["failed"][0]
    assert "out of resources" in document["failed"][0]


def test_a_dry_run_leaves_the_kernels_out_where_the_interpreter_does_not_work(small, monkeypatch):
    from wordorder.attention.backends.triton import operators

    benchmark, _ = small
    monkeypatch.setattr(operators, "self_test", nothing_runs)
    reasons = benchmark.left_out(CPU)
    assert "interpreter does not work here: RuntimeError: out of resources" in reasons[benchmark.OURS]
    written = []
    document = benchmark.smoke_test(CPU, dry=True, write=lambda document: written.append(len(document["rows"])))
    assert written == [1, 2, 3, 4, 5, 6]  # each result at once
    assert document["failed"] == []
    assert benchmark.tune(CPU, dry=True, write=lambda document: None)["failed"] == []


def test_a_smoke_call_with_a_wrong_result_is_red(small, monkeypatch):
    benchmark, _ = small
    monkeypatch.setattr(benchmark, "left_out", lambda device: {benchmark.FLEX: "no GPU", benchmark.OURS: "no GPU"})
    reference = benchmark.Problem.reference
    monkeypatch.setattr(benchmark.Problem, "reference", lambda self: tuple(1.2 * x for x in reference(self)))
    document = benchmark.smoke_test(CPU, dry=True, write=lambda document: None)
    assert len(document["failed"]) == 6
    assert "SDPA, bias written out, tupe-r, bfloat16: its error is" in document["failed"][4]
