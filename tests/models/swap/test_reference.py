"""Swapped models in float64 against slow references in loops: outputs, and the gradient of every weight."""

import copy
import itertools

import pytest
import torch
from reference import Layer, Order, bert, llama
from swapped_models import DECODERS, ENCODERS, apart, drawn, ids_of, model_of, output_of, padded, swapped
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.testing import assert_close
from transformers.models.llama import modeling_llama

from wordorder.models import swap_encoding
from wordorder.models.swap import call as swap_call

LAYERS = 2
PATTERNS = {
    "none": [Layer(("none",))],
    "rope": [Layer(("rope",))],
    "alibi": [Layer(("alibi",))],
    "t5": [Layer(("t5",))],
    "kerple": [Layer(("kerple",))],
    "shaw": [Layer(("shaw",))],
    "tupe-a": [Layer(("tupe-a",))],
    "learned": [Layer(("learned",))],
    "fox": [Layer(("fox",))],
    "rope+fox": [Layer(("rope", "fox"))],
    "pope,rope": [Layer(("pope",)), Layer(("rope",))],
    "rope+dape": [Layer(("rope", "dape"))],
    "rope,pope+dape@4": [Layer(("rope",)), Layer(("pope", "dape"), 4)],
    "rope+shaw": [Layer(("rope", "shaw"))],
    "learned+t5": [Layer(("learned", "t5"))],
    "rope*2,none": [Layer(("rope",)), Layer(("rope",)), Layer(("none",))],
    "none,shaw": [Layer(("none",)), Layer(("shaw",))],
    "alibi,fox": [Layer(("alibi",)), Layer(("fox",))],
    "shift": [Layer(("shift",))],
    "shift@3,fox+shift": [Layer(("shift",), 3), Layer(("fox", "shift"))],
    "rope@4": [Layer(("rope",), 4)],
    "t5@3,none": [Layer(("t5",), 3), Layer(("none",))],
    "fox@1,tupe-a@5": [Layer(("fox",), 1), Layer(("tupe-a",), 5)],
    "model": [Layer(("model",))],
    "model@3": [Layer(("model",), 3)],
    "model+t5": [Layer(("model", "t5"))],
    "model+shaw": [Layer(("model", "shaw"))],
    "model+tupe-a": [Layer(("model", "tupe-a"))],
    "model+fox": [Layer(("model", "fox"))],
    "path": [Layer(("path",))],
    "rope+path,path@4": [Layer(("rope", "path")), Layer(("path",), 4)],
    "model+path": [Layer(("model", "path"))],
    "model+shift": [Layer(("model", "shift"))],
    "model+kerple": [Layer(("model", "kerple"))],
    "model+softmax-sink": [Layer(("model", "softmax-sink"))],
    "rope+softmax-sink,shaw+softmax-sink@4": [Layer(("rope", "softmax-sink")), Layer(("shaw", "softmax-sink"), 4)],
    "model+learned": [Layer(("model", "learned"))],
    "model,none": [Layer(("model",)), Layer(("none",))],
    "model+t5,none@4": [Layer(("model", "t5")), Layer(("none",), 4)],
}
WITHOUT_A_ZERO = ("model+kerple", "model+softmax-sink")
FAST = ("t5", "rope+fox", "fox", "tupe-a", "none,shaw", "t5@3,none", "model+shaw", "model+fox", "rope*2,none")
FAST += ("path", "pope,rope", "rope+dape", "model+softmax-sink", "shift@3,fox+shift", "model+shift")
REFUSED_BY_BERT = ("model+learned", "model,none", "model+t5,none@4", "path", "rope+path,path@4", "model+path")


def cases(names, fast):
    for kind in ("llama", "bert"):
        for name in names:
            if not (kind == "bert" and name in REFUSED_BY_BERT):
                yield pytest.param(kind, name, marks=() if name in fast else pytest.mark.slow)


@pytest.fixture(autouse=True)
def wide(monkeypatch):
    """Have transformers' RMSNorm and rotation compute in float64, as the rest of a model in float64 does."""

    def norm(self, x):
        return self.weight * x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.variance_epsilon)

    def angles(self, x, position_ids):
        width = self.config.hidden_size // self.config.num_attention_heads
        frequency = 10_000.0 ** (-torch.arange(0, width, 2, dtype=x.dtype) / width)
        angle = position_ids[..., None].to(x.dtype) * frequency.repeat(2)
        return angle.cos(), angle.sin()

    monkeypatch.setattr(modeling_llama.LlamaRMSNorm, "forward", norm)
    monkeypatch.setattr(modeling_llama.LlamaRotaryEmbedding, "forward", angles)


