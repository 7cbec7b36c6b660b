"""Save a training whole, without pickle, and restore it to the bit."""

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, cast

import torch
from accelerate.utils import set_seed
from torch import Tensor
from transformers import TrainerState

from wordorder.errors import BadInput, RunFailed
from wordorder.training.checkpoints.checkpoint import (
    STATE,
    checkpoints,
    damage,
    last_good,
    rotate,
    write_checkpoint,
)
from wordorder.training.checkpoints.state_files import (
    load_state,
    random_state,
    restore_random_state,
    save_state,
    taken_up,
)
from wordorder.training.checkpoints.weights import (
    check_finite,
    gathered,
    is_sharded,
    load_weights,
    shared_out,
    whole_weights,
)
from wordorder.training.loop.carried_memory import CARRIED
from wordorder.training.loop.training import Training

_AVERAGES = ("exp_avg", "exp_avg_sq")
"""Tensors in the state of AdamW that have the shape of their parameter."""


class Saving:
    """Writes, restores and removes the checkpoints of a training.

    A checkpoint holds safetensors and JSON only: weights, optimizer, learning rates, random generators, half-finished
    averages, what the meter has counted and the digest of the batches. Of several processes, process 0 writes for all,
    and what it writes does not show how weights and optimizer were shared out among them. All processes call every
    method together. Checkpoints of `keep_steps` are never removed.
    """

    def __init__(self, training: Training, *, tokenizer: Any, keep_steps: Collection[int]) -> None:
        self._training, self._tokenizer = training, tokenizer
        self.keep_steps = frozenset(keep_steps)
        self._passed_over = set[Path]()
        """Damaged checkpoints after the one that the run was resumed from; they are not counted in its place."""

    def save(self) -> None:
        training, parts = self._training, self._training.parts
        training.meter.pause()
        training.watch.settle()
        state = training.state
        states = parts.processes.given_to_main(self._state_of_process())
        weights = self.gathered_weights()
        optimizer = gathered(parts.optimizer.state_dict(), keep=parts.processes.is_main)
        best = self._best()
        if best is not None and (state.best_global_step == state.global_step or best.is_dir()):
            state.best_model_checkpoint = str(best)
        fault: str | None = None
        try:
            if parts.processes.is_main:
                named = dict(parts.model.named_parameters()) if weights is None else weights
                check_finite(named, training.folder, step=state.global_step)
                written = write_checkpoint(
                    training.folder, state.global_step, lambda folder: self._fill(folder, states, weights, optimizer)
                )
                self._passed_over.discard(written)
                self._rotate()
        except RunFailed as error:
            if parts.processes.count == 1:
                raise
            fault = str(error)
        parts.processes.raise_first(fault)  # nobody goes on before the checkpoint is there
        training.saved_step = state.global_step

    def _state_of_process(self) -> dict[str, Any]:
        training = self._training
        return {
            "random": random_state(),
            CARRIED: None if training.memories is None else training.memories.state_dict(),
            "training": {
                "loss_sum": float(training.loss_sum),
                "logged_step": training.logged_step,
                "meter": training.meter.state(),
                "batches": training.digest.state(),
            },
        }

    def _fill(
        self, folder: Path, states: list[dict[str, Any]], weights: dict[str, Tensor] | None, optimizer: Any
    ) -> None:
        training, parts = self._training, self._training.parts
        self.save_for_use(folder, weights)
        (folder / "training_args.json").write_text(parts.args.to_json_string(), encoding="utf-8")
        save_state(folder, "optimizer", optimizer)
        save_state(folder, "scheduler", parts.schedule.state_dict())
        if parts.accelerator.scaler is not None:
            save_state(folder, "scaler", parts.accelerator.scaler.state_dict())
        save_state(folder, "random", [state["random"] for state in states])
        for process, state in enumerate(states):
            if state[CARRIED] is not None:
                save_state(folder, f"{CARRIED}-{process}", state[CARRIED])
        first, *others = [state["training"] for state in states]
        save_state(folder, "training", {**first, "rows_of_a_step": training.rows_of_a_step, "others": others})
        training.state.save_to_json(str(folder / STATE))

    def _best(self) -> Path | None:
        """Return the checkpoint of the best score, which may be gone, or None before there is one."""
        step = self._training.state.best_global_step
        return self._training.folder / f"checkpoint-{step}" if step else None

    def _rotate(self) -> None:
        training = self._training
        always = {training.folder / f"checkpoint-{kept}" for kept in self.keep_steps} | self._passed_over
        keep, step = training.parts.args.save_total_limit, training.state.global_step
        try:
            rotate(training.folder, keep=keep, best=self._best(), always=always, step=step)
        except OSError as error:
            raise RunFailed(
                f"an older checkpoint could not be removed: {error}; {last_good(training.folder)}"
            ) from error

    def gathered_weights(self) -> dict[str, Tensor] | None:
        parts = self._training.parts
        return whole_weights(parts.model, keep=parts.processes.is_main) if is_sharded(parts.model) else None

    def save_for_use(self, folder: Path, weights: dict[str, Tensor] | None = None) -> None:
        """Save the model and its tokenizer alone, for `from_pretrained`; weights are those of `gathered_weights`."""
        parts = self._training.parts
        model: Any = parts.accelerator.unwrap_model(parts.model, keep_torch_compile=False)
        # in the names that the model has now, by which a checkpoint is read; transformers knows older ones of GPT-NeoX
        how: dict[str, Any] = {"save_original_format": False}
        model.save_pretrained(folder, **how, **({} if weights is None else {"state_dict": weights}))
        for path in folder.glob("*.safetensors"):
            path.chmod((folder / "config.json").stat().st_mode)  # safetensors lets nobody else read it
        if self._tokenizer is not None:
            self._tokenizer.save_pretrained(str(folder))

    def begin(self, start: Path | None) -> None:
        """Restore counts, log and memories, before the model is wrapped; weights too if whole.

        `start` is the newest whole checkpoint of the run folder, or None for a run that begins.
        """
        training, parts = self._training, self._training.parts
        after = int(start.name.rpartition("-")[2]) if start else 0
        self._passed_over = {path for step, path in checkpoints(training.folder) if step > after}
        if start is None:
            return
        if training.memories is not None:
            processes = parts.processes
            training.memories.restore(start, process=processes.index, processes=processes.count, device=parts.device)
        self._restore_counts(start)
        training.state = TrainerState.load_from_json(str(start / STATE))
        best = self._best()
        # The run folder may have been moved, or its best checkpoint lost: then the best is looked for anew. Whatever
        # folder the state names, it is a checkpoint of this run.
        found = best is not None and damage(best) is None
        training.state.best_model_checkpoint = str(best) if found else None
        if best is not None and not found:
            training.state.best_global_step = training.state.best_metric = None
        if not is_sharded(parts.model) and not parts.accelerator.is_fsdp2:
            load_weights(parts.model, start)

    def _restore_counts(self, start: Path) -> None:
        training = self._training
        with taken_up(start, "training"):
            saved = self._own_counts(start)
            training.meter.load_state(saved["meter"])
            training.digest.load_state(saved["batches"])
            # The average that was being taken when the checkpoint was written goes on.
            training.loss_sum = torch.tensor(float(saved["loss_sum"]), device=training.parts.device)
            training.logged_step = int(saved["logged_step"])

    def _own_counts(self, start: Path) -> dict[str, Any]:
        """Return the counts and averages of this process; those of another number of processes are combined."""
        processes, rows = self._training.parts.processes, self._training.rows_of_a_step
        first = load_state(start, "training")
        everyones: list[dict[str, Any]] = [first, *first.get("others", ())]
        former_rows = first["rows_of_a_step"]
        if former_rows != rows:
            raise BadInput(
                f"{start} was written by {len(everyones)} processes whose steps read {former_rows} examples; here "
                f"{processes.count} would read {rows}, other examples in other steps: resume with as many processes, "
                f"or set training.per_device_train_batch_size so that a step reads {former_rows}"
            )
        if len(everyones) == processes.count:
            return everyones[processes.index]
        tokens = sum(one["meter"]["tokens"] for one in everyones) if processes.is_main else 0
        return {
            **first,
            "loss_sum": sum(one["loss_sum"] for one in everyones) / len(everyones),
            "meter": {**first["meter"], "tokens": tokens},
            "batches": None,  # the digests of other shares cannot go on
        }

    def restore_optimizer(self, start: Path) -> None:
        parts = self._training.parts
        if is_sharded(parts.model):
            load_weights(parts.model, start)
        with taken_up(start, "optimizer"):
            load_optimizer_state(parts.optimizer, load_state(start, "optimizer"))
        with taken_up(start, "scheduler"):
            saved = load_state(start, "scheduler")
            _check_alike(saved, parts.schedule.state_dict())
            parts.schedule.load_state_dict(saved)
        if parts.accelerator.scaler is not None:
            with taken_up(start, "scaler"):
                parts.accelerator.scaler.load_state_dict(load_state(start, "scaler"))

    def restore_random(self, start: Path) -> None:
        """Restore the random generators of this process; seed them anew for another number of processes."""
        training, processes = self._training, self._training.parts.processes
        with taken_up(start, "random"):
            states = load_state(start, "random")
            if len(states) == processes.count:
                restore_random_state(states[processes.index])
            else:  # with another seed than at the beginning of the run
                set_seed(training.parts.args.seed + training.state.global_step, device_specific=True)

    def load_best(self) -> None:
        training = self._training
        best = training.state.best_model_checkpoint
        if training.parts.args.load_best_model_at_end and best is not None:
            load_weights(training.parts.model, Path(best))

    def restore_finished(self, checkpoint: Path) -> None:
        """Restore a run whose last step is done, without training: the best weights, or the last, and the clock."""
        training, parts = self._training, self._training.parts
        self._restore_counts(checkpoint)
        if not is_sharded(parts.model):
            parts.model.to(parts.device)
        training.state = TrainerState.load_from_json(str(checkpoint / STATE))
        if parts.processes.is_main:
            self._rotate()  # the run may have been killed before it came to that
        best = self._best()
        if parts.args.load_best_model_at_end and best is not None and damage(best) is None:
            training.state.best_model_checkpoint = str(best)
            load_weights(parts.model, best)
        else:
            training.state.best_global_step = None
            load_weights(parts.model, checkpoint)


