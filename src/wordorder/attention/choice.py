"""Choose the backend of a call: a pure function of shapes, dtypes and device, never of a tensor's contents."""

import os
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Literal, get_args

import torch

from wordorder.errors import BadInput

Backend = Literal["reference", "sdpa", "kept-tiles", "recomputed-tiles", "flex", "triton"]
BiasKind = Literal["none", "fixed", "learned"]

VARIABLE = "WORDORDER_BACKEND"
"""The environment variable that forces a backend wherever no argument does."""

SMALL = 128 * 128
"""Smallest number of scores per head and example for which tiles pay on a CPU."""
LONGEST_KEPT = 1024
"""Largest number of keys for which keeping the weights is faster than computing them again."""
MOST_KEPT = 256 * 2**20
"""Most bytes of weights that a layer may keep for its backward pass."""
LARGEST_MATRIX = 256 * 2**20
"""Most bytes of bias that may be written out on a CPU; on a GPU that many always may, gradient included."""
CARD_SHARE = 16
"""On a GPU bias and gradient may take one part in so many of its memory."""
MEASURED = {"sm_90": {"table": 2_048**2, "low-rank": 8_192**2}}
"""Least T * S from which Triton trains faster than SDPA with the bias written out, by GPU and kind of bias.

From benchmarks/results/gpu-h200-*.json: in 16 bits without dropout. All else that was measured went to SDPA.
"""
LEAST_SCORES = 8 * 12 * 2_048**2
"""Fewest scores of all heads and examples at which Triton won; with fewer, launches take longer than the scores."""
TRITON = find_spec("triton") is not None
"""Whether Triton is installed; torch brings it along on Linux with a GPU."""
WIDEST_HEAD = 256
"""Most channels of a head that the Triton kernels have registers for."""
WIDEST_TRAINED = 128
"""The same in training."""
WIDEST_FLOAT32 = 64
"""The same for float32, whose products are exact and not by tensor cores."""
MOST_PROGRAMS = 65_535
"""Most heads of all examples; in a traced call, whose batch is a symbol, CUDA refuses more examples than that."""
AMD_GPUS = ("gfx90a", "gfx942", "gfx950")
"""AMD's GPUs on which the kernels keep to registers and shared memory, as the compiler says."""
SPARE_RANK = 16
"""Channels that low-rank factors may have beyond those of the widest head."""


@dataclass(frozen=True, kw_only=True)
class Call:
    """The facts about a call of attention that are known before it starts."""

    device: str
    """Type of the device, "cpu" or "cuda"."""
    dtype: torch.dtype
    batch: int
    heads: int
    """Query heads, H."""
    queries: int
    keys: int
    head_dim: int
    """Channels of a head of the queries or of the values, the larger."""
    rank: int = 0
    """Channels of the bias's low-rank factors, of all such parts together."""
    bias: BiasKind = "none"
    """Whether there is a bias, and whether its gradient is wanted."""
    structured: bool = True
    """The bias has no dense part, so that it need not be written out."""
    content: bool = False
    """There are terms by content."""
    training: bool = False
    """A gradient of something is wanted."""
    dropout: bool = False
    return_lse: bool = False
    return_weights: bool = False
    masked: bool = False
    """The mask differs between examples, so that bias and mask together need a matrix for each."""
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


def choose_backend(call: Call, forced: str | None = None) -> Backend:
    """Return the fastest backend for a call that fits into memory; all backends are exact.

    ===================  ==========================================================================================
    backend              taken for
    ===================  ==========================================================================================
    `reference`          attention weights; the log-sum-exp where no other backend gives it
    `sdpa`               whatever torch's fused kernels can do, small calls, and on a CPU everything that is traced
    `kept-tiles`         CPU training with a learned bias or dropout, up to 1,024 keys
    `recomputed-tiles`   the same for longer texts and in bfloat16; long fixed biases; log-sum-exp on a CPU
    `triton`             GPU: log-sum-exp, too large biases, training where it was measured faster (`MEASURED`)
    `flex`               GPU, a bias that would be too large written out, of heads that the Triton kernels refuse
    ===================  ==========================================================================================

    Args:
        forced: the caller's choice; with None the environment variable ``WORDORDER_BACKEND`` is asked.

    Raises:
        ValueError: the forced backend is unknown, or cannot do what is asked.
    """
    if forced is None:
        named = os.environ.get(VARIABLE) or None
        if named is not None and named not in get_args(Backend):
            raise BadInput(f"{VARIABLE} must be one of {', '.join(get_args(Backend))}, or not be set, got {named!r}")
        # a variable speaks for a whole program: calls that the named backend cannot do go where they would go anyway
        forced = named if named is None or _refusal(named, call) is None else None
    if forced is not None:
        if forced not in get_args(Backend):
            raise ValueError(f"backend must be one of {', '.join(get_args(Backend))}, got {forced!r}")
        refusal = _refusal(forced, call)
        if refusal:
            raise ValueError(f"backend {forced!r} {refusal}")
        return forced  # pyright: ignore[reportReturnType]
    if call.return_weights:
        return "reference"
    if call.transformed and call.device == "cpu":
        return "reference"  # SDPA's kernel there has neither a derivative by the mask nor tangents
    if call.transformed or (call.traced and call.device != "cuda"):
        return "reference" if call.return_lse else "sdpa"
    return _on_cpu(call) if call.device == "cpu" else _on_gpu(call)


