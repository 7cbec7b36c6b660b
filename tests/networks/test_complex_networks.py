import dataclasses
import math
from typing import get_type_hints

import pytest
import torch
from torch.testing import assert_close

from wordorder import ComplexDecoder, ComplexEncoder, Decoder, Encoder, Seq2Seq
from wordorder.attention import Call, LayerStep, Source, plan_attention
from wordorder.encodings import Terms
from wordorder.errors import BadInput
from wordorder.networks import KeyValueCache, TransformerKeywords, TransformerOptions, initialise
from wordorder.networks.complex_valued import (
    ComplexCrossAttention,
    ComplexKeywords,
    ComplexLayerNorm,
    ComplexOptions,
    ComplexRMSNorm,
    ComplexSelfAttention,
    ModulusScores,
)
from wordorder.ops import Contiguous, DenseBias, Mask, Packed
from wordorder.ops.complex import split

STYLES = [
    {},
    {"shared_weights": True, "bias": "shared", "read_out": "modulus"},
    {"scores": "modulus", "shared_norms": False, "read_out": "real-part"},
    {"nonlinearity": "modrelu", "norm": "rms", "norm_placement": "post", "key_value_heads": 2},
]
NAMES = ["complex-order", "complex-vanilla+t5", "complex-order+tupe-r", "complex-order+rope", "complex-order+shaw"]


def build(network=ComplexEncoder, *, dtype=torch.float64, **options):
    settings = {"width": 12, "layers": 2, "heads": 4, "max_positions": 64, "dropout": 0.0, "attention_dropout": 0.0}
    built = network(40, **{**settings, **options})
    initialise(built, seed=5, std=0.2)
    return built.to(dtype)


def padded(texts, side):
    longest = max(len(text) for text in texts)
    ids, valid = torch.zeros(len(texts), longest, dtype=torch.long), torch.zeros(len(texts), longest, dtype=torch.bool)
    for b, text in enumerate(texts):
        where = slice(0, len(text)) if side == "right" else slice(longest - len(text), longest)
        ids[b, where], valid[b, where] = text, True
    return ids, valid, Contiguous(longest, 0 if side == "right" else -valid.int().argmax(1))


def number(layer, z):
    """A complex linear layer on complex128."""
    imag = layer.weight_imag if layer.weight_imag is not None else torch.zeros_like(layer.weight_real)
    bias = (1 + 1j) * layer.bias if layer.bias is not None else torch.complex(layer.bias_real, layer.bias_imag)
    return z @ torch.complex(layer.weight_real, imag).T + bias


