"""Calls for the kernels: measured or counted to be faster than SDPA, or with a bias too large to write out."""

from wordorder.attention.call import Call

LARGEST_MATRIX = 256 * 2**20
"""Most bytes of bias and its gradient that may always be written out."""
CARD_SHARE = 16
"""They may take one part in so many of the card's memory, too."""
MEASURED = {"sm_90": {"table": 2_048**2, "low-rank": 8_192**2}}
"""Least T * S from which Triton trains faster than SDPA with the bias written out, by GPU and kind of bias.

From benchmarks/results/gpu-h200-*.json: in 16 bits without dropout. All else that was measured went to SDPA.
"""
LEAST_SCORES = 8 * 12 * 2_048**2
"""Fewest scores of all heads and examples at which Triton won; with fewer, launches take longer than the scores."""
NARROW = 4
"""A window is narrow where it is at most one part in so many of the keys: SDPA, which writes the mask out and computes
every score, then has at least three times the products. Counted, not measured."""


def is_too_large(call: Call) -> bool:
    """Tell whether the written-out bias and its gradient, which torch's kernels write for every example, are too large.

    Not where lengths are symbols: a comparison would bind a compiled or exported graph to those of its example.
    """
    if call.traced:
        return False
    learns = call.training and call.bias == "learned"
    gradients = call.batch * call.heads * call.queries * call.keys * call.dtype.itemsize if learns else 0
    return call.matrix_bytes + gradients > max(LARGEST_MATRIX, call.memory // CARD_SHARE)


def is_faster(call: Call) -> bool:
    """Tell whether Triton was measured to train faster than SDPA on such a call."""
    learns = call.training and call.bias == "learned" and call.structured and not call.dense_content
    if call.traced or not learns or call.dropout or call.dtype.itemsize != 2:
        return False
    least, pairs = MEASURED.get(call.gpu, {}).get("low-rank" if call.rank else "table"), call.queries * call.keys
    return least is not None and pairs >= least and call.batch * call.heads * pairs >= LEAST_SCORES


def is_narrow(call: Call) -> bool:
    """Tell whether a window hides so much that the kernels, which skip what is hidden, have few products left."""
    if call.traced or call.span is None or call.dense_content or call.dtype.itemsize != 2:
        return False
    seen = call.queries * call.span
    return call.span * NARROW <= call.keys and call.batch * call.heads * seen * NARROW >= LEAST_SCORES
