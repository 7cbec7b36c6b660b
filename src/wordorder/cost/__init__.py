"""Count what a model costs before it is trained: parameters, FLOPs, and by formula memory and time on several GPUs."""

from wordorder.cost.counting import activation_bytes, cost
from wordorder.cost.gpus import GPUMemory, GPUs

__all__ = ["GPUMemory", "GPUs", "activation_bytes", "cost"]
