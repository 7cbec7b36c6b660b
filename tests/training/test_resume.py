"""A run that was killed and resumed gives the same losses and weights, to the last bit, as one that was not."""

import shutil
import subprocess
import sys

import pytest
import torch
from safetensors.torch import load_file

from wordorder.errors import BadInput
from wordorder.training import read_recipe, run
from wordorder.training.trainer import WordOrderTrainer

# Dropout, gradient accumulation and several epochs, so that every generator, average and order matters.
SETTINGS = (
    "training.gradient_accumulation_steps=2",
    "training.max_steps=20",
    "data.limit_documents=8",
    "training.lr_scheduler_type=cosine",
)

KILLED = """
import os, signal, sys
from wordorder.training import read_recipe, run
from wordorder.training import resumable
from wordorder.training.trainer import WordOrderTrainer

recipe, folder, where, *settings = sys.argv[1:]

def die():
    os.kill(os.getpid(), signal.SIGKILL)

training_step, save_state, calls = WordOrderTrainer.training_step, resumable.save_state, []

def step(self, *args, **kwargs):
    calls.append(1)
    if where == "in a step" and len(calls) == 2 * 14 + 2:  # the second half of step 15
        die()
    return training_step(self, *args, **kwargs)

def save(folder, name, state):
    if where == "in a save" and folder.name == ".saving-16" and name == "scheduler":
        die()
    save_state(folder, name, state)

WordOrderTrainer.training_step = step
resumable.save_state = save
run(read_recipe(recipe, settings), output_dir=folder, progress=False)
"""


def go(recipe_file, *overrides, **arguments):
    return run(read_recipe(recipe_file, (*SETTINGS, *overrides)), progress=False, **arguments)


def without_clock(curve):
    return [{name: value for name, value in row.items() if name != "train_seconds"} for row in curve]


def assert_same(result, expected):
    assert without_clock(result.curve) == without_clock(expected.curve)
    for name in ("validation", "test", "steps", "best_step", "tokens", "parameters", "batches"):
        assert result.metrics[name] == expected.metrics[name]
    for file in ("model/model.safetensors", "checkpoint-20/model.safetensors", "checkpoint-20/optimizer.safetensors"):
        ours, theirs = (load_file(found.model_dir.parent / file) for found in (result, expected))
        assert ours.keys() == theirs.keys()
        assert all(torch.equal(ours[name], theirs[name]) for name in ours), file


@pytest.fixture(scope="session")
def whole(shared_recipe_file):
    return go(shared_recipe_file, output_dir=shared_recipe_file.parent / "whole")


@pytest.mark.parametrize("where", ["in a step", "in a save"])
def test_a_run_killed_by_sigkill_goes_on_bit_for_bit(recipe_file, tmp_path, whole, where):
    folder = tmp_path / "killed"
    command = [sys.executable, "-c", KILLED, str(recipe_file), str(folder), where, *SETTINGS]
    assert subprocess.run(command, check=False, timeout=120).returncode == -9
    assert (folder / "checkpoint-12").is_dir()
    assert (folder / ".saving-16").is_dir() == (where == "in a save")
    assert not (folder / "checkpoint-16").exists()
    assert_same(go(recipe_file, output_dir=folder, resume=True), whole)
    assert not (folder / ".saving-16").exists()


MEMORY = (
    "data.task=causal-lm",
    "data.packing=lanes",
    "data.length=16",
    "tokenizer.kind=byte",
    "model.network=decoder",
    "model.encoding=transformer-xl",
    "model.memory=look-ahead",
    "model.memory_length=24",
)


def test_memory_goes_on_bit_for_bit_after_sigkill(recipe_file, tmp_path):
    expected, folder = go(recipe_file, *MEMORY, output_dir=tmp_path / "whole"), tmp_path / "killed"
    command = [sys.executable, "-c", KILLED, str(recipe_file), str(folder), "in a step", *SETTINGS, *MEMORY]
    assert subprocess.run(command, check=False, timeout=120).returncode == -9
    assert (folder / "checkpoint-12" / "carried-0.safetensors").exists()
    assert_same(go(recipe_file, *MEMORY, output_dir=folder, resume=True), expected)


class Enough(Exception):
    pass