def attend(module, q, k, v, bias, visible, scores):
    """Attention head by head in complex numbers: Eq. 14 of the paper, or its modulus."""
    d, found = module.head_dim, []
    groups = q.shape[-1] // k.shape[-1]
    for h in range(q.shape[-1] // d):
        mine, theirs = slice(h * d, (h + 1) * d), slice(h // groups * d, (h // groups + 1) * d)
        product = q[..., mine] @ k[..., theirs].conj().transpose(-1, -2) / math.sqrt(2 * d)
        logits = (product.real if scores == "real-part" else product.abs()) + bias[:, h]
        share = logits.masked_fill(~visible[:, 0], -torch.inf).softmax(-1)
        found.append(share.to(v.dtype) @ v[..., theirs])
    return number(module.out, torch.cat(found, dim=-1))


@pytest.mark.parametrize("scores", ["real-part", "modulus"])
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("groups", [4, 2])
@pytest.mark.parametrize("kind", [ComplexSelfAttention, ComplexCrossAttention])
def test_attention_and_every_gradient_match_complex128(kind, groups, shared, scores):
    module = kind(12, heads=4, key_value_heads=groups, shared_weights=shared).double()
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter, 0.1, 0.5)
    x, source = (torch.randn(2, length, 24, dtype=torch.float64, requires_grad=True) for length in (5, 7))
    if kind is ComplexSelfAttention:
        source = x
    keys = source.shape[1]
    bias, visible = torch.randn(1, 4, 5, keys, dtype=torch.float64), torch.rand(2, 1, 5, keys) < 0.7
    visible[..., 0] = True
    order = Terms(6**-0.5, DenseBias(bias, may_hide=False))
    call = Call(batch=2, heads=4, queries=5, keys=keys, head_dim=6, dtype=torch.float64, device=torch.device("cpu"))
    plan = plan_attention(order, visible, call, backend=ModulusScores() if scores == "modulus" else "reference")
    z, s = torch.complex(*split(x)), torch.complex(*split(source))
    if kind is ComplexSelfAttention:
        ours, _ = module(x, LayerStep(plan))
        q, k, v = number(module.qkv, z).split([12, 3 * groups, 3 * groups], dim=-1)
    else:
        ours, _ = module(x, Source(source, plan))
        q, (k, v) = number(module.q, z), number(module.kv, s).chunk(2, dim=-1)
    paper = attend(module, q, k, v, bias, visible, scores)
    leaves, upstream = [*{x, source}, *module.parameters()], torch.randn_like(ours)
    found = torch.autograd.grad(ours, leaves, upstream)
    expected = torch.autograd.grad([paper.real, paper.imag], leaves, split(upstream))
    for a, b in zip((*split(ours), *found), (paper.real, paper.imag, *expected), strict=True):
        assert_close(a, b, rtol=0, atol=1e-12 * max(1.0, b.abs().max().item()))


def encoded_in_complex_numbers(encoder, ids, positions):
    """The whole encoder, pre-norm, layer norm per stream, gelu per stream, linear read-out."""
    tables = encoder.embedding.waves
    wave = tables.amplitude[ids] * torch.exp(1j * tables.frequency[ids] * positions[..., None])

    def norm(layer, z):
        def stream(t):
            t = (t - t.mean(-1, keepdim=True)) / (t.var(-1, correction=0, keepdim=True) + 1e-5).sqrt()
            return t * layer.weight + layer.bias

        return torch.complex(stream(z.real), stream(z.imag))

    z, everything = wave, torch.ones(1, 1, ids.shape[1], ids.shape[1], dtype=torch.bool)
    gelu = torch.nn.functional.gelu
    for layer in encoder.layers:
        q, k, v = number(layer.attention.qkv, norm(layer.attention_norm, z)).chunk(3, dim=-1)
        z = z + attend(layer.attention, q, k, v, torch.zeros(1, 4, 1, 1), everything, "real-part")
        inner = number(layer.feedforward.up, norm(layer.feedforward_norm, z))
        z = z + number(layer.feedforward.down, torch.complex(gelu(inner.real), gelu(inner.imag)))
    z = norm(encoder.final_norm, z)
    return torch.cat((z.real, z.imag), dim=-1) @ encoder.read_out.weight.T + encoder.read_out.bias


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("length", [1, 9])
def test_whole_encoder_and_every_gradient_match_complex128(length, shared):
    encoder = build(shared_weights=shared)
    ids, positions = torch.randint(40, (2, length)), torch.arange(length).expand(2, length) + 3
    ours, paper = encoder(ids, positions).hidden, encoded_in_complex_numbers(encoder, ids, positions)
    upstream = torch.randn_like(paper)
    found, expected = (torch.autograd.grad(y, list(encoder.parameters()), upstream) for y in (ours, paper))
    for a, b in zip((ours, *found), (paper, *expected), strict=True):
        assert_close(a, b, rtol=0, atol=1e-12 * max(1.0, b.abs().max().item()))


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("name", NAMES)
def test_left_padding_equals_right_padding_and_packing_equals_neither(name, style):
    encoder, texts = build(encoding=name, **style), [torch.randint(1, 40, (length,)) for length in (9, 4, 1)]
    alone = torch.cat([encoder(text[None]).hidden[0] for text in texts])
    for side in ("left", "right"):
        ids, valid, positions = padded(texts, side)
        assert_close(encoder(ids, positions, key_padding_mask=~valid).hidden[valid], alone, rtol=1e-10, atol=1e-10)
    position = torch.cat([torch.arange(len(text)) for text in texts])[None]
    sequence = torch.cat([torch.full((len(text),), i) for i, text in enumerate(texts)])[None]
    packed = encoder(torch.cat(texts)[None], Packed(position, sequence)).hidden[0]
    assert_close(packed, alone, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", NAMES)
def test_backends_agree_with_every_gradient(name):
    encoder, ids = build(encoding=name), torch.randint(1, 40, (2, 11))
    valid = torch.ones(2, 11, dtype=torch.bool)
    valid[1, 6:] = False
    backends = [None, "reference"] if name.endswith("shaw") else [None, "reference", "kept-tiles"]
    outputs = [encoder(ids, key_padding_mask=~valid, backend=backend).hidden for backend in backends]
    upstream = torch.randn_like(outputs[0]) * valid[..., None]
    grads = [torch.autograd.grad(y, list(encoder.parameters()), upstream) for y in outputs]
    for output, grad in zip(outputs[1:], grads[1:], strict=True):
        assert_close(output[valid], outputs[0][valid], rtol=1e-12, atol=1e-12)
        for a, b in zip(grad, grads[0], strict=True):
            assert_close(a, b, rtol=0, atol=1e-11 * max(1.0, b.abs().max().item()))


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("name", NAMES)
def test_decoder_sees_no_future_and_a_cache_changes_nothing(name, style):
    decoder, ids = build(ComplexDecoder, encoding=name, **style).eval(), torch.randint(1, 40, (2, 8))
    whole = decoder(ids).hidden
    changed = ids.clone()
    changed[:, 5:] = 39 - changed[:, 5:] % 39
    assert_close(decoder(changed).hidden[:, :5], whole[:, :5], rtol=0, atol=1e-12)
    cache = KeyValueCache()
    steps = [decoder(ids[:, :3], cache=cache).hidden]
    steps += [decoder(ids[:, t : t + 1], cache=cache).hidden for t in range(3, 8)]
    assert_close(torch.cat(steps, dim=1), whole, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("scores", ["real-part", "modulus"])
def test_translation_of_complex_states(scores):
    encoder, decoder = build(scores=scores), build(ComplexDecoder, scores=scores, cross_attention=True)
    network = Seq2Seq(encoder, decoder)
    source, target = torch.randint(1, 40, (2, 6)), torch.randint(1, 40, (2, 5))
    output = network(source, target)
    assert output.hidden.shape == (2, 5, 12)
    assert output.source.shape == (2, 6, 24)
    cache = KeyValueCache()
    steps = [network.step(target[:, t : t + 1], cache, source=output.source if t == 0 else None) for t in range(5)]
    assert_close(torch.cat(steps, dim=1), output.hidden, rtol=1e-10, atol=1e-10)
    output.hidden.square().sum().backward()
    assert all(parameter.grad is not None for parameter in network.parameters())


@pytest.mark.parametrize("style", STYLES)
def test_training_in_every_style_and_dtype(style):
    for dtype in (torch.float32, torch.bfloat16):
        encoder = build(dtype=dtype, dropout=0.2, attention_dropout=0.2, padding_idx=0, **style).train()
        ids = torch.randint(1, 40, (2, 7))
        ids[1, 4:] = 0
        output = encoder(ids, key_padding_mask=ids == 0)
        assert output.hidden.dtype == dtype
        assert output.hidden.shape == (2, 7, 12)
        output.hidden.square().sum().backward()
        assert all(p.grad is not None and p.grad.isfinite().all() for p in encoder.parameters())


def test_autocast_and_checkpointing():
    encoder, ids = build(dtype=torch.float32, layers=2).train(), torch.randint(40, (2, 9))
    exact = encoder(ids).hidden
    with torch.autocast("cpu", torch.bfloat16):
        low = encoder(ids).hidden
    assert_close(low.float(), exact, rtol=0, atol=0.1 * exact.abs().max().item())
    grads = []
    for encoder.gradient_checkpointing in (False, True):
        grads.append(torch.autograd.grad(encoder(ids).hidden.square().sum(), list(encoder.parameters())))
    for plain, checkpointed in zip(*grads, strict=True):
        assert_close(plain, checkpointed, rtol=0, atol=0)


@pytest.mark.parametrize("style", STYLES)
def test_state_dict_round_trip_and_weights_of_attention(style):
    first, second = build(**style), ComplexEncoder(40, width=12, layers=2, heads=4, max_positions=64, **style).double()
    assert not second.load_state_dict(first.state_dict()).missing_keys
    ids = torch.randint(40, (2, 6))
    output = first.eval()(ids, return_attentions=True, return_all_hidden=True)
    assert_close(second.eval()(ids).hidden, output.hidden, rtol=1e-12, atol=1e-12)
    assert [h.shape[-1] for h in output.all_hidden] == [24, 24, 12]
    assert_close(output.attentions[0].sum(-1), torch.ones(2, 4, 6, dtype=torch.float64))


def test_encodings_know_that_they_stand_in_a_decoder():
    for network, both_ways in ((ComplexEncoder, True), (ComplexDecoder, False)):
        assert build(network, encoding="complex-vanilla+t5").encoding.parts["t5"].bidirectional is both_ways


class HiddenOnly(torch.nn.Module):
    def __init__(self, encoder):
        super().__init__()
        self.encoder = encoder

    def forward(self, ids):
        return self.encoder(ids).hidden


@pytest.mark.slow
@pytest.mark.parametrize("scores", ["real-part", "modulus"])
def test_export_with_lengths_left_open(scores):
    network = HiddenOnly(build(scores=scores, encoding="complex-order+t5").eval())
    open_ends = {0: torch.export.Dim("batch", max=64), 1: torch.export.Dim("tokens", max=512)}
    exported = torch.export.export(network, (torch.randint(40, (2, 9)),), dynamic_shapes=(open_ends,)).module()
    longer = torch.randint(40, (3, 21))
    assert_close(exported(longer), network(longer), rtol=1e-12, atol=1e-12)


def test_read_outs():
    ids = torch.randint(40, (2, 6))
    stacked = build(read_out="none")(ids).hidden
    real, imag = split(stacked)
    assert_close(build(read_out="real-part")(ids).hidden, real)
    assert_close(build(read_out="modulus")(ids).hidden, (real**2 + imag**2).sqrt())
    linear = build()
    assert_close(linear(ids).hidden, stacked @ linear.read_out.weight.T + linear.read_out.bias)


def test_rotation_turns_every_complex_channel():
    encoder = build(encoding="complex-order+rope")
    order = encoder.encoding.prepare(Contiguous(5), dtype=torch.float64).layer(0)
    x = torch.randn(1, 4, 5, 6, dtype=torch.float64)
    turned = torch.complex(*split(order.move_queries(x)))
    angle = torch.arange(5)[:, None] * 1e4 ** (-torch.arange(3.0, dtype=torch.float64) / 3)
    assert_close(turned, torch.complex(*split(x)) * torch.exp(1j * angle), rtol=1e-12, atol=1e-12)


def test_a_query_that_sees_nothing_weighs_nothing():
    module = ComplexSelfAttention(12, heads=4, key_value_heads=4).double()
    x = torch.randn(1, 5, 24, dtype=torch.float64, requires_grad=True)
    order, mask = (
        Terms(6**-0.5),
        Mask(Contiguous(5), Contiguous(5), tokens_BS=torch.zeros(1, 5, dtype=torch.bool)),
    )
    q = x.view(1, 4, 5, 6)
    plan = plan_attention(order, mask, Call.of(q, q), backend=ModulusScores())
    found, _ = module(x, LayerStep(plan))
    assert_close(found, torch.cat((module.out.bias_real, module.out.bias_imag)).expand(1, 5, 24))
    (grad,) = torch.autograd.grad(found.sum(), x)
    assert (grad == 0).all()


def test_bad_arguments():
    with pytest.raises(BadInput, match="a complex network needs complex embeddings, got encoding 't5'"):
        ComplexEncoder(40, width=12, encoding="t5")
    with pytest.raises(BadInput, match="as_real='concat' is for real networks"):
        ComplexDecoder(40, width=12, encoding_options={"as_real": "concat"})
    with pytest.raises(ValueError, match="scores must be one of real-part, modulus, got 'abs'"):
        ComplexEncoder(40, width=12, scores="abs")
    with pytest.raises(ValueError, match="read_out must be one of linear, modulus, real-part, none, got 'sum'"):
        ComplexOptions(width=12, heads=4, read_out="sum")
    with pytest.raises(ValueError, match="width must be a multiple of heads, got width=10, heads=4"):
        ComplexEncoder(40, width=10, heads=4)
    with pytest.raises(ValueError, match=r"inputs_embeds must be floating-point numbers \(batch, tokens, 24\)"):
        build()(inputs_embeds=torch.zeros(1, 2, 12))


@pytest.mark.parametrize("network", [ComplexEncoder, ComplexDecoder])
def test_the_modulus_is_refused_on_backends_that_do_not_know_what_is_hidden(network):
    built = network(40, width=12, layers=1, heads=4, scores="modulus")
    with pytest.raises(ValueError, match="in no fused kernel: backend must be 'reference' or None, got 'sdpa'"):
        built(torch.randint(40, (1, 5)), backend="sdpa")
    built(torch.randint(40, (1, 5)), backend="reference")


@pytest.mark.parametrize("scores", ["real-part", "modulus"])
def test_weights_of_attention_are_dropped_in_training_alone(scores):
    encoder, ids = (
        ComplexEncoder(40, width=12, heads=4, scores=scores, dropout=0.0, attention_dropout=0.5),
        torch.arange(6)[None],
    )
    assert (encoder(ids).hidden - encoder(ids).hidden).abs().max() > 1e-4
    encoder.eval()
    assert torch.equal(encoder(ids).hidden, encoder(ids).hidden)


@pytest.mark.parametrize("norm", ["layer", "rms"])
def test_the_number_beside_the_variance_reaches_every_norm(norm):
    encoder = build(norm=norm, norm_eps=0.25, embedding_norm=True)
    norms = [m for m in encoder.modules() if isinstance(m, (ComplexLayerNorm, ComplexRMSNorm))]
    assert len(norms) == 2 * 2 + 2
    assert {m.eps for m in norms} == {0.25}


@pytest.mark.parametrize(
    ("options", "keywords"), [(TransformerOptions, TransformerKeywords), (ComplexOptions, ComplexKeywords)]
)
def test_constructors_keywords_are_the_fields_of_the_options(options, keywords):
    assert get_type_hints(keywords) == get_type_hints(options)
    real = {field.name: field.default for field in dataclasses.fields(TransformerOptions)}
    for field in dataclasses.fields(options):
        if field.name in real and field.name != "encoding":
            assert field.default == real[field.name]


@pytest.mark.parametrize("network", [Encoder, Decoder, ComplexEncoder, ComplexDecoder])
def test_options_are_given_as_keywords_or_as_one_value(network):
    kind, name = (
        (ComplexOptions if network in (ComplexEncoder, ComplexDecoder) else TransformerOptions),
        network.__name__,
    )
    options = kind(width=12, layers=1, heads=4)
    assert network(40, options).options == network(40, width=12, layers=1, heads=4).options == options
    with pytest.raises(
        TypeError, match=rf"{name}\(\) got an unexpected keyword argument 'widht'; did you mean 'width'\?"
    ):
        network(40, widht=12)
    with pytest.raises(
        TypeError, match=f"{name} takes options as one {kind.__name__} or as keywords, .* beside layers"
    ):
        network(40, options, layers=2)
    with pytest.raises(TypeError, match=f"{name} takes options as one {kind.__name__} or .* got a dict"):
        network(40, {"width": 12})
    with pytest.raises(TypeError, match="encoding_options"):
        network(40, options={"base": 100.0})
    with pytest.raises(TypeError, match="a causal network is"):
        network(40, causal=True)
