"""A run writes into an empty folder or into one of its own, and refuses every other one before it writes anything."""

import os
import shutil
import subprocess
import sys

import pytest

from wordorder.errors import BadInput, RunFailed
from wordorder.training import read_recipe, run
from wordorder.training.runs import fit
from wordorder.training.runs.folder import CURVE, read_curve

NAMES = ("recipe.toml", "data.json", "environment.json", "curve.jsonl", "metrics.json")


def content(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("resume", [False, True])
@pytest.mark.parametrize(
    "names", [("recipe.toml", "model/__init__.py"), ("checkpoint-4/model.safetensors",), *((name,) for name in NAMES)]
)
def test_files_of_something_else_are_neither_overwritten_nor_removed(recipe_file, tmp_path, names, resume):
    folder = tmp_path / "mine"
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("[mine]\n")
    before = content(folder)
    with pytest.raises(Exception, match=r"not empty and holds no run|metrics\.json: cannot be read") as error:
        run(read_recipe(recipe_file), output_dir=folder, resume=resume, progress=False)
    assert isinstance(error.value, BadInput) or (resume and names == ("metrics.json",))
    assert content(folder) == before


@pytest.mark.parametrize("name", [".saving-mine/a", ".deleting-mine/a", ".replaced-mine/a", ".notes.txt.1"])
def test_hidden_files_of_something_else_are_not_removed(recipe_file, tmp_path, name):
    (tmp_path / "mine" / name).parent.mkdir(parents=True)
    (tmp_path / "mine" / name).write_text("mine")
    before = content(tmp_path / "mine")
    with pytest.raises(BadInput, match="not empty and holds no run"):
        run(read_recipe(recipe_file), output_dir=tmp_path / "mine", progress=False)
    assert content(tmp_path / "mine") == before


def test_a_second_start_while_a_run_is_trained_is_refused(recipe_file, tmp_path):
    hold = "import sys; from pathlib import Path; from wordorder.training.runs.folder import locked\n"
    hold += "with locked(Path(sys.argv[1])): print(flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", hold, tmp_path / "run"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        other.stdout.readline()
        for resume in (False, True):
            with pytest.raises(BadInput, match=rf"is being written by process {other.pid}"):
                run(read_recipe(recipe_file), output_dir=tmp_path / "run", resume=resume, progress=False)
        other.stdin.close()


def test_the_folder_of_the_recipe_itself_is_refused(recipe_file, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    recipe_file.rename(tmp_path / "recipe.toml")
    before = content(tmp_path)
    recipe = read_recipe("recipe.toml", ["training.output_dir=."])
    with pytest.raises(BadInput, match=r"training\.output_dir: '\.' is not empty and holds no run \(recipe\.toml\)"):
        run(recipe, progress=False)
    assert content(tmp_path) == before


def test_logs_of_a_shell_or_a_scheduler_may_lie_there(recipe_file, tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    for name in ("train.log", "slurm-123.out", "slurm-123.err"):
        (folder / name).write_text("mine\n")
    before = content(folder)
    assert run(read_recipe(recipe_file), output_dir=folder, progress=False).metrics["steps"] == 12
    assert before.items() <= content(folder).items()
    (tmp_path / "other" / "mine.log").mkdir(parents=True)
    with pytest.raises(BadInput, match=r"not empty and holds no run \(mine\.log\)"):
        run(read_recipe(recipe_file), output_dir=tmp_path / "other", progress=False)


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["write_json", "write_text", "write_environment", "Interruption"])
@pytest.mark.parametrize("resume", [False, True])
def test_a_run_that_was_killed_while_it_began_is_started_again(recipe_file, tmp_path, monkeypatch, moment, resume):
    folder = tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr(fit, moment, lambda *args, **kwargs: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            run(read_recipe(recipe_file), output_dir=folder, progress=False)
    (folder / ".data.json.123").write_text("{")  # half-written
    assert run(read_recipe(recipe_file), output_dir=folder, resume=resume, progress=False).metrics["steps"] == 12
    if moment == "write_json":  # once is enough
        for name in ("metrics.json", "environment.json", CURVE):
            (folder / name).unlink()
            assert run(read_recipe(recipe_file), output_dir=folder, resume=True, progress=False).metrics["steps"] == 12


def test_the_model_to_start_from_is_not_where_the_own_one_is_saved(recipe_file, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run(read_recipe(recipe_file), progress=False)
    for path in (tmp_path / "run").glob("[!m]*-*"):  # as after a run that saved no checkpoints, killed at its end
        shutil.rmtree(path)
    (tmp_path / "run" / "metrics.json").unlink()
    before = content(tmp_path / "run")
    text = recipe_file.read_text()
    recipe_file.write_text(text[: text.index("[tokenizer]")] + "[model]\n" + text[text.index("[training]") :])
    for pretrained in ("run/model", str(tmp_path / "run" / "model")):
        recipe = read_recipe(recipe_file, [f"model.pretrained={pretrained}"])
        with pytest.raises(BadInput, match=r"model\.pretrained: .* where the run would save its own model"):
            run(recipe, progress=False)
    assert content(tmp_path / "run") == before


DEEP = "[" * 100_000


@pytest.fixture(scope="module")
def finished(shared_recipe_file):
    folder = shared_recipe_file.parent / "finished"
    run(read_recipe(shared_recipe_file), output_dir=folder, progress=False)
    return folder


def spoil(path, how):
    path.unlink()
    if how == "pipe":
        os.mkfifo(path)
    elif how == "device":
        path.symlink_to("/dev/zero")
    else:
        path.write_text(how)


@pytest.mark.parametrize("how", ["pipe", "device", DEEP, "3"], ids=["pipe", "device", "deep", "number"])
@pytest.mark.parametrize("name", NAMES)
def test_files_of_a_run_folder_are_read_within_limits(recipe_file, finished, tmp_path, name, how):
    folder = tmp_path / "run"
    shutil.copytree(finished, folder)
    spoil(folder / name, how)
    if name not in ("metrics.json", CURVE):
        (folder / "metrics.json").unlink()
    given = {"output_dir": folder, "resume": True, "progress": False}
    with pytest.raises((BadInput, RunFailed), match=f"{folder / name}: cannot be read") as error:
        run(read_recipe(recipe_file), **given)
    assert len(str(error.value)) < 1000


@pytest.mark.parametrize("line", ["3", "[]", '{"loss": 1.0}', '{"step": "four"}'])
def test_a_line_that_is_no_row_of_a_curve_is_named(tmp_path, line):
    (tmp_path / CURVE).write_text(f'{{"step": 1, "loss": 2.0}}\n{line}\n')
    with pytest.raises(RunFailed, match=r"curve\.jsonl: cannot be read: line 2 is no row with a step"):
        read_curve(tmp_path)