def interrupt(recipe_file, folder, monkeypatch, *overrides, at):
    """Start a run and break off in a given step, as a kill would, but without the price of a process."""
    original = WordOrderTrainer.training_step

    def training_step(self, *args, **kwargs):
        if self.state.global_step + 1 == at:
            raise Enough
        return original(self, *args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(WordOrderTrainer, "training_step", training_step)
        with pytest.raises(Enough):
            go(recipe_file, *overrides, output_dir=folder)


@pytest.mark.parametrize(
    "overrides",
    [
        ("training.logging_steps=3",),  # an average is half-taken when the checkpoint is written
        ("training.eval_strategy=epoch", "training.logging_strategy=epoch"),
        ("training.dataloader_num_workers=2",),
        ("data.task=classification", "data.validation_fraction=0.3", "data.test_fraction=0.3"),
        ("training.optim=row_wise_adam", "model.tie_word_embeddings=false", "model.encoding=complex-order"),
    ],
    ids=["averages", "epochs", "workers", "classification", "rows"],
)
def test_other_rhythms_and_tasks_go_on_bit_for_bit(recipe_file, tmp_path, monkeypatch, overrides):
    expected = go(recipe_file, *overrides, output_dir=tmp_path / "whole")
    folder = tmp_path / "broken"
    interrupt(recipe_file, folder, monkeypatch, *overrides, at=18)
    assert list(folder.glob("checkpoint-*"))
    assert_same(go(recipe_file, *overrides, output_dir=folder, resume=True), expected)


def test_a_torn_checkpoint_is_passed_over(recipe_file, tmp_path, monkeypatch, whole):
    folder = tmp_path / "torn"
    interrupt(recipe_file, folder, monkeypatch, at=14)
    torn = folder / "checkpoint-12" / "optimizer.safetensors"
    torn.write_bytes(torn.read_bytes()[:-100])
    assert_same(go(recipe_file, output_dir=folder, resume=True), whole)


def test_a_resumed_run_says_where_it_starts_and_what_it_passes_over(recipe_file, tmp_path, monkeypatch, capsys):
    folder = tmp_path / "said"

    def resume():
        run(read_recipe(recipe_file, ["training.max_steps=4"]), output_dir=folder, resume=True)
        return capsys.readouterr().err.splitlines()

    assert resume()[0] == f"said: starts anew: {folder} holds no whole checkpoint"
    assert resume() == [
        f"said: was finished before; nothing is trained, this is its result ({folder / 'metrics.json'})"
    ]
    (folder / "metrics.json").unlink()
    assert resume()[0] == f"said: goes on from {folder / 'checkpoint-4'}"
    (folder / "metrics.json").unlink()
    shutil.copytree(folder / "checkpoint-4", folder / "checkpoint-5")
    (folder / "checkpoint-5" / "optimizer.safetensors").write_bytes(b"")
    first = resume()[0]
    assert first.startswith(f"said: goes on from {folder / 'checkpoint-4'}; checkpoint-5 cannot be used: files are")


def test_a_moved_run_folder_goes_on(recipe_file, tmp_path, monkeypatch, whole):
    interrupt(recipe_file, tmp_path / "here", monkeypatch, at=14)
    shutil.move(tmp_path / "here", tmp_path / "there")
    assert_same(go(recipe_file, output_dir=tmp_path / "there", resume=True), whole)


def test_a_run_killed_after_its_last_step_is_not_trained_further(recipe_file, tmp_path, monkeypatch, whole):
    folder = tmp_path / "nearly"
    shutil.copytree(whole.model_dir.parent, folder)
    (folder / "metrics.json").unlink()
    shutil.rmtree(folder / "model")
    with monkeypatch.context() as patch:
        patch.setattr(WordOrderTrainer, "training_step", None)
        assert_same(go(recipe_file, output_dir=folder, resume=True), whole)


def test_resuming_nothing_starts_anew(recipe_file, tmp_path, whole):
    assert_same(go(recipe_file, output_dir=tmp_path / "new", resume=True), whole)


def test_another_recipe_is_not_mixed_in(recipe_file, tmp_path, monkeypatch):
    folder = tmp_path / "run"
    interrupt(recipe_file, folder, monkeypatch, at=6)
    before = sorted(folder.rglob("*"))
    with pytest.raises(BadInput) as error:
        go(recipe_file, "training.learning_rate=1e-4", "model.encoding=rope", output_dir=folder, resume=True)
    faults = "\n".join(error.value.faults)
    assert "training.learning_rate was 0.003, now 0.0001" in faults
    assert "model.encoding was 'tupe-a', now 'rope'" in faults
    assert len(error.value.faults) == 2
    assert sorted(folder.rglob("*")) == before


def test_other_data_under_the_same_name_is_not_mixed_in(recipe_file, tmp_path, monkeypatch, corpus):
    copy = tmp_path / "copy"
    shutil.copytree(corpus, copy)
    override, folder = f"data.source={copy}/*/*.txt", tmp_path / "run"
    interrupt(recipe_file, folder, monkeypatch, override, at=6)
    for path in copy.glob("*/*.txt"):  # as many documents, words and characters as before
        path.write_text(" ".join(reversed(path.read_text().split(" "))))
    before = sorted(folder.rglob("*"))
    with pytest.raises(BadInput, match="--resume: the data has changed"):
        go(recipe_file, override, output_dir=folder, resume=True)
    (folder / "data.json").write_text("{}")
    with pytest.raises(BadInput, match=r"data\.json: cannot be read"):
        go(recipe_file, override, output_dir=folder, resume=True)
    assert sorted(folder.rglob("*")) == before


def test_what_changes_no_result_may_change(recipe_file, tmp_path, monkeypatch, whole):
    folder = tmp_path / "run"
    interrupt(recipe_file, folder, monkeypatch, at=6)
    result = go(recipe_file, "training.save_total_limit=5", "training.run_name=x", output_dir=folder, resume=True)
    assert_same(result, whole)
