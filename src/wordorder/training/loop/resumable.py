"""transformers.Trainer whose checkpoints are whole or absent, hold no pickle, and are resumed from bit for bit."""

# transformers.Trainer is untyped for the most part, and so is whatever super() gives of it.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor
from transformers import Trainer, TrainerState

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
from wordorder.training.loop.batch_digest import FedBatches, of_all_processes
from wordorder.training.loop.meter import Meter
from wordorder.training.loop.processes import Processes

_Trainer: Any = Trainer  # most of its attributes have no types


class ResumableTrainer(_Trainer):
    """A Trainer that saves its whole state in every checkpoint, and restores it.

    A checkpoint holds safetensors and JSON only: weights, optimizer, schedule, random generators, half-finished
    averages, what the meter has counted and the digest of the batches. A new best model is always saved, also between
    two saves. Of several processes, process 0 writes for all, and what it writes does not show how weights and
    optimizer were shared out among them.

    Args:
        model: see transformers.Trainer.
        args: see transformers.Trainer.
        meter: paused while something is saved.
        keep_steps: checkpoints of these steps are never removed.
        fed: the digest of the batches; saved and restored here.
        **arguments: passed on.
    """

    def __init__(
        self,
        model: Any,
        args: Any,
        *,
        meter: Meter,
        keep_steps: Sequence[int] = (),
        fed: FedBatches | None = None,
        **arguments: Any,
    ) -> None:
        super().__init__(model, args, **arguments)
        self._processes = Processes(args.process_index, args.world_size)
        self._meter = meter
        self._fed = FedBatches() if fed is None else fed
        self._keep_steps = frozenset(keep_steps)
        self._folder = Path(args.output_dir)
        self._saved_step = -1
        self._resumed: dict[str, Any] | None = None
        self._passed_over = set[Path]()
        """Damaged checkpoints after the one that the run was resumed from; they are not counted in its place."""

    def settle(self) -> None:
        """Finish pending work before the state is saved; does nothing here."""

    def rows_of_a_step(self) -> int:
        """Return the number of examples that an optimizer step reads, in all processes together."""
        args = self.args
        return args.train_batch_size * args.gradient_accumulation_steps * args.world_size

    def carried_state(self) -> Any:
        """Return the state that this process carries from batch to batch, for `save_state`; None, and no file, here."""
        return None

    def data_state(self) -> Any:
        """Return the training data's position in this process, if it keeps one (streams do); else None, and no file."""
        state = getattr(self.train_dataset, "state_dict", None)
        return None if state is None else state()

    def train(self, resume_from_checkpoint: Any = None, **arguments: Any) -> Any:
        """Train the model; see transformers.Trainer.train.

        Args:
            resume_from_checkpoint: the newest whole checkpoint of the run folder, or None.
            **arguments: passed on.
        """
        after = int(resume_from_checkpoint.rpartition("-")[2]) if resume_from_checkpoint else 0
        self._passed_over = {path for step, path in checkpoints(self._folder) if step > after}
        if resume_from_checkpoint:
            self._resumed = self._take_up(Path(resume_from_checkpoint))
        elif self._processes.count > 1:
            from accelerate.utils import set_seed

            set_seed(self.args.seed, device_specific=True)  # or dropout would be the same in all processes
        try:
            return super().train(resume_from_checkpoint=resume_from_checkpoint, **arguments)
        finally:
            self._meter.close()

    def _take_up(self, checkpoint: Path) -> dict[str, Any]:
        """Restore counts and data position of this process, and return the saved counts and averages."""
        with taken_up(checkpoint, "training"):
            saved = own_counts(checkpoint, self._processes, rows_of_a_step=self.rows_of_a_step())
            self._meter.load_state(saved["meter"])
            self._fed.load_state(saved.get("batches"))
            saved = {**saved, "loss_sum": float(saved["loss_sum"]), "logged_step": int(saved["logged_step"])}
        with taken_up(checkpoint, f"data-{self._processes.index}"):
            load_place(self.train_dataset, checkpoint, self._processes)
        return saved

    def _run_epoch(self, *args: Any, **kwargs: Any) -> Any:
        if self._resumed is not None:
            # The average that was being taken when the checkpoint was written goes on.
            self._tr_loss = torch.tensor(self._resumed["loss_sum"], device=self.args.device)
            self._globalstep_last_logged = self._resumed["logged_step"]
            self._resumed = None
        return super()._run_epoch(*args, **kwargs)

    def restore_finished(self, checkpoint: Path) -> None:
        """Restore a run whose last step is done, without training: the best weights, or the last, and the clock.

        Args:
            checkpoint: that of the last step.
        """
        self._take_up(checkpoint)
        if not (self.place_model_on_device or is_sharded(self.model)):
            # transformers leaves that to training, which would share the weights out (FSDP2) on the way
            self._move_model_to_device(self.model, self.args.device)
        self.state = TrainerState.load_from_json(str(checkpoint / STATE))
        if self.args.should_save:
            self._rotate()  # the run may have been killed before it came to that
        best = self._folder / f"checkpoint-{self.state.best_global_step}"
        if self.args.load_best_model_at_end and is_whole(best):
            self.state.best_model_checkpoint = str(best)
            load_weights(self.model, best)
        else:
            self.state.best_global_step = None
            load_weights(self.model, checkpoint)

    @property
    def kept_step(self) -> int:
        """The step of the weights that the model has after training: the best one, or the last."""
        best = self.state.best_global_step if self.args.load_best_model_at_end else None
        return best or self.state.global_step

    @property
    def batches(self) -> dict[str, str] | None:
        """Digests of all batches that all processes trained on, by step, see `FedBatches.found`."""
        return of_all_processes(self._processes.everyones(self._fed.found()))

    def counted(self) -> dict[str, float]:
        """Return the counts of all processes together: seconds, tokens, and the largest peak_bytes."""
        own = self._meter.state()
        (tokens,) = self._processes.total(int(own["tokens"]))
        (peak,) = self._processes.greatest(int(own["peak_bytes"]))
        return {"seconds": own["seconds"], "tokens": tokens, "peak_bytes": peak}

    def gathered_weights(self) -> dict[str, Tensor] | None:
        """Return the whole weights in process 0 if the model is sharded, else None; called by all processes."""
        return whole_weights(self.model, keep=self._processes.is_main) if is_sharded(self.model) else None

    def save_for_use(self, folder: Path, weights: dict[str, Tensor] | None = None) -> None:
        """Save the model and its tokenizer alone, for `from_pretrained`.

        Args:
            folder: an existing folder.
            weights: from `gathered_weights`; None = those of the model.
        """
        model: Any = self.accelerator.unwrap_model(self.model, keep_torch_compile=False)
        model.save_pretrained(folder, **({} if weights is None else {"state_dict": weights}))
        for path in folder.glob("*.safetensors"):
            path.chmod((folder / "config.json").stat().st_mode)  # safetensors lets nobody else read it
        if self.processing_class is not None:
            self.processing_class.save_pretrained(str(folder))

    def _init_training_state(self, *args: Any, **kwargs: Any) -> Any:
        result = super()._init_training_state(*args, **kwargs)
        best = self.state.best_global_step
        folder = self._folder / f"checkpoint-{best}"
        found = bool(best) and is_whole(folder)
        # The run folder may have been moved, or its best checkpoint lost: then the best is looked for anew. Whatever
        # folder the state names, it is a checkpoint of this run.
        self.state.best_model_checkpoint = str(folder) if found else None
        if best and not found:
            self.state.best_global_step = self.state.best_metric = None
        return result

    def _determine_best_metric(self, metrics: dict[str, float], trial: Any) -> bool:
        best = super()._determine_best_metric(metrics, trial)
        if best and self.args.load_best_model_at_end:
            self.control.should_save = True  # transformers would lose a best model that falls between two saves
        return best

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        self._meter.pause()
        self.settle()
        step = self.state.global_step
        states = self._processes.given_to_main(self._state_of_process())
        weights = self.gathered_weights()
        optimizer = gathered(self.optimizer.state_dict(), keep=self._processes.is_main)
        best = self.state.best_global_step
        best_folder = self._folder / f"checkpoint-{best}"
        if best and (best == step or best_folder.is_dir()):
            self.state.best_model_checkpoint = str(best_folder)
        fault: str | None = None
        try:
            if self.args.should_save:
                named = dict(self.model.named_parameters()) if weights is None else weights
                check_finite(named, self._folder, step=step)
                write_checkpoint(self._folder, step, lambda folder: self._fill(folder, states, weights, optimizer))
                self._passed_over.discard(self._folder / f"checkpoint-{step}")
                self._rotate()
        except RunFailed as error:
            if self._processes.count == 1:
                raise
            fault = str(error)
        self._processes.raise_first(fault)  # nobody goes on before the checkpoint is there
        self._saved_step = step

    def _finalize_training(self, *args: Any, **kwargs: Any) -> Any:
        # Under a limit of 1 transformers would remove all checkpoints but the best: the last one, which a run that is
        # killed before its result is written goes on from, and those that are never to be removed.
        limit, self.args.save_total_limit = self.args.save_total_limit, None
        try:
            return super()._finalize_training(*args, **kwargs)
        finally:
            self.args.save_total_limit = limit

    def _rotate(self) -> None:
        step, best = self.state.global_step, self.state.best_global_step
        always = {self._folder / f"checkpoint-{kept}" for kept in self._keep_steps} | self._passed_over
        best_folder = self._folder / f"checkpoint-{best}" if best else None
        try:
            rotate(self._folder, keep=self.args.save_total_limit, best=best_folder, always=always, step=step)
        except OSError as error:
            raise RunFailed(f"an older checkpoint could not be removed: {error}; {last_good(self._folder)}") from error

    def _state_of_process(self) -> dict[str, Any]:
        """Return the part of the state that differs between processes."""
        return {
            "random": random_state(),
            "carried": self.carried_state(),
            "data": self.data_state(),
            "training": {
                "loss_sum": float(self._tr_loss),
                "logged_step": self._globalstep_last_logged,
                "meter": self._meter.state(),
                "batches": self._fed.state(),
            },
        }

    def _fill(
        self, folder: Path, states: list[dict[str, Any]], weights: dict[str, Tensor] | None, optimizer: Any
    ) -> None:
        self.save_for_use(folder, weights)
        self._save_arguments(folder)
        save_state(folder, "optimizer", optimizer)
        save_state(folder, "scheduler", self.lr_scheduler.state_dict())
        scaler = getattr(self.accelerator, "scaler", None)
        if scaler is not None:
            save_state(folder, "scaler", scaler.state_dict())
        save_state(folder, "random", [state["random"] for state in states])
        for process, state in enumerate(states):
            for name in ("carried", "data"):
                if state[name] is not None:
                    save_state(folder, f"{name}-{process}", state[name])
        first, *others = [state["training"] for state in states]
        training = {**first, "rows_of_a_step": self.rows_of_a_step(), "others": others}
        save_state(folder, "training", training)
        self.state.save_to_json(str(folder / STATE))

    def _save(self, output_dir: str | None = None, state_dict: dict[str, Any] | None = None) -> None:
        """Save weights and tokenizer as `from_pretrained` reads them, and the arguments as JSON instead of a pickle."""
        folder = Path(output_dir or self._folder)
        self.save_for_use(folder, state_dict)
        self._save_arguments(folder)

    def _save_arguments(self, folder: Path) -> None:
        (folder / "training_args.json").write_text(self.args.to_json_string(), encoding="utf-8")

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        load_weights(self.model if model is None else model, Path(resume_from_checkpoint))

    def _load_best_model(self) -> None:
        load_weights(self.model, Path(cast(str, self.state.best_model_checkpoint)))

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        if checkpoint is None:
            return
        with taken_up(Path(checkpoint), "optimizer"):
            saved = load_state(Path(checkpoint), "optimizer")
            check_optimizer_state(self.optimizer, saved)
            self.optimizer.load_state_dict(optimizer_state_for(self.optimizer, saved))
        with taken_up(Path(checkpoint), "scheduler"):
            saved = load_state(Path(checkpoint), "scheduler")
            check_alike(saved, self.lr_scheduler.state_dict())
            self.lr_scheduler.load_state_dict(saved)

    def _load_scaler(self, checkpoint: str | None) -> None:
        scaler = getattr(self.accelerator, "scaler", None)
        if checkpoint is not None and scaler is not None:
            with taken_up(Path(checkpoint), "scaler"):
                scaler.load_state_dict(load_state(Path(checkpoint), "scaler"))

    def _load_rng_state(self, checkpoint: str | None) -> None:
        if checkpoint is not None:
            with taken_up(Path(checkpoint), "random"):
                load_random_state(Path(checkpoint), self._processes, seed=self.args.seed + self.state.global_step)
