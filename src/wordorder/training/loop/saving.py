"""Save a training whole, without pickle, and restore it to the bit."""

from collections.abc import Collection
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import TrainerState

from wordorder.durable import is_whole
from wordorder.errors import RunFailed
from wordorder.training.checkpoints.checkpoint import STATE, checkpoints, last_good, rotate, write_checkpoint
from wordorder.training.checkpoints.own_share import load_place, load_random_state, own_counts
from wordorder.training.checkpoints.sharded import (
    check_optimizer_state,
    gathered,
    is_sharded,
    optimizer_state_for,
    whole_weights,
)
from wordorder.training.checkpoints.state_files import check_alike, load_state, random_state, save_state, taken_up
from wordorder.training.checkpoints.weights import check_finite, load_weights
from wordorder.training.loop.carried_memory import CARRIED
from wordorder.training.loop.training import Training


class Saving:
    """Writes, restores and removes the checkpoints of a training.

    A checkpoint holds safetensors and JSON only: weights, optimizer, learning rates, random generators, half-finished
    averages, what the meter has counted and the digest of the batches. Of several processes, process 0 writes for all,
    and what it writes does not show how weights and optimizer were shared out among them. All processes call every
    method together.

    Args:
        training: what is saved and restored.
        tokenizer: saved beside every model.
        examples: of training; a stream among them keeps its position.
        keep_steps: checkpoints of these steps are never removed.
    """

    def __init__(self, training: Training, *, tokenizer: Any, examples: Any, keep_steps: Collection[int]) -> None:
        self._training, self._tokenizer, self._examples = training, tokenizer, examples
        self.keep_steps = frozenset(keep_steps)
        self._passed_over = set[Path]()
        """Damaged checkpoints after the one that the run was resumed from; they are not counted in its place."""

    def save(self) -> None:
        """Write the checkpoint of the step that is done, and remove those that are no longer kept.

        Raises:
            RunFailed: weights are not finite, or files cannot be written; older checkpoints are untouched.
        """
        training, parts = self._training, self._training.parts
        training.meter.pause()
        training.watch.settle()
        state = training.state
        states = parts.processes.given_to_main(self._state_of_process())
        weights = self.gathered_weights()
        optimizer = gathered(parts.optimizer.state_dict(), keep=parts.processes.is_main)
        best_folder = training.folder / f"checkpoint-{state.best_global_step}"
        if state.best_global_step and (state.best_global_step == state.global_step or best_folder.is_dir()):
            state.best_model_checkpoint = str(best_folder)
        fault: str | None = None
        try:
            if parts.processes.is_main:
                named = dict(parts.model.named_parameters()) if weights is None else weights
                check_finite(named, training.folder, step=state.global_step)
                write_checkpoint(
                    training.folder, state.global_step, lambda folder: self._fill(folder, states, weights, optimizer)
                )
                self._passed_over.discard(training.folder / f"checkpoint-{state.global_step}")
                self._rotate()
        except RunFailed as error:
            if parts.processes.count == 1:
                raise
            fault = str(error)
        parts.processes.raise_first(fault)  # nobody goes on before the checkpoint is there
        training.saved_step = state.global_step

    def _state_of_process(self) -> dict[str, Any]:
        """Return the part of the state that differs between processes."""
        training = self._training
        place = getattr(self._examples, "state_dict", None)
        return {
            "random": random_state(),
            CARRIED: None if training.memories is None else training.memories.state_dict(),
            "data": None if place is None else place(),
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
            for name in (CARRIED, "data"):
                if state[name] is not None:
                    save_state(folder, f"{name}-{process}", state[name])
        first, *others = [state["training"] for state in states]
        save_state(folder, "training", {**first, "rows_of_a_step": training.rows_of_a_step, "others": others})
        training.state.save_to_json(str(folder / STATE))

    def _rotate(self) -> None:
        training, state = self._training, self._training.state
        always = {training.folder / f"checkpoint-{kept}" for kept in self.keep_steps} | self._passed_over
        best = training.folder / f"checkpoint-{state.best_global_step}" if state.best_global_step else None
        try:
            keep = training.parts.args.save_total_limit
            rotate(training.folder, keep=keep, best=best, always=always, step=state.global_step)
        except OSError as error:
            raise RunFailed(
                f"an older checkpoint could not be removed: {error}; {last_good(training.folder)}"
            ) from error

    def gathered_weights(self) -> dict[str, Tensor] | None:
        """Return the whole weights in process 0 if the model is sharded, else None."""
        parts = self._training.parts
        return whole_weights(parts.model, keep=parts.processes.is_main) if is_sharded(parts.model) else None

    def save_for_use(self, folder: Path, weights: dict[str, Tensor] | None = None) -> None:
        """Save the model and its tokenizer alone, for `from_pretrained`.

        Args:
            folder: an existing folder.
            weights: from `gathered_weights`; None = those of the model.
        """
        parts = self._training.parts
        model: Any = parts.accelerator.unwrap_model(parts.model, keep_torch_compile=False)
        model.save_pretrained(folder, **({} if weights is None else {"state_dict": weights}))
        for path in folder.glob("*.safetensors"):
            path.chmod((folder / "config.json").stat().st_mode)  # safetensors lets nobody else read it
        if self._tokenizer is not None:
            self._tokenizer.save_pretrained(str(folder))

    def begin(self, start: Path | None) -> None:
        """Restore counts, log, memories and the data's position, before the model is wrapped; weights too if whole.

        Args:
            start: the newest whole checkpoint of the run folder, or None for a run that begins.
        """
        training, parts = self._training, self._training.parts
        after = int(start.name.rpartition("-")[2]) if start else 0
        self._passed_over = {path for step, path in checkpoints(training.folder) if step > after}
        if start is None:
            return
        if training.memories is not None:
            processes = parts.processes
            training.memories.restore(start, process=processes.index, processes=processes.count, device=parts.device)
        self._counts(start)
        training.state = TrainerState.load_from_json(str(start / STATE))
        training.tell_process()
        best = training.folder / f"checkpoint-{training.state.best_global_step}"
        # The run folder may have been moved, or its best checkpoint lost: then the best is looked for anew. Whatever
        # folder the state names, it is a checkpoint of this run.
        found = bool(training.state.best_global_step) and is_whole(best)
        training.state.best_model_checkpoint = str(best) if found else None
        if training.state.best_global_step and not found:
            training.state.best_global_step = training.state.best_metric = None
        if not is_sharded(parts.model) and not parts.accelerator.is_fsdp2:
            load_weights(parts.model, start)

    def _counts(self, start: Path) -> None:
        training, processes = self._training, self._training.parts.processes
        with taken_up(start, "training"):
            saved = own_counts(start, processes, rows_of_a_step=training.rows_of_a_step)
            training.meter.load_state(saved["meter"])
            training.digest.load_state(saved.get("batches"))
            # The average that was being taken when the checkpoint was written goes on.
            training.loss_sum = torch.tensor(float(saved["loss_sum"]), device=training.parts.device)
            training.logged_step = int(saved["logged_step"])
        with taken_up(start, f"data-{processes.index}"):
            load_place(self._examples, start, processes)

    def restore_optimizer(self, start: Path) -> None:
        """Restore optimizer, learning rates and the scale of fp16, and the weights of a sharded model.

        Args:
            start: see `begin`.
        """
        parts = self._training.parts
        if is_sharded(parts.model):
            load_weights(parts.model, start)
        with taken_up(start, "optimizer"):
            saved = load_state(start, "optimizer")
            check_optimizer_state(parts.optimizer, saved)
            parts.optimizer.load_state_dict(optimizer_state_for(parts.optimizer, saved))
        with taken_up(start, "scheduler"):
            saved = load_state(start, "scheduler")
            check_alike(saved, parts.schedule.state_dict())
            parts.schedule.load_state_dict(saved)
        if parts.accelerator.scaler is not None:
            with taken_up(start, "scaler"):
                parts.accelerator.scaler.load_state_dict(load_state(start, "scaler"))

    def restore_random(self, start: Path) -> None:
        """Restore the random generators of this process.

        Args:
            start: see `begin`.
        """
        training = self._training
        with taken_up(start, "random"):
            seed = training.parts.args.seed + training.state.global_step
            load_random_state(start, training.parts.processes, seed=seed)

    def load_best(self) -> None:
        """Load the weights of the best checkpoint, if the recipe wants them and there is one."""
        training = self._training
        best = training.state.best_model_checkpoint
        if training.parts.args.load_best_model_at_end and best is not None:
            load_weights(training.parts.model, Path(best))

    def restore_finished(self, checkpoint: Path) -> None:
        """Restore a run whose last step is done, without training: the best weights, or the last, and the clock.

        Args:
            checkpoint: that of the last step.
        """
        training, parts = self._training, self._training.parts
        self._counts(checkpoint)
        if not is_sharded(parts.model):
            parts.model.to(parts.device)
        training.state = TrainerState.load_from_json(str(checkpoint / STATE))
        if parts.processes.is_main:
            self._rotate()  # the run may have been killed before it came to that
        best = training.folder / f"checkpoint-{training.state.best_global_step}"
        if parts.args.load_best_model_at_end and is_whole(best):
            training.state.best_model_checkpoint = str(best)
            load_weights(parts.model, best)
        else:
            training.state.best_global_step = None
            load_weights(parts.model, checkpoint)
