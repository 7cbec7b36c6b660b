"""Save a training whole, without pickle, and restore it to the bit."""

from pathlib import Path
from typing import Any

import torch
from accelerate.utils import set_seed
from torch import Tensor

from wordorder.errors import BadInput, RunFailed
from wordorder.training.checkpoints.checkpoint import (
    checkpoints,
    damage,
    last_good,
    read_state,
    rotate,
    write_checkpoint,
)
from wordorder.training.checkpoints.state import STATE, ProcessState
from wordorder.training.checkpoints.state_files import (
    load_state,
    random_state,
    restore_random_state,
    save_state,
    taken_up,
)
from wordorder.training.checkpoints.weights import check_finite, gathered, is_sharded, load_weights, whole_weights
from wordorder.training.loop.carried_memory import CARRIED
from wordorder.training.loop.training import Training
from wordorder.training.recipe.settings import LAST


class Saving:
    """Writes, restores and removes the checkpoints of a training.

    A checkpoint holds safetensors and JSON only: weights, optimizers, random generators, memories, and where the
    training stands (`TrainState`). Of several processes, process 0 writes for all, and what it writes does not show how
    weights and optimizers were shared out among them. All processes call every method together. Checkpoints of
    `keep_steps` are never removed.
    """

    def __init__(self, training: Training, *, tokenizer: Any) -> None:
        self._training, self._tokenizer = training, tokenizer
        self._passed_over = set[Path]()
        """Damaged checkpoints after the one that the run was resumed from; they are not counted in its place."""

    def save(self) -> None:
        """Write the checkpoint of the step that is done, and remove older ones."""
        training, parts = self._training, self._training.parts
        training.meter.pause()
        training.watch.settle()
        step = training.state.step
        states = parts.processes.given_to_main(self._state_of_process())
        weights = self.gathered_weights()
        optimizers = gathered(parts.optimizers.state_dict(), keep=parts.processes.is_main)
        fault: str | None = None
        try:
            if parts.processes.is_main:
                named = dict(parts.model.named_parameters()) if weights is None else weights
                check_finite(named, training.folder, step=step)
                written = write_checkpoint(
                    training.folder, step, lambda folder: self._fill(folder, states, weights, optimizers)
                )
                self._passed_over.discard(written)
                self._rotate()
        except RunFailed as error:
            if parts.processes.count == 1:
                raise
            fault = str(error)
        parts.processes.raise_first(fault)  # nobody goes on before the checkpoint is there
        training.saved_step = step

    def _state_of_process(self) -> dict[str, Any]:
        training = self._training
        return {
            "random": random_state(),
            CARRIED: None if training.memories is None else training.memories.state_dict(),
            "counts": {
                "loss_sum": float(training.loss_sum),
                "logged_step": training.logged_step,
                "meter": training.meter.state(),
                "batches": training.digest.state(),
            },
        }

    def _fill(
        self, folder: Path, states: list[dict[str, Any]], weights: dict[str, Tensor] | None, optimizers: Any
    ) -> None:
        training, parts = self._training, self._training.parts
        self.save_for_use(folder, weights)
        save_state(folder, "optimizer", optimizers)
        if parts.accelerator.scaler is not None:
            save_state(folder, "scaler", parts.accelerator.scaler.state_dict())
        save_state(folder, "random", [state["random"] for state in states])
        for process, state in enumerate(states):
            if state[CARRIED] is not None:
                save_state(folder, f"{CARRIED}-{process}", state[CARRIED])
        counts = [ProcessState(**state["counts"]) for state in states]
        state = training.state.model_copy(update={"processes": counts})
        (folder / STATE).write_text(state.model_dump_json(indent=1), encoding="utf-8")

    def _best(self) -> Path | None:
        """Return the checkpoint of the best score, which may be gone, or None before there is one."""
        step = self._training.state.best_step
        return self._training.folder / f"checkpoint-{step}" if step else None

    def _rotate(self) -> None:
        training, settings = self._training, self._training.parts.settings
        always = {training.folder / f"checkpoint-{step}" for step in settings.keep_steps} | self._passed_over
        keep, step = settings.keep_checkpoints, training.state.step
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
            training.state.batch_size = parts.settings.batch_size
            return
        if training.memories is not None:
            processes = parts.processes
            training.memories.restore(start, process=processes.index, processes=processes.count, device=parts.device)
        self._restore_counts(start)
        # the best checkpoint may be lost: then the best is looked for anew
        best = self._best()
        if best is not None and damage(best) is not None:
            training.state.best_step = training.state.best_score = None
        if not is_sharded(parts.model) and not parts.accelerator.is_fsdp2:
            load_weights(parts.model, start)

    def _restore_counts(self, start: Path) -> None:
        training = self._training
        state = read_state(start)
        if state.batch_size != training.parts.settings.batch_size:
            raise BadInput(
                f"{start}: its steps read {state.batch_size} examples, and training.batch_size is "
                f"{training.parts.settings.batch_size}, other examples in other steps; set it to {state.batch_size}"
            )
        with taken_up(start, STATE.removesuffix(".json")):
            counts = self._own_counts(state.processes)
            training.meter.load_state(counts.meter)
            training.digest.load_state(counts.batches)
            # The average that was being taken when the checkpoint was written goes on.
            training.loss_sum = torch.tensor(counts.loss_sum, device=training.parts.device)
            training.logged_step = counts.logged_step
        training.state = state.model_copy(update={"processes": []})

    def _own_counts(self, everyones: list[ProcessState]) -> ProcessState:
        """Return the counts of this process; those of another number of processes are combined."""
        processes = self._training.parts.processes
        if len(everyones) == processes.count:
            return everyones[processes.index]
        first = everyones[0]
        tokens = sum(one.meter["tokens"] for one in everyones) if processes.is_main else 0
        mean = sum(one.loss_sum for one in everyones) / len(everyones)
        changed = {"loss_sum": mean, "meter": {**first.meter, "tokens": tokens}}
        return first.model_copy(update={**changed, "batches": None})  # the digests of other shares cannot go on

    def restore_optimizer(self, start: Path) -> None:
        """Restore the optimizers, and weights that are sharded."""
        parts = self._training.parts
        if is_sharded(parts.model):
            load_weights(parts.model, start)
        with taken_up(start, "optimizer"):
            parts.optimizers.load_state_dict(load_state(start, "optimizer"))
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
                set_seed((training.parts.settings.seed + training.state.step + processes.index) % 2**32)

    def load_best(self) -> None:
        """Take the weights of the best checkpoint, unless the recipe selects the last."""
        best = self._best()
        if self._training.parts.settings.select != LAST and best is not None:
            load_weights(self._training.parts.model, best)

    def restore_finished(self, checkpoint: Path) -> None:
        """Restore a run whose last step is done, without training: the best weights, or the last, and the clock."""
        training, parts = self._training, self._training.parts
        self._restore_counts(checkpoint)
        if not is_sharded(parts.model):
            parts.model.to(parts.device)
        if parts.processes.is_main:
            self._rotate()  # the run may have been killed before it came to that
        best = self._best()
        if parts.settings.select != LAST and best is not None and damage(best) is None:
            load_weights(parts.model, best)
        else:
            training.state.best_step = None
            load_weights(parts.model, checkpoint)
