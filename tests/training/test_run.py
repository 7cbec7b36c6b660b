import errno
import itertools
import json
import math
import os
import signal
import sys
import threading

import pytest
import torch
from transformers import AutoModelForMaskedLM, AutoTokenizer
from transformers.utils import logging

import wordorder.training.loop.loop
from wordorder.encodings import encoding_parameters
from wordorder.errors import BadInput, RunFailed, Stopped
from wordorder.training import read_recipe, run
from wordorder.training.loop.evaluation import Evaluation
from wordorder.training.loop.loop import Loop
from wordorder.training.loop.schedule import factor
from wordorder.training.loop.step_loss import StepLoss
from wordorder.training.runs import fit

PICKLES = (".pt", ".pth", ".bin", ".pkl", ".ckpt")


def go(recipe_file, *overrides, **arguments):
    return run(read_recipe(recipe_file, overrides), progress=False, **arguments)


def test_a_run_leaves_all_that_it_promises(recipe_file, tmp_path, capfd):
    verbosity = logging.get_verbosity()
    result = go(recipe_file, "training.trackers=['tensorboard']")
    folder = tmp_path / "run"
    assert {path.name for path in folder.iterdir()} == {
        "recipe.toml", "data.json", "environment.json", "metrics.json", "curve.jsonl", "logs", "model",
        "unit_scores.safetensors",
        "checkpoint-8", "checkpoint-12",
    }  # fmt: skip
    assert not [path for path in folder.rglob("*") if path.suffix in PICKLES]
    assert capfd.readouterr() == ("", "")
    assert logging.get_verbosity() == verbosity

    metrics = json.loads((folder / "metrics.json").read_text())
    assert metrics == result.metrics
    assert (metrics["steps"], metrics["seed"]) == (12, 0)
    assert metrics["tokens_per_second"] == pytest.approx(metrics["tokens"] / metrics["train_seconds"])
    assert metrics["peak_memory_bytes"] > 10**8
    for split in ("validation", "test"):
        assert set(metrics[split]) == {"loss", "perplexity", "accuracy", "tokens"}
        assert metrics[split]["perplexity"] == pytest.approx(math.exp(metrics[split]["loss"]))

    curve = [json.loads(line) for line in (folder / "curve.jsonl").read_text().splitlines()]
    assert curve == result.curve
    assert [row["step"] for row in curve] == list(range(1, 13))
    assert [row["step"] for row in curve if "validation_loss" in row] == [4, 8, 12]
    assert all({"loss", "learning_rate", "train_seconds", "tokens"} <= row.keys() for row in curve)

    environment = json.loads((folder / "environment.json").read_text())
    assert environment["packages"]["torch"].startswith(torch.__version__.split("+")[0])
    assert {"python", "device", "threads", "command", "seed", "commit"} <= environment.keys()
    assert any(path.name.startswith("events.out.tfevents") for path in (folder / "logs").iterdir())

    model = AutoModelForMaskedLM.from_pretrained(result.model_dir)
    tokenizer = AutoTokenizer.from_pretrained(result.model_dir)
    assert model.config.vocab_size == len(tokenizer)
    assert metrics["parameters"] == model.num_parameters()


def test_the_model_is_on_the_disk_before_metrics_say_that_it_is(recipe_file, tmp_path, monkeypatch):
    synced, fsync = [], os.fsync

    def watched(handle):
        status = os.fstat(handle)
        synced.append((status.st_ino, status.st_size, (tmp_path / "run" / "metrics.json").exists()))
        fsync(handle)

    monkeypatch.setattr(os, "fsync", watched)
    model_dir = go(recipe_file, "training.max_steps=2").model_dir
    for path in model_dir.iterdir():
        assert (path.stat().st_ino, path.stat().st_size, False) in synced, path.name


