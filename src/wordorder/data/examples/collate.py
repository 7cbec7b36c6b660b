"""Collators: examples of unequal length become batches, padded on the right only where that is needed."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from wordorder.data.examples.masking import IGNORED
from wordorder.data.examples.order import Example

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
