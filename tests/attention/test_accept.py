"""What `attention` takes in place of a prepared order and a mask: encodings, biases, and torch's keywords."""

import re
from itertools import product

import pytest
import torch
from torch.testing import assert_close

import wordorder
from wordorder.attention import attention
from wordorder.encodings import TUPE, ALiBi, Learned, Rotary, Shaw, build_encoding
from wordorder.networks import initialise
from wordorder.ops import Arbitrary, Contiguous, DenseBias, Mask

T, HEADS, D = 9, 3, 8


def queries(keys=T, seed=0):
    torch.manual_seed(seed)
    return tuple(torch.randn(2, HEADS, tokens, D, requires_grad=True) for tokens in (T, keys, keys))


def built(name, *, use="encoder", **more):
    torch.manual_seed(1)
    encoding = build_encoding(name, width=HEADS * D, heads=HEADS, layers=2, max_positions=32, use=use, **more)
    initialise(encoding, seed=0, std=0.5)
    return encoding


def scores_by_hand(encoding, q, k, v, visible):
    """Softmax of scaled scores, from what the encoding prepared for these positions."""
    order = encoding.prepare(torch.arange(T)).layer(0)
    scores = order.scale * order.move_queries(q) @ order.move_keys(k).transpose(-1, -2)
    if order.bias is not None:
        scores = scores + order.bias.written_out(torch.float32)
    return scores.masked_fill(~visible, -torch.inf).softmax(-1) @ v


@pytest.mark.parametrize(
    ("name", "causal"),
    [("xpos", True), *product(["none", "rope", "alibi", "t5", "tupe-a", "tupe-r", "rope+t5"], [False, True])],
)
def test_an_encoding_itself_gives_scale_rotation_and_bias(name, causal):
    q, k, v = queries()
    encoding = built(name, use="decoder" if causal else "encoder")
    padding = torch.zeros(2, T, dtype=torch.bool)
    padding[1, -3:] = True
    visible = ~padding[:, None, None] & (torch.ones(T, T).tril().bool() if causal else True)
    out = attention(q, k, v, encoding, is_causal=causal, key_padding_mask=padding)
    expected = scores_by_hand(encoding, q, k, v, visible)
    assert_close(out, expected, rtol=1e-5, atol=1e-5)
    upstream = torch.randn_like(out)
    parameters = [q, k, v, *(p for p in encoding.parameters() if p.requires_grad)]
    ours, by_hand = (torch.autograd.grad(y, parameters, upstream, allow_unused=True) for y in (out, expected))
    for one, other in zip(ours, by_hand, strict=True):
        assert_close(one, other, rtol=1e-4, atol=1e-5)


def test_one_encoding_by_its_class():
    q, k, v = queries()
    order = built("rope").prepare(T)
    assert_close(attention(q, k, v, Rotary(D)), attention(q, k, v, order))
    tupe = TUPE(HEADS * D, heads=HEADS, max_positions=32)
    scale = (2 * D) ** -0.5
    expected = (scale * q @ k.transpose(-1, -2) + tupe(Contiguous(T), Contiguous(T)).written_out(q.dtype)).softmax(-1)
    assert_close(attention(q, k, v, tupe), expected @ v)


def test_a_bias_itself_is_added_to_plainly_scaled_scores():
    q, k, v = queries(keys=5)
    bias = DenseBias(torch.randn(1, HEADS, T, 5))
    expected = (D**-0.5 * q @ k.transpose(-1, -2) + bias.written_out(q.dtype)).softmax(-1) @ v
    assert_close(attention(q, k, v, bias), expected)
    alibi = ALiBi(HEADS)(Contiguous(T), Contiguous(T))
    q, k, v = queries()
    assert_close(attention(q, k, v, alibi, is_causal=True), attention(q, k, v, ALiBi(HEADS), is_causal=True))


@pytest.mark.parametrize("name", [None, "rope", "tupe-r"])
def test_torch_s_keywords_are_the_mask_of_the_same_meaning(name):
    q, k, v = queries()
    order = None if name is None else built(name, use="decoder").prepare(T)
    padding = torch.rand(2, T) < 0.3
    where = Contiguous(T)
    for causal in (False, True):
        keywords = {"is_causal": causal, "key_padding_mask": padding}
        mask = Mask(where, where, high=0 if causal else None, tokens_BS=~padding)
        assert_close(attention(q, k, v, order, **keywords), attention(q, k, v, order, mask), rtol=0, atol=0)
    if name is None:
        q, k, v = (x[:1] for x in (q, k, v))
        mine = attention(q, k, v, is_causal=True)
        assert_close(mine, torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True))