def model_and_reference(kind, name):
    """A swapped model in float64, and a function from a text to the reference's output, over the same weights."""
    pattern, start = PATTERNS[name], {"start": "drawn"} if name in WITHOUT_A_ZERO else {}
    model = swapped(kind, name, fields={"num_hidden_layers": max(LAYERS, len(pattern))}, **start).double()
    config = model.config
    order = Order(
        dict(model.named_parameters()),
        [pattern[layer % len(pattern)] for layer in range(config.num_hidden_layers)],
        heads=config.num_attention_heads,
        head_dim=config.hidden_size // config.num_attention_heads,
        causal=kind == "llama",
        rotary=kind == "llama",
        from_zero="model" in name,
    )
    compute = llama if kind == "llama" else bert
    return model, lambda text: compute(dict(model.named_parameters()), config, order, text)


@pytest.mark.parametrize(("kind", "name"), [*cases(PATTERNS, FAST)])
def test_outputs_are_those_of_loops_at_odd_lengths_and_with_padding(kind, name):
    model, reference = model_and_reference(kind, name)
    texts = [ids_of(length, seed=length) for length in (1, 7, 13)]
    with torch.no_grad():
        expected = [reference(text) for text in texts]
        for text, output in zip(texts, expected, strict=True):
            assert_close(output_of(model, text[None])[0], output, rtol=0, atol=1e-11)
        for starts in ((12, 6, 0), (0, 0, 0), (3, 5, 1)):
            ids, mask = padded(texts, starts, kind)
            # BERT's own table counts columns unless it is told positions
            told = {"position_ids": (mask.cumsum(1) - 1).clamp(min=0)} if "model" in name else {}
            outputs = output_of(model, ids, attention_mask=mask, **told)
            for row, start, text, output in zip(outputs, starts, texts, expected, strict=True):
                assert_close(row[start : start + len(text)], output, rtol=0, atol=1e-11)


@torch.no_grad()
def test_a_share_of_the_channels_turns_as_in_a_model_that_turns_a_share():
    model, ids = model_of("gpt_neox"), ids_of(2, 11)
    expected, share = output_of(model, ids), model.config.rope_parameters["partial_rotary_factor"]
    assert share < 1
    model = swap_encoding(model, "rope", options={"share": share})
    assert_close(output_of(model, ids), expected, rtol=0, atol=1e-5)


