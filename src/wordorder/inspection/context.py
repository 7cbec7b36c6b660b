"""Effective context length: what a language model's predictions gain from more of the text before them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from wordorder.errors import BadInput

BLOCK, BLOCKS = 16, 32
"""Default number of tokens that are predicted in a row, and of such rows."""


@dataclass(frozen=True)
class LossByContext:
    """The loss on the same tokens, read with more and more of what stands before them.

    Args:
        contexts: how many tokens were read before the block that the predictions are made in, growing.
        losses: mean negative log-likelihood of the block's tokens, in nats.
        errors: standard error of a loss's difference from the last one, over blocks; 0 for the last.
        tokens: predicted, at each context.
        block: of how many a block is.
    """

    contexts: tuple[int, ...]
    losses: tuple[float, ...]
    errors: tuple[float, ...]
    tokens: int
    block: int

    def effective(self, tolerance: float = 0.01) -> int:
        """Return the least context from which on perplexity stays within a factor 1 + tolerance of that with all of it.

        After Khandelwal et al. 2018, "Sharp nearby, fuzzy far away", https://arxiv.org/abs/1805.04623, who take 1 %.

        Args:
            tolerance: share of the perplexity.
        """
        limit = self.losses[-1] + math.log1p(tolerance)
        beyond = [number for number, loss in enumerate(self.losses) if loss > limit]
        return self.contexts[beyond[-1] + 1] if beyond else self.contexts[0]


def loss_by_context(
    model: Any,
    token_ids: Tensor | Sequence[int],
    *,
    contexts: Sequence[int] | None = None,
    segment_length: int | None = None,
    block: int = BLOCK,
    blocks: int = BLOCKS,
    start_id: int | None = None,
) -> LossByContext:
    """Predict the same tokens with 0, 16, 32, 64 .. tokens before them.

    Blocks of tokens lie evenly over the text. Each is read after c tokens of the text, and each of its tokens predicts
    the next one; so the first prediction of a block knows c + 1 tokens, the last c + block. A model with a memory reads
    the c + block tokens in segments, counted from the end, so that the block ends the last one; a model without reads
    them in one window.

    Args:
        model: a causal language model of this package, or one that is called like it, in evaluation mode.
        token_ids: long (T,), the text.
        contexts: c; None = 0 and block times the powers of two, up to twice what memory and segment hold, or to what
            the model takes at a time, and to half of the text.
        segment_length: for a memory; None = the configuration's.
        block: tokens of a block; at most a segment.
        blocks: how many of them; fewer where they would overlap.
        start_id: put before what a model without a memory reads, as in training, and not counted; None = nothing.

    Raises:
        BadInput: the text is too short.
        ValueError: a context is negative or longer than the text allows, or block or blocks are not positive.
    """
    config, remembers = model.config, getattr(model.config, "memory", "none") != "none"
    ids_T = torch.as_tensor(token_ids, dtype=torch.long, device=model.device)
    length: int = (segment_length or config.segment_length) if remembers else config.max_position_embeddings
    if block <= 0 or blocks <= 0 or length <= 0:
        raise ValueError(f"block, blocks and segments must be positive, got {block}, {blocks}, {length}")
    block = min(block, length)
    if len(ids_T) < 2 * block + 1:
        raise BadInput(
            f"the text has {len(ids_T)} tokens; {2 * block + 1} or more are needed to vary what stands before"
        )
    if contexts is None:
        most = 2 * (config.memory_length + length) if remembers else length - (start_id is not None)
        contexts = _doubling(block, min(most, len(ids_T) // 2) - block)
    contexts = sorted(set(contexts))
    last = len(ids_T) - 1 - block
    if not contexts or contexts[0] < 0 or contexts[-1] > last:
        raise ValueError(f"contexts must lie in 0 .. {last} for {len(ids_T)} tokens and blocks of {block}")
    count = min(blocks, (last - contexts[-1]) // block + 1)
    starts = [contexts[-1] + (last - contexts[-1]) * number // max(count - 1, 1) for number in range(count)]
    labels_BT = torch.stack([ids_T[s + 1 : s + 1 + block] for s in starts])
    found: list[Tensor] = []
    for context in contexts:
        rows_BS = torch.stack([ids_T[s - context : s + block] for s in starts])
        if start_id is not None and not remembers:
            rows_BS = F.pad(rows_BS, (1, 0), value=start_id)
        found.append(_losses(model, rows_BS, labels_BT, length if remembers else None))
    differences = [
        (losses_B - found[-1]).std() / math.sqrt(count) if count > 1 else losses_B[0] * 0 for losses_B in found
    ]
    return LossByContext(
        tuple(contexts),
        tuple(float(losses_B.mean()) for losses_B in found),
        tuple(float(error) for error in differences),
        count * block,
        block,
    )


def _doubling(first: int, most: int) -> list[int]:
    """Return 0, first, twice that, and so on, and at last the most."""
    found = [0]
    while (step := max(first, 2 * found[-1])) < most:
        found.append(step)
    return [*found, most] if most > 0 else found


def _losses(model: Any, rows_BS: Tensor, labels_BT: Tensor, segment_length: int | None) -> Tensor:
    """Return each row's mean loss over its last tokens, (B,), in float64."""
    kept = labels_BT.shape[1]
    given = {}
    with torch.no_grad():
        if segment_length is not None:
            *before, rows_BS = _from_the_end(rows_BS, segment_length)
            for segment_BT in before:
                given = {"memory": model.model(segment_BT, **given).memory}
        logits_BTV = model(rows_BS, logits_to_keep=kept, **given).logits
    return F.cross_entropy(logits_BTV.double().mT, labels_BT, reduction="none").mean(1)


def _from_the_end(rows_BS: Tensor, length: int) -> list[Tensor]:
    """Cut rows into segments of a length from their end; the first segment may be shorter."""
    ragged = rows_BS.shape[1] % length
    edges = ([0] if ragged else []) + list(range(ragged, rows_BS.shape[1] + 1, length))
    return [rows_BS[:, start:end] for start, end in pairwise(edges)]
