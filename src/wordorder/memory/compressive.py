"""Compressive memory: what is too old for the memory of tokens is compressed, and kept for longer."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from wordorder.attention import Keys, LayerStep, Record
from wordorder.memory.segment_recurrence import SegmentRecurrence
from wordorder.memory.state import MemoryState
from wordorder.ops import gather_tokens
from wordorder.ops.execution import no_autocast, under_autocast

if TYPE_CHECKING:
    from wordorder.encodings.places import Generators
    from wordorder.memory.segment import Segment, Step

Compression = Literal["convolution", "mean"]


@dataclass(frozen=True)
class CompressiveMemory(SegmentRecurrence):
    """Segment recurrence that compresses old tokens, c to a slot, before it drops them.

    Rae et al. 2020, "Compressive Transformers for long-range sequence modelling", https://arxiv.org/abs/1911.05507,
    Sec. 3. Of M slots ``compressed`` hold c tokens each, and the others, n, one token each. Once more than n tokens
    wait, the oldest c of them become one slot, in each layer by itself, and the oldest slots of all are dropped::

        new = f(h[1], ..., h[c]),     f = a convolution of width and stride c (a linear map of all c), or the mean

    So M slots reach n + c (M - n) tokens back. The cost is that of `SegmentRecurrence`, and of the compression: c C^2
    weights for each layer.

    The convolution learns from the paper's attention-reconstruction loss alone, which is ``memory_loss`` of a network's
    output in training; add it to your own. For each layer, by products of queries and keys alone, without positions::

        loss = mean (attention(tokens, old) - attention(tokens, f(old)))^2

    over the slots ``old`` that this segment, read at once, will compress. It has no gradient in the network, nor has
    the network's own loss one in the convolution: a factor on it would count only in plain SGD, and where gradients are
    clipped together.

    Slots are neighbours in the window, however many tokens they stand for, as in the paper. A layer with a window loses
    sight of the old ones.

    Differs from the paper: the convolution begins as the mean, and stays it where ``memory_loss`` is left out (under
    DDP it must not be: all weights want a gradient); the loss is a mean and no sum; tokens are compressed in groups of
    c counted from the beginning of a text, however it is cut, and wait while a group is not full.

    Args:
        length: most slots, M; positive.
        rate: tokens that become one slot, c; 2 or more. The paper takes 2 to 4.
        compressed: slots that hold compressed tokens; positive, and at most length - rate. None = half of them.
        compression: "convolution" or "mean".
        same_length: must be False: it would hide the oldest slots.

    Raises:
        ValueError: an argument is out of range.
    """

    name = "compressive"
    rate: int = 3
    compressed: int | None = None
    compression: Compression = "convolution"

    def __post_init__(self) -> None:
        super().__post_init__()
        if type(self.rate) is not int or self.rate < 2:
            raise ValueError(f"rate must be a whole number of 2 or more, got {self.rate!r}")
        if type(self.coarse) is not int or not 0 < self.coarse <= self.length - self.rate:
            share = " (half of length)" if self.compressed is None else ""
            raise ValueError(
                f"compressed must be a whole number in 1 .. length - rate = {self.length} - {self.rate}, got"
                f" {self.coarse!r}{share}"
            )
        if self.compression not in get_args(Compression):
            raise ValueError(f"compression must be 'convolution' or 'mean', got {self.compression!r}")
        if self.same_length:
            raise ValueError("same_length would hide the oldest slots, which this memory is for; leave it out")

    @property
    def coarse(self) -> int:
        """Number of slots that hold compressed tokens, at most."""
        return self.length // 2 if self.compressed is None else self.compressed

    @property
    def reach(self) -> int:
        return self.length + (self.rate - 1) * self.coarse

    def slot_shapes(self, layers: int, *, channels: int, heads: int) -> dict[str, tuple[int, ...]]:
        """Return "hidden.0" and so on, and "tokens": how many tokens a slot stands for."""
        return {**super().slot_shapes(layers, channels=channels, heads=heads), "tokens": ()}

    def weights(self, layers: int, channels: int) -> nn.Module | None:
        if self.compression == "mean":
            return None
        return nn.ModuleList(GroupMap(channels, self.rate) for _ in range(layers))

    def prepare(self, step: "Step") -> "Leaving | None":
        """Return the slots that the segment will compress; None where there are none, or nothing learns from them."""
        if not step.learning or step.segment.weights is None or not step.reads_slots:
            return None
        position, tokens = step.segment.position, step.tokens if step.tokens_BT is None else step.tokens_BT.sum(1)
        before, after = self._groups(position), self._groups(position + tokens)
        waiting = position - self.rate * before
        groups, most = after - before, min(-(-step.tokens // self.rate), step.segment.slot_count // self.rate)
        if isinstance(groups, int) and isinstance(waiting, int):
            most = groups = min(groups, waiting // self.rate)
        else:
            groups = torch.minimum(torch.as_tensor(groups), torch.as_tensor(waiting) // self.rate)
        if not most:
            return None
        device = step.segment.state.device if step.segment.state else None
        column = self._columns(step.segment.slot_count - waiting, most, step.segment.slot_count, device)
        filled_BD = None
        if isinstance(groups, Tensor):
            filled_BD = torch.arange(most, device=device) < groups.to(device)[:, None]
        return Leaving(column, filled_BD, step.tokens_BT)

    def layer_step(self, layer: int, step: "Step", *, weights: bool = False) -> LayerStep:
        if not step.learning or step.segment.weights is None:
            return super().layer_step(layer, step, weights=weights)
        compress, rows = step.segment.weights.get_submodule(str(layer)), None
        if isinstance(step.prepared, Leaving) and step.segment.state is not None:
            slots, column = step.segment.state.slots[f"hidden.{layer}"], step.prepared.column
            rows = slots.index_select(1, column) if column.dim() == 1 else gather_tokens(slots, column, 1)
            if not under_autocast(rows.device) and step.call is not None:
                rows = rows.to(step.call.dtype)
        return ReconstructionStep(compress, rows, step.prepared, **step.arguments(layer), weights=weights)

    def leaves(self, layer: int, x_BTC: Tensor, out_BTC: Tensor, record: Record, step: "Step") -> dict[str, Tensor]:
        left = super().leaves(layer, x_BTC, out_BTC, record, step)
        return left if layer else {**left, "tokens": x_BTC.new_ones(x_BTC.shape[:2], dtype=torch.int32)}

    def fitted(self, state: MemoryState) -> MemoryState:
        """Return the state itself; what it holds is looked at on the CPU only.

        Raises:
            ValueError: it was left by a memory of another length or rate, or cut.
        """
        tokens_BM = state.slots["tokens"]
        if tokens_BM.device.type == "cpu" and not torch.compiler.is_compiling():
            valid_BM, rows = state.valid_BM, torch.as_tensor(state.position).expand(state.batch)
            groups = torch.as_tensor(self._groups(rows))
            of_tokens = rows - self.rate * groups
            expected_B = of_tokens + groups.clamp(max=self.coarse)
            from_right = torch.arange(state.length).flip(0)
            expected_BM = torch.where(from_right < of_tokens[:, None], 1, self.rate)
            held_B = state.length if valid_BM is None else valid_BM.sum(1)
            wrong_BM = tokens_BM != expected_BM
            wrong = (wrong_BM if valid_BM is None else wrong_BM & valid_BM).any()
            if bool(wrong) or bool((expected_B != held_B).any()):
                raise ValueError(
                    "memory was left by a compressive memory of another length, rate or number of compressed slots"
                    f" than {self}, or was cut: go on with the one that left it, or begin anew"
                )
        return state

    @torch.no_grad()
    def kept(self, state: MemoryState, segment: "Segment") -> MemoryState:
        """Compress what is too old, and return the compressed slots and the tokens that stay."""
        before, after = self._groups(segment.position), self._groups(state.position)
        new, waiting, recent = after - before, state.position - self.rate * before, state.position - self.rate * after
        columns, device, slots = state.length, state.device, state.slots
        if isinstance(new, int) and isinstance(recent, int):
            if not new:
                return state
            most, length = new, min(after, self.coarse) + recent
        else:  # rows differ
            most, length = min(-(-segment.tokens // self.rate), columns // self.rate), min(self.length, columns)
        if most:  # new slots stand behind all columns, and are put in order below
            old = state.columns(self._columns(columns - waiting, most, columns, device)).slots
            compressed = {name: self._compressed(name, rows, segment.weights) for name, rows in old.items()}
            slots = {name: torch.cat((tensor, compressed[name]), dim=1) for name, tensor in slots.items()}
        # from the right: tokens that stay, slots that are new, slots that were there
        recent, new, waiting = _by_row(recent, device), _by_row(new, device), _by_row(waiting, device)
        from_right = torch.arange(length, device=device).flip(0)
        index = torch.where(from_right < recent, columns - 1 - from_right, columns + recent + new - 1 - from_right)
        index = torch.where(from_right < recent + new, index, columns - waiting - 1 - from_right + recent + new)
        valid_BM = None
        if isinstance(after, Tensor):
            valid_BM = from_right < recent + after.to(device)[:, None].clamp(max=self.coarse)
        return replace(replace(state, slots=slots, valid_BM=None).columns(index.clamp(min=0)), valid_BM=valid_BM)

    def _groups(self, position: Any) -> Any:
        """Return how many groups of a text were compressed after so many tokens."""
        waiting = position - (self.length - self.coarse) + self.rate - 1
        return (waiting.clamp(min=0) if isinstance(waiting, Tensor) else max(waiting, 0)) // self.rate

    def _columns(self, first: Any, groups: int, columns: int, device: torch.device | None) -> Tensor:
        """Return the columns of so many groups from ``first`` on, for all rows or row by row."""
        column = torch.arange(groups * self.rate, device=device) + _by_row(first, device)
        return column.clamp(0, columns - 1)

    def _compressed(self, name: str, rows_BNC: Tensor, weights: Any) -> Tensor:
        """Return one row for each ``rate`` rows."""
        groups_BDNC = torch.unflatten(rows_BNC, 1, (-1, self.rate))
        if name == "tokens":
            return groups_BDNC.sum(2, dtype=rows_BNC.dtype)
        if self.compression == "mean":
            return groups_BDNC.mean(2)
        return weights[int(name.rpartition(".")[2])](rows_BNC).type_as(rows_BNC)


class GroupMap(nn.Linear):
    """A convolution of stride c, as a linear map of groups of tokens, (B, D c, C) -> (B, D, C); begins as the mean."""

    def __init__(self, channels: int, rate: int) -> None:
        super().__init__(rate * channels, channels)  # pyright: ignore[reportUnknownMemberType]
        self.rate = rate

    def forward(self, input: Tensor) -> Tensor:
        groups_BDE = torch.unflatten(input, 1, (input.shape[1] // self.rate, self.rate)).flatten(2)
        return super().forward(groups_BDE.to(self.weight.dtype))

    def draw_parameters(self, std: float, generator_for: "Generators | None" = None) -> None:
        """Set the weights to those of the mean; `networks.initialise` calls it."""
        del std, generator_for
        nn.init.zeros_(self.bias)
        if not getattr(self.weight, "_is_hf_initialized", False):  # transformers' mark of a loaded weight
            with torch.no_grad():
                self.weight.copy_(torch.eye(self.out_features).repeat(1, self.rate) / self.rate)


class Leaving(NamedTuple):
    """The slots that a segment will compress, group by group."""

    column: Tensor
    """Their columns, long (N,), or (B, N) where rows differ."""
    filled_BD: Tensor | None
    """Bool, False where a row has no such group; None = all have."""
    tokens_BT: Tensor | None
    """Bool, False where a token of the step is padding; None = none is."""


class ReconstructionStep(LayerStep):
    """Tokens attend to slots and tokens; what they read in old slots is to be read in compressed ones."""

    learns = True

    def __init__(self, compress: nn.Module, rows_BNC: Tensor | None, leaving: Leaving | None, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.compress, self.rows_BNC, self.leaving = compress, rows_BNC, leaving

    def attend(
        self, attention: Any, q: Tensor, keys: Keys, features: dict[str, Tensor]
    ) -> tuple[Tensor, dict[str, Tensor]]:
        mixed, left = super().attend(attention, q, keys, features)
        return mixed, {**left, "q": q.detach()}

    def loss(self, keys_of: Callable[[Tensor], Keys], left: dict[str, Tensor]) -> Tensor:
        """Return the attention-reconstruction loss; where nothing is compressed 0, with a gradient for DDP."""
        if self.leaving is None or self.rows_BNC is None:
            none_B0C = left["q"].new_zeros(1, 0, left["q"].shape[1] * left["q"].shape[3])
            return self.compress(none_B0C).sum()
        _, filled_BD, tokens_BT = self.leaving
        with torch.no_grad():
            old = keys_of(self.rows_BNC)
        new = keys_of(self.compress(self.rows_BNC).type_as(self.rows_BNC))
        rate = old.k.shape[2] // new.k.shape[2]
        filled_BN = None if filled_BD is None else filled_BD.repeat_interleave(rate, dim=1)
        expected = _read_out(left["q"], old.k, old.v, self.plan.terms.scale, filled_BN)
        missing = _read_out(left["q"], new.k, new.v, self.plan.terms.scale, filled_BD) - expected
        loss_BT = missing.square().mean((1, 3))
        if filled_BD is not None:
            counted_B1 = filled_BD.any(1, keepdim=True)
            counts_BT = counted_B1.expand_as(loss_BT) if tokens_BT is None else counted_B1 & tokens_BT
            return (loss_BT * counts_BT).sum() / counts_BT.sum().clamp(min=1)
        return loss_BT.mean()


def _read_out(q: Tensor, k: Tensor, v: Tensor, scale: float, filled_BS: Tensor | None) -> Tensor:
    """Return attention by content alone, in at least float32."""
    wide, mask = torch.promote_types(q.dtype, torch.float32), None
    if filled_BS is not None:  # a row without any is not counted
        mask = (filled_BS | ~filled_BS.any(1, keepdim=True))[:, None, None]
    grouped = q.shape[1] != k.shape[1]
    with no_autocast(q.device):
        return F.scaled_dot_product_attention(q.to(wide), k.to(wide), v.to(wide), mask, scale=scale, enable_gqa=grouped)


def _by_row(number: int | Tensor, device: torch.device | None) -> int | Tensor:
    return number.to(device)[:, None] if isinstance(number, Tensor) else number
