"""Blocks by name, and the norms of heads: against the equations, and against a model of transformers."""

import copy

import pytest
import torch
from network_cases import NAMES
from torch.testing import assert_close

from wordorder import Decoder, Encoder, LookAheadMemory, Seq2Seq
from wordorder.attention import LayerStep
from wordorder.memory import CompressiveMemory
from wordorder.networks import KeyValueCache, TransformerOptions
from wordorder.ops import Contiguous

SIZES = {"width": 24, "heads": 4, "layers": 2, "dropout": 0.0, "attention_dropout": 0.0}
IDS = torch.arange(22).view(2, 11) % 20


def built(kind, **options):
    network = kind(20, **{**SIZES, **options}).double().eval()
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter, std=0.4)
    return network


def test_a_block_says_what_nothing_else_says():
    modern = TransformerOptions(block="modern")
    assert (modern.norm, modern.activation, modern.qk_norm, modern.use_bias) == ("rms", "swiglu", "rms", False)
    assert TransformerOptions(block="classic") == TransformerOptions()
    mixed = TransformerOptions(block="modern", norm="layer", qk_norm="none")
    assert (mixed.norm, mixed.activation, mixed.qk_norm, mixed.use_bias) == ("layer", "swiglu", "none", False)
    decoder = Decoder(20, **SIZES, block="modern")
    assert not any(name.endswith("bias") for name, _ in decoder.layers.named_parameters())


@pytest.mark.parametrize("groups", [4, 2])
def test_the_modern_block_is_that_of_qwen_3(groups):
    from transformers.models.qwen3.configuration_qwen3 import Qwen3Config
    from transformers.models.qwen3.modeling_qwen3 import Qwen3Model

    ours = built(Decoder, encoding="rope", block="modern", key_value_heads=groups)
    theirs = Qwen3Model(
        Qwen3Config(
            vocab_size=20, hidden_size=24, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=groups, head_dim=6, rms_norm_eps=1e-5, attention_bias=False, use_cache=False,
        )
    ).double().eval()  # fmt: skip
    weights = {"embed_tokens.weight": ours.embedding.weight, "norm.weight": ours.final_norm.weight}
    for n, layer in enumerate(ours.layers):
        attention, start = layer.attention, f"layers.{n}"
        parts = attention.qkv.weight.split([24, 6 * groups, 6 * groups])
        weights |= {f"{start}.self_attn.{x}_proj.weight": part for x, part in zip("qkv", parts, strict=True)}
        gate, up = layer.feedforward.up.weight.chunk(2)
        weights |= {
            f"{start}.self_attn.o_proj.weight": attention.out.weight,
            f"{start}.self_attn.q_norm.weight": attention.q_norm.weight,
            f"{start}.self_attn.k_norm.weight": attention.k_norm.weight,
            f"{start}.mlp.gate_proj.weight": gate,
            f"{start}.mlp.up_proj.weight": up,
            f"{start}.mlp.down_proj.weight": layer.feedforward.down.weight,
            f"{start}.input_layernorm.weight": layer.attention_norm.weight,
            f"{start}.post_attention_layernorm.weight": layer.feedforward_norm.weight,
        }
    theirs.load_state_dict(weights)
    assert_close(ours(IDS).hidden, theirs(IDS).last_hidden_state, rtol=0, atol=1e-5)  # their angles are in float32


@pytest.mark.parametrize("kind", ["rms", "layer"])
def test_queries_and_keys_are_normed_by_head_before_any_position(kind):
    encoder = built(Encoder, encoding="none", qk_norm=kind, layers=1)
    plain = built(Encoder, encoding="none", layers=1)
    plain.load_state_dict(encoder.state_dict(), strict=False)
    attention, x = encoder.layers[0].attention, torch.randn(2, 5, 24, dtype=torch.float64)

    def slow(x_D, norm):
        if kind == "rms":
            return x_D / (x_D.square().mean() + norm.eps).sqrt() * norm.weight
        return (x_D - x_D.mean()) / (x_D.var(correction=0) + norm.eps).sqrt() * norm.weight + norm.bias

    steps = [LayerStep(network.plan(Contiguous(5), x).layer(0)) for network in (encoder, plain)]
    q, k, v = attention._split(attention.qkv(x), attention.splits)
    expected = torch.empty_like(q)
    for b in range(2):
        for h in range(4):
            qs = torch.stack([slow(q[b, h, i], attention.q_norm) for i in range(5)])
            ks = torch.stack([slow(k[b, h, i], attention.k_norm) for i in range(5)])
            expected[b, h] = (qs @ ks.T / 6**0.5).softmax(-1) @ v[b, h]
    expected = attention.out(expected.transpose(1, 2).flatten(2))
    ours = attention(x, steps[0])[0]
    assert_close(ours, expected, rtol=0, atol=1e-12)
    assert (ours - plain.layers[0].attention(x, steps[1])[0]).abs().max() > 1e-3


@pytest.mark.parametrize("name", NAMES)
def test_a_modern_decoder_reads_token_by_token_as_at_once(name):
    decoder, cache = built(Decoder, encoding=name, block="modern"), KeyValueCache()
    steps = [decoder(IDS[:, start:stop], cache=cache).hidden for start, stop in ((0, 4), (4, 5), (5, 11))]
    assert_close(torch.cat(steps, 1), decoder(IDS).hidden, rtol=0, atol=1e-10)


@pytest.mark.parametrize("memory", [LookAheadMemory(5), CompressiveMemory(6, rate=2)], ids=lambda m: m.name)
def test_slots_are_normed_as_tokens_are(memory):
    decoder = built(Decoder, encoding="rope", block="modern", memory=memory)
    state = decoder(IDS[:, :6]).memory
    whole = decoder(IDS[:, 6:], memory=state)
    segment, pieces = decoder.open_segment(state, keep=True), []
    for t in range(6, 11):
        read = decoder.read_segment(segment, IDS[:, t : t + 1])
        pieces.append(read.hidden)
        segment = read.segment
    assert_close(torch.cat(pieces, 1), whole.hidden, rtol=0, atol=1e-12)
    if memory.name == "compressive":
        (decoder.train()(IDS[:, 6:], memory=state).memory_loss).backward()
        learned = {name for name, parameter in decoder.named_parameters() if parameter.grad is not None}
        assert learned == {f"memory_weights.{n}.{part}" for n in range(2) for part in ("weight", "bias")}


def test_a_translator_has_them_in_cross_attention_too():
    sizes = {**SIZES, "encoding": "rope", "block": "modern"}
    network = Seq2Seq(Encoder(20, **sizes), Decoder(20, **sizes, cross_attention=True)).double()
    network(IDS, IDS[:, :7]).hidden.square().sum().backward()
    norms = {name for name, p in network.named_parameters() if "k_norm" in name and p.grad is not None and p.grad.any()}
    assert sum("cross_attention" in name for name in norms) == 2
    assert len(norms) == 6


def test_autocast_leaves_queries_in_its_dtype():
    decoder = copy.deepcopy(built(Decoder, encoding="t5", block="modern")).float()
    with torch.autocast("cpu", torch.bfloat16):
        ours = decoder(IDS).hidden
    assert_close(ours.float(), decoder(IDS).hidden, rtol=0, atol=0.2 * decoder(IDS).hidden.abs().max().item())


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"block": "modren"}, "block must be one of classic, modern, got 'modren'"),
        ({"qk_norm": "l2"}, "qk_norm must be one of none, layer, rms, got 'l2'"),
    ],
)
def test_other_names_are_refused(options, words):
    with pytest.raises(ValueError, match=words):
        TransformerOptions(**options)
