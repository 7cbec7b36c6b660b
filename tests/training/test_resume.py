"""A run that was broken off and resumed gives the same losses and weights, to the last bit, as one that was not.

Processes that are really killed, at any moment, are in tests/soak.
"""

import json
import os
import re
import resource
import shutil
import signal

import pytest
import torch
from accelerate import Accelerator
from safetensors import SafetensorError
from safetensors.torch import load_file
from transformers import PreTrainedModel

from wordorder.errors import BadInput, RunFailed, Stopped
from wordorder.memory import MEMORIES
from wordorder.training import read_recipe, run
from wordorder.training.checkpoints.checkpoint import find_newest, read_state, seal
from wordorder.training.loop.evaluation import Evaluation
from wordorder.training.loop.loop import Loop
from wordorder.training.loop.saving import Saving
from wordorder.training.runs import fit

# Dropout, gradient accumulation and several epochs, so that every generator, average and order matters.
SETTINGS = (
    "training.batch_size=8",
    "training.micro_batch_size=4",
    "training.max_steps=20",
    "data.limit_documents=8",
    "training.lr_schedule=cosine",
)


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


MEMORY = (
    "task.name=causal-lm",
    "task.packing=lanes",
    "data.length=16",
    "tokenizer.kind=byte",
    "model.network=decoder",
    "model.encoding=transformer-xl",
    "model.memory_length=24",
)


class Enough(Exception):
    pass


def interrupt(recipe_file, folder, monkeypatch, *overrides, at):
    """Start a run and break off in a given step, as a kill would, but without the price of a process."""
    original = Loop.micro_step

    def micro_step(self, *args, **kwargs):
        if self.training.state.step + 1 == at:
            raise Enough
        return original(self, *args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(Loop, "micro_step", micro_step)
        with pytest.raises(Enough):
            go(recipe_file, *overrides, output_dir=folder)


def send(number, step, patch):
    """Let a signal arrive in a step, once."""
    original, sent = Loop.micro_step, []

    def micro_step(self, *args, **kwargs):
        if self.training.state.step + 1 == step and not sent:
            sent.append(number)
            os.kill(os.getpid(), number)
        return original(self, *args, **kwargs)

    patch.setattr(Loop, "micro_step", micro_step)


@pytest.mark.slow
@pytest.mark.parametrize(
    "overrides",
    [
        ("training.log_every=3",),  # an average is half-taken when the checkpoint is written
        ("training.evaluate_every=epoch", "training.log_every=epoch"),
        ("training.workers=2",),
        ("task.name=classification", "data.validation_fraction=0.3", "data.test_fraction=0.3"),
        *((*MEMORY, f"model.memory={memory}") for memory in MEMORIES),
    ],
    ids=["averages", "epochs", "workers", "classification", *MEMORIES],
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
    with pytest.warns(UserWarning, match=r"checkpoint-12 is passed over: optimizer\.safetensors has \d+ bytes"):
        result = go(recipe_file, output_dir=folder, resume=True)
    assert_same(result, whole)


def test_a_resumed_run_says_where_it_starts_and_what_it_passes_over(recipe_file, tmp_path, monkeypatch, capsys):
    folder = tmp_path / "said"

    def resume():
        run(read_recipe(recipe_file, ["training.max_steps=4"]), output_dir=folder, resume=True)
        lines = capsys.readouterr().err.splitlines()
        return [line for line in lines if "fewer than 20" not in line]

    assert resume()[0] == f"said: starts anew: {folder} holds no whole checkpoint"
    assert resume() == [
        f"said: was finished before; nothing is trained, this is its result ({folder / 'metrics.json'})"
    ]
    (folder / "metrics.json").unlink()
    assert resume()[0] == f"said: goes on from {folder / 'checkpoint-4'}"
    (folder / "metrics.json").unlink()
    shutil.copytree(folder / "checkpoint-4", folder / "checkpoint-5")
    (folder / "checkpoint-5" / "optimizer.safetensors").write_bytes(b"")
    (folder / "checkpoint-5" / "random.json").unlink()
    assert re.fullmatch(
        rf"said: goes on from {folder}/checkpoint-4; checkpoint-5 is passed over: random.json is missing, "
        r"optimizer.safetensors has 0 bytes, \d+ were written",
        resume()[0],
    )


def rewritten(checkpoint, name, change):
    """Change a state of a checkpoint, and make its manifest agree, as somebody who shares a run folder could."""
    path = checkpoint / name
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))
    (checkpoint / "manifest.json").unlink()
    seal(checkpoint)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"best_step": "../../other"}, "best_step must be a valid integer"),
        ({"best_step": -4}, "best_step must be greater than or equal to 0"),
        ({"step": "12"}, "step must be a valid integer"),
        ({"log": [1]}, "log"),
        ({"log": [{"loss": 1.0}]}, "log has an entry without step"),
        ({"epoch": [1]}, "epoch must be a valid number"),
        ({"unheard_of": 1}, "unheard_of"),
    ],
    ids=str,
)
def test_a_state_that_is_not_the_trainers_is_passed_over(recipe_file, tmp_path, change, reason, whole):
    folder = tmp_path / "run"
    shutil.copytree(whole.model_dir.parent, folder)
    rewritten(folder / "checkpoint-20", "state.json", lambda state: state.update(change))
    found = find_newest(folder)
    assert found.newest is not None
    assert found.newest.name != "checkpoint-20"
    ((passed, fault),) = found.passed_over
    assert passed.name == "checkpoint-20"
    assert reason in fault


