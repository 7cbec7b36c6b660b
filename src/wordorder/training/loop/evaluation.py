"""Exact scores of a model: sums over a data set by all processes together, divided once."""

import math
import signal
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, TypeVar, cast

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader

from wordorder.data import RunningText
from wordorder.errors import RunFailed
from wordorder.tasks.beam_search import Search, Translator, translate_examples
from wordorder.tasks.scores import UNITS, NextTokenTally, Tally, TranslationTally, UnitSums, bleu_signature, score
from wordorder.training.checkpoints.checkpoint import last_good
from wordorder.training.checkpoints.weights import is_sharded
from wordorder.training.loop.carried_memory import score_running_text
from wordorder.training.loop.training import Training

_Batch = TypeVar("_Batch")


class GivenUp(Exception):
    """Raised where an evaluation is broken off, since the run is asked to stop."""


class Evaluation:
    """Scores a data set: nothing is padded or repeated to make the last batch whole.

    So scores depend neither on the size of a batch nor on the number of processes.
    """

    stopping: Callable[[], signal.Signals | None] = staticmethod(lambda: None)
    """Asked after each batch for the signal that asks the run to stop, if there is one; the loop sets it."""

    def __init__(
        self,
        training: Training,
        *,
        collate: Callable[[Sequence[Any]], Any],
        make_tally: Callable[[torch.device, Any], Tally],
        headline: str,
    ) -> None:
        self.training, self._parts = training, training.parts
        self._collate, self._make_tally, self._headline = collate, make_tally, headline

    def scores(self, dataset: Any) -> dict[str, float]:
        return self.scores_and_units(dataset, units=False)[0]

    def scores_and_units(self, dataset: Any, *, units: bool = True) -> tuple[dict[str, float], UnitSums | None]:
        """Return the scores of a data set and the sums of its units, in their order; None if it does not tell them.

        Raises:
            GivenUp: the run is asked to stop; several processes agree on it.
        """
        training, parts = self.training, self._parts
        training.watch.settle()
        if parts.processes.count > 1:
            training.watch.agree(None)
        # DDP's wrapping would exchange buffers before each batch, of which a process may have fewer than another
        model = parts.wrapped if training.active and parts.processes.count == 1 else parts.model
        was_training = model.training
        model.eval()
        tally: Tally | None = None
        with parts.accelerator.autocast(), suppress(GivenUp):
            tally = self.tally(model, dataset, units=units and hasattr(dataset, "unit_documents"))
        model.train(was_training)
        # one process may have been done when another was told to stop
        if (parts.processes.count > 1 and training.watch.agree(self.stopping()) is not None) or tally is None:
            raise GivenUp
        if parts.processes.count > 1:
            tally.reduce(lambda tensor: cast(Tensor, parts.accelerator.reduce(tensor, "sum")), self._join)
        scores = tally.scores()
        if not math.isfinite(scores["loss"]):
            when = f"after step {training.state.step}"
            raise RunFailed(f"the validation loss is {scores['loss']} {when}; {last_good(training.folder)}")
        return scores, tally.units

    def tally(self, model: Any, dataset: Any, *, units: bool = False) -> Tally:
        tally = self._new_tally(dataset, units=units)
        units, batches = units or tally.needs_units, self.batches(dataset)
        with self._in_step(model, len(batches), dataset):
            scored = self._with_units(batches) if units else batches
            return score(model, self._until_stopped(scored), tally, device=self._parts.device)

    def _until_stopped(self, batches: Iterable[_Batch]) -> Iterator[_Batch]:
        """Yield the batches, but for those after a signal; shards are scored to the end, all processes together."""
        sharded = is_sharded(self._parts.model)
        for batch in batches:
            if not sharded and self.stopping() is not None:
                raise GivenUp
            yield batch

    def _new_tally(self, dataset: Any, *, units: bool) -> Tally:
        tally = self._make_tally(self._parts.device, dataset)
        if units:
            tally.keep_units(len(dataset.unit_documents))
        return tally

    def _with_units(self, batches: "DataLoader[dict[str, Tensor]]") -> Iterator[dict[str, Tensor]]:
        loader: Any = batches
        dataset, share, first = loader.dataset, cast(range, loader.sampler), 0
        for batch in batches:
            rows, width = batch["input_ids"].shape
            index_B = np.array(share[first : first + rows], np.int64)
            first += rows
            yield {**batch, UNITS: torch.as_tensor(dataset.units_of(index_B, width))}

    def in_short(self, scores: Mapping[str, float]) -> str:
        headline = self._headline if self._headline in scores else "accuracy"
        return "  ".join(f"{name} {scores[name]:.4f}" for name in dict.fromkeys(("loss", headline)))

    @contextmanager
    def _in_step(self, model: Any, batches: int, examples: Any) -> Generator[None]:
        """Run a sharded model as often as the process that has most batches; do nothing for other models.

        Its forward pass gathers parameters from all processes: one with a batch less would leave the others waiting.
        """
        if not is_sharded(self._parts.model):
            yield
            return
        (most,) = self._parts.processes.greatest(batches)  # before any has begun: each pass waits for all processes
        yield
        ids = torch.as_tensor(examples[0]["input_ids"])[None].to(self._parts.device)
        with torch.no_grad():
            for _ in range(most - batches):
                model(input_ids=ids)

    def _join(self, rows: Tensor) -> Tensor:
        accelerator = self._parts.accelerator
        padded = accelerator.pad_across_processes(rows, dim=0, pad_index=cast(int, math.nan))
        return cast(Tensor, accelerator.gather(padded))

    def share(self, dataset: Any) -> range:
        """Return the numbers of this process's examples: every n-th, so that nothing is counted twice."""
        processes = self._parts.processes
        return range(processes.index, len(dataset), processes.count)

    def batches(
        self, dataset: Any, *, share: range | None = None, batch_size: int | None = None
    ) -> "DataLoader[dict[str, Tensor]]":
        return DataLoader(
            dataset,
            batch_size=batch_size or self._parts.eval_batch_size,
            sampler=cast(Any, self.share(dataset) if share is None else share),
            collate_fn=self._collate,
            num_workers=self._parts.settings.workers,
            generator=torch.Generator(),  # keeps evaluation from drawing on the global one
        )


