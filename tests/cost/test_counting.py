import re

import pytest

from wordorder.cost import cost
from wordorder.encodings import CATALOG
from wordorder.models import build_config, build_model

BERT_BASE = {
    "vocab_size": 32768,
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
    "norm_placement": "post",
}


def test_tupe_adds_the_paper_s_parameters_to_bert_base():
    plain = cost(build_config("encoder", encoding="none", **BERT_BASE), "masked-lm", length=512)
    tupe = cost(build_config("encoder", encoding="tupe-a", cls_token_id=1, **BERT_BASE), "masked-lm", length=512)
    assert tupe["encoding_parameters"] == {
        "tupe projections": 1_181_184,
        "tupe position table": 513 * 768,
        "tupe norm": 1536,
    }
    assert tupe["parameters"]["total"] - plain["parameters"]["total"] == tupe["parameters"]["encoding"]
    assert 0.01 < tupe["parameters"]["encoding"] / plain["parameters"]["total"] < 0.02
    assert 1.0 < tupe["flops_per_token"] / plain["flops_per_token"] < 1.03


@pytest.mark.parametrize("name", CATALOG)
def test_parts_add_up_to_the_model_that_is_built(name):
    network, task = ("encoder", "masked-lm") if "encoder" not in CATALOG[name].refused_in else ("decoder", "causal-lm")
    config = build_config(network, encoding=name, vocab_size=50, hidden_size=32, num_hidden_layers=2)
    found = cost(config, task, length=16)
    parts = found["parameters"]
    total = sum(parameter.numel() for parameter in build_model(config, task, seed=0).parameters())
    assert parts.pop("total") == total == sum(parts.values())
    assert sum(found["encoding_parameters"].values()) == parts["encoding"]
    assert found["optimizer_bytes"] == 8 * total
    assert found["activation_bytes"] > 0


def test_flops_of_a_small_encoder_by_hand():
    T, C, V, F, layers = 16, 32, 50, 128, 2
    config = build_config("encoder", encoding="none", vocab_size=V, hidden_size=C, num_hidden_layers=layers)
    per_token = 2 * (layers * (4 * C * C + 2 * C * F + 2 * T * C) + C * C + C * V)
    found = cost(config, "masked-lm", length=T)
    assert found["forward_flops_per_token"] == per_token
    assert found["flops_per_token"] == 3 * per_token
    config.sparse_prediction = True
    sparse = cost(config, "masked-lm", length=T, labelled_share=0.25)
    assert sparse["forward_flops_per_token"] == per_token - 2 * 0.75 * (C * C + C * V)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"length": 0}, "length must be positive, got 0"),
        ({"length": 8, "batch_size": 0}, "batch_size must be positive, got 0"),
        ({"length": 8, "labelled_share": 15}, "labelled_share must lie between 0 and 1, got 15"),
    ],
)
def test_sizes_that_count_nothing_are_refused(options, words):
    config = build_config("encoder", vocab_size=50, hidden_size=32, num_hidden_layers=1)
    with pytest.raises(ValueError, match=words):
        cost(config, "masked-lm", **options)


def test_classifiers_have_a_cost_too():
    config = build_config("encoder", vocab_size=50, hidden_size=32, num_hidden_layers=2, num_labels=3)
    parts = cost(config, "classification", length=16)["parameters"]
    assert parts["head"] == 32 * 32 + 32 + 32 * 3 + 3


@pytest.mark.parametrize(("length", "slots"), [(16, 16), (16, 40), (24, 8)])
def test_flops_of_a_segment_are_those_with_a_full_memory(length, slots):
    C, V, F, layers = 32, 50, 128, 2
    sizes = {"vocab_size": V, "hidden_size": C, "num_hidden_layers": layers, "encoding": "none"}
    config = build_config("decoder", **sizes, memory="segment-recurrence", memory_length=slots, segment_length=length)
    keys = (slots + length) / length  # for each token
    per_token = 2 * (layers * (2 * C * C + 2 * C * C * keys + 2 * C * F + 2 * slots * C + 2 * length * C) + C * V)
    assert cost(config, "causal-lm", length=length)["forward_flops_per_token"] == round(per_token)
    ahead = build_config("decoder", **sizes, memory="look-ahead", memory_length=slots, segment_length=length)
    found = cost(ahead, "causal-lm", length=length)
    assert found["forward_flops_per_token"] > per_token
    assert found["parameters"] == cost(config, "causal-lm", length=length)["parameters"]


@pytest.mark.parametrize(
    ("encoding", "keys"),
    [("rope@16", 4 * (64 - 31)), ("t5@16*3,none", 3 * (64 - 31)), ("rope@33", 0), ("rope@9,rope@4", 208)],
)
@pytest.mark.parametrize(
    ("network", "task"), [("encoder", "masked-lm"), ("decoder", "causal-lm"), ("seq2seq", "translation")]
)
def test_a_window_costs_what_it_sees(network, task, encoding, keys):
    """Both products of a layer, forward, and twice that backward, of keys that are further than a window away."""
    sizes = {"vocab_size": 50, "hidden_size": 32, "num_hidden_layers": 4, "num_attention_heads": 4}

    def counted(name):
        return cost(build_config(network, encoding=name, **sizes), task, length=64)

    whole, part = counted(re.sub(r"@\d+", "", encoding)), counted(encoding)
    # of a translator's two stacks; a token is one of either side
    assert whole["forward_flops_per_token"] - part["forward_flops_per_token"] == 4 * 32 * keys
    assert whole["flops_per_token"] - part["flops_per_token"] == 12 * 32 * keys