@pytest.fixture(scope="module")
def broken_off(shared_recipe_file):
    """A run that was killed after its checkpoint of step 4."""
    with pytest.MonkeyPatch.context() as patch:
        interrupt(shared_recipe_file, shared_recipe_file.parent / "broken-off", patch, at=6)
    return shared_recipe_file.parent / "broken-off"


def set_in(name, value):
    """Set what `save_state` wrote under a name, wherever it lies."""

    def change(node):
        for inner in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
            change(inner)
        for pair in node.get("dict", ()) if isinstance(node, dict) else ():
            if pair[0] == name:
                pair[1] = value

    return change


@pytest.mark.slow
@pytest.mark.parametrize(
    ("file", "name", "value"),
    [
        ("optimizer", "state", [1]),
        ("optimizer", "param_groups", 3),
        ("optimizer", "lr", "fast"),
        ("optimizer", "betas", {"tuple": ["a", 0.9]}),
        ("optimizer", "exp_avg", 1.0),
        ("optimizer", "params", [0]),
        ("random", "torch", 5),
        ("random", "numpy", [1]),
    ],
)
def test_a_state_that_does_not_fit_is_named_with_its_file(
    recipe_file, tmp_path, monkeypatch, broken_off, file, name, value
):
    folder = tmp_path / "run"
    shutil.copytree(broken_off, folder)
    rewritten(folder / "checkpoint-4", f"{file}.json", set_in(name, value))
    monkeypatch.setattr(Loop, "micro_step", None)
    with pytest.raises(RunFailed, match=rf"checkpoint-4/{file}\.json is not the state of this run .*--resume goes on"):
        go(recipe_file, output_dir=folder, resume=True)


@pytest.mark.slow
@pytest.mark.parametrize("counts", [{"meter": {}}, {"batches": {"chain": 3}}])
def test_counts_that_do_not_fit_are_named_with_their_file(recipe_file, tmp_path, broken_off, counts):
    folder = tmp_path / "run"
    shutil.copytree(broken_off, folder)
    rewritten(folder / "checkpoint-4", "state.json", lambda state: state["processes"][0].update(counts))
    with pytest.raises(RunFailed, match=r"checkpoint-4/state\.json is not the state of this run .*--resume goes on"):
        go(recipe_file, output_dir=folder, resume=True)