class RunningTextEvaluation(Evaluation):
    """Scores running text: memories of its own go through the lanes, and those of training are left alone.

    A model without a memory reads each window by itself; windows advance by `stride` tokens, or do not overlap.
    """

    def __init__(self, training: Training, *, segments: int, stride: int | None, **options: Any) -> None:
        super().__init__(training, **options)
        self._segments, self._stride = segments, stride
        assert training.memories is not None
        self._carries = training.memories.carries

    def tally(self, model: Any, dataset: RunningText, *, units: bool = False) -> Tally:
        tally = cast(NextTokenTally, self._new_tally(dataset, units=units))
        streams = list(self._streams(dataset))
        with self._in_step(model, sum(map(len, streams)), dataset.windows()):
            for batches in map(self._with_units, streams) if units else streams:
                stoppable = self._until_stopped(batches)
                score_running_text(model, stoppable, tally, device=self._parts.device, carries=self._carries)
        return tally

    def _streams(self, text: RunningText) -> "Iterator[DataLoader[dict[str, Tensor]]]":
        if not self._carries:
            yield self.batches(text.windows(self._stride))
            return
        text = text.in_segments(text.length // self._segments)
        share = slice(self._parts.processes.index, None, self._parts.processes.count)
        for lanes in text.scoring_lanes(share, most=self._parts.eval_batch_size):
            yield self.batches(lanes, share=range(len(lanes)), batch_size=lanes.rows)


class TranslationEvaluation(Evaluation):
    """Scores translation: besides the losses, the translations that the model writes may be scored.

    With `always` they are in every evaluation; else in that of the `reported` data set once training is over.
    """

    def __init__(
        self,
        training: Training,
        *,
        tokenizer: Any,
        search: Search,
        always: bool,
        reported: Any,
        bleu_tokenizer: str,
        **options: Any,
    ) -> None:
        self.signature = bleu_signature(bleu_tokenizer)  # first: without sacrebleu nothing must be trained
        super().__init__(training, **options)
        self._tokenizer, self.search, self._always, self._reported = tokenizer, search, always, reported

    def tally(self, model: Any, dataset: Any, *, units: bool = False) -> Tally:
        tally = cast(TranslationTally, super().tally(model, dataset, units=units))
        if not (self._always or (dataset is self._reported and not self.training.active)):
            return tally
        parts = self._parts
        # without what compiles or distributes it: generation calls the model with shapes that change at every token
        plain: Any = parts.accelerator.unwrap_model(parts.model, keep_torch_compile=False)
        share = self.share(dataset)
        batches = translate_examples(
            Translator(plain, self._tokenizer, self.search),
            dataset,
            share,
            collate=self._collate,
            batch_size=parts.eval_batch_size,
            device=parts.device,
        )
        done = 0
        for translations, references in self._until_stopped(batches):
            tally.add_translations(translations, references)
            done += len(translations)
            self.training.progress.meanwhile(f"translating: {done:,} of {len(share):,} sentences")
        return tally