@torch.no_grad()
def test_interleaved_pairs_are_halves_of_heads_in_another_order():
    model, ids = model_of("llama"), ids_of(2, 11)
    expected = output_of(model, ids)
    swap_encoding(model, "rope", options={"interleaved": True})
    assert apart(output_of(model, ids), expected) > 1e-3
    for layer in model.model.layers:
        for projection in (layer.self_attn.q_proj, layer.self_attn.k_proj):
            halves = projection.weight.unflatten(0, (-1, 2, layer.self_attn.head_dim // 2))  # head, half, pair
            projection.weight.copy_(halves.transpose(1, 2).flatten(0, 2))
    assert_close(output_of(model, ids), expected, rtol=0, atol=1e-5)


WINDOWS = {"gemma2": "sliding_window", "gemma3_text": "sliding_window", "mistral": "sliding_window"}
WINDOWS |= {"modernbert": "local_attention"}


@pytest.mark.parametrize("encoding", ["model+alibi", "alibi", "model+alibi@3"])
@pytest.mark.parametrize("kind", [*DECODERS, *ENCODERS])
def test_a_bias_is_what_a_written_out_matrix_adds_in_eager_attention(kind, encoding):
    """Each family's scale, caps and norms of queries and keys are its own, whatever computes the scores."""
    # wider than the text, since a mask with four axes stands in place of all
    fields = {WINDOWS[kind]: 64} if kind in WINDOWS else {}
    plain = model_of(kind, attn_implementation="eager", **fields)
    model = swap_encoding(copy.deepcopy(plain), encoding, start="drawn")
    if "model" not in encoding:
        plain = swap_encoding(plain, "none")
        assert plain.config._attn_implementation == "eager"
    tokens = 11
    matrix = torch.full((1, 4, tokens, tokens), torch.finfo(torch.float32).min)
    for head, query, key in itertools.product(range(4), range(tokens), range(tokens)):
        seen = kind in ENCODERS or key <= query
        if seen and ("@" not in encoding or abs(key - query) < 3):
            matrix[0, head, query, key] = -(2.0 ** (-8 * (head + 1) / 4)) * abs(key - query)
    with torch.no_grad():
        one = {"use_cache": False} if kind in DECODERS else {}
        # OPT counts its tokens by a mask
        told = {"position_ids": torch.arange(tokens)[None]} if kind == "opt" else {}
        expected = output_of(plain, ids_of(1, tokens), attention_mask=matrix, **one, **told)
        assert_close(output_of(model, ids_of(1, tokens), **one), expected, rtol=0, atol=2e-5)


@pytest.mark.parametrize("kind", ["llama", "mistral", "gemma3_text", "bert", "modernbert"])
def test_a_mask_that_is_written_out_is_read_as_padding_and_window(kind, monkeypatch):
    """The attention of long texts then leaves out what is hidden."""
    monkeypatch.setattr("wordorder.models.swap.call.FEWEST_SCORES", 0)
    model, seen = swapped(kind, "model+t5"), []
    for real in (swap_call.plan_attention, swap_call.plan_layers):

        def plan(terms, mask, call, real=real, **more):
            seen.append(mask)
            return real(terms, mask, call, **more)

        monkeypatch.setattr(swap_call, real.__name__, plan)
    padding = torch.ones(2, 12, dtype=torch.long)
    padding[1, 9:] = 0
    with torch.no_grad():
        model(input_ids=ids_of(2, 12), attention_mask=padding)
    assert seen
    for mask in seen:
        assert torch.equal(mask.tokens_BS, padding.bool())
    windows = {mask.low for mask in seen}
    assert windows == {"mistral": {-4}, "gemma3_text": {-5, None}, "modernbert": {-3, None}}.get(kind, {None})


def test_a_mask_without_numbers_stays_a_mask(monkeypatch):
    monkeypatch.setattr("wordorder.models.swap.call.FEWEST_SCORES", 0)
    model, padding = swapped("bert", "t5"), torch.ones(2, 12, dtype=torch.long)
    padding[1, :5] = 0
    with FakeTensorMode(allow_non_fake_inputs=True) as fake:
        ids, mask = (fake.from_tensor(x) for x in (ids_of(2, 12), padding))
        assert model(input_ids=ids, attention_mask=mask).last_hidden_state.shape == (2, 12, 32)


LEARNED = ("t5", "shaw", "fox", "tupe-a", "rope", "rope+fox", "model+shaw", "model+fox", "t5@3,none", "kerple")
LEARNED += (
    "path",
    "model+path",
    "rope+softmax-sink,shaw+softmax-sink@4",
    "pope,rope",
    "rope,pope+dape@4",
    "shift@3,fox+shift",
    "model+shift",
)


@pytest.mark.parametrize(("kind", "name"), [*cases(LEARNED, (*FAST[:4], "path", "pope,rope", *FAST[-2:]))])
def test_every_gradient_is_that_of_loops(kind, name):
    model, reference = model_and_reference(kind, name)
    texts, starts = [ids_of(7, seed=7), ids_of(5, seed=5)], (1, 0)
    ids, mask = padded(texts, starts, kind)
    told = {"position_ids": (mask.cumsum(1) - 1).clamp(min=0)} if "model" in name else {}
    outputs = output_of(model, ids, attention_mask=mask, **told)
    ours = torch.cat([row[start : start + len(text)] for row, start, text in zip(outputs, starts, texts, strict=True)])
    expected = torch.cat([reference(text) for text in texts])
    upstream = torch.randn_like(expected)
    names, weights = zip(*((n, p) for n, p in model.named_parameters() if "pooler" not in n), strict=True)
    mine, other = (torch.autograd.grad(y, weights, upstream, allow_unused=True) for y in (ours, expected))
    # of keys' biases the softmax cancels the gradient up to rounding, so all are measured by the largest
    largest = max(gradient.abs().max() for gradient in other)
    new = [gradient.abs().max() for weight, gradient in zip(names, other, strict=True) if "wordorder" in weight]
    assert name == "rope" or max(new) > 1e-4 * largest
    for weight, one, two in zip(names, mine, other, strict=True):
        assert_close(one, two, rtol=0, atol=1e-12 * largest, msg=lambda text, weight=weight: f"{weight}: {text}")


def test_the_reference_of_the_plain_model_is_the_plain_model():
    """What the references compute without any swap: they are transformers' models."""
    for kind, compute in (("llama", llama), ("bert", bert)):
        plain = drawn(model_of(kind)).double()
        config, text = plain.config, ids_of(13)
        order = Order(
            dict(plain.named_parameters()),
            [Layer(("model",))] * config.num_hidden_layers,
            heads=4,
            head_dim=8,
            causal=kind == "llama",
            rotary=kind == "llama",
        )
        with torch.no_grad():
            expected = compute(dict(plain.named_parameters()), config, order, text)
            assert_close(output_of(plain, text[None])[0], expected, rtol=0, atol=1e-12)
