"""Models whose layers have different encodings: configuration, saving, generation, training, figures and cost."""

import pytest
import torch
from torch.testing import assert_close
from transformers import AutoModelForCausalLM, AutoModelForMaskedLM, AutoModelForSeq2SeqLM

from wordorder.cost import cost
from wordorder.encodings import Composition
from wordorder.errors import BadInput
from wordorder.inspection import inspect_model, position_correlation, score_maps
from wordorder.models import build_config, build_model, check_length
from wordorder.ops import Contiguous
from wordorder.papers.tupe.figure_2 import word_position_correlations
from wordorder.training.recipe.files import parse_value

SIZES = {
    "vocab_size": 50,
    "hidden_size": 32,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "eos_token_id": 2,
    "initializer_range": 0.3,
}
TASKS = {"encoder": "masked-lm", "decoder": "causal-lm", "seq2seq": "translation"}
AUTO = {"encoder": AutoModelForMaskedLM, "decoder": AutoModelForCausalLM, "seq2seq": AutoModelForSeq2SeqLM}
GREEDY = {"max_new_tokens": 8, "do_sample": False}


def build(network, encoding="rope*3,none", **fields):
    return build_model(build_config(network, encoding=encoding, **{**SIZES, **fields}), TASKS[network], seed=1).eval()


def ids(batch=2, length=9):
    return torch.randint(3, 50, (batch, length))


def logits(model, x):
    return model(x, **({"decoder_input_ids": x} if model.config.is_encoder_decoder else {})).logits