@pytest.mark.slow
def test_the_saved_recipe_repeats_the_run(recipe_file, tmp_path):
    first = go(recipe_file)
    again = go(tmp_path / "run" / "recipe.toml", output_dir=tmp_path / "again")
    for split in ("validation", "test"):
        assert again.metrics[split] == first.metrics[split]
    assert [row["loss"] for row in again.curve] == [row["loss"] for row in first.curve]
    other = go(recipe_file, output_dir=tmp_path / "other", seed=1)
    assert other.metrics["seed"] == 1
    assert [row["loss"] for row in other.curve] != [row["loss"] for row in first.curve]


def test_the_best_model_is_kept_also_between_two_saves(recipe_file, tmp_path, monkeypatch):
    exact = Evaluation.scores
    worse = {2: 1.0, 4: 0.5, 6: 2.0, 8: 3.0, 10: 4.0, 12: 5.0}

    def scores(self, dataset):
        found = exact(self, dataset)
        return {**found, "loss": worse[self.training.state.step]} if self.training.active else found

    monkeypatch.setattr(Evaluation, "scores", scores)
    result = go(recipe_file, "training.evaluate_every=2", "training.save_every=6")
    assert result.metrics["best_step"] == 4
    assert sorted(path.name for path in (tmp_path / "run").glob("checkpoint-*")) == ["checkpoint-12", "checkpoint-4"]
    kept, last = (
        AutoModelForMaskedLM.from_pretrained(folder).state_dict()
        for folder in (tmp_path / "run" / "checkpoint-4", tmp_path / "run" / "checkpoint-12")
    )
    final = AutoModelForMaskedLM.from_pretrained(result.model_dir).state_dict()
    assert all(torch.equal(final[name], kept[name]) for name in kept)
    assert not all(torch.equal(final[name], last[name]) for name in last)


def test_the_validation_scores_of_the_kept_step_are_not_computed_again(recipe_file, tmp_path, monkeypatch):
    exact, scored = Evaluation.scores_and_units, []

    def counted(self, dataset, **options):
        found = exact(self, dataset, **options)
        if not self.training.active:
            scored.append(found[0])
        return found

    monkeypatch.setattr(Evaluation, "scores_and_units", counted)
    found = go(recipe_file).metrics
    assert scored == [found["test"]]
    monkeypatch.setattr(fit, "_logged", lambda log, step: {})
    again = go(recipe_file, f"training.output_dir={tmp_path / 'again'}").metrics
    assert scored[1:] == [found["test"], found["validation"]]
    assert again["validation"] == found["validation"]


def test_a_run_that_is_shorter_than_the_rhythm_of_logs_has_a_curve(recipe_file):
    recipe = read_recipe(recipe_file, ["training.log_every=50"])
    losses = {row["step"]: row["loss"] for row in run(recipe, progress=False).curve if "loss" in row}
    assert sorted(losses) == list(range(1, 13))


def test_without_saving_the_last_model_is_kept(recipe_file, tmp_path):
    result = go(recipe_file, "training.save_every=never", "training.select=last", "training.max_steps=3")
    assert result.metrics["best_step"] == 3
    assert not list((tmp_path / "run").glob("checkpoint-*"))


def test_classification_has_scores_of_classes(recipe_file):
    result = go(recipe_file, "task.name=classification", "data.validation_fraction=0.2", "training.max_steps=4")
    names = {"loss", "accuracy", "macro_f1", "matthews_correlation"}
    assert set(result.metrics["test"]) == {*names, "examples"}
    (last,) = [row for row in result.curve if row["step"] == 4]
    assert {f"validation_{name}" for name in names} <= last.keys()


def test_without_a_test_split_the_scores_are_those_on_validation(recipe_file, capfd):
    recipe = read_recipe(recipe_file, ["data.test_source=none", "training.max_steps=2", "training.evaluate_every=2"])
    result = run(recipe, progress=True)
    assert "test" not in result.metrics
    assert result.metrics["validation"]["tokens"] > 0
    assert capfd.readouterr().err.splitlines()[-1].startswith("run: validation loss ")


