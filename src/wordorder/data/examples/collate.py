"""Collators: examples of unequal length become batches, padded on the right where needed; and positions that are drawn.

Ruoss et al. 2023, "Randomized Positional Encodings Boost Length Generalization of Transformers",
https://arxiv.org/abs/2305.16843, Sec. 4: the N tokens of a text get N of the positions 0 .. L - 1, drawn without
repetition and in ascending order, so that later longer texts hold none new; evaluation takes 0 .. N - 1, which may be
as long as L. Here each example has positions of its own, in each epoch others; the paper draws them once for a batch.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from wordorder.data.examples.masking import IGNORED
from wordorder.data.examples.order import Example, resolve_keys

_MULTIPLE = 8  # of the lengths of padded batches, for faster kernels and fewer shapes to compile


@dataclass(frozen=True, slots=True, kw_only=True)
class Collate:
    """Stack examples into a batch; pad on the right, and add attention_mask, only where lengths differ.

    Padded lengths are multiples of 8, or `longest`.

    Args:
        longest: no batch is padded beyond this, so that a learned position table is long enough.
    """

    padding: int
    longest: int

    def __call__(self, examples: Sequence[Example]) -> dict[str, Tensor]:
        """Return input_ids (B, N), labels (B,) or (B, M) with -100 at padding, and maybe attention_mask (B, N).

        M is N, or of translations the width of the targets.
        """
        ids, labels = ([example[name] for example in examples] for name in ("input_ids", "labels"))
        input_ids, present = self._padded(ids, self.padding)
        scalars = not labels[0].ndim
        batch = {
            "input_ids": input_ids,
            "labels": torch.stack(labels) if scalars else self._padded(labels, IGNORED)[0],
        }
        return batch if present is None else {**batch, "attention_mask": present.long()}

    def _padded(self, rows: list[Tensor], value: int) -> tuple[Tensor, Tensor | None]:
        lengths = [len(row) for row in rows]
        longest = max(lengths)
        if min(lengths) == longest:
            return torch.stack(rows), None
        width = max(longest, min(-(-longest // _MULTIPLE) * _MULTIPLE, self.longest))
        present = torch.arange(width) < torch.tensor(lengths)[:, None]
        return pad_right(rows, present, value), present


@dataclass(frozen=True, slots=True, kw_only=True)
class CollateLanes:
    """Stack segments into a batch, padded on the right, with attention_mask, only where their lengths differ."""

    padding: int

    def __call__(self, examples: Sequence[Example]) -> dict[str, Tensor]:
        """Return input_ids and shift_labels (B, N), and where they are needed attention_mask (B, N) and memory_reset
        (B,)."""
        lengths = torch.tensor([len(example["input_ids"]) for example in examples])
        # One column at least: the row of a lane that has ended is all padding, and so may all rows of a batch be.
        present = torch.arange(max(1, int(lengths.max()))) < lengths[:, None]
        full, batch = bool(present.all()), dict[str, Tensor]()
        for name, value in (("input_ids", self.padding), ("shift_labels", IGNORED)):
            rows = [example[name] for example in examples]
            batch[name] = torch.stack(rows) if full else pad_right(rows, present, value)
        if not full:
            batch["attention_mask"] = present.long()
        reset = [example["memory_reset"] for example in examples if "memory_reset" in example]
        # Left out where nothing is reset, so that nobody has to ask an accelerator whether anything is.
        return {**batch, "memory_reset": torch.stack(reset)} if any(reset) else batch


def pad_right(rows: list[Tensor], present: Tensor, value: int) -> Tensor:
    """Pad rows of whole numbers with a value on the right, to (B, N).

    Args:
        present: bool (B, N), True where a row has an element.
    """
    padded = torch.full(present.shape, value)
    padded[present] = torch.cat(rows)
    return padded


POSITIONS = "position_ids"


def drawn_positions(count: int, *, largest: int, seed: int, epoch: int, index: int) -> Tensor:
    """Return `count` of the positions 0 .. largest - 1, ascending (N,): a pure function of (seed, epoch, index)."""
    generator = np.random.default_rng([seed, epoch, index])
    return torch.as_tensor(np.sort(generator.choice(largest, size=count, replace=False)))


class WithPositions(Dataset[Any]):
    """Examples with random positions, for `CollatePositions`.

    Args:
        examples: a data set that is read by keys (epoch, index).
        largest: L.
    """

    def __init__(self, examples: Any, *, largest: int, seed: int) -> None:
        self.examples, self._largest, self._seed = examples, largest, seed

    def __len__(self) -> int:
        return len(self.examples)

    def __getitem__(self, key: Any) -> Any:
        return self.__getitems__([key])[0]

    def __getitems__(self, keys: Sequence[Any]) -> list[dict[str, Any]]:
        """Return several examples."""
        epochs, indices = resolve_keys(keys, len(self))
        examples: list[dict[str, Any]] = []
        for example, epoch, index in zip(self._read(keys), epochs.tolist(), indices.tolist(), strict=True):
            count, key = len(example["input_ids"]), {"epoch": epoch, "index": index}
            positions_N = drawn_positions(count, largest=self._largest, seed=self._seed, **key)
            examples.append({**example, POSITIONS: positions_N})
        return examples

    def _read(self, keys: Sequence[Any]) -> Sequence[Mapping[str, Any]]:
        many = getattr(self.examples, "__getitems__", None)
        return [self.examples[key] for key in keys] if many is None else many(list(keys))


class CollatePositions:
    """A collator that adds position_ids (B, N), 0 at padding, to the batch of another one."""

    def __init__(self, collate: Callable[[Sequence[Any]], Mapping[str, Tensor]]) -> None:
        self._collate = collate

    def __call__(self, examples: Sequence[Any]) -> dict[str, Tensor]:
        batch = self._collate([{k: v for k, v in example.items() if k != POSITIONS} for example in examples])
        positions_BN = torch.zeros_like(batch["input_ids"])
        for row_N, example in zip(positions_BN, examples, strict=True):
            row_N[: len(example[POSITIONS])] = example[POSITIONS]
        return {**batch, POSITIONS: positions_BN}
