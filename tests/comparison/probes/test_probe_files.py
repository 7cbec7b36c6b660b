import json
from dataclasses import dataclass, replace
from types import SimpleNamespace

import pytest

from wordorder.comparison.probes import measure
from wordorder.comparison.probes.measure import KILLED, PROBES, path_of
from wordorder.comparison.probes.probe import Axes, CannotProbe, Measured
from wordorder.comparison.results import collect_probes, read_probes
from wordorder.comparison.runs import Run
from wordorder.errors import RunFailed
from wordorder.training import TrainingSettings

CALLS: list[str] = []
LOAD = measure._load


def content_of(folder, name):
    return json.loads(path_of(folder, name).read_text())


@dataclass(frozen=True, kw_only=True)
class Fake:
    ends: str = "well"

    def can_measure(self, task):
        return task.masks_tokens

    def faults(self, recipe):
        return []

    def axes(self, task):
        return Axes(
            title="Fake", x="x", x_kind="number", value="v", higher_is_better=True, log=False, meaning=f"Of {task}."
        )

    def measure(self, trained):
        CALLS.append(self.ends)
        if self.ends == "refused":
            raise CannotProbe("it is a fake")
        if self.ends == "broken":
            raise RuntimeError("out of memory\nand more")
        if self.ends == "stopped":
            raise KeyboardInterrupt
        return Measured(rows=[{"x": 1, "value": 2.5}, {"x": 2, "value": float("nan"), "group": "g"}], notes=["A note."])


@pytest.fixture(autouse=True)
def fakes(monkeypatch):
    CALLS.clear()
    for name in ("one", "two", "three"):
        monkeypatch.setitem(PROBES, name, Fake)
    monkeypatch.setattr(measure, "_load", lambda recipe, model_dir, prepared: SimpleNamespace(recipe=recipe))


RECIPE = SimpleNamespace(task=SimpleNamespace(name="masked-lm"), training=TrainingSettings())


def run_probes(folder, options):
    measure.measure_probes(options, RECIPE, folder / "model", folder, prepare=lambda: None)


def test_a_refusal_and_a_failure_lose_nothing_else(tmp_path):
    run_probes(tmp_path, {"one": {"ends": "broken"}, "two": {"ends": "refused"}, "three": {}})
    one, two, three = (content_of(tmp_path, name) for name in ("one", "two", "three"))
    assert one["skipped"] == "failed: RuntimeError: out of memory"
    assert (two["skipped"], two["failed"]) == ("it is a fake", False)
    assert three["rows"][0] == {"x": 1, "value": 2.5}
    assert three["options"] == {"ends": "well"}
    assert three["meaning"] == "Of masked-lm."


def test_what_is_measured_is_not_measured_again(tmp_path):
    run_probes(tmp_path, {"one": {}, "two": {"ends": "refused"}})
    run_probes(tmp_path, {"one": {}, "two": {"ends": "refused"}})
    assert CALLS == ["well", "refused"]
    run_probes(tmp_path, {"one": {"ends": "refused"}, "two": {"ends": "refused"}})  # other options
    assert CALLS == ["well", "refused", "refused"]
    run_probes(tmp_path, {"three": {"ends": "broken"}})
    run_probes(tmp_path, {"three": {"ends": "broken"}})  # a failure may have passed
    assert CALLS[3:] == ["broken", "broken"]


def test_a_stop_is_passed_on_and_the_probe_begins_anew(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        run_probes(tmp_path, {"one": {}, "two": {"ends": "stopped"}})
    assert content_of(tmp_path, "two")["skipped"] == KILLED
    with pytest.raises(KeyboardInterrupt):
        run_probes(tmp_path, {"one": {}, "two": {"ends": "stopped"}})
    assert CALLS == ["well", "stopped", "stopped"]


def test_a_model_that_cannot_be_loaded_is_a_reason_too(tmp_path, monkeypatch):
    def broken(*_):
        raise RunFailed("no such weights")

    monkeypatch.setattr(measure, "_load", broken)
    run_probes(tmp_path, {"one": {}})
    assert content_of(tmp_path, "one")["skipped"] == "failed: RunFailed: no such weights"


def test_results_hold_the_rows_of_all_runs_and_each_reason_once(tmp_path):
    probes = {"one": {}, "two": {"ends": "refused"}}
    made = [
        Run(arm=arm, seed=seed, recipe=RECIPE, folder=tmp_path / arm / str(seed), probes=probes)
        for seed in (0, 1)
        for arm in ("rope", "none")
    ]
    for run in made[:3]:
        assert run.to_probe() == ["one", "two"]
        run_probes(run.folder, run.probes)
        assert run.to_probe() == []
    found = collect_probes(read_probes(made))
    assert list(found) == ["one", "two"]
    assert [(row.arm, row.seed, row.x) for row in found["one"].rows] == [
        (arm, seed, x) for arm, seed in (("rope", 0), ("none", 0), ("rope", 1)) for x in (1, 2)
    ]
    assert found["one"].rows[1].group == "g"
    assert found["one"].notes == ("A note.",)
    skipped = [(one.arm, one.reason) for one in found["two"].skipped]
    assert skipped == [(arm, "it is a fake") for arm in ("rope", "none")]
    assert found["two"].title == "Fake"
    # a file of other options does not count
    assert read_probes([replace(made[0], probes={"one": {"ends": "other"}})]) == []
    path_of(made[0].folder, "one").write_text("{")
    assert made[0].to_probe() == ["one"]


def write_a_probe(recipe, model_dir, run_folder, options):
    (run_folder / "probes").mkdir(exist_ok=True)
    for name, given in options.items():
        arm = run_folder.parent.name
        axes = {"x": "", "x_kind": "number", "value": "", "higher_is_better": None, "log": False, "meaning": ""}
        content = {"given": given, "title": name, **axes, "rows": [{"x": 1, "value": len(arm)}], "skipped": None}
        path_of(run_folder, name).write_text(json.dumps(content))


@pytest.mark.slow
def test_a_comparison_probes_finished_runs_that_lack_it(make_recipe, log, monkeypatch):
    from comparison_stand_in import STAND_IN

    from wordorder.comparison import compare

    monkeypatch.setattr("wordorder.comparison.report.figures.write_figures", lambda *_: None)  # it takes seconds
    tools = replace(STAND_IN, probe=write_a_probe)
    arms = {"none": {"model.encoding": "none"}, "rope": {"model.encoding": "rope"}}
    path = compare(make_recipe(seeds=[0], arms=arms), pipeline=tools, progress=False)
    assert json.loads(path.read_text())["probes"] == {}
    trained = len([line for line in log() if line.startswith("start")])
    with_probe = make_recipe('compare.probes={"shuffled-windows"={}}', seeds=[0], arms=arms)
    results = json.loads(compare(with_probe, pipeline=tools, progress=False).read_text())
    assert [row["value"] for row in results["probes"]["shuffled-windows"]["rows"]] == [4, 4]
    assert len([line for line in log() if line.startswith("start")]) == trained
    assert results["baseline"] == "none"
    assert {"comparisons", "significance", "steps_to_loss"} <= results.keys()


def test_a_recipe_for_the_cpu_is_probed_there(tmp_path, monkeypatch):
    import torch

    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: torch.device("meta"))
    monkeypatch.setattr(measure, "load_model", lambda folder: torch.nn.Linear(2, 2))
    for training, device in ((TrainingSettings(device="cpu"), "cpu"), (TrainingSettings(), "meta")):
        trained = LOAD(SimpleNamespace(training=training), tmp_path, None)
        assert trained.device.type == trained.model.weight.device.type == device
