"""Random positions in training: texts stand at positions that are drawn, so that later longer texts hold none new.

Ruoss et al. 2023, "Randomized Positional Encodings Boost Length Generalization of Transformers",
https://arxiv.org/abs/2305.16843, Sec. 4: the N tokens of a text get N of the positions 0 .. L - 1, drawn without
repetition and in ascending order; evaluation takes 0 .. N - 1, which may be as long as L. Here each example has
positions of its own, in each epoch others; the paper draws them once for a batch.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from wordorder.data.examples.order import resolve_keys

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
