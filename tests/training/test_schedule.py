"""Learning rates are those of transformers, to the bit, and the decay is that of its paper."""

import math

import pytest
import torch
from transformers import get_scheduler

from wordorder.training.loop.schedule import SCHEDULES, factor, warmup_of


@pytest.mark.parametrize(
    ("kind", "name"), [("linear", "linear"), ("cosine", "cosine"), ("inverse-sqrt", "inverse_sqrt")]
)
@pytest.mark.parametrize(("steps", "warmup"), [(1, 0), (7, 2), (100, 0), (1000, 100), (550, 549), (10, 10)])
def test_a_schedule_is_that_of_transformers_to_the_bit(kind, name, steps, warmup):
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    schedule = get_scheduler(name, optimizer, num_warmup_steps=warmup, num_training_steps=steps)
    for step in range(steps + 3):
        assert factor(kind, step, steps=steps, warmup=warmup) == schedule.get_last_lr()[0], step
        optimizer.step()
        schedule.step()


def test_constant_is_the_peak_after_its_warm_up():
    assert [factor("constant", step, steps=9, warmup=4) for step in range(6)] == [0, 0.25, 0.5, 0.75, 1, 1]


def test_the_last_steps_of_warmup_stable_decay_fall_by_the_root():
    found = [factor("warmup-stable-decay", step, steps=20, warmup=2, decay=4) for step in range(21)]
    assert found[:3] == [0, 0.5, 1]
    assert found[3:17] == [1.0] * 14
    assert found[17:] == pytest.approx([1 - math.sqrt(p) for p in (0.25, 0.5, 0.75, 1)])


@pytest.mark.parametrize("kind", SCHEDULES)
def test_a_rate_is_never_below_0_nor_above_the_peak(kind):
    for steps, warmup, decay in ((1, 0, 1), (3, 3, 3), (50, 5, 10)):
        assert all(0 <= factor(kind, step, steps=steps, warmup=warmup, decay=decay) <= 1 for step in range(2 * steps))


@pytest.mark.parametrize(
    ("warmup", "steps", "found"), [(0, 9, 0), (0.1, 9, 1), (0.1, 1001, 101), (30, 9, 30), (1.0, 9, 1)]
)
def test_a_warm_up_below_1_is_a_share(warmup, steps, found):
    assert warmup_of(warmup, steps) == found
