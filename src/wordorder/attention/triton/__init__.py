"""Attention with a bias that learns by Triton kernels, for GPUs."""
