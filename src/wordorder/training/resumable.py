"""transformers.Trainer whose checkpoints are whole or absent, hold no pickle, and are resumed from bit for bit."""

# transformers.Trainer is untyped for the most part, and so is whatever super() gives of it.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import torch
from transformers import Trainer, TrainerState

from wordorder.durable import is_whole
from wordorder.errors import RunFailed
from wordorder.training.checkpoint import STATE, last_good, rotate, write_checkpoint
from wordorder.training.fed import FedBatches
from wordorder.training.meter import Meter
from wordorder.training.state_files import load_state, random_state, restore_random_state, save_state
from wordorder.training.weights import load_weights

_Trainer: Any = Trainer  # most of its attributes have no types


class ResumableTrainer(_Trainer):
    """A Trainer that saves everything and restores everything.

    A checkpoint holds safetensors and JSON only: weights, optimizer, schedule, random generators, half-finished
    averages, what the meter has counted and the digest of the batches. A new best model is always saved, also between
    two saves.

    Args:
        model: see transformers.Trainer.
        args: see there.
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
        self._meter = meter
        self._fed = FedBatches() if fed is None else fed
        self._keep_steps = frozenset(keep_steps)
        self._folder = Path(args.output_dir)
        self._saved_step = -1
        self._resumed: dict[str, Any] | None = None

    def settle(self) -> None:
        """Do what must be done before the state is worth saving; nothing here."""

    def carried_state(self) -> Any:
        """What this process carries from batch to batch, as `save_state` takes it; None, and no file, here."""
        return None

    def train(self, resume_from_checkpoint: Any = None, **arguments: Any) -> Any:
        """Train; see transformers.Trainer.train.

        Args:
            resume_from_checkpoint: a checkpoint of this class, checked by `is_whole` already, or None.
            **arguments: passed on.
        """
        self._resumed = load_state(Path(resume_from_checkpoint), "training") if resume_from_checkpoint else None
        if self._resumed is not None:
            self._meter.load_state(self._resumed["meter"])
            self._fed.load_state(self._resumed.get("batches"))
        try:
            return super().train(resume_from_checkpoint=resume_from_checkpoint, **arguments)
        finally:
            self._meter.close()

    def _run_epoch(self, *args: Any, **kwargs: Any) -> Any:
        if self._resumed is not None:
            # The average that was being taken when the checkpoint was written goes on.
            self._tr_loss = torch.tensor(self._resumed["loss_sum"], device=self.args.device)
            self._globalstep_last_logged = self._resumed["logged_step"]
            self._resumed = None
        return super()._run_epoch(*args, **kwargs)

    def restore_finished(self, checkpoint: Path) -> None:
        """Take up a run whose last step is done, without training: the best weights, or the last, and the clock.

        Args:
            checkpoint: that of the last step.
        """
        saved = load_state(checkpoint, "training")
        self._meter.load_state(saved["meter"])
        self._fed.load_state(saved.get("batches"))
        self.state = TrainerState.load_from_json(str(checkpoint / STATE))
        best = self._folder / f"checkpoint-{self.state.best_global_step}"
        if self.args.load_best_model_at_end and is_whole(best):
            self.state.best_model_checkpoint = str(best)
            load_weights(self.model, best)
        else:
            self.state.best_global_step = None
            load_weights(self.model, checkpoint)

    @property
    def kept_step(self) -> int:
        """The step whose weights the model has after training: the best one, or the last."""
        best = self.state.best_global_step if self.args.load_best_model_at_end else None
        return best or self.state.global_step

    @property
    def batches(self) -> dict[str, str] | None:
        """Digests of all batches that were trained on, by step, see `FedBatches.found`."""
        return self._fed.found()

    def save_for_use(self, folder: Path) -> None:
        """Save the model and its tokenizer alone, for `from_pretrained`.

        Args:
            folder: an existing folder.
        """
        model: Any = self.accelerator.unwrap_model(self.model, keep_torch_compile=False)
        model.save_pretrained(folder)
        for path in folder.glob("*.safetensors"):
            path.chmod((folder / "config.json").stat().st_mode)  # safetensors lets nobody else read it
        if self.processing_class is not None:
            self.processing_class.save_pretrained(str(folder))

    def _init_training_state(self, *args: Any, **kwargs: Any) -> Any:
        result = super()._init_training_state(*args, **kwargs)
        best = self.state.best_global_step
        if best:
            folder = self._folder / f"checkpoint-{best}"
            found = is_whole(folder)
            # The run folder may have been moved, or its best checkpoint lost: then the best is looked for anew.
            self.state.best_model_checkpoint = str(folder) if found else None
            if not found:
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
        states = self._states_of_processes()
        if self.args.should_save:
            self._check_weights(step)
            best = self.state.best_global_step
            best_folder = self._folder / f"checkpoint-{best}"
            if best and (best == step or best_folder.is_dir()):
                self.state.best_model_checkpoint = str(best_folder)
            write_checkpoint(self._folder, step, lambda folder: self._fill(folder, states))
            kept = [self._folder / f"checkpoint-{step}" for step in self._keep_steps]
            rotate(self._folder, keep=self.args.save_total_limit, best=best_folder if best else None, always=kept)
        self.accelerator.wait_for_everyone()
        self._saved_step = step

    def _states_of_processes(self) -> list[dict[str, Any]]:
        own = {"random": random_state(), "carried": self.carried_state()}
        if self.args.world_size == 1:
            return [own]
        from accelerate.utils import gather_object

        return cast(list[dict[str, Any]], gather_object([own]))

    def _check_weights(self, step: int) -> None:
        """A finite loss can still make weights that are not; they must not replace the last good checkpoint."""
        with torch.no_grad():
            bad = [name for name, weight in self.model.named_parameters() if not bool(torch.isfinite(weight).all())]
        if bad:
            raise RunFailed(
                f"weights are not finite after step {step} ({', '.join(bad[:3])}); {last_good(self._folder)}"
            )

    def _fill(self, folder: Path, states: list[dict[str, Any]]) -> None:
        self._save(str(folder))
        save_state(folder, "optimizer", self.optimizer.state_dict())
        save_state(folder, "scheduler", self.lr_scheduler.state_dict())
        scaler = getattr(self.accelerator, "scaler", None)
        if scaler is not None:
            save_state(folder, "scaler", scaler.state_dict())
        save_state(folder, "random", [state["random"] for state in states])
        for process, state in enumerate(states):
            if state["carried"] is not None:
                save_state(folder, f"carried-{process}", state["carried"])
        training = {
            "loss_sum": float(self._tr_loss),
            "logged_step": self._globalstep_last_logged,
            "meter": self._meter.state(),
            "batches": self._fed.state(),
        }
        save_state(folder, "training", training)
        self.state.save_to_json(str(folder / STATE))

    def _save(self, output_dir: str | None = None, state_dict: dict[str, Any] | None = None) -> None:
        """Weights and tokenizer as `from_pretrained` reads them, and the arguments as JSON instead of a pickle."""
        folder = Path(output_dir or self._folder)
        self.save_for_use(folder)
        (folder / "training_args.json").write_text(self.args.to_json_string(), encoding="utf-8")

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        load_weights(self.model if model is None else model, Path(resume_from_checkpoint))

    def _load_best_model(self) -> None:
        load_weights(self.model, Path(cast(str, self.state.best_model_checkpoint)))

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        if checkpoint is not None:
            self.optimizer.load_state_dict(load_state(Path(checkpoint), "optimizer"))
            self.lr_scheduler.load_state_dict(load_state(Path(checkpoint), "scheduler"))

    def _load_scaler(self, checkpoint: str | None) -> None:
        scaler = getattr(self.accelerator, "scaler", None)
        if checkpoint is not None and scaler is not None:
            scaler.load_state_dict(load_state(Path(checkpoint), "scaler"))

    def _load_rng_state(self, checkpoint: str | None) -> None:
        if checkpoint is not None:
            states = load_state(Path(checkpoint), "random")
            if self.args.process_index < len(states):
                restore_random_state(states[self.args.process_index])