@pytest.mark.slow
def test_the_only_good_checkpoint_outlives_a_damaged_one(recipe_file, tmp_path, monkeypatch, whole):
    folder = tmp_path / "run"
    interrupt(recipe_file, folder, monkeypatch, at=14)
    (folder / "checkpoint-12" / "random.json").write_text("{}")
    shutil.rmtree(folder / "checkpoint-4", ignore_errors=True)
    with monkeypatch.context() as patch:
        send(signal.SIGTERM, 10, patch)
        with pytest.raises(Stopped, match="after step 10"), pytest.warns(UserWarning, match="checkpoint-12 is passed"):
            go(recipe_file, "training.keep_checkpoints=1", output_dir=folder, resume=True)
    assert find_newest(folder).newest == folder / "checkpoint-10"
    with pytest.warns(UserWarning, match="checkpoint-12 is passed"):
        assert_same(go(recipe_file, output_dir=folder, resume=True), whole)


@pytest.mark.slow
def test_a_damaged_checkpoint_between_takes_no_good_one_s_place(recipe_file, tmp_path, monkeypatch):
    folder = tmp_path / "run"
    with monkeypatch.context() as patch:
        send(signal.SIGTERM, 9, patch)
        with pytest.raises(Stopped, match="after step 9"):
            go(recipe_file, "training.keep_steps=[6]", output_dir=folder)
    (folder / "checkpoint-9" / "random.json").write_text("{}")
    good = {path.name for path in folder.glob("checkpoint-*")} - {"checkpoint-9"}
    assert good == {"checkpoint-6", "checkpoint-8"}
    with monkeypatch.context() as patch:
        send(signal.SIGTERM, 10, patch)
        with pytest.raises(Stopped, match="after step 10"), pytest.warns(UserWarning, match="checkpoint-9 is passed"):
            go(recipe_file, "training.keep_steps=[6]", output_dir=folder, resume=True)
    assert {path.name for path in folder.glob("checkpoint-*")} == good | {"checkpoint-9", "checkpoint-10"}


@pytest.mark.slow
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
        patch.setattr(Loop, "micro_step", None)
        assert_same(go(recipe_file, output_dir=folder, resume=True), whole)


def test_a_finished_model_that_training_would_have_placed_is_scored_on_the_run_s_device(
    recipe_file, tmp_path, monkeypatch, whole
):
    """A model that is to be sharded (FSDP2) stays where it was made until it trains."""
    folder, placed, to = tmp_path / "nearly", [], PreTrainedModel.to
    shutil.copytree(whole.model_dir.parent, folder)
    (folder / "metrics.json").unlink()
    monkeypatch.setattr(Accelerator, "is_fsdp2", property(lambda self: True))
    monkeypatch.setattr(PreTrainedModel, "to", lambda self, device: placed.append(device) or to(self, device))
    assert_same(go(recipe_file, output_dir=folder, resume=True), whole)
    assert placed == [torch.device("cpu")]


def test_an_older_checkpoint_that_cannot_be_removed_ends_the_run_with_a_reason(recipe_file, tmp_path, monkeypatch):
    from wordorder.training.loop import saving

    def rotate(folder, **arguments):
        raise OSError(13, "Permission denied")

    monkeypatch.setattr(saving, "rotate", rotate)
    with pytest.raises(
        RunFailed, match=r"an older checkpoint could not be removed: .*Permission denied; the last good"
    ):
        go(recipe_file, output_dir=tmp_path / "run")


def test_an_environment_that_cannot_be_read_is_named(recipe_file, tmp_path, monkeypatch):
    folder = tmp_path / "run"
    interrupt(recipe_file, folder, monkeypatch, at=6)
    (folder / "environment.json").write_text("{")
    with pytest.raises(RunFailed, match=r"environment\.json: cannot be read: .*remove it, and --resume makes it anew"):
        go(recipe_file, output_dir=folder, resume=True)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGTERM])
def test_a_signal_after_the_last_step_stops_at_once_and_nothing_is_lost(
    recipe_file, tmp_path, monkeypatch, whole, number
):
    folder = tmp_path / "nearly"
    with monkeypatch.context() as patch:
        patch.setattr(fit, "_finish", lambda *args, **kwargs: os.kill(os.getpid(), number))
        with pytest.raises(Stopped, match=rf"stopped by {number.name} .*--resume goes on"):
            go(recipe_file, output_dir=folder)
    with monkeypatch.context() as patch:
        patch.setattr(Loop, "micro_step", None)
        assert_same(go(recipe_file, output_dir=folder, resume=True), whole)


