"""Measure how far a decoder looks back in a text, and how the slots of its memory take in what comes after them.

Both are measured in one pass through the text, read as the model would read it: segments in turn beside the memory, or
windows by themselves where there is none.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from wordorder.errors import BadInput
from wordorder.memory import LookAheadMemory, OpenSegment, SegmentRecurrence
from wordorder.networks import Decoder


@dataclass(frozen=True)
class ReadingHabits:
    """The attention of a decoder's tokens by distance, and the change of memory slots by age.

    Args:
        weights_LHO: mean weight that layer l and head h give to the key at a distance of o tokens to the left (0 = the
            token itself), over the tokens that see a key there.
        count_O: how many tokens that was.
        on_memory_LH: mean share of a token's weight that lies on slots of the memory; None where there is none.
        alpha_LHA: of all layers but the last, the mean weight alpha of what a slot of a look-ahead memory knew against
            what it finds when a segment is read, by age: a = 0 is the slot right before the segment. None where there
            is no such memory, or nothing of it was read.
        tokens: whose attention was looked at.
        length: tokens of a segment, or of a window.
        slots: of the memory, at most; 0 = none.
    """

    weights_LHO: Tensor
    count_O: Tensor
    on_memory_LH: Tensor | None
    alpha_LHA: Tensor | None
    tokens: int
    length: int
    slots: int

    @property
    def mean_O(self) -> Tensor:
        """Mean weight over layers and heads, by distance: the utilisation figure of the LaMemo paper."""
        return self.weights_LHO.mean((0, 1))

    @property
    def half_L(self) -> Tensor:
        """Distance within which half of all attention of a layer's tokens lies, per layer."""
        total_LO = (self.weights_LHO.mean(1) * self.count_O).cumsum(-1)
        return (total_LO < 0.5 * total_LO[:, -1:]).sum(-1)


def reading_habits(
    model: nn.Module, token_ids: Tensor | Sequence[int], *, length: int, start_id: int | None = None
) -> ReadingHabits:
    """Let a decoder read a text, and measure its attention by distance and its slots by age.

    A model with a memory reads it in segments; those before the memory is full are read and not counted, if there are
    any after them, so that every token that counts sees as many slots. A model without one reads windows, in which a
    token sees what stands before it there: far distances have few tokens.

    Args:
        model: anything that contains a `Decoder` of this package; it should be in evaluation mode.
        token_ids: long (T,), the text.
        length: tokens of a segment, or of a window.
        start_id: put before every window of a model without a memory, as in training; None = nothing.

    Raises:
        BadInput: the model has no decoder of this package.
        ValueError: there is no token, length is not positive, or the model cannot take as many tokens at a time.
    """
    decoder = next((module for module in model.modules() if isinstance(module, Decoder)), None)
    if decoder is None:
        raise BadInput(f"{type(model).__name__} has no decoder of this package, so there is nothing to watch")
    device = next(decoder.parameters()).device
    ids_T = torch.as_tensor(token_ids, dtype=torch.long, device=device)
    if length <= 0 or not len(ids_T):
        raise ValueError(f"length must be positive and the text have a token, got {length} and {len(ids_T)} tokens")
    pieces = [ids_T[start : start + length] for start in range(0, len(ids_T), length)]
    if len(pieces) > 1 and len(pieces[-1]) < length:
        pieces.pop()
    watch = _Watch(decoder, length)
    with torch.no_grad():
        if decoder.memory is None:
            for piece in pieces:
                watch.window(piece, start_id)
        else:
            warming = -(-decoder.memory.length // length)
            watch.segments(pieces, counted_from=warming if len(pieces) > warming else 0)
    return watch.habits()


class _Watch:
    """Sums of attention by distance and of alpha by age."""

    def __init__(self, decoder: Decoder, length: int) -> None:
        self.decoder, self.length = decoder, length
        self.slots = 0 if decoder.memory is None else decoder.memory.length
        layers, heads, device = len(decoder.layers), decoder.heads, next(decoder.parameters()).device

        def zeros(*shape: int) -> Tensor:
            return torch.zeros(shape, dtype=torch.float64, device=device)

        farthest = self.slots + length + 1  # a window may have a token more at its beginning
        self.weights_LHO, self.count_O = zeros(layers, heads, farthest), zeros(farthest)
        self.on_memory_LH = zeros(layers, heads)
        self.alpha_LHA, self.count_A = zeros(max(layers - 1, 0), heads, self.slots), zeros(self.slots)
        self.tokens = 0

    def window(self, ids_T: Tensor, start_id: int | None) -> None:
        start_1 = ids_T.new_tensor([] if start_id is None else [start_id])
        output = self.decoder(torch.cat((start_1, ids_T))[None], return_attentions=True)
        assert output.attentions is not None
        self._count(output.attentions, unseen=None)

    def segments(self, pieces: Sequence[Tensor], *, counted_from: int) -> None:
        memory, state = self.decoder.memory, None
        within = memory.length if isinstance(memory, SegmentRecurrence) and memory.same_length else None
        for number, piece in enumerate(pieces):
            counts = number >= counted_from
            read = self.decoder.read_segment(self.decoder.open_segment(state), piece[None], return_attentions=counts)
            if counts:
                self._count(read.attentions, unseen=within)
                self._remember(read.segment)
            state = read.segment.close()

    def _count(self, attentions: Sequence[Tensor], *, unseen: int | None) -> None:
        """Add weights (1, H, T, S) of every layer; keys at a distance of ``unseen`` or more are not seen."""
        queries, keys = attentions[0].shape[2:]
        column = torch.arange(keys, device=self.count_O.device)
        distance_TS = (column[keys - queries :, None] - column).flatten()
        seen = (distance_TS >= 0) & (distance_TS < (keys if unseen is None else unseen))
        distance_P = distance_TS[seen]
        self.count_O.index_add_(0, distance_P, torch.ones_like(distance_P, dtype=self.count_O.dtype))
        for layer, weights in enumerate(attentions):
            wide_HTS = weights[0].to(self.weights_LHO.dtype)
            self.weights_LHO[layer].index_add_(1, distance_P, wide_HTS.flatten(1)[:, seen])
            self.on_memory_LH[layer] += wide_HTS[..., : keys - queries].sum((1, 2))
        self.tokens += queries

    def _remember(self, segment: OpenSegment) -> None:
        if not isinstance(segment.memory, LookAheadMemory):
            return
        for layer, alpha in segment.alphas.items():
            self.alpha_LHA[layer, :, : segment.slots] += alpha[0].flip(-1).to(self.alpha_LHA.dtype)
        self.count_A[: segment.slots] += 1

    def habits(self) -> ReadingHabits:
        reached, aged = int((self.count_O > 0).sum()), int((self.count_A > 0).sum())
        weights = self.weights_LHO[..., :reached] / self.count_O[:reached]
        alpha = self.alpha_LHA[..., :aged] / self.count_A[:aged]
        return ReadingHabits(
            weights.cpu(),
            self.count_O[:reached].cpu(),
            (self.on_memory_LH / self.tokens).cpu() if self.slots else None,
            alpha.cpu() if alpha.numel() and isinstance(self.decoder.memory, LookAheadMemory) else None,
            self.tokens,
            self.length,
            self.slots,
        )
