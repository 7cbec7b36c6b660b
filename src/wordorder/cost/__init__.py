"""Count what a model costs before it is trained: parameters, FLOPs and memory."""

from wordorder.cost.counting import cost

__all__ = ["cost"]
