"""Collators: examples of unequal length become batches, padded on the right only where that is needed."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from wordorder.data.examples.keys import Example
from wordorder.data.examples.masking import IGNORED


@dataclass(frozen=True, slots=True, kw_only=True)
class Collate:
    """Stack examples into a batch; pad on the right, and add attention_mask, only where lengths differ.

    Args:
        longest: no batch is padded beyond this, so that a learned position table is long enough.
        multiple: lengths are padded up to a multiple of this, for faster kernels and fewer shapes to compile.
    """

    padding: int
    longest: int
    multiple: int = 8

    def __call__(self, examples: Sequence[Example]) -> dict[str, Tensor]:
        """Return input_ids (B, N), labels (B,) or (B, M) with -100 at padding, and maybe attention_mask (B, N).

        M is N, or of translations the width of the targets.
        """
        ids, labels = ([example[name] for example in examples] for name in ("input_ids", "labels"))
        present = self._present(ids)
        batch = {
            "input_ids": pad_right(ids, present, self.padding),
            "labels": pad_right(labels, self._present(labels), IGNORED) if labels[0].ndim else torch.stack(labels),
        }
        return batch if present.all() else {**batch, "attention_mask": present.long()}

    def _present(self, rows: list[Tensor]) -> Tensor:
        lengths = torch.tensor([len(row) for row in rows])
        width = longest = int(lengths.max())
        if lengths.min() < longest:
            width = max(longest, min(-(-longest // self.multiple) * self.multiple, self.longest))
        return torch.arange(width) < lengths[:, None]


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
        batch = {
            name: pad_right([example[name] for example in examples], present, value)
            for name, value in (("input_ids", self.padding), ("shift_labels", IGNORED))
        }
        if not present.all():
            batch["attention_mask"] = present.long()
        reset = [example["memory_reset"] for example in examples if "memory_reset" in example]
        # Left out where nothing is reset, so that nobody has to ask an accelerator whether anything is.
        return {**batch, "memory_reset": torch.stack(reset)} if any(reset) else batch


def pad_right(rows: list[Tensor], present: Tensor, value: int) -> Tensor:
    """Pad rows of whole numbers with a value on the right, to (B, N).

    Args:
        present: bool (B, N), True where a row has an element.
    """
    if present.all():
        return torch.stack(rows)
    padded = torch.full(present.shape, value)
    padded[present] = torch.cat(rows)
    return padded