def load_optimizer_state(optimizer: Any, saved: Any) -> None:
    """Load a whole state into an optimizer, also of sharded parameters; refuse that of another optimizer."""
    for group, own in zip(saved["param_groups"], optimizer.state_dict()["param_groups"], strict=True):
        _check_alike(group, own)
        lost = [name for name, value in own.items() if name not in group and not isinstance(value, bool | None)]
        if lost or group["params"] != own["params"]:
            raise ValueError(f"a group of parameters lacks {', '.join(lost) or 'parameters of this model'}")
    parameters = dict(enumerate(parameter for group in optimizer.param_groups for parameter in group["params"]))
    state: dict[int, dict[str, Any]] = {}
    for number, values in saved["state"].items():
        parameter, state[number] = parameters[number], {}
        for name, value in values.items():
            like = parameter.shape if name in _AVERAGES else ()
            if name in (*_AVERAGES, "step") and torch.as_tensor(value).shape != like:
                raise ValueError(f"{name} of parameter {number} has the shape {tuple(torch.as_tensor(value).shape)}")
            state[number][name] = shared_out(value, parameter) if isinstance(value, Tensor) else value
    optimizer.load_state_dict({**saved, "state": state})


def _check_alike(saved: Any, own: Mapping[Any, Any]) -> None:
    """Refuse values of other types than the run's own have; an integer counts as a number.

    What is None in either is not compared, nor is what one of them lacks.
    """
    if not isinstance(saved, dict):
        raise TypeError("it holds no table")
    for name, value in cast("dict[Any, Any]", saved).items():
        here = own.get(name)
        numbers = all(isinstance(one, int | float) and not isinstance(one, bool) for one in (value, here))
        if value is not None and here is not None and not numbers and type(value) is not type(here):
            raise TypeError(f"{name} is {value!r}, not {here!r}")
        if isinstance(value, list | tuple):
            _check_alike(dict(enumerate(cast("list[Any]", value))), dict(enumerate(here or ())))