def send_within_evaluation(number, which, patch):
    """Let a signal arrive in the which-th evaluation, when its first batch was scored; say how many batches were."""
    evaluations, scored = [], []
    original = Evaluation._until_stopped

    def until_stopped(self, batches):
        if self.training.active:
            evaluations.append(1)
        for count, batch in enumerate(original(self, batches)):
            yield batch
            if self.training.active and len(evaluations) == which:
                scored.append(1)
                if count == 0:
                    os.kill(os.getpid(), number)

    patch.setattr(Evaluation, "_until_stopped", until_stopped)
    return scored


@pytest.mark.parametrize("which", [1, 3, 5])
def test_an_evaluation_is_given_up_for_a_signal_and_made_up_for(recipe_file, tmp_path, monkeypatch, which):
    """Five are due; the last one is that of the last step."""
    with monkeypatch.context() as patch:
        scored = send_within_evaluation(signal.SIGTERM, which, patch)
        with pytest.raises(Stopped, match=f"stopped by SIGTERM after step {4 * which}; .*checkpoint-{4 * which}"):
            go(recipe_file, "training.eval_batch_size=1", output_dir=tmp_path / "run")
        assert len(scored) == 1
    assert read_state(tmp_path / "run" / f"checkpoint-{4 * which}").score_due
    again = go(recipe_file, "training.eval_batch_size=1", output_dir=tmp_path / "run", resume=True)
    plain = go(recipe_file, "training.eval_batch_size=1", output_dir=tmp_path / "plain")
    assert_same(again, plain)


def test_an_evaluation_that_is_made_up_for_may_be_given_up_too(recipe_file, tmp_path, monkeypatch):
    one = "training.eval_batch_size=1"
    for _ in range(2):
        with monkeypatch.context() as patch:
            send_within_evaluation(signal.SIGTERM, 1, patch)
            with pytest.raises(Stopped):
                go(recipe_file, one, output_dir=tmp_path / "run", resume=True)
        assert read_state(tmp_path / "run" / "checkpoint-4").score_due
    again = go(recipe_file, one, output_dir=tmp_path / "run", resume=True)
    assert_same(again, go(recipe_file, one, output_dir=tmp_path / "plain"))


@pytest.mark.slow
def test_an_evaluation_of_running_text_is_given_up_and_made_up_for(recipe_file, tmp_path, monkeypatch):
    settings = (*MEMORY, "model.memory=look-ahead", "training.eval_batch_size=1")
    plain = go(recipe_file, *settings, output_dir=tmp_path / "plain")
    with monkeypatch.context() as patch:
        send_within_evaluation(signal.SIGTERM, 1, patch)
        with pytest.raises(Stopped):
            go(recipe_file, *settings, output_dir=tmp_path / "run")
    assert [path.name for path in tmp_path.glob("run/checkpoint-*") if read_state(path).score_due]
    assert_same(go(recipe_file, *settings, output_dir=tmp_path / "run", resume=True), plain)


