"""Forgetting attention (FoX): a gate for each token and head says how much of the text before it is forgotten."""

import math
from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from wordorder.encodings.places import Encoding, check_positive
from wordorder.ops import Bias, DenseBias, LowRankBias
from wordorder.ops.execution import no_autocast

_NOT_YET = (
    "it reads the input of each layer, which networks of this package do not hand over yet; a model of transformers"
    " gets it by wordorder.models.swap_encoding(model, 'rope+fox')"
)


class Fox(Encoding):
    """Subtract from each score what the gates of the tokens between query and key forget.

    Lin et al. 2025, "Forgetting Transformer: softmax attention with a forget gate", https://arxiv.org/abs/2503.02130,
    Eq. 5 to 7, with x_t the input of the layer's attention (after its norm) and a map of each layer's own::

        log f[h, t] = log sigmoid(w_h . x_t + b_h + first_bias)
        bias[h, i, j] = sum of log f[h, l] over l = j + 1 .. i,     j <= i

    Two-sided (encoders; `x-transformers` has the same as DataDependentAlibi) with gates g of their own for the right::

        bias[h, i, j] = sum of log g[h, l] over l = i .. j - 1,     j > i

    Sums are in at least float32: the bias is a difference of two running sums, each of which reaches hundreds.

    Differs from the paper: b_h starts at 0 and ``first_bias`` is added, so that all biases of a network start alike.

    Args:
        width: channels of the layer's input, C; positive.
        heads: H; positive.
        layers: number of maps; positive.
        bidirectional: keys to the right are seen, with gates of their own; False in decoders.
        first_bias: added to the gate's argument. 5 starts with gates of 0.993, which forget half in 100 tokens. Finite.
        from_zero: multiply log f by a learned number of each layer and head that starts at 0, so that a trained model
            begins as it was. (A large ``first_bias`` would do too, but there its gradient is 0.)

    Shape:
        x (B, T, C) -> gates (B, H, T), 2 H with ``bidirectional``, at least float32 -> bias (B, H, T, S).

    Raises:
        ValueError: an argument is out of range.
    """

    place = "scores, by the layer's input"
    paper = "Lin et al. 2025, https://arxiv.org/abs/2503.02130"
    reads_layer_input = True
    refused_in: ClassVar[Mapping[str, str]] = dict.fromkeys(
        ("encoder", "decoder", "cross-attention", "memory", "right"), _NOT_YET
    )

    def __init__(
        self,
        width: int,
        *,
        heads: int,
        layers: int,
        bidirectional: bool = False,
        first_bias: float = 5.0,
        from_zero: bool = False,
    ) -> None:
        super().__init__()
        check_positive(width=width, heads=heads, layers=layers)
        if not math.isfinite(first_bias):
            raise ValueError(f"first_bias must be finite, got {first_bias}")
        self.heads, self.bidirectional, self.first_bias = heads, bidirectional, first_bias
        sides = 2 if bidirectional else 1
        self.gates = nn.ModuleList(nn.Linear(width, sides * heads) for _ in range(layers))
        self.strength = nn.Parameter(torch.zeros(layers, sides * heads)) if from_zero else None

    def zero_init_parameters(self) -> tuple[Tensor, ...]:
        """Return the strengths; without ``from_zero`` there is no start at 0 that can be learned from."""
        return () if self.strength is None else (self.strength,)

    def forward(self, x_BTC: Tensor, layer: int) -> Tensor:
        """Return log f of each token, then log g where bidirectional: (B, H or 2 H, T), at least float32."""
        gate_BTH: Tensor = self.gates[layer](x_BTC)
        with no_autocast(x_BTC.device):
            gate_BTH = gate_BTH.to(torch.promote_types(gate_BTH.dtype, torch.float32))
            log_BTH = F.logsigmoid(gate_BTH + self.first_bias)
            if self.strength is not None:
                log_BTH = log_BTH * self.strength[layer]
        return log_BTH.mT

    def bias(self, log_gates_BHS: Tensor, query_column_T: Tensor) -> Bias:
        """Return the bias of some queries: of low rank where keys stand on the left alone, else written out.

        Args:
            log_gates_BHS: those of `forward` for all tokens that are keys, in the order of the text.
            query_column_T: long, the column of each query among them.
        """
        with no_autocast(log_gates_BHS.device):
            sum_BHS = log_gates_BHS[:, : self.heads].cumsum(-1)
            at_query_BHT = sum_BHS.index_select(-1, query_column_T)
            if not self.bidirectional:
                query_BHT2 = torch.stack((at_query_BHT, torch.ones_like(at_query_BHT)), dim=-1)
                return LowRankBias(query_BHT2, torch.stack((torch.ones_like(sum_BHS), -sum_BHS), dim=-1))
            left_BHTS = at_query_BHT[..., None] - sum_BHS[:, :, None]
            log_right_BHS = log_gates_BHS[:, self.heads :]
            before_BHS = log_right_BHS.cumsum(-1) - log_right_BHS  # the own token left out
            right_BHTS = before_BHS[:, :, None] - before_BHS.index_select(-1, query_column_T)[..., None]
            to_the_left_TS = torch.arange(sum_BHS.shape[-1], device=sum_BHS.device) <= query_column_T[:, None]
            return DenseBias(torch.where(to_the_left_TS, left_BHTS, right_BHTS), may_hide=False)
