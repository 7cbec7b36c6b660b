import bisect

import pytest
import torch

from wordorder.ops import t5_bucket

FIRST_DISTANCE = [0, 1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 23, 32, 46, 64, 91]  # run in TUPE's reference code


def test_buckets_are_those_of_the_reference_code():
    for distance in range(-600, 600):
        expected = bisect.bisect_right(FIRST_DISTANCE, abs(distance)) - 1 + 16 * (distance > 0)
        assert t5_bucket(torch.tensor(distance)).item() == expected, distance


def test_one_direction_counts_the_right_side_as_here():
    bucket = t5_bucket(torch.tensor([5, 0, -1, -15, -16, -127, -128, -5000]), bidirectional=False)
    assert bucket.tolist() == [0, 0, 1, 15, 16, 31, 31, 31]


@pytest.mark.parametrize(("buckets", "max_distance"), [(4, 2), (8, 3), (32, 9), (64, 1000)])
def test_buckets_grow_with_distance_and_stay_in_range(buckets, max_distance):
    left = t5_bucket(-torch.arange(3 * max_distance), buckets=buckets, max_distance=max_distance)
    right = t5_bucket(torch.arange(1, 3 * max_distance), buckets=buckets, max_distance=max_distance)
    assert (left.diff() >= 0).all()
    assert left.max() == buckets // 2 - 1
    assert (right - buckets // 2 == left[1:]).all()


@pytest.mark.parametrize(
    ("arguments", "word"),
    [({"buckets": 3}, "buckets"), ({"buckets": 2}, "buckets"), ({"max_distance": 8}, "max_distance")],
)
def test_wrong_numbers_are_refused(arguments, word):
    with pytest.raises(ValueError, match=word):
        t5_bucket(torch.zeros(1).long(), **arguments)