@pytest.mark.parametrize(
    "encoding", ["rope*3,none", "tupe-a,none,shaw", "complex-order+rope,complex-order", "rope@3*2,t5"]
)
@pytest.mark.parametrize("network", TASKS)
def test_save_and_load(network, encoding, tmp_path):
    model, x = build(network, encoding), ids()
    model.save_pretrained(tmp_path)
    again, info = AUTO[network].from_pretrained(tmp_path, output_loading_info=True)
    assert again.config.encoding == encoding
    assert not any(info[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    assert_close(logits(again, x), logits(model, x), rtol=0, atol=0)
    assert any(len(module.kinds) > 1 for module in again.modules() if isinstance(module, Composition))


def test_weights_of_a_hybrid_are_a_share_of_those_of_the_plain_stack():
    plain, hybrid = build("decoder", "shaw+tupe-a").state_dict(), build("decoder", "shaw+tupe-a,none").state_dict()
    assert set(hybrid) < set(plain)
    assert all(torch.equal(hybrid[name], plain[name]) for name in hybrid)


@pytest.mark.parametrize("encoding", ["rope*3,none", "t5,none,shaw", "rope@4*3,t5"])
@pytest.mark.parametrize("memory", ["none", "segment-recurrence", "look-ahead"])
def test_generate_writes_the_same_with_and_without_a_cache(memory, encoding):
    fields = {} if memory == "none" else {"memory": memory, "memory_length": 8, "segment_length": 8}
    model, x = build("decoder", encoding, **fields), ids(length=7)
    kept = model.generate(x, **GREEDY)
    assert kept.shape[1] == 15
    if memory == "none":
        assert torch.equal(kept, model.generate(x, use_cache=False, **GREEDY))
    else:
        first = model(kept[:, :8])  # a segment, and then one beside what it left
        second = model(kept[:, 8:], memory=first.memory)
        read = torch.cat((first.logits, second.logits), 1)
        ended = (kept[:, 7:-1] == SIZES["eos_token_id"]).cumsum(1) > 0
        written = torch.cat((ended.new_ones(2, 1), ~ended), 1)  # what comes after the end is padding
        assert torch.equal(read[:, 6:-1].argmax(-1)[written], kept[:, 7:][written])


def test_an_encoder_decoder_writes_the_same_with_and_without_a_cache():
    model = build("seq2seq", "rope,none,tupe-a", decoder_layers=3)
    x = ids()
    assert torch.equal(model.generate(x, **GREEDY), model.generate(x, use_cache=False, **GREEDY))


@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_side_changes_nothing(side):
    model, x = build("encoder", "rope+tupe-a,none"), ids(1, 6)
    pad = (3, 0) if side == "left" else (0, 3)
    wide = torch.nn.functional.pad(x, pad)
    found = model(wide, attention_mask=(wide > 0).long()).logits[wide > 0]
    assert_close(found, model(x).logits[0], rtol=1e-4, atol=1e-4)


def test_gradient_checkpointing_changes_no_gradient():
    model, x = build("decoder", "rope+tupe-a,none", hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0), ids()
    model.train()
    plain = torch.autograd.grad(model(x, labels=x).loss, list(model.parameters()), allow_unused=True)
    enable = getattr(model, "activation_checkpointing_enable", None) or model.gradient_checkpointing_enable
    enable()
    again = torch.autograd.grad(model(x, labels=x).loss, list(model.parameters()), allow_unused=True)
    for first, second in zip(plain, again, strict=True):
        assert_close(first, second)


@pytest.mark.parametrize(
    ("network", "fields", "words"),
    [
        ("encoder", {"encoding": "rope*4,none"}, ["a pattern of 5 layers, and the network has 4"]),
        ("encoder", {"encoding": "learned,rope"}, ["'learned' acts on embeddings"]),
        ("encoder", {"encoding": "rope,nope"}, ["unknown encoding 'nope'"]),
        ("encoder", {"encoding": "rope,none", "encoding_options": {"base": 5.0}}, ["base: not a part"]),
        ("seq2seq", {"encoding": "rope*3,none", "decoder_layers": 2}, ["the network has 2"]),
        (
            "decoder",
            {"encoding": "rope,tupe-a", "memory": "look-ahead", "memory_length": 40, "segment_length": 40},
            ["memory_length + segment_length = 80", "table of encoding 'tupe-a'"],
        ),
        (
            "classifier",
            {"encoding": "sinusoidal,sinusoidal", "architecture": "convolution"},
            ["without attention name one for all"],
        ),
        (
            "classifier",
            {"encoding": "none,rope", "architecture": "bag-of-words"},
            ["'rope' acts on queries and keys", "without '@'"],
        ),
    ],
)
def test_wrong_patterns_are_named(network, fields, words):
    with pytest.raises(BadInput) as error:
        build_config(network, **{**SIZES, **fields})
    for word in words:
        assert word in str(error.value)


def test_a_table_in_one_kind_of_layer_bounds_the_length():
    config = build_config("encoder", encoding="rope,tupe-a", **SIZES)
    with pytest.raises(BadInput, match="length 65 is longer than the position table of encoding 'tupe-a'"):
        check_length(config, 65)
    check_length(build_config("encoder", encoding="rope,none", **SIZES), 65)


@pytest.mark.parametrize(
    ("encoding", "maps", "note"),
    [
        ("tupe-a,none", ["absolute (layers 1, 3)"], "tupe-a in layers 1, 3; none in layers 2, 4"),
        ("rope+tupe-a,tupe-a", ["absolute"], "rope+tupe-a in layers 1, 3; tupe-a in layers 2, 4"),
        ("rope*3,t5", ["relative (layer 4)"], "rope in layers 1-3; t5 in layer 4"),
        (
            "t5*2,tupe-r+alibi",
            ["relative (layers 1-2, 4)"]
            + [f"{name} (layer 3)" for name in ("tupe-r absolute", "tupe-r relative", "alibi relative", "sum")],
            "t5 in layers 1-2, 4; tupe-r+alibi in layer 3",
        ),
    ],
)
def test_maps_name_the_layers_that_have_them(encoding, maps, note):
    model = build("encoder", encoding)
    found = score_maps(model, 9)
    assert list(found) == maps
    order = next(m for m in model.modules() if isinstance(m, Composition)).prepare(Contiguous(9))
    for layer in range(4):
        own = score_maps(model, 9, layer=layer)
        bias = order.layer(layer).bias
        assert (bias is None) == (not own)
        if bias is not None:
            assert_close(list(own.values())[-1].values_HNN, bias.dense()[0].detach(), rtol=0, atol=1e-5)
    assert inspect_model(model, 9).notes[0] == f"The encoding differs by layer: {note}."
    assert all("tupe" in encoding or "absolute" not in name for name in position_correlation(model, 9))
    assert set(position_correlation(model, 9)) <= {name.replace("tupe-r ", "") for name in found}


def test_words_and_positions_are_those_of_the_first_layer():
    both = build("encoder", "tupe-a,t5")
    first = inspect_model(both, 9).maps["absolute (layers 1, 3)"].map
    assert_close(word_position_correlations(both, 9).position_position.values_HNN, first.values_HNN)
    with pytest.raises(BadInput, match="encoding 'rope' of the first layer turns queries and keys"):
        word_position_correlations(build("encoder", "rope,tupe-a"), 9)
    untied = word_position_correlations(build("encoder", "tupe-a,rope"), 9)
    assert untied.explained == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize(("pattern", "first"), [("learned,learned+t5", "learned"), ("t5,untied-sum", "t5")])
def test_correlations_are_those_of_the_first_layer_s_encoding(pattern, first):
    hybrid, plain = (word_position_correlations(build("encoder", name), 9) for name in (pattern, first))
    assert hybrid.terms.keys() == plain.terms.keys()
    for name, term in plain.terms.items():  # the weights are the same, by name and seed
        assert_close(hybrid.terms[name].spread_H, term.spread_H)


def test_cost_lies_between_those_of_the_parts():
    costs = {
        name: cost(build_config("encoder", encoding=name, **SIZES), "masked-lm", length=16)
        for name in ("none", "shaw", "shaw,none")
    }
    flops = {name: found["flops_per_token"] for name, found in costs.items()}
    assert flops["shaw,none"] == pytest.approx((flops["none"] + flops["shaw"]) / 2, rel=1e-3)
    parameters = {name: sum(found["encoding_parameters"].values()) for name, found in costs.items()}
    assert parameters["shaw,none"] * 2 == parameters["shaw"]


def test_a_pattern_can_be_given_on_the_command_line():
    assert parse_value("rope,rope,none") == "rope,rope,none"
    assert parse_value("rope*3,none") == "rope*3,none"