@pytest.mark.slow
def test_a_kill_after_a_score_was_made_up_for_loses_no_memory(recipe_file, tmp_path, monkeypatch):
    settings = (*MEMORY, "model.memory=look-ahead", "training.eval_batch_size=1", "training.save_every=4")
    plain = go(recipe_file, *settings, output_dir=tmp_path / "plain")
    with monkeypatch.context() as patch:
        send_within_evaluation(signal.SIGTERM, 1, patch)
        with pytest.raises(Stopped):
            go(recipe_file, *settings, output_dir=tmp_path / "run")
    step = find_newest(tmp_path / "run").newest.name
    with monkeypatch.context() as patch:
        patch.setattr(Loop, "_run_epoch", lambda self, *args, **options: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            go(recipe_file, *settings, output_dir=tmp_path / "run", resume=True)
    assert not read_state(tmp_path / "run" / step).score_due
    rows = [json.loads(line)["step"] for line in (tmp_path / "run" / "curve.jsonl").read_text().splitlines()]
    assert len(set(rows)) == len(rows)
    assert_same(go(recipe_file, *settings, output_dir=tmp_path / "run", resume=True), plain)


def test_micro_batches_change_no_example(recipe_file, tmp_path):
    """Of a task whose batches hold texts of about one length: what a step reads does not hang on them."""
    settings = ("task.name=classification", "training.max_steps=4", "training.batch_size=6", "data.limit_documents=30")
    digests = [
        go(recipe_file, *settings, f"training.micro_batch_size={size}", output_dir=tmp_path / str(size)).metrics[
            "batches"
        ]
        for size in (6, 2)
    ]
    assert digests[0] == digests[1]


def test_a_signal_before_the_first_step_stops_at_once(recipe_file, tmp_path, monkeypatch, whole):
    with monkeypatch.context() as patch:
        patch.setattr(fit, "build_model", lambda *args, **kwargs: os.kill(os.getpid(), signal.SIGUSR1))
        with pytest.raises(Stopped, match="stopped by SIGUSR1 while nothing was being trained"):
            go(recipe_file, output_dir=tmp_path / "run")
    assert_same(go(recipe_file, output_dir=tmp_path / "run", resume=True), whole)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("most", "told"),
    [(700, OSError), (4_000, SafetensorError)],
    ids=["text", "tensors"],
)
def test_a_file_that_cannot_be_written_ends_the_run_and_it_can_be_resumed(
    recipe_file, tmp_path, monkeypatch, whole, most, told
):
    """A limit on the size of files, in bytes, makes the system refuse to write, as a full disk does."""
    folder = tmp_path / "run"
    interrupt(recipe_file, folder, monkeypatch, at=6)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, before[1]))
    try:
        expected = rf"File too large.*the last good checkpoint is {folder}/checkpoint-4"
        with pytest.raises(RunFailed, match=expected) as failed:
            go(recipe_file, output_dir=folder, resume=True)
        assert type(failed.value.__cause__) is told  # each library has its own way to say it
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert find_newest(folder).newest == folder / "checkpoint-4"
    assert not list(folder.glob(".saving-*"))
    assert_same(go(recipe_file, output_dir=folder, resume=True), whole)


def test_a_model_that_cannot_be_written_ends_the_run_and_it_can_be_resumed(recipe_file, tmp_path, monkeypatch, whole):
    folder = tmp_path / "run"

    def full(self, path, *rest):
        if path.name == ".saving-model":
            raise Exception("No space left on device (os error 28)")  # as tokenizers says it
        return save(self, path, *rest)

    save = Saving.save_for_use
    with monkeypatch.context() as patch:
        patch.setattr(Saving, "save_for_use", full)
        with pytest.raises(RunFailed, match=rf"No space left.*last good checkpoint is {folder}/checkpoint-20"):
            go(recipe_file, output_dir=folder)
    assert not list(folder.glob(".saving-*"))
    assert_same(go(recipe_file, output_dir=folder, resume=True), whole)


def test_a_result_that_cannot_be_read_is_named(recipe_file, tmp_path, whole):
    shutil.copytree(whole.model_dir.parent, tmp_path / "run")
    (tmp_path / "run" / "metrics.json").write_text("{")
    with pytest.raises(RunFailed, match=r"metrics\.json: cannot be read: .*remove it, and --resume makes it anew"):
        go(recipe_file, output_dir=tmp_path / "run", resume=True)


@pytest.mark.slow
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


@pytest.mark.parametrize("name", ["data.json", "recipe.toml"])
def test_a_run_that_nothing_can_be_compared_with_does_not_go_on(recipe_file, tmp_path, monkeypatch, name):
    folder = tmp_path / "run"
    interrupt(recipe_file, folder, monkeypatch, at=6)
    (folder / name).unlink()
    with pytest.raises(BadInput, match=rf"{name}: cannot be read, so the run cannot be resumed: .*another folder"):
        go(recipe_file, output_dir=folder, resume=True)


@pytest.mark.slow
def test_what_changes_no_result_may_change(recipe_file, tmp_path, monkeypatch, whole):
    folder = tmp_path / "run"
    interrupt(recipe_file, folder, monkeypatch, at=6)
    result = go(recipe_file, "training.keep_checkpoints=5", "training.workers=1", output_dir=folder, resume=True)
    assert_same(result, whole)