def decayed(recipe_file, tmp_path, *overrides):
    """Train a few steps without a gradient, so that only weight decay changes weights; say which ones it left alone."""
    folder = tmp_path / "-".join(("decay", *(override.partition("=")[2] for override in overrides)))
    settings = ("training.weight_decay=0.5", "training.max_steps=2", "training.learning_rate=0.1", *overrides)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            StepLoss,
            "__call__",
            lambda self, model, batch, **options: (0 * sum(p.sum() for p in model.parameters()), None),
        )
        model_dir = go(recipe_file, *settings, output_dir=folder).model_dir
    norm = AutoModelForMaskedLM.from_pretrained(model_dir).head.norm.weight
    return not torch.equal(norm, torch.ones_like(norm))


@pytest.mark.slow
def test_weight_decay_leaves_norms_alone_unless_it_is_told_otherwise(recipe_file, tmp_path):
    assert not decayed(recipe_file, tmp_path)
    assert not decayed(recipe_file, tmp_path, "training.decay_all_parameters=false")
    assert decayed(recipe_file, tmp_path, "training.decay_all_parameters=true")


def moved(recipe_file, tmp_path, *overrides):
    """Return the weights after one step of nearly plain gradient descent, by name: epsilon is far above gradients."""
    settings = ("training.max_steps=1", "training.learning_rate=1e4", "training.max_grad_norm=0")
    settings += ("training.adam_beta1=0.0", "training.adam_beta2=0.0", "training.adam_epsilon=1e4")
    settings += ("training.lr_schedule=constant", "training.evaluate_every=never", "training.select=last", *overrides)
    model_dir = go(recipe_file, *settings, output_dir=tmp_path / "-".join(overrides).replace("/", "")).model_dir
    return {name: value.double() for name, value in AutoModelForMaskedLM.from_pretrained(model_dir).named_parameters()}


@pytest.mark.parametrize("encoding", ["tupe-r", "complex-order"])
def test_the_encoding_has_a_learning_rate_of_its_own(recipe_file, tmp_path, encoding):
    model = f"model.encoding={encoding}"
    start = moved(recipe_file, tmp_path, model, "training.learning_rate=1e-30")
    plain = moved(recipe_file, tmp_path, model)
    quick = moved(recipe_file, tmp_path, model, "training.encoding_learning_rate=4")
    network = AutoModelForMaskedLM.from_pretrained(next(tmp_path.glob("*encoding_learning_rate*")) / "model")
    own = set(encoding_parameters(network))
    assert own < set(start)
    assert any("table" in name or "frequency" in name for name in own)
    assert not any("amplitude" in name or "layers" in name for name in own)
    for name, before in start.items():
        step = 4 * (plain[name] - before) if name in own else plain[name] - before
        torch.testing.assert_close(quick[name] - before, step, rtol=1e-3, atol=1e-6)
    assert max((quick[name] - start[name]).abs().max() for name in own) > 1e-3


def test_a_rate_of_one_changes_nothing(recipe_file, tmp_path):
    plain, same = (go(recipe_file, *given, output_dir=tmp_path / name) for name, given in (
        ("plain", ()), ("same", ("training.encoding_learning_rate=1",))))  # fmt: skip
    assert plain.metrics["test"] == same.metrics["test"]


def test_checkpoints_of_certain_steps_are_kept_beside_the_newest(recipe_file, tmp_path):
    settings = [
        "training.keep_checkpoints=1",
        "training.keep_steps=[3, 6]",
        "training.evaluate_every=never",
        "training.select=last",
    ]
    go(recipe_file, *settings, "training.save_every=4")
    kept = sorted(path.name for path in (tmp_path / "run").glob("checkpoint-*"))
    assert kept == ["checkpoint-12", "checkpoint-3", "checkpoint-6"]
    AutoModelForMaskedLM.from_pretrained(tmp_path / "run" / "checkpoint-3")


