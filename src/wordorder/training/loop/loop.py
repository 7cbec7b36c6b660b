"""The training loop: epochs, steps, micro-batches, and what is due after each step."""

import math
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import set_seed
from torch import Tensor

from wordorder.errors import BadInput, Stopped
from wordorder.training.checkpoints.checkpoint import last_good
from wordorder.training.loop.accelerate import begin
from wordorder.training.loop.batches import FED, READ, StepSampler
from wordorder.training.loop.evaluation import Evaluation, GivenUp
from wordorder.training.loop.interruption import Interruption
from wordorder.training.loop.log import Log
from wordorder.training.loop.saving import Saving
from wordorder.training.loop.schedule import Cadence, Due, factor, warmup_of
from wordorder.training.loop.step_loss import StepLoss
from wordorder.training.loop.training import Training
from wordorder.training.recipe.settings import LAST
from wordorder.training.runs.folder import rewrite_curve


@dataclass(kw_only=True)
class Loop:
    """Trains: forward, backward, optimizer step, and what is due after a step."""

    training: Training
    batches: StepSampler
    loader: Any
    """Micro-batches of this process, each with its rows under `FED`."""
    loss: StepLoss
    evaluation: Evaluation
    validation: Any
    """The data set whose scores choose the best checkpoint."""
    higher_is_better: bool
    """Whether more of `training.select` is better."""
    saving: Saving
    log: Log
    interruption: Interruption
    """Holds the signal that was received; asked after each step and while validation is scored."""

    def train(self, start: Path | None) -> None:
        """Train to the last step, from a whole checkpoint or anew, and end with the best weights if the recipe says so.

        Raises:
            Stopped: a signal asked for it; the step that was just finished is saved.
            RunFailed: a loss or the weights are not finite (from `watch` and `saving`), or files cannot be written.
        """
        training, parts, settings = self.training, self.training.parts, self.training.parts.settings
        # the length of the run, and what is due when
        per_epoch = self.batches.steps
        steps = settings.max_steps or math.ceil(settings.epochs * per_epoch)
        if max(settings.keep_steps, default=0) > steps:
            raise BadInput(f"training.keep_steps: the run has {steps} steps, got {settings.keep_steps}")
        self._cadence = Cadence(
            steps=steps,
            per_epoch=per_epoch,
            log=settings.log_every,
            evaluate=settings.evaluate_every,
            save=settings.evaluate_every if settings.save_every is None else settings.save_every,
            keep=frozenset(settings.keep_steps),
        )
        self._warmup, self._decay = (warmup_of(share, steps) for share in (settings.warmup_steps, settings.decay_steps))
        # weights and counts first, then the optimizer, which holds the parameters of the model as accelerate wraps it
        training.active = True
        if start is None and parts.processes.count > 1:
            set_seed((settings.seed + parts.processes.index) % 2**32)  # or dropout would be the same in all processes
        self.saving.begin(start)
        training.state.steps = steps
        begin(parts)
        if start is not None:
            self.saving.restore_optimizer(start)
        self.evaluation.stopping = lambda: self.interruption.requested
        try:
            training.progress.start(training.state.step, steps)
            parts.wrapped.zero_grad()
            if start is not None and training.state.score_due:
                self._make_up_score(start)
            epoch, first = divmod(training.state.step, per_epoch)
            while training.state.step < steps:
                self._run_epoch(epoch, first=first, start=start)
                epoch, first, start = epoch + 1, 0, None
            self.saving.load_best()
        finally:
            self.evaluation.stopping = lambda: None
            training.active = False
            training.meter.close()

    def _run_epoch(self, epoch: int, *, first: int, start: Path | None) -> None:
        """Take the steps of an epoch from the first on; `start` is the checkpoint that the run goes on from."""
        training, state = self.training, self.training.state
        if start is not None and first == 0:
            self.saving.restore_random(start)
        if training.memories is not None:
            training.memories.begin_epoch(within=first > 0)
        self.batches.begin(epoch, first=first)
        training.meter.resume()
        torch.empty((), dtype=torch.int64).random_()  # one draw an epoch, as a DataLoader takes its base seed
        loader: Iterator[dict[str, Any]] = iter(self.loader)
        for step in range(first, min(self.batches.steps, state.steps - epoch * self.batches.steps)):
            micro_batches = list(islice(loader, self.batches.micro_batches(step)))
            if start is not None and step == first > 0:
                self.saving.restore_random(start)  # after the draw of this epoch
            examples = self.batches.examples(step)
            rate, grad_norm = self._step(micro_batches, examples)
            state.step += 1
            state.epoch = epoch + self.batches.share(step)
            self._after_step(self._cadence.due(state.step), rate=rate, grad_norm=grad_norm)

    def _step(self, micro_batches: list[dict[str, Any]], examples: int) -> tuple[float, Tensor]:
        """Take an optimizer step; return its learning rate and the norm of its gradient."""
        parts, settings = self.training.parts, self.training.parts.settings
        state = self.training.state
        # predicted tokens of the whole step, of all processes: each loss is its share of the step's mean, times the
        # processes, over which DDP averages, so that gradients only have to be added up
        items = self.loss.items(micro_batches)
        for number, batch in enumerate(micro_batches):
            # before the last, gradients are not yet exchanged between processes
            last = number == len(micro_batches) - 1
            with nullcontext() if last else parts.accelerator.no_sync(model=parts.wrapped):
                self.training.loss_sum += self.micro_step(batch, items, number=number, examples=examples)
        grad_norm = self.clip()
        lr_factor = factor(
            settings.lr_schedule, state.scheduled, steps=state.steps, warmup=self._warmup, decay=self._decay
        )
        rate = parts.optimizers.step(lr_factor)
        # with fp16, a step whose gradients overflow is skipped
        state.scheduled += not parts.accelerator.optimizer_step_was_skipped
        parts.wrapped.zero_grad()
        return rate, grad_norm

    def clip(self) -> Tensor:
        """Scale the gradient down to the largest norm that the recipe allows; return the norm that it had."""
        parts = self.training.parts
        most = parts.settings.max_grad_norm
        return parts.accelerator.clip_grad_norm_(parts.wrapped.parameters(), most if most > 0 else math.inf)

    def micro_step(self, batch: dict[str, Any], items: Tensor | None, *, number: int, examples: int) -> Tensor:
        """Add the gradients of a micro-batch; return its share of the step's loss."""
        training, parts = self.training, self.training.parts
        step = training.state.step + 1
        rows = batch.pop(FED)
        training.digest.take(step, rows)  # before anything changes the batch: here it is what the model is given
        training.meter.count(batch)
        parts.wrapped.train()
        inputs = {name: value.to(parts.device) if isinstance(value, Tensor) else value for name, value in batch.items()}
        # each micro-batch of a step has a memory of its own, left by the same rows of the step or segment before
        memory = None if training.memories is None else training.memories.of(number)
        if memory is not None:
            inputs = memory.put_in(inputs)
        learned = sum(len(row) > 0 for row in rows[READ[0]])  # a `Spare`, which only keeps processes in step, has none
        loss, output = self.loss(parts.wrapped, inputs, items=items, rows=learned, examples=examples)
        if memory is not None:
            memory.take(output)
        parts.accelerator.backward(loss)
        loss = loss.detach()
        training.watch.see(loss, step)
        return loss

    def _after_step(self, due: Due, *, rate: float, grad_norm: Tensor | None) -> None:
        """Log, score and save what is due, and stop if a signal asks for it."""
        training, state = self.training, self.training.state
        processes, step = training.parts.processes, state.step
        tokens = processes.count * training.meter.tokens_for_display()
        training.progress.update(step, training.watch.step_loss(), tokens)
        if processes.count > 1 and due:
            training.watch.settle()  # before anything relies on the loss; every process comes here, so all can be told
        stop = training.watch.agree(self.interruption.requested)
        if not (due or stop):
            return
        training.meter.pause()
        logged = len(state.log)
        if due.log:
            self.log.loss(None if grad_norm is None else grad_norm.item(), rate)
        # who has to stop has no time to score: the resumed run does it
        scores = self._evaluate() if due.evaluate and stop is None else None
        state.score_due = due.evaluate and scores is None
        # a better score is always saved, since the run may end with it
        if self._is_best(scores) or due.save:
            self.saving.save()
        if not state.score_due:
            self.log.write_curve(since=logged)
        if state.score_due and stop is None:
            stop = training.watch.agree(self.interruption.requested)
        if stop is not None:
            if training.saved_step != step:
                self.saving.save()
            raise Stopped(f"stopped by {stop.name} after step {step}; {last_good(training.folder)}; --resume goes on")
        training.meter.resume()

    def _make_up_score(self, start: Path) -> None:
        """Score the step of a checkpoint whose evaluation a signal broke off, and go on as if it had not."""
        state = self.training.state
        self.saving.restore_random(start)
        scores = self._evaluate()
        if scores is None:
            raise Stopped(f"stopped while validation was scored; {start} is as it was; --resume goes on")
        state.score_due = False
        if self._is_best(scores) or self._cadence.due(state.step).save:
            self.saving.save()
        if self.training.parts.processes.is_main:
            rewrite_curve(self.training.folder, state.log)  # the stopped run wrote the row of this step without a score

    def _evaluate(self) -> dict[str, float] | None:
        """Score validation and log it; None where a signal breaks it off."""
        training, state = self.training, self.training.state
        try:
            scores = self.evaluation.scores(self.validation)
        except GivenUp:
            return None
        self.log.add({f"eval_{name}": value for name, value in scores.items()})
        progress = f"step {state.step}/{state.steps}"
        training.progress.say(f"{progress}  validation {self.evaluation.in_short(scores)}")
        return scores

    def _is_best(self, scores: dict[str, float] | None) -> bool:
        settings, state = self.training.parts.settings, self.training.state
        if scores is None or settings.select == LAST:
            return False
        value, best = scores[settings.select], state.best_score
        if best is not None and (value <= best if self.higher_is_better else value >= best):
            return False
        state.best_score, state.best_step = value, state.step
        return True
