import gc
from dataclasses import replace

import pytest
import torch

from wordorder.inspection import Step, cost, trace
from wordorder.inspection.traced_step import total_flops
from wordorder.models import build_config, build_model

C, T, V, ROWS, LAYERS, HEADS = 64, 32, 101, 3, 2, 4
SIZES = {"vocab_size": V, "hidden_size": C, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS}
QUIET = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


def step_of(network="encoder", task="masked-lm", **fields) -> Step:
    config = build_config(network, **{**SIZES, "encoding": "none", **fields})
    return Step(config=config, task=task, length=T, rows=ROWS)


def test_arithmetic_is_that_of_the_cost_and_attention_is_apart():
    step = step_of(**QUIET)
    counted = cost(step.config, "masked-lm", length=T, batch_size=ROWS)["flops_per_token"] * ROWS * T
    flops = total_flops(trace(step).work)
    scores = 2 * ROWS * T * T * C * 2 * LAYERS  # two products per layer, forward
    assert flops["attention"] == 3.5 * scores  # 2.5 times more in a fused backward, which computes scores again
    assert flops["matmul"] == counted - 3 * scores
    on_cpu = total_flops(trace(step, device="cpu").work)
    assert on_cpu == flops


@pytest.mark.parametrize(
    ("network", "task", "fields"),
    [
        ("encoder", "masked-lm", {"encoding": "tupe-r", "sparse_prediction": True}),
        ("encoder", "classification", {"encoding": "t5"}),
        ("encoder", "question-answering", {}),
        ("encoder", "token-classification", {"encoding": "deberta"}),
        ("decoder", "causal-lm", {"encoding": "alibi+shaw"}),
        ("decoder", "causal-lm", {"encoding": "rope", "memory": "look-ahead", "memory_length": T, "segment_length": T}),
        ("decoder", "causal-lm", {"encoding": "none", "adaptive_cutoffs": [20, 50], "tie_word_embeddings": False}),
        ("seq2seq", "translation", {"encoding": "sinusoidal"}),
        ("classifier", "regression", {"encoding": "complex-order"}),
    ],
)
def test_every_kind_of_model_is_traced_in_every_way(network, task, fields):
    step = step_of(network, task, **fields)
    number = sum(parameter.numel() for parameter in build_model(step.config, task, seed=0).parameters())
    for half in (False, True):
        one = replace(step, precision="bf16" if half else "float32", checkpointing=half)
        for found in (trace(one), trace(one, device="cpu")):
            assert found.parameters == number
            assert len(found.blocks) == LAYERS * (2 if network == "seq2seq" else 1)
            assert found.activation_bytes > 0
            assert found.operations["forward"] > 0
            assert (found.copy_bytes > 0) == half
            assert (found.memory_bytes > 0) == ("memory" in fields)


@pytest.mark.parametrize("network", ["seq2seq", "decoder"])
def test_tables_that_are_shared_are_one_on_a_cpu_too(network):
    task = "translation" if network == "seq2seq" else "causal-lm"
    step = step_of(network, task, encoding="rope", tie_word_embeddings=True)
    wanted = sum(parameter.numel() for parameter in build_model(step.config, task, seed=0).parameters())
    gc.disable()  # what is left over of one trace must not be in the way of the next
    try:
        assert {trace(step, device="cpu").parameters for _ in range(6)} == {wanted}
    finally:
        gc.enable()


def test_what_is_alive_grows_with_the_rows():
    step = step_of(**QUIET)
    with_more = replace(step, rows=2 * ROWS)
    one, two = trace(step), trace(with_more)
    assert two.logits_bytes == 2 * one.logits_bytes
    # logits, their logarithms, and the gradients of both that backward makes one after another
    assert one.logits_bytes in (3 * 4 * ROWS * T * V, 2 * 4 * ROWS * T * V)
    assert 1.9 < two.activation_bytes / one.activation_bytes < 2.05


def test_checkpointing_keeps_less_and_computes_more():
    step = step_of(**QUIET, num_hidden_layers=8)
    plain, saved = trace(step), trace(replace(step, checkpointing=True))
    assert saved.activation_bytes < 0.4 * plain.activation_bytes
    ratio = sum(total_flops(saved.work).values()) / sum(total_flops(plain.work).values())
    assert 1.2 < ratio < 1.4  # a forward pass of the layers is a quarter to a third of a step
    assert saved.blocks == plain.blocks


def test_sixteen_bits_halve_what_the_products_move_and_keep():
    step = step_of(**QUIET)
    full, half = trace(step), trace(replace(step, precision="bf16"))
    assert total_flops(full.work) == total_flops(half.work)
    assert all(one.half for one in half.work if one.kind == "matmul")
    assert half.activation_bytes < full.activation_bytes
    weights = sum(p.numel() for n, p in build_model(step.config, "masked-lm", seed=0).named_parameters() if p.dim() > 1)
    assert half.copy_bytes <= 2 * weights + 8 * C * LAYERS * 8  # and the biases of linear layers


def test_attention_on_a_gpu_keeps_no_scores():
    fields = {**QUIET, "num_hidden_layers": 4, "max_position_embeddings": 2048}
    short = trace(replace(step_of(**fields), length=512))
    long = trace(replace(step_of(**fields), length=1024))
    assert long.activation_bytes < 2.1 * short.activation_bytes
    biased = trace(replace(step_of(**fields, encoding="t5"), length=1024))
    assert biased.activation_bytes > long.activation_bytes + 4 * HEADS * 1024**2  # the bias is written out


def test_a_look_ahead_memory_is_counted_once_for_each_group():
    fields = {"memory": "look-ahead", "memory_length": 48, "segment_length": T, "encoding": "rope"}
    found = trace(step_of("decoder", "causal-lm", **fields))
    model = build_model(step_of("decoder", "causal-lm", **fields).config, "causal-lm", seed=0)
    state, ids = None, torch.zeros(ROWS, T, dtype=torch.long)
    for _ in range(2):
        state = model(input_ids=ids, memory=state).memory
    assert state.length == 48
    assert found.memory_bytes == sum(4 * tensor.numel() for tensor in state.slots().values())