@pytest.mark.slow
def test_with_a_limit_of_one_the_last_checkpoint_is_there_until_the_result_is(recipe_file, tmp_path, monkeypatch):
    """And those that are never removed: at the end of training transformers would leave the best alone."""
    monkeypatch.setattr(fit, "_higher_is_better", lambda recipe: True)  # so that the best is the first one
    settings = ("training.keep_checkpoints=1", "training.keep_steps=[3]")
    with monkeypatch.context() as patch:
        patch.setattr(fit, "_finish", lambda *args, **kwargs: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            go(recipe_file, *settings)
    kept = sorted(path.name for path in (tmp_path / "run").glob("checkpoint-*"))
    assert kept == ["checkpoint-12", "checkpoint-3", "checkpoint-4"]
    monkeypatch.setattr(Loop, "micro_step", None)  # nothing is trained again
    assert go(recipe_file, *settings, resume=True).metrics["best_step"] == 4


@pytest.mark.slow
def test_saving_at_certain_steps_changes_nothing(recipe_file, tmp_path):
    kept = go(recipe_file, "training.keep_steps=[3, 5]", output_dir=tmp_path / "kept")
    assert kept.metrics["test"] == go(recipe_file, output_dir=tmp_path / "plain").metrics["test"]


@pytest.mark.slow
def test_a_small_batch_accumulated_is_a_large_batch(recipe_file, tmp_path):
    settings = ("model.hidden_dropout_prob=0.0", "model.attention_probs_dropout_prob=0.0", "training.max_steps=4")
    large = go(recipe_file, *settings)
    small = go(
        recipe_file,
        *settings,
        "training.micro_batch_size=2",
        output_dir=tmp_path / "small",
    )
    # The loss is a mean over tokens, not over batches of unequal numbers of masked tokens.
    assert [row["loss"] for row in small.curve] == pytest.approx([row["loss"] for row in large.curve], rel=1e-5)
    assert small.metrics["tokens"] == large.metrics["tokens"]


def test_a_step_larger_than_an_epoch_takes_the_epoch(recipe_file, tmp_path):
    settings = ("training.max_steps=2", "training.micro_batch_size=8", "data.limit_documents=8")
    one, other = (
        go(recipe_file, *settings, f"training.batch_size={size}", output_dir=tmp_path / str(size))
        for size in (8 * 10**8, 8 * 10**6)
    )
    assert one.metrics["tokens"] == other.metrics["tokens"]
    assert one.metrics["test"] == other.metrics["test"]


def test_what_cannot_be_read_is_skipped_and_told(recipe_file, tmp_path, capfd):
    (tmp_path / "text").mkdir()
    # not every file name is UTF-8
    path = tmp_path / "text" / ("café.jsonl" if sys.platform == "darwin" else os.fsdecode(b"caf\xe9.jsonl"))
    rows = [
        json.dumps({"text": f"document {number} " + " ".join(str(number * word) for word in range(40))})
        for number in range(30)
    ]
    path.write_text("\n".join([*rows, '{"text": broken', ""]))
    settings = [f"data.source={tmp_path / 'text'}", "tokenizer.kind=byte", "training.max_steps=1"]
    with pytest.raises(BadInput, match="line 31 is not JSON"):
        go(recipe_file, *settings)
    run(read_recipe(recipe_file, [*settings, "data.skip_unreadable=true"]))
    written = (tmp_path / "run" / "reading.json").read_text(encoding="utf-8")
    assert json.loads(written)["unreadable"]["files"] == {str(path): 1}
    assert sys.platform == "darwin" or r"caf\udce9.jsonl line 31 is not JSON" in written
    assert "1 lines, records or files could not be read and were skipped" in capfd.readouterr().err


@pytest.mark.parametrize("schedule", ["linear", "constant", "cosine"])
def test_the_rates_of_a_run_are_those_of_its_schedule(recipe_file, schedule):
    settings = [f"training.lr_schedule={schedule}", "training.max_steps=8", "training.warmup_steps=2"]
    rates = [row["learning_rate"] for row in go(recipe_file, *settings).curve if "learning_rate" in row]
    assert rates == [3e-3 * factor(schedule, step, steps=8, warmup=2) for step in range(8)]


def test_steps_that_are_kept_are_kept_beside_the_best(recipe_file, tmp_path):
    go(recipe_file, "training.keep_steps=[3, 5]", "training.save_every=never", "training.evaluate_every=4")
    kept = {path.name for path in (tmp_path / "run").glob("checkpoint-*")}
    assert {"checkpoint-3", "checkpoint-5"} < kept


def test_a_finished_run_is_returned_and_not_overwritten(recipe_file, monkeypatch):
    first = go(recipe_file)
    with pytest.raises(BadInput, match="already holds a run"):
        go(recipe_file)
    monkeypatch.setattr(Loop, "train", None)
    assert go(recipe_file, resume=True) == first


@pytest.mark.parametrize("folder", ["file/run", "file"])
def test_a_run_folder_that_cannot_be_written_is_bad_input_before_any_work(recipe_file, tmp_path, folder, monkeypatch):
    monkeypatch.setattr("wordorder.tasks.prepare", None)
    (tmp_path / "file").write_text("")
    with pytest.raises(BadInput, match=r"training\.output_dir.*cannot be written"):
        go(recipe_file, output_dir=tmp_path / folder)


def test_bad_data_leaves_no_folder_behind(recipe_file, tmp_path):
    (tmp_path / "empty.txt").write_text("")
    with pytest.raises(BadInput):
        go(recipe_file, f"data.source={tmp_path}/empty.txt")
    assert not (tmp_path / "run").exists()


def test_a_vocabulary_smaller_than_the_tokenizers_is_refused(recipe_file, tmp_path):
    with pytest.raises(BadInput, match=r"model\.vocab_size"):
        go(recipe_file, "model.vocab_size=10")
    assert not (tmp_path / "run").exists()


def spoil_at(step, monkeypatch, value):
    """Spoil the loss of a step, which has one micro-batch."""
    original, steps = StepLoss.__call__, itertools.count(1)

    def spoilt(self, *args, **options):
        loss, output = original(self, *args, **options)
        return loss * value if next(steps) == step else loss, output

    monkeypatch.setattr(StepLoss, "__call__", spoilt)


@pytest.mark.slow
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_loss_that_is_not_finite_stops_at_once_and_keeps_the_last_good_checkpoint(
    recipe_file, tmp_path, monkeypatch, value
):
    spoil_at(7, monkeypatch, value)
    with pytest.raises(RunFailed, match=rf"{value} at step 7; the last good checkpoint is .*checkpoint-4"):
        go(recipe_file)
    folder = tmp_path / "run"
    assert [path.name for path in folder.glob("checkpoint-*")] == ["checkpoint-4"]
    assert not (folder / "metrics.json").exists()


def test_weights_that_are_not_finite_are_never_saved(recipe_file, tmp_path, monkeypatch):
    original = Loop.micro_step

    def micro_step(self, *args, **kwargs):
        loss = original(self, *args, **kwargs)
        if self.training.state.step + 1 == 8:
            next(self.training.parts.model.parameters()).grad[0] = math.nan
        return loss

    monkeypatch.setattr(Loop, "micro_step", micro_step)
    with pytest.raises(RunFailed, match=r"weights are not finite after step 8.*checkpoint-4"):
        go(recipe_file, "training.evaluate_every=never", "training.select=last", "training.save_every=4")
    assert [path.name for path in (tmp_path / "run").glob("checkpoint-*")] == ["checkpoint-4"]


def test_a_full_disk_keeps_the_last_good_checkpoint(recipe_file, tmp_path, monkeypatch):
    from wordorder.training.loop import saving

    original = saving.save_state

    def save_state(folder, name, state):
        if folder.name == ".saving-8" and name == "random":
            raise OSError(errno.ENOSPC, "No space left on device")
        original(folder, name, state)

    monkeypatch.setattr(saving, "save_state", save_state)
    with pytest.raises(RunFailed, match=r"No space left on device.*checkpoint-4"):
        go(recipe_file)
    folder = tmp_path / "run"
    assert [path.name for path in folder.glob("*checkpoint-*")] == ["checkpoint-4"]
    assert not list(folder.glob(".saving*"))
    monkeypatch.undo()
    assert go(recipe_file, resume=True).metrics["steps"] == 12


def test_a_full_disk_elsewhere_is_a_failed_run(recipe_file, monkeypatch):
    def append(folder, line):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(wordorder.training.loop.log, "append_curve", append)
    with pytest.raises(RunFailed, match="No space left on device"):
        go(recipe_file)


def send(number, step, monkeypatch):
    original = Loop.micro_step

    def micro_step(self, *args, **kwargs):
        if self.training.state.step + 1 == step:
            os.kill(os.getpid(), number)
        return original(self, *args, **kwargs)

    monkeypatch.setattr(Loop, "micro_step", micro_step)


def assert_stopped_and_resumed(recipe_file, tmp_path, monkeypatch, *overrides, number, step):
    expected = go(recipe_file, *overrides, output_dir=tmp_path / "whole")
    handlers = [signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)]
    with monkeypatch.context() as patch:
        send(number, step, patch)
        with pytest.raises(Stopped, match=rf"{number.name} after step {step}.*checkpoint-{step}"):
            go(recipe_file, *overrides)
    assert handlers == [signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)]
    result = go(recipe_file, *overrides, resume=True)
    for name in ("loss", "validation_loss"):
        assert [row.get(name) for row in result.curve] == [row.get(name) for row in expected.curve]
    assert result.metrics["test"] == expected.metrics["test"]


