"""Buckets of signed distance, as in T5 and TUPE-R."""

import math

import torch
from torch import Tensor


def t5_bucket(distance: Tensor, *, buckets: int = 32, max_distance: int = 128, bidirectional: bool = True) -> Tensor:
    """Return the bucket number of ``distance = key position - query position``.

    Raffel et al. 2020, "Exploring the limits of transfer learning with a unified text-to-text transformer",
    https://arxiv.org/abs/1910.10683, Sec. 2.1. With n = |distance| and ``half`` buckets per direction, the first
    half / 2 buckets are exact and the others grow with the logarithm::

        n <  half/2:  n
        n >= half/2:  min(half/2 + floor(log(n / (half/2)) / log(max_distance / (half/2)) * (half/2)), half - 1)

    plus ``half`` where the key stands to the right of its query. With ``bidirectional=False`` (decoders) all buckets
    serve the left side and every key to the right counts as distance 0.

    The borders are computed once in exact float64 and looked up, not by taking a float32 logarithm of each distance:
    16, 32 and 64 then fall where the formula puts them on every device.

    Args:
        distance: integers of any shape.
        buckets: how many buckets in all; even where bidirectional, at least 4.
        max_distance: from here on everything shares the last bucket; greater than half of the buckets of a direction.
        bidirectional: whether left and right have buckets of their own.

    Returns:
        long, shaped like distance, in 0 .. buckets - 1.

    Raises:
        ValueError: an argument is out of range.
    """
    half = buckets // 2 if bidirectional else buckets
    exact = half // 2
    if exact < 1 or (bidirectional and buckets % 2):
        raise ValueError(f"buckets must be even and at least 4, got {buckets}")
    if max_distance <= exact:
        raise ValueError(f"max_distance must be greater than {exact} for {buckets} buckets, got {max_distance}")
    far = distance.abs() if bidirectional else (-distance).clamp(min=0)
    borders = torch.tensor(_first_distance_of_each_bucket(half, max_distance), device=distance.device)
    bucket = torch.bucketize(far, borders, right=True) - 1
    return bucket + half * (distance > 0) if bidirectional else bucket


def _first_distance_of_each_bucket(half: int, max_distance: int) -> list[int]:
    """Return the smallest distance of buckets 0 .. half - 1; empty buckets begin where the next one does."""
    exact = half // 2
    growth = math.log(max_distance / exact) / (half - exact)
    # the small number keeps a border that is a whole number (16, 32, 64) from being lifted to the next one by rounding
    return [*range(exact), *(math.ceil(exact * math.exp(growth * i) - 1e-9) for i in range(half - exact))]
