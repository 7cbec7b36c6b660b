"""Look-ahead memory: old slots keep attending to the tokens that came after them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Self, Unpack

import torch
from torch import Tensor

from wordorder.memory.state import LayerRecord, Memory, MemoryMeta, MemoryState


@dataclass(frozen=True, kw_only=True)
class LookAheadState(MemoryState):
    """The state that `LookAheadMemory` keeps between segments.

    Args:
        embeddings: what the first layer read, (B, M, C).
        read_outs: each layer's read-out but the last one's, (B, H, M, E), in at least float32.
        normalisers: the log-sum-exp that belong to them, natural log, (B, H, M), in at least float32.
    """

    kind: ClassVar[str] = "look-ahead"
    embeddings: Tensor
    read_outs: tuple[Tensor, ...]
    normalisers: tuple[Tensor, ...]

    @property
    def layers(self) -> int:
        return len(self.read_outs) + 1

    @staticmethod
    def slot_axis(name: str) -> int:
        """Return the axis that counts slots: 1 of embeddings, 2 of what attention gave, where heads come first."""
        return 1 if name == "embeddings" else 2

    def slots(self) -> dict[str, Tensor]:
        found = {"embeddings": self.embeddings}
        for layer, (read_out, normaliser) in enumerate(zip(self.read_outs, self.normalisers, strict=True)):
            found |= {f"read_outs.{layer}": read_out, f"normalisers.{layer}": normaliser}
        return found

    @classmethod
    def from_slots(cls, slots: Mapping[str, Tensor], **meta: Unpack[MemoryMeta]) -> Self:
        layers = range(len(slots) // 2)
        names = {"embeddings", *(f"{kind}.{layer}" for layer in layers for kind in ("read_outs", "normalisers"))}
        if names != set(slots):
            found = ", ".join(sorted(slots)) or "none of them"
            raise ValueError(f"look-ahead memory keeps embeddings, read_outs.0, normalisers.0, .., got {found}")
        return cls(
            embeddings=slots["embeddings"],
            read_outs=tuple(slots[f"read_outs.{layer}"] for layer in layers),
            normalisers=tuple(slots[f"normalisers.{layer}"] for layer in layers),
            **meta,
        )


@dataclass(frozen=True)
class LookAheadMemory(Memory):
    """A memory whose slots are refreshed with every segment by what stands to their right.

    Ji et al. 2022, "LaMemo: language modeling with look-ahead memory", https://arxiv.org/abs/2204.07341. Of the M slots
    are kept: what the first layer read of them (their embeddings), and for each layer the read-out of their attention
    so far with its normaliser. In a segment, layer by layer, a slot i attends to the keys of a look-ahead window, those
    to its right, and both read-outs become one as if they had been one softmax (`wordorder.ops.merge_read_outs`)::

        new_i, lse_new_i = attention of i over keys j of the window, j > i
        alpha_i = sigmoid(lse_i - lse_new_i)
        read_i <- alpha_i read_i + (1 - alpha_i) new_i,     lse_i <- logaddexp(lse_i, lse_new_i)
        m_i^(l+1) = rest of the layer (m_i^(l), W_o read_i)

    The refreshed slots m^(l+1) are what the segment's tokens attend to in the next layer, beside each other.

    * The window in a decoder is what entered memory with the previous segment after its first token, and the first
      token of this one: the newest that a slot may see when none of the segment's tokens may learn of a later one
      through it. So every slot sees each later token exactly once, however a text is cut, and its normaliser in the
      first layer is that of all keys up to the first token of the latest segment. For segments of one length this is
      what the paper's code does; for others the code's windows leave gaps or overlap, since it counts from the length
      of the present segment.
    * In an encoder the window is the whole segment: its tokens see each other anyway.
    * No gradient flows into what is kept; it does flow through the slots as they are refreshed in this segment.
    * The last layer's refreshed slots would be read by nobody: they are not computed, and nothing is kept for it.

    It costs N (M + N) + M min(M, N) scores per layer, and the projections and feed-forward networks of M more tokens
    (in the last layer: keys and values only).

    Args:
        length: most slots, M: tokens that are kept; positive.
        full: a slot sees the whole window, itself and what stands to its left included, where that is in the window;
            the paper's ablation (``attn_type`` 33 of its code). Keys are then counted twice.
        epsilon: added to the denominator of alpha for parity with the paper's code, which has 1e-6; exact without.
        alpha: a fixed alpha in place of the one above, from 0 to 1, for ablations: 1 leaves what a slot read when it
            was new, 0 forgets it with each segment. None = from the normalisers.

    Raises:
        ValueError: length is not a positive whole number, full is not True or False, epsilon is negative, or alpha is
            not between 0 and 1.
    """

    name = "look-ahead"
    state_type = LookAheadState
    full: bool = False
    epsilon: float = 0.0
    alpha: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.epsilon >= 0:  # what is no number is refused too
            raise ValueError(f"epsilon must not be negative, got {self.epsilon}")
        if self.alpha is not None and not 0 <= self.alpha <= 1:
            raise ValueError(f"alpha must lie between 0 and 1, got {self.alpha}")

    def with_slots(self, layer: int, x_BTC: Tensor, state: MemoryState) -> Tensor:
        """Return the slots' embeddings and the tokens' for the first layer; later ones get both from the one before."""
        if layer:
            return x_BTC
        assert isinstance(state, LookAheadState)
        return torch.cat((state.embeddings.type_as(x_BTC), x_BTC), dim=1)

    def kept(self, layer: int, x_BTC: Tensor, record: LayerRecord) -> dict[str, Tensor]:
        """Return what the first layer reads of the tokens, and what their attention found in every layer."""
        found = {} if layer else {"embeddings": x_BTC.detach()}
        if record.read_out is not None and record.normaliser is not None:
            found |= {f"read_outs.{layer}": record.read_out, f"normalisers.{layer}": record.normaliser}
        return found
