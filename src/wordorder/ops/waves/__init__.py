"""Compute words as waves over positions: the functions, their tables, their gradients, and kernels for CUDA."""