def _on_cpu(call: Call) -> Backend:
    if call.dtype == torch.float16:  # its products overflow, and no CPU is fast at it
        return "reference" if call.return_lse else "sdpa"
    if call.return_lse:
        return _tiles(call)
    if not _learns(call):
        return "recomputed-tiles" if _matrix_bytes(call) > LARGEST_MATRIX and call.structured else "sdpa"
    return "sdpa" if call.queries * call.keys < SMALL else _tiles(call)


def _learns(call: Call) -> bool:
    """Return whether the call has a backward pass that torch's fused kernels cannot compute."""
    return call.training and (call.bias == "learned" or call.content or call.dropout)


def _tiles(call: Call) -> Backend:
    weights = call.batch * call.heads * call.queries * call.keys * call.dtype.itemsize
    # weights kept in 16 bits would cost the gradient of the bias its exactness
    exact = call.dtype.itemsize > 2
    # weights that come of q.k alone are computed again in less time than they take to write and read
    keep = exact and _learns(call) and call.keys <= LONGEST_KEPT and weights <= MOST_KEPT
    return "kept-tiles" if keep else "recomputed-tiles"


def _on_gpu(call: Call) -> Backend:
    # where lengths are symbols, a comparison would bind a compiled or exported graph to those of its example
    large = not call.traced and _trained_bytes(call) > max(LARGEST_MATRIX, call.memory // CARD_SHARE)
    if call.device == "cuda" and (call.return_lse or large or _triton_is_faster(call)) and not _refusal("triton", call):
        return "triton"
    if call.return_lse:
        return "reference"
    return "flex" if call.device == "cuda" and large and not _refusal("flex", call) else "sdpa"


def _triton_is_faster(call: Call) -> bool:
    """Tell whether Triton was measured to train faster than SDPA on such a call."""
    learns = call.training and call.bias == "learned" and call.structured and not call.content
    if call.traced or not learns or call.dropout or call.dtype.itemsize != 2:
        return False
    least, pairs = MEASURED.get(call.gpu, {}).get("low-rank" if call.rank else "table"), call.queries * call.keys
    return least is not None and pairs >= least and call.batch * call.heads * pairs >= LEAST_SCORES


def _matrix_bytes(call: Call) -> int:
    """Return the bytes of the matrix in which SDPA takes bias and mask together; 0 without a bias."""
    examples = call.batch if call.masked else 1
    return 0 if call.bias == "none" else examples * call.heads * call.queries * call.keys * call.dtype.itemsize


def _trained_bytes(call: Call) -> int:
    """Return the bytes of that matrix and of its gradient, which torch's kernels write for every example."""
    learns = call.training and call.bias == "learned"
    gradients = call.batch * call.heads * call.queries * call.keys * call.dtype.itemsize if learns else 0
    return _matrix_bytes(call) + gradients


def _gpu_refusal(call: Call) -> str | None:
    """Return why a GPU runs no kernel that Triton compiles; None where it can."""
    if not TRITON:
        return "needs Triton; install it with pip install triton"
    if call.gpu.startswith("gfx") and call.gpu not in AMD_GPUS:
        return f"runs on {', '.join(AMD_GPUS)} of AMD's GPUs, not on {call.gpu}; take backend=None"
    if call.gpu.startswith("sm_") and int(call.gpu.removeprefix("sm_")) < 80:
        return f"wants a GPU of compute capability 8.0 (sm_80) or above, got {call.gpu}; take backend=None"
    return "failed the self-test of Triton's kernels on this device; take backend=None" if call.kernels_fail else None


def _refusal(backend: str, call: Call) -> str | None:
    """Return why a backend cannot do a call; None where it can."""
    if backend == "sdpa" and (call.return_lse or call.return_weights):
        wanted = "the log-sum-exp" if call.return_lse else "attention weights"
        return f"does not return {wanted}; take backend='reference' or None"
    if backend.endswith("tiles"):
        if call.return_weights:
            return "does not return attention weights; take backend='reference' or None"
        if call.device != "cpu" or call.traced or call.transformed or call.dtype == torch.float16:
            return "computes in bfloat16, float32 or float64 on a CPU, outside torch.compile and torch.func; take None"
    if backend == "flex":
        if call.return_lse or call.return_weights or call.dropout or call.content:
            return "gives no log-sum-exp, weights, dropout or terms by content; take backend='reference' or None"
        if call.device != "cuda" and call.training:
            return "trains on a CUDA device only; take backend=None"
        if not call.structured:
            return "wants a bias of low-rank and Toeplitz parts; take backend=None"
        if call.traced or call.transformed:
            return "is not traced; take backend=None"
        if call.device == "cuda" and (refusal := _gpu_refusal(call)):
            return refusal
    if backend == "triton":
        if call.return_weights:
            return "does not return attention weights; take backend='reference' or None"
        if refusal := _gpu_refusal(call):
            return refusal
        # Triton's interpreter runs the kernels on a CPU, slowly, to test them
        if call.device != "cuda" and os.environ.get("TRITON_INTERPRET") != "1":
            return "computes on a GPU; take backend=None"
        if call.dtype == torch.float64 or call.transformed:
            return "computes in float16, bfloat16 or float32, outside torch.func; take backend=None"
        widest = WIDEST_FLOAT32 if call.dtype == torch.float32 else WIDEST_TRAINED if call.training else WIDEST_HEAD
        if call.head_dim > widest:
            return f"takes heads of at most {widest} channels here, got {call.head_dim}; take backend=None"
        if not call.traced and call.batch * call.heads > MOST_PROGRAMS:
            return f"takes at most {MOST_PROGRAMS:,} heads of all examples; take a smaller batch or backend=None"
        if call.rank > (highest := widest + SPARE_RANK):
            return f"takes low-rank factors of at most {highest} channels here, got {call.rank}; take backend=None"
    return None