def test_is_causal_goes_by_the_positions_that_an_order_was_prepared_for():
    q, k, v = queries()
    encoding = built("rope", use="decoder")
    whole = attention(q, k, v, encoding, is_causal=True)
    last = encoding.prepare(torch.tensor([T - 2, T - 1]), T)
    assert_close(attention(q[:, :, -2:], k, v, last, is_causal=True), whole[:, :, -2:])
    shuffled = torch.randperm(T)
    order = encoding.prepare(Arbitrary(shuffled[None]))
    turned = attention(*(x[:, :, shuffled] for x in (q, k, v)), order, is_causal=True)
    assert_close(turned, whole[:, :, shuffled], rtol=1e-5, atol=1e-5)


def test_a_plain_number_of_tokens_stands_for_the_first_positions():
    encoding = built("tupe-r")
    whole, counted = (encoding.prepare(positions).layer(0) for positions in (torch.arange(10), 10))
    assert_close(counted.bias.written_out(torch.float32), whole.bias.written_out(torch.float32))
    with pytest.raises(ValueError, match="at least one token, got 0"):
        encoding.prepare(0)


@pytest.mark.parametrize(
    ("given", "keywords", "words"),
    [
        ("rope", {}, ["'rope'", "wordorder.Positional"]),
        (lambda: built("learned"), {}, ["acts on the embeddings", "wordorder.Positional"]),
        (lambda: built("sinusoidal+rope"), {}, ["acts on the embeddings"]),
        (lambda: built("complex-order", vocabulary=10), {}, ["acts on the embeddings"]),
        (lambda: Learned(HEADS * D, max_positions=32), {}, ["acts on the embeddings"]),
        (lambda: built("deberta"), {}, ["weights for each layer", "layer(index)"]),
        (lambda: Shaw(D, layers=2), {}, ["weights for each layer"]),
        (lambda: built("rope,none"), {}, ["differs by layer", "wordorder.Positional"]),
        (lambda: built("rope,none").prepare(T), {}, ["differ by layer", "layer(index)"]),
        (lambda: torch.arange(T), {}, ["'Tensor'"]),
        (lambda: Rotary(2 * D), {}, ["heads of 16 channels", "q of 8"]),
        (lambda: built("t5"), {"is_causal": True}, ["is_causal", "both sides", "bidirectional=False"]),
        (lambda: built("tupe-r").prepare(T), {"is_causal": True}, ["is_causal", "both sides"]),
        (lambda: built("rope,t5").prepare(T).layer(1), {"is_causal": True}, ["is_causal", "both sides"]),
        (None, {"key_padding_mask": torch.ones(2, T)}, ["key_padding_mask", "bool", "attention_mask == 0"]),
        (None, {"key_padding_mask": torch.ones(2, T + 1).bool()}, ["key_padding_mask", str((2, T + 1))]),
        (None, {"key_padding_mask": [True] * T}, ["key_padding_mask", "list"]),
        (None, {"is_causal": True, "mask": torch.ones(T, T).bool()}, ["either mask", "is_causal"]),
        (None, {"key_padding_mask": torch.ones(2, T).bool(), "mask": torch.ones(T, T).bool()}, ["either mask"]),
    ],
)
def test_what_cannot_be_meant_gets_one_error_that_says_what_to_write(given, keywords, words):
    order = given() if callable(given) else given
    with pytest.raises(ValueError, match=re.escape(words[0])) as error:
        attention(*queries(), order, **keywords)
    assert all(word in str(error.value) for word in words), error.value


def test_fewer_queries_than_keys_need_positions():
    q, k, v = queries(keys=12)
    with pytest.raises(ValueError, match=r"prepare\(query_positions, key_positions\)"):
        attention(q, k, v, Rotary(D))
    with pytest.raises(ValueError, match="is_causal: nothing says where 9 queries stand among 12 keys"):
        attention(q, k, v, is_causal=True)


def test_the_package_s_own_attention_takes_them_too():
    q, k, v = queries()
    assert_close(wordorder.attention(q, k, v, Rotary(D), is_causal=True), attention(q, k, v, Rotary(D), is_causal=True))
