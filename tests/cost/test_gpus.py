"""Bytes of parameters, gradients and states as torch has them, their division among GPUs, and the time."""

import pytest
import torch

from wordorder.cost import GPUs, cost
from wordorder.errors import BadInput
from wordorder.models import build_config, build_model

MIB = 2**20
COUNTED = {
    "parameter_bytes": 100 * MIB,
    "gradient_bytes": 100 * MIB,
    "optimizer_bytes": 200 * MIB,
    "flops_per_token": 600,
    "forward_flops_per_token": 200,
}


def parts(gpus, **options):
    found = gpus.memory(COUNTED, activations=7 * MIB, **options)
    return [size // MIB for size in (found.parameters, found.gradients, found.optimizer, found.copies)]


@pytest.mark.parametrize(
    ("network", "task", "fields"),
    [
        ("encoder", "masked-lm", {"encoding": "tupe-r"}),
        ("decoder", "causal-lm", {"encoding": "rope", "tie_word_embeddings": False}),
        ("seq2seq", "translation", {"encoding": "learned"}),
        ("encoder", "masked-lm", {"encoding": "complex-order", "encoding_options": {"frequency_trainable": False}}),
    ],
)
def test_states_have_the_bytes_that_torch_allocates(network, task, fields):
    config = build_config(network, vocab_size=50, hidden_size=32, num_hidden_layers=2, **fields)
    model = build_model(config, task, seed=0).train()
    optimizer = torch.optim.AdamW([weight for weight in model.parameters() if weight.requires_grad])
    token_ids = torch.randint(50, (2, 9))
    given = {"decoder_input_ids": token_ids} if task == "translation" else {}
    model(input_ids=token_ids, labels=token_ids, **given).loss.backward()
    optimizer.step()
    moments = [state[name] for state in optimizer.state.values() for name in ("exp_avg", "exp_avg_sq")]
    found = GPUs().memory(cost(config, task, length=9, batch_size=2), activations=5)
    assert found.parameters == sum(weight.nbytes for weight in model.parameters())
    assert found.gradients == sum(weight.grad.nbytes for weight in model.parameters() if weight.grad is not None)
    assert found.optimizer == sum(moment.nbytes for moment in moments)
    assert (found.copies, found.activations) == (0, 5)
    assert found.total == found.parameters + found.gradients + found.optimizer + 5


def test_ddp_divides_nothing_and_fsdp_all_states():
    assert parts(GPUs()) == [100, 100, 200, 0]
    assert parts(GPUs(), half=True) == [100, 100, 200, 50]
    assert parts(GPUs(count=8)) == [100, 100, 200, 100]  # buckets of gradients
    assert parts(GPUs(count=8), half=True) == [100, 100, 200, 150]
    assert parts(GPUs(count=8, sharding="fsdp"), half=True) == [12, 12, 25, 0]
    assert GPUs(count=8, sharding="fsdp").memory(COUNTED, activations=7).activations == 7
    assert GPUs(count=3, sharding="fsdp").memory(COUNTED, activations=7).parameters == -(-100 * MIB // 3)


@pytest.mark.parametrize(
    ("optimizer", "states"), [("adamw_torch_fused", 200), ("sgd", 0), ("adafactor", 0), ("adamw_bnb_8bit", 50)]
)
def test_optimizers_keep_other_states(optimizer, states):
    assert parts(GPUs(), optimizer=optimizer)[2] == states


def test_time_is_flops_by_peak_and_utilisation():
    gpus = GPUs(count=8, peak_tflops=100, utilisation=0.5)
    assert gpus.flops(COUNTED, tokens=1000) == 8 * 1000 * 600
    assert gpus.flops(COUNTED, tokens=1000, checkpointing=True) == 8 * 1000 * 800
    assert gpus.seconds(4e15) == 4e15 / (8 * 100e12 * 0.5) == 10
    assert GPUs().seconds(4e15) is None


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"count": 0}, "--gpus: must be at least 1 and at most 1,000,000, got 0"),
        ({"count": 10**400}, "--gpus: must be at least 1"),
        ({"sharding": "zero"}, "--sharding: must be ddp or fsdp, got 'zero'"),
        ({"peak_tflops": 100.0}, "--utilisation: is missing"),
        ({"utilisation": 0.4}, "--peak-tflops: is missing"),
        ({"peak_tflops": 0.0, "utilisation": 0.4}, "--peak-tflops: must lie between 0.001 and 1,000,000, got 0"),
        (
            {"peak_tflops": float("nan"), "utilisation": 0.4},
            "--peak-tflops: must lie between 0.001 and 1,000,000, got nan",
        ),
        ({"peak_tflops": 5e-324, "utilisation": 0.4}, "--peak-tflops: must lie between"),
        (
            {"peak_tflops": 100.0, "utilisation": 40.0},
            "--utilisation: must lie between 0.0001 and 1, such as 0.4, got 40",
        ),
    ],
)
def test_values_out_of_range_are_refused(options, words):
    with pytest.raises(BadInput, match=words):
        GPUs(**options)
