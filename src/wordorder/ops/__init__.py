"""Pure tensor functions and the typed values that everything above them passes on; torch only."""

from wordorder.ops.bias import (
    Bias,
    DenseBias,
    LowRankBias,
    RelativeBias,
    RelativeKeyBias,
    SumBias,
    ToeplitzBias,
    relative_shift,
)
from wordorder.ops.merge import merge_read_outs
from wordorder.ops.positions import (
    Arbitrary,
    Contiguous,
    Packed,
    Positions,
    PositionsLike,
    as_positions,
    check_positions_fit,
    diagonal_distances,
    diagonals_not_to_the_right,
    shift_between,
    t5_bucket,
)
from wordorder.ops.visibility import Visibility, check_key_padding, seen_diagonals, valid_tokens

__all__ = [
    "Arbitrary",
    "Bias",
    "Contiguous",
    "DenseBias",
    "LowRankBias",
    "Packed",
    "Positions",
    "PositionsLike",
    "RelativeBias",
    "RelativeKeyBias",
    "SumBias",
    "ToeplitzBias",
    "Visibility",
    "as_positions",
    "check_key_padding",
    "check_positions_fit",
    "diagonal_distances",
    "diagonals_not_to_the_right",
    "merge_read_outs",
    "relative_shift",
    "seen_diagonals",
    "shift_between",
    "t5_bucket",
    "valid_tokens",
]
