"""What a model costs before it is trained, and what its encoding has learned afterwards."""

from wordorder.inspection.correlation import position_correlation
from wordorder.inspection.cost import cost

__all__ = ["cost", "position_correlation"]