def test_a_signal_saves_and_stops_and_the_resumed_run_is_the_same(recipe_file, tmp_path, monkeypatch):
    assert_stopped_and_resumed(recipe_file, tmp_path, monkeypatch, number=signal.SIGTERM, step=6)


@pytest.mark.slow
def test_a_signal_in_the_last_step_of_an_epoch_waits_for_what_is_due_each_epoch(recipe_file, tmp_path, monkeypatch):
    overrides = ("data.limit_documents=8", "training.evaluate_every=epoch")
    curve = go(recipe_file, *overrides, output_dir=tmp_path / "look").curve
    epoch = next(row["step"] for row in curve if "validation_loss" in row)
    assert epoch < 12
    assert_stopped_and_resumed(recipe_file, tmp_path, monkeypatch, *overrides, number=signal.SIGINT, step=epoch)


@pytest.mark.slow
def test_looking_more_often_changes_nothing(recipe_file, tmp_path):
    often, seldom = (go(recipe_file, f"training.evaluate_every={n}", output_dir=tmp_path / str(n)) for n in (1, 12))
    assert [row["loss"] for row in often.curve] == [row["loss"] for row in seldom.curve]


def test_a_run_outside_the_main_thread_works(recipe_file):
    results = []
    thread = threading.Thread(target=lambda: results.append(go(recipe_file, "training.max_steps=2")))
    thread.start()
    thread.join()
    assert results[0].metrics["steps"] == 2


def test_a_trained_encoder_declares_the_cls_that_its_tokenizer_adds(recipe_file, tmp_path):
    result = run(read_recipe(recipe_file, ("training.max_steps=1",)), output_dir=tmp_path / "run", progress=False)
    assert json.loads((result.model_dir / "config.json").read_text())["cls_token_id"] == 2


def test_a_recipe_may_name_what_cls_gets(recipe_file, tmp_path):
    settings = ("model.encoding=tupe-r", "model.encoding_options.reset=reference-code", "training.max_steps=1")
    result = run(read_recipe(recipe_file, settings), output_dir=tmp_path / "run", progress=False)
    assert result.metrics["steps"] == 1
