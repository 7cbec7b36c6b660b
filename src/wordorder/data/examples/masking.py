"""Masking for masked language models: which tokens a model must predict, and what it sees in their place.

Devlin et al. 2019, "BERT", https://arxiv.org/abs/1810.04805, Sec. 3.1: of the chosen tokens 80 % become [MASK], 10 % a
random token, 10 % stay. Their number is not left to chance token by token; it is p * n rounded up or down at random, as
in fairseq's MaskTokensDataset, which TUPE's experiments used.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from wordorder.data.examples.order import Example, Words, counter_hash, splitmix64, uniform

IGNORED = -100
"""Label of a position that is not predicted, as torch's cross-entropy and transformers have it."""

_MASK = 0x3A5C  # keeps the masks' draws apart from those of the order of examples
_HOW_MANY, _WHAT, _WHICH_TOKEN = (np.uint64(salt) for salt in (0xC0, 0xA1, 0x7E))
_LARGEST = np.uint64(2**64 - 1)

Ids = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Masking:
    """Masking of tokens for masked language modelling.

    Args:
        probability: share of the tokens that are predicted, between 0 and 1; at least one token of an example.
        special: True for each id of the vocabulary that is never chosen, nor a random replacement, shape (vocabulary,).
    """

    probability: float
    mask_id: int
    special: npt.NDArray[np.bool_]

    def __call__(
        self, ids_BN: Ids, present_BN: npt.NDArray[np.bool_], *, seed: int, epoch_B: Ids, index_B: Ids
    ) -> tuple[Ids, Ids]:
        """Mask a batch. A row depends on its own tokens, seed, epoch and index, and on nothing else in the batch.

        Args:
            ids_BN: token ids; what lies outside `present_BN` is ignored.
            present_BN: False at padding, which must be on the right.
            index_B: index of each example in its dataset.

        Returns:
            What the model sees (B, N), and the labels (B, N): the original id where predicted, elsewhere -100.
        """
        key_B1 = counter_hash(seed, _MASK, epoch_B, index_B)[:, None]
        rank_BN = splitmix64(key_B1 ^ splitmix64(np.arange(ids_BN.shape[1], dtype=np.uint64)))
        chosen_BN = self._choose(rank_BN, present_BN & ~self.special[ids_BN], key_B1[:, 0])
        labels_BN = np.where(chosen_BN, ids_BN, IGNORED)

        seen_BN = ids_BN.copy()
        rank_K = rank_BN[chosen_BN]
        what_K = uniform(splitmix64(rank_K ^ _WHAT))
        ordinary = np.flatnonzero(~self.special)
        random_K = ordinary[(uniform(splitmix64(rank_K ^ _WHICH_TOKEN)) * len(ordinary)).astype(np.int64)]
        seen_BN[chosen_BN] = np.where(what_K < 0.8, self.mask_id, np.where(what_K < 0.9, random_K, ids_BN[chosen_BN]))
        return seen_BN, labels_BN

    def examples(
        self, ids_BN: Ids, present_BN: npt.NDArray[np.bool_], *, seed: int, epoch_B: Ids, index_B: Ids
    ) -> list[Example]:
        seen_BN, labels_BN = self(ids_BN, present_BN, seed=seed, epoch_B=epoch_B, index_B=index_B)
        rows = zip(torch.as_tensor(seen_BN), torch.as_tensor(labels_BN), present_BN.sum(axis=1).tolist(), strict=True)
        return [{"input_ids": seen[:count], "labels": labels[:count]} for seen, labels, count in rows]

    def _choose(self, rank_BN: Words, maskable_BN: npt.NDArray[np.bool_], key_B: Words) -> npt.NDArray[np.bool_]:
        """Choose in each row exactly k of the maskable positions: those of the k smallest hashes."""
        count_B = maskable_BN.sum(axis=1)
        k_B = np.floor(self.probability * count_B + uniform(splitmix64(key_B ^ _HOW_MANY))).astype(np.int64)
        k_B = np.clip(k_B, 1, np.maximum(count_B, 1))
        ordered_BN = np.sort(np.where(maskable_BN, rank_BN, _LARGEST), axis=1)
        limit_B1 = np.take_along_axis(ordered_BN, k_B[:, None] - 1, axis=1)
        return maskable_BN & (rank_BN <= limit_B1)
