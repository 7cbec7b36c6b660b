"""Pure tensor functions and the typed values that everything above them passes on; torch only."""

from typing import TYPE_CHECKING

from wordorder.ops.bias import Bias as Bias
from wordorder.ops.bias import DenseBias as DenseBias
from wordorder.ops.bias import LowRankBias as LowRankBias
from wordorder.ops.bias import SumBias as SumBias
from wordorder.ops.bias import ToeplitzBias as ToeplitzBias
from wordorder.ops.bias import check_bias_fits as check_bias_fits
from wordorder.ops.mask import Mask as Mask
from wordorder.ops.mask import check_key_padding as check_key_padding
from wordorder.ops.mask import seen_diagonals as seen_diagonals
from wordorder.ops.mask import valid_tokens as valid_tokens
from wordorder.ops.positions import Arbitrary as Arbitrary
from wordorder.ops.positions import Contiguous as Contiguous
from wordorder.ops.positions import Packed as Packed
from wordorder.ops.positions import Positions as Positions
from wordorder.ops.positions import PositionsLike as PositionsLike
from wordorder.ops.positions import as_positions as as_positions
from wordorder.ops.positions import check_positions_fit as check_positions_fit
from wordorder.ops.positions import diagonal_distances as diagonal_distances
from wordorder.ops.positions import diagonals_not_to_the_right as diagonals_not_to_the_right
from wordorder.ops.positions import gather_tokens as gather_tokens
from wordorder.ops.positions import running_sum as running_sum
from wordorder.ops.positions import shift_between as shift_between
from wordorder.ops.positions import t5_bucket as t5_bucket
from wordorder.registry import lazy_names

if TYPE_CHECKING:
    from wordorder.ops.merge import merge_read_outs as merge_read_outs
    from wordorder.ops.pooling import pool as pool
    from wordorder.ops.relative_bias import RelativeBias as RelativeBias
    from wordorder.ops.relative_bias import RelativeKeyBias as RelativeKeyBias
    from wordorder.ops.relative_bias import relative_shift as relative_shift

_MODULES = {
    "merge_read_outs": "wordorder.ops.merge",
    "pool": "wordorder.ops.pooling",
    **dict.fromkeys(("RelativeBias", "RelativeKeyBias", "relative_shift"), "wordorder.ops.relative_bias"),
}
__getattr__, __dir__ = lazy_names(__name__, _MODULES)
