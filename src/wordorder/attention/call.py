"""The facts of a call of attention before it starts."""

from dataclasses import dataclass, replace
from typing import Any, Literal, cast

import torch
from torch import Tensor

from wordorder.encodings import Terms
from wordorder.ops import DenseBias, LowRankBias, Mask, Packed
from wordorder.ops.execution import transformed
from wordorder.ops.positions import shift_between

BiasKind = Literal["none", "fixed", "learned"]


@dataclass(frozen=True, kw_only=True)
class Call:
    """Sizes, dtype and device of a call of attention, what is wanted of it, and what position terms and mask add.

    A backend is chosen by these alone, never by a tensor's contents. `of` reads sizes off the tensors, `plan_attention`
    adds the rest (`with_terms`).
    """

    batch: int
    heads: int
    """Query heads, H."""
    queries: int
    keys: int
    head_dim: int
    """Channels of a head of the queries, as encodings widen them, or of the values, the larger."""
    dtype: torch.dtype
    device: torch.device
    layers: int = 1
    """Number of layers that share the plan: a bias that several read is written out once for all of them."""
    dropout: float = 0.0
    return_lse: bool = False
    return_weights: bool = False

    bias: BiasKind = "none"
    """Whether there is a bias, and whether its gradient is wanted."""
    rank: int = 0
    """Channels of the bias's low-rank factors, of all such parts together."""
    structured: bool = True
    """The bias has no dense part, so that it need not be written out."""
    content: bool = False
    """There are terms by content, or by the layer's input."""
    dense_content: bool = False
    """The bias of one of these is not of low rank."""
    span: int | None = None
    """Most keys that a query sees, where the mask is a window; None = all."""
    reach: int | None = None
    """Diagonals outside of which all terms but those of low rank are constant, on either side, under a mask that is
    causal, of padding or none; 0 = no term depends on the distance, None = there are none."""
    edges: tuple[int, int] | None = None
    """The columns of T + S - 1 distances between which those diagonals are; None = there are none."""
    causal: bool = False
    """The mask hides keys after a query."""
    masked: bool = False
    """The mask differs between examples, so that bias and mask together need a matrix for each."""
    training: bool = False
    """A gradient of something is wanted."""
    traced: bool = False
    """torch.compile or torch.export traces the call."""
    transformed: bool = False
    """torch.func or forward-mode differentiation transforms the call."""
    gpu: str = ""
    """Architecture of the GPU, such as "sm_90" or "gfx942"; empty where there is none."""
    memory: int = 0
    """Bytes of memory of the GPU; 0 where there is none."""
    kernels_fail: bool = False
    """The self-test of the Triton kernels failed on this device."""

    @classmethod
    def of(cls, q: Tensor, k: Tensor, v: Tensor | None = None, **wanted: Any) -> "Call":
        """Return the call of queries (B, H, T, D), keys (B, G, S, D) and values (B, G, S, E); None: E = D."""
        batch, heads, queries, width = q.shape
        width = width if v is None else max(width, v.shape[-1])
        sizes = {"batch": batch, "heads": heads, "queries": queries, "keys": k.shape[2], "head_dim": width}
        return cls(**sizes, dtype=q.dtype, device=q.device, **wanted)

    def with_terms(self, terms: Terms, mask: Mask | Tensor | None) -> "Call":
        """Return the call with what the terms and the mask add, and with what is true of torch now."""
        bias = terms.bias
        if isinstance(mask, Tensor):
            masked = mask.dim() == 4 and mask.shape[0] > 1
        else:
            masked = mask is not None and (mask.tokens_BS is not None or isinstance(mask.key, Packed))
        span = None
        if isinstance(mask, Mask) and mask.low is not None and mask.high is not None:
            span = mask.high - mask.low + 1
        traced = torch.compiler.is_compiling()
        rank, structured, edges, constant = 0, True, None, not traced
        for part in () if bias is None else bias.parts():
            structured &= not isinstance(part, DenseBias)
            if isinstance(part, LowRankBias):
                rank += part.key_factor_BHSR.shape[-1]
            else:
                constant &= edges is None and part.edges is not None and not part.may_hide
                edges = part.edges
        training = torch.is_grad_enabled()
        learns, dense_content = bias is not None and bias.requires_grad, False
        for term in terms.content:
            rank += term.low_rank
            learns |= term.low_rank > 0 and training
            dense_content |= not term.low_rank
            constant &= term.low_rank > 0 or term.edges is not None
            if constant and term.edges is not None:
                first, last = edges or term.edges
                edges = min(first, term.edges[0]), max(last, term.edges[1])
        if edges is not None:  # some key is near
            constant &= edges[0] < self.queries + self.keys - 2 and edges[1] > 0
        if constant and mask is not None:
            shift = None if isinstance(mask, Tensor) or mask.low is not None else shift_between(mask.query, mask.key)
            constant = shift is not None
            if shift is not None and edges is not None and isinstance(mask, Mask) and mask.high is not None:
                # a causal mask hides what is far on the right, or it hides a part of what is constant
                constant = edges[0] < mask.high - shift + self.queries - 1 < edges[1]
        reach = (0 if edges is None else edges[1] - edges[0] - 1) if constant else None
        gpu, memory = _gpu(self.device)
        return replace(
            self,
            head_dim=self.head_dim * terms.widening if terms.query_moves else self.head_dim,
            return_lse=self.return_lse or bool(terms.sinks),
            bias="learned" if learns else "fixed" if bias is not None or rank > 0 else "none",
            rank=rank,
            structured=structured,
            content=bool(terms.content),
            dense_content=dense_content,
            span=span,
            reach=reach,
            edges=edges,
            causal=isinstance(mask, Mask) and mask.high is not None,
            masked=masked,
            training=training,
            traced=traced,
            transformed=transformed(),
            gpu=gpu,
            memory=memory,
        )

    @property
    def learns(self) -> bool:
        """Whether there is a backward pass that torch's fused kernels cannot compute."""
        return self.training and (self.bias == "learned" or self.content or self.dropout > 0)

    @property
    def matrix_bytes(self) -> int:
        """Bytes of the matrix in which SDPA takes bias and mask together; 0 without a bias."""
        examples = self.batch if self.masked else 1
        return 0 if self.bias == "none" else examples * self.heads * self.queries * self.keys * self.dtype.itemsize


def _gpu(device: torch.device) -> tuple[str, int]:
    """Return architecture and bytes of memory of a GPU; ("", 0) where there is none."""
    if device.type != "cuda" or not torch.cuda.is_available():
        return "", 0
    card = cast(Any, torch.cuda).get_device_properties(device)
    amd = torch.version.hip is not None  # "gfx942:sramecc+:xnack-"
    return card.gcnArchName.split(":")[0] if amd else f"sm_{card.major}{card.minor}", card.total_memory
