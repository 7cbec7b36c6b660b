"""Token shift: each layer's input is mixed with that of the tokens around, by a short convolution."""

# torch's autograd functions are typed in part only
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from wordorder.encodings.places import Generators, InputTerm, OnLayerInput, check_positive
from wordorder.ops import Packed, Positions
from wordorder.ops.execution import transformed


class TokenShift(OnLayerInput):
    """Add the rows of neighbouring tokens to each layer's input, channel by channel, by a short convolution.

    Allen-Zhu 2025, "Physics of language models: part 4.1", https://arxiv.org/abs/2512.17351 (Canon layers, place A: the
    input of attention), with h_t the input of the layer's attention (after its norm), 0 outside of the text, and
    weights w of each layer's own::

        h'_t = h_t + sum of w_m * h_(t - m) over m = 1 .. reach

    Two-sided (encoders) the sum is over m = -reach .. -1 too. There is no bias and no activation. All w are 0 at first,
    so that h' = h: a trained model can be given it. The token shift of RWKV (Peng et al. 2023,
    https://arxiv.org/abs/2305.13048) is of this kind, with reach 1 and shares that add up to 1.

    Differs from the paper: it acts at place A alone; the token's own row is h_t, without a weight (which would rescale
    the gain of the norm); w starts at 0, not at random.

    Args:
        width: channels of the layer's input, C; positive.
        layers: number of convolutions; positive.
        bidirectional: tokens to the right are read, with weights of their own; False in decoders.
        reach: tokens read on each visible side; positive. Not set, 3 in decoders (a convolution of width 4, as
            published) and 1 in encoders (of width 3).

    Shape:
        x (B, N, C) -> what is added to it, (B, N, C), dtype of x.

    Raises:
        ValueError: an argument is out of range.
    """

    purpose = "beside another encoding"
    paper = "Allen-Zhu 2025, https://arxiv.org/abs/2512.17351"
    refused_in: ClassVar[Mapping[str, str]] = {
        "cross-attention": "it reads the tokens beside a token, and queries and keys are of two texts"
    }

    def __init__(self, width: int, *, layers: int, bidirectional: bool = False, reach: int | None = None) -> None:
        super().__init__()
        if reach is None:
            reach = 1 if bidirectional else 3
        check_positive(width=width, layers=layers, reach=reach)
        self.bidirectional = bidirectional
        right = range(-1, -reach - 1, -1) if bidirectional else ()
        self.steps = (*range(1, reach + 1), *right)
        """m of each row of the weights."""
        self.weight = nn.Parameter(torch.zeros(layers, len(self.steps), width))

    def draw_parameters(self, std: float, generator_for: Generators | None = None) -> None:
        """Set all weights to 0; `networks.initialise` calls it."""
        del std, generator_for
        nn.init.zeros_(self.weight)

    def zero_init_parameters(self) -> tuple[Tensor, ...]:
        """Return the weights."""
        return (self.weight,)

    def cost_parts(self) -> dict[str, int]:
        return {"convolutions": self.weight.numel()}

    def forward(
        self,
        query: Positions,
        key: Positions,
        *,
        dtype: torch.dtype = torch.float32,
        device: torch.device | None = None,
    ) -> "TokenShiftTerm":
        """Return the term, with what stands in another text where texts are packed."""
        other_texts: tuple[Tensor, ...] = ()
        if isinstance(query, Packed):
            sequence_BN1 = query.sequence_BT.to(device)[..., None]
            other_texts = tuple(shifted != sequence_BN1 for shifted in _shifted(sequence_BN1, self.steps))
        return TokenShiftTerm(self.weight, self.steps, other_texts)


@dataclass(frozen=True)
class TokenShiftTerm(InputTerm):
    """The convolution in one forward pass and one layer."""

    weight_LMC: Tensor
    """w of all layers, a row for each m."""
    steps: tuple[int, ...]
    """m of each row."""
    other_texts: tuple[Tensor, ...]
    """For each m, whether t - m is of another text than t, bool (B, N, 1); empty where no texts are packed."""
    index: int = 0

    @property
    def rows_before(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        return max(self.steps)

    def layer(self, index: int) -> "TokenShiftTerm":
        return replace(self, index=index)

    def added(self, x_BNC: Tensor) -> Tensor:
        # A sum of shifted rows: on CPUs torch's depthwise convolution is slower, and it would mix packed texts.
        if not (torch.compiler.is_compiling() or transformed()):
            return _Convolution.apply(x_BNC, self.weight_LMC[self.index].type_as(x_BNC), self.steps, self.other_texts)
        shifted = _shifted(x_BNC, self.steps)
        if self.other_texts:
            shifted = [rows.masked_fill(other, 0) for rows, other in zip(shifted, self.other_texts, strict=True)]
        weight_MC = self.weight_LMC[self.index].type_as(x_BNC)
        added_BNC = shifted[0] * weight_MC[0]
        for shifted_BNC, weight_C in zip(shifted[1:], weight_MC[1:], strict=True):
            added_BNC = torch.addcmul(added_BNC, shifted_BNC, weight_C)
        return added_BNC


class _Convolution(torch.autograd.Function):
    """`TokenShiftTerm.added` in place, forward and backward: less than half of the time."""

    @staticmethod
    def forward(
        ctx: Any, x_BNC: Tensor, weight_MC: Tensor, steps: tuple[int, ...], other_texts: tuple[Tensor, ...]
    ) -> Tensor:
        ctx.steps, ctx.other_texts = steps, other_texts
        ctx.save_for_backward(x_BNC, weight_MC)
        added_BNC = torch.zeros_like(x_BNC)
        for index, step in enumerate(steps):
            at, read = _pairs(x_BNC.shape[1], step)
            rows = x_BNC[:, read]
            if other_texts:
                rows = rows.masked_fill(other_texts[index][:, at], 0)
            added_BNC[:, at].addcmul_(rows, weight_MC[index])
        return added_BNC

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor, Tensor, None, None]:
        x_BNC, weight_MC = ctx.saved_tensors
        to_x, to_weight = torch.zeros_like(grad_outputs[0]), list[Tensor]()
        for index, step in enumerate(ctx.steps):
            at, read = _pairs(x_BNC.shape[1], step)
            gradient = grad_outputs[0][:, at]
            if ctx.other_texts:
                gradient = gradient.masked_fill(ctx.other_texts[index][:, at], 0)
            to_x[:, read].addcmul_(gradient, weight_MC[index])
            to_weight.append((gradient * x_BNC[:, read]).sum((0, 1)))
        return to_x, torch.stack(to_weight), None, None


def _pairs(rows: int, step: int) -> tuple[slice, slice]:
    """Return the rows t for which there is a row t - step, and those rows."""
    count, at, read = max(rows - abs(step), 0), max(step, 0), max(-step, 0)
    return slice(at, at + count), slice(read, read + count)


def _shifted(x_BNC: Tensor, steps: tuple[int, ...]) -> list[Tensor]:
    """Return, for each m of ``steps``, the row m before each row; 0 where there is none."""
    before, rows = max(steps), x_BNC.shape[1]
    padded_BPC = F.pad(x_BNC, (0, 0, before, max(0, -min(steps))))
    return [padded_BPC[:, before - m : before - m + rows] for m in steps]
