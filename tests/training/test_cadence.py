"""What is due after a step is what transformers' DefaultFlowCallback says, for runs of every length."""

import itertools

import pytest
from transformers import TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_callback import DefaultFlowCallback

from wordorder.training.loop.schedule import Cadence

STRATEGY = {"epoch": "epoch", "never": "no"}


def by_transformers(tmp_path, steps, per_epoch, every):
    """The steps at which each is due."""
    options = {}
    for name, (kind, value) in zip(("logging", "eval", "save"), every.items(), strict=True):
        del kind
        options[f"{name}_strategy"] = STRATEGY.get(value, "steps")
        options[f"{name}_steps"] = 1 if isinstance(value, str) else value
    args = TrainingArguments(str(tmp_path), report_to="none", use_cpu=True, **options)
    state, control, flow = TrainerState(max_steps=steps), TrainerControl(), DefaultFlowCallback()
    state.compute_steps(args, steps)
    if state.logging_steps > steps:
        state.logging_steps = max(1, steps // 10)
    due = {"log": [], "evaluate": [], "save": []}
    for step in range(1, steps + 1):
        state.global_step, state.epoch = step, step / per_epoch
        flow.on_step_end(args, state, control)
        if step % per_epoch == 0 or step == steps:
            flow.on_epoch_end(args, state, control)
        for name, steps_of in due.items():
            if getattr(control, f"should_{name}"):
                steps_of.append(step)
        control.should_log = control.should_evaluate = control.should_save = False
    return due


@pytest.mark.parametrize(("steps", "per_epoch"), [(1, 1), (7, 3), (20, 20), (23, 5), (60, 7), (550, 100)])
@pytest.mark.parametrize(
    ("log", "evaluate", "save"),
    [
        *itertools.product([50, 0.03, "epoch"], [0.1, 3, "epoch", "never"], [0.1, 6, "epoch", "never"]),
        ("never", 7, 0.5),
        (1, 0.999, 0.001),
    ],
)
def test_what_is_due_is_what_transformers_says(tmp_path, steps, per_epoch, log, evaluate, save):
    every = {"log": log, "evaluate": evaluate, "save": save}
    cadence = Cadence(steps=steps, per_epoch=per_epoch, **every)
    due = [cadence.due(step) for step in range(1, steps + 1)]
    found = {name: [step for step, one in enumerate(due, 1) if getattr(one, name)] for name in every}
    assert found == by_transformers(tmp_path, steps, per_epoch, every)


def test_steps_to_keep_are_saved_and_nothing_else_is_due():
    cadence = Cadence(steps=9, per_epoch=9, log="never", evaluate="never", save="never", keep=frozenset({4}))
    assert [step for step in range(1, 10) if cadence.due(step)] == [4]
