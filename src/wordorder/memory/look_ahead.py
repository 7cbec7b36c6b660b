"""Look-ahead memory: old slots keep attending to the tokens that came after them."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from wordorder.attention import Keys, LayerPlans, LayerStep, Plan, Record
from wordorder.memory.memory import Memory
from wordorder.ops import Contiguous, Mask, merge_read_outs

if TYPE_CHECKING:
    from wordorder.memory.segment import Step


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
    looks_right = True
    noted = ("alpha",)
    full: bool = False
    epsilon: float = 0.0
    alpha: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.epsilon >= 0:  # what is no number is refused too
            raise ValueError(f"epsilon must not be negative, got {self.epsilon}")
        if self.alpha is not None and not 0 <= self.alpha <= 1:
            raise ValueError(f"alpha must lie between 0 and 1, got {self.alpha}")

    def slot_shapes(self, layers: int, *, channels: int, heads: int) -> dict[str, tuple[int, ...]]:
        """Return "embeddings" of the first layer; of all but the last one read-outs and their natural log-sum-exp."""
        shapes: dict[str, tuple[int, ...]] = {"embeddings": (channels,)}
        for layer in range(layers - 1):
            shapes |= {f"read_outs.{layer}": (heads, channels // heads), f"normalisers.{layer}": (heads,)}
        return shapes

    def needs_lse(self, layers: int) -> bool:
        return layers > 1  # the last layer's slots would be read by nobody

    def prepare(self, step: "Step") -> "SlotPlans | None":
        """Return the plans of the slots over their window, once for all layers; None where no slot is refreshed."""
        if not step.reads_slots or step.segment.layers == 1:
            return None
        window = _window(step)
        plans = step.plan(_mask(step, window, full=self.full), right_only=self.full, sinks=False)
        return SlotPlans(plans, window)

    def rows(self, layer: int, x_BTC: Tensor, step: "Step") -> Tensor:
        """Return the slots' embeddings and the tokens' for the first layer; later ones get both from the one before."""
        if layer:
            return x_BTC
        assert step.segment.state is not None
        return torch.cat((step.segment.state.slots["embeddings"].type_as(x_BTC), x_BTC), dim=1)

    def layer_step(self, layer: int, step: "Step", *, weights: bool = False) -> LayerStep:
        if layer == step.segment.layers - 1:
            return super().layer_step(layer, step, weights=weights)
        arguments, slots = step.arguments(layer), None
        if isinstance(step.prepared, SlotPlans):
            state, (plans, window) = step.segment.state, step.prepared
            assert state is not None
            read_out, lse = (state.slots[f"{name}.{layer}"].transpose(1, 2) for name in ("read_outs", "normalisers"))
            slots = Slots(plans.layer(layer), window, read_out, lse, self)
            arguments["queries"] = None  # slots have queries too
        return LookAheadStep(slots, **arguments, weights=weights)

    def leaves(self, layer: int, x_BTC: Tensor, out_BTC: Tensor, record: Record, step: "Step") -> dict[str, Tensor]:
        """Return what the first layer reads of the tokens, and what their attention found in every layer."""
        del out_BTC, step
        tokens = {} if layer else {"embeddings": x_BTC.detach()}
        return tokens | _by_slot(layer, record.left.get("read_out"), record.left.get("normaliser"))

    def refreshed(self, layer: int, record: Record, step: "Step") -> dict[str, Tensor]:
        del step
        return _by_slot(layer, record.left.get("slot_read_out"), record.left.get("slot_normaliser"))


def _by_slot(layer: int, read_out_BHME: Tensor | None, normaliser_BHM: Tensor | None) -> dict[str, Tensor]:
    if read_out_BHME is None or normaliser_BHM is None:
        return {}
    return {f"read_outs.{layer}": read_out_BHME.transpose(1, 2), f"normalisers.{layer}": normaliser_BHM.transpose(1, 2)}


class SlotPlans(NamedTuple):
    """The plans by which the slots of all layers attend in a step, and the columns of their window."""

    plans: LayerPlans
    window: slice


class Slots(NamedTuple):
    """The slots of one layer: how they attend, the columns of their window, and what they have read so far."""

    plan: Plan
    window: slice
    read_out: Tensor
    normaliser: Tensor
    memory: LookAheadMemory


class LookAheadStep(LayerStep):
    """Tokens attend to slots and tokens; slots, where there are some, to their window, merged with what they knew."""

    def __init__(self, slots: Slots | None, plan: Plan, **arguments: Any) -> None:
        super().__init__(plan, **arguments)
        self.slots = slots

    def attend(
        self, attention: Any, q: Tensor, keys: Keys, features: dict[str, Tensor]
    ) -> tuple[Tensor, dict[str, Tensor]]:
        count = 0 if self.slots is None else self.slots.plan.call.queries
        of_tokens = features and {name: each[:, :, count:] for name, each in features.items()}
        mixed, lse = attention.attend(q[:, :, count:], keys, self.plan, of_tokens, return_lse=True)
        # merged again and again, hence in at least float32
        wide = torch.promote_types(mixed.dtype, torch.float32)
        left = {"read_out": mixed.detach().to(wide), "normaliser": lse.detach()}
        if self.slots is None:
            return mixed, left
        plan, window, read_out, normaliser, memory = self.slots
        of_slots = features and {name: each[:, :, :count] for name, each in features.items()}
        new = attention.attend(q[:, :, :count], keys.columns(window), plan, of_slots, return_lse=True)
        merged, lse, alpha = merge_read_outs(read_out, normaliser, *new, epsilon=memory.epsilon, alpha=memory.alpha)
        left |= {"slot_read_out": merged.detach(), "slot_normaliser": lse.detach(), "alpha": alpha.detach()}
        return torch.cat((merged.type_as(mixed), mixed), dim=2), left


def _window(step: "Step") -> slice:
    """Return the columns that slots look at.

    In a causal network they are what entered with the previous segment after its first token, which was seen then, and
    the first token of this one; else all tokens of the segment.
    """
    slots, state = step.segment.slot_count, step.segment.state
    if not step.causal:
        return slice(slots, slots + step.tokens)
    return slice(max(slots - (state.entered if state else 0) + 1, 1), slots + 1)


def _mask(step: "Step", window: slice, *, full: bool) -> Mask:
    """Return the mask of the slots over the columns of their window: those to the right, or all of them."""
    state, tokens_BS = step.segment.state, step.segment.valid_keys(step.tokens, step.tokens_BT)
    tokens_BJ = None if tokens_BS is None else tokens_BS[:, window]
    if step.causal and state is not None and state.entered_B is not None:
        # rows that took in less have seen more of the window before
        first_B = step.segment.slot_count - state.entered_B + 1
        fresh_BJ = torch.arange(window.start, window.stop, device=first_B.device) >= first_B[:, None]
        tokens_BJ = fresh_BJ if tokens_BJ is None else tokens_BJ & fresh_BJ.to(tokens_BJ.device)
    if tokens_BJ is not None and step.tokens_BT is not None:
        # a row without a token here is left as it is; it looks when the next one comes
        tokens_BJ = tokens_BJ & step.tokens_BT.any(1, keepdim=True)
    query = Contiguous(step.segment.slot_count, step.first)
    key = Contiguous(window.stop - window.start, step.first + window.start)
    return Mask(query, key, low=1 if step.causal and not full else None, tokens_BS=tokens_BJ)
