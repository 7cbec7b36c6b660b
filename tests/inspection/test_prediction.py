from collections import Counter
from dataclasses import replace

import pytest

from wordorder.errors import BadInput
from wordorder.inspection import Device, Layout, Step, Trace, device_named, predict
from wordorder.inspection.counted_operations import Work
from wordorder.inspection.fitting import changes_that_fit
from wordorder.inspection.prediction import ATTENTION_SHARE, BANDWIDTH_SHARE, MATMUL_SHARE, memory_of
from wordorder.models import build_config

H100 = device_named("h100")
CONFIG = build_config("encoder", vocab_size=50, hidden_size=16, num_hidden_layers=2, num_attention_heads=2)
STEP = Step(config=CONFIG, task="masked-lm", length=100, rows=4, precision="bf16")
P = 1_000_000
TRACE = Trace(
    parameters=P,
    blocks=(300_000, 300_000),
    work=Counter(
        {
            Work("forward", "matmul", True, 10**12, 10**6): 3,
            Work("backward", "attention", True, 10**12, 10**6): 2,
            Work("backward", "memory", False, 0, 10**9): 5,
        }
    ),
    operations={"forward": 3, "backward": 7},
    activation_bytes=8 * 10**9,
    logits_bytes=10**9,
    copy_bytes=2 * P,
    memory_bytes=10**6,
)


def predicted(layout: Layout, step: Step = STEP, device: Device = H100):
    return predict(step, TRACE, layout, device, model_flops_per_token=1e9)


def test_each_operation_takes_the_longer_of_its_arithmetic_and_its_bytes():
    one = predicted(Layout(devices=1))
    assert one.parts["matmul"] == pytest.approx(3e12 / (MATMUL_SHARE * 989.5e12))
    assert one.parts["attention"] == pytest.approx(2e12 / (ATTENTION_SHARE * 989.5e12))
    assert one.parts["memory"] == pytest.approx(5e9 / (BANDWIDTH_SHARE * 3.35e12))
    assert one.parts["optimizer"] == pytest.approx(40 * P / (BANDWIDTH_SHARE * 3.35e12))
    assert one.parts["communication"] == one.parts["launching"] == 0
    assert one.seconds == sum(one.parts.values())
    assert one.limit == "attention"
    assert one.flops == 5e12
    assert one.tokens_per_second == pytest.approx(400 / one.seconds)
    assert one.utilisation == pytest.approx(400e9 / one.seconds / 989.5e12)
    twice = predicted(Layout(devices=1), replace(STEP, accumulation=2))
    assert twice.parts["matmul"] == 2 * one.parts["matmul"]
    assert twice.parts["optimizer"] == one.parts["optimizer"]


def test_many_small_operations_are_bound_by_issuing_them():
    slow = replace(H100, launch=1.0)
    issued = predicted(Layout(devices=1), device=slow)
    assert issued.limit == "launching"
    assert issued.seconds == pytest.approx(10, rel=1e-3)
    cpu = predicted(Layout(devices=1), device=replace(slow, asynchronous=False))
    assert cpu.parts["launching"] == 10
    assert cpu.seconds > issued.seconds


def test_what_each_device_holds():
    alone, many = memory_of(STEP, TRACE, Layout(devices=1)), memory_of(STEP, TRACE, Layout(devices=64))
    assert (alone.weights, alone.gradients, alone.optimizer, alone.communication) == (4 * P, 4 * P, 8 * P, 0)
    assert (alone.activations, alone.logits, alone.weight_copies) == (8e9, 1e9, 2 * P)
    assert alone.total == 16 * P + 9e9 + 2 * P + 1e6
    assert many.communication == 4 * P  # buckets
    sharded = memory_of(STEP, TRACE, Layout(devices=64, strategy="fsdp2"))
    assert sharded.weights == sharded.gradients == 4 * P / 64
    assert sharded.optimizer == 8 * P / 64
    assert sharded.weight_copies == 0  # gathered in 16 bits as they are
    assert sharded.communication == 2 * (400_000 + 2 * 300_000 + 2 * 400_000)
    collected = memory_of(replace(STEP, accumulation=2), TRACE, Layout(devices=64, strategy="fsdp2"))
    assert collected.communication == sharded.communication + 2 * P
    hybrid = memory_of(STEP, TRACE, Layout(devices=64, strategy="hybrid"))
    assert hybrid.weights == 4 * P / 8


def test_memories_are_one_for_each_micro_batch_with_rows_of_its_own():
    layout = Layout(devices=1)
    assert memory_of(replace(STEP, accumulation=6), TRACE, layout).slots == 6e6
    assert memory_of(replace(STEP, accumulation=6, pieces=3), TRACE, layout).slots == 2e6
    assert memory_of(replace(STEP, optimizer="sgd"), TRACE, layout).optimizer == 0


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"devices": 0}, "--gpus: must be at least 1, got 0"),
        ({"devices": 12}, "--gpus: 12 are not whole nodes of 8"),
        ({"devices": 8, "per_node": 0}, "--gpus-per-node: must be at least 1, got 0"),
        ({"devices": 8, "per_node": -1}, "--gpus-per-node: must be at least 1, got -1"),
        ({"devices": 8, "strategy": "zero"}, "--strategy: must be one of ddp, fsdp2, hybrid, got 'zero'"),
    ],
)
def test_a_layout_that_cannot_be(options, words):
    with pytest.raises(BadInput, match=words):
        Layout(**options)


def test_what_does_not_fit_says_what_would():
    big = replace(STEP, rows=64)
    traced = replace(TRACE, parameters=4 * 10**9, activation_bytes=60 * 10**9, logits_bytes=4 * 10**9)
    small = replace(traced, parameters=10**9)
    layout = Layout(devices=8)
    assert not predict(big, traced, layout, H100, model_flops_per_token=1).fits
    # 16 GB of state, 4 of buckets: checkpointing (traced anew) or half of the rows are enough
    found = {change.what for change in changes_that_fit(big, small, layout, H100)}
    assert any(what.startswith("gradient checkpointing") for what in found)
    assert any(what.startswith("32 rows at a time") for what in found)
    assert "fsdp2 (--strategy fsdp2)" in found
    for change in changes_that_fit(big, small, layout, H100):
        assert change.memory_bytes <= H100.memory_bytes
    # 64 GB of state and 16 of buckets on each: sharding alone leaves the activations, so one of both is not enough
    found = [change.what for change in changes_that_fit(big, traced, layout, device_named("l40s"))]
    assert all("fsdp2" not in what or "together" in what for what in found)
