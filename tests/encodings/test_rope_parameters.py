"""Every rope type of transformers, by its own functions: frequencies, magnitude, partial rotation, lengths."""

from types import SimpleNamespace

import pytest
import torch
from torch.testing import assert_close
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from wordorder import Decoder
from wordorder.encodings import CATALOG, Rotary, from_rope_parameters
from wordorder.errors import BadInput
from wordorder.networks import KeyValueCache
from wordorder.ops import Arbitrary, Contiguous, Packed

D, LONGEST = 16, 4096
PAIRS = D // 2
TYPES = {
    "default": {},
    "linear": {"factor": 4.0},
    "dynamic": {"factor": 3.0},
    "yarn": {"factor": 8.0, "original_max_position_embeddings": 512},
    "llama3": {
        "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 512,
    },
    "longrope": {
        "factor": 8.0, "original_max_position_embeddings": 512,
        "short_factor": [1 + 0.1 * i for i in range(PAIRS)], "long_factor": [2.0 + i for i in range(PAIRS)],
    },
    "proportional": {"partial_rotary_factor": 0.5},
}  # fmt: skip
MORE = [
    ("yarn", {"factor": 8.0, "original_max_position_embeddings": 512, "truncate": False}),
    ("yarn", {"factor": 8.0, "original_max_position_embeddings": 512, "attention_factor": 1.3}),
    ("yarn", {"factor": 8.0, "original_max_position_embeddings": 512, "mscale": 0.7, "mscale_all_dim": 1.2}),
    ("yarn", {"factor": 8.0, "original_max_position_embeddings": 512, "beta_fast": 16.0, "beta_slow": 2.0}),
    ("longrope", {**TYPES["longrope"], "attention_factor": 1.1}),
    ("proportional", {"partial_rotary_factor": 0.25, "factor": 2.0}),
]


def config_of(kind, parameters, partial=None):
    parameters = {"rope_type": kind, "rope_theta": 50_000.0, **parameters}
    if partial is not None:
        parameters["partial_rotary_factor"] = partial
        for name in ("short_factor", "long_factor"):
            if name in parameters:
                parameters[name] = parameters[name][: int(PAIRS * partial)]
    return LlamaConfig(
        hidden_size=2 * D, num_attention_heads=2, max_position_embeddings=LONGEST, rope_parameters=parameters
    )


def built(config):
    name, options = from_rope_parameters(config)
    kind = CATALOG[name]
    sizes = {"max_positions": LONGEST} if "original_positions" in options else {}
    return kind(D, **sizes, **options)


def theirs_of(config, kind, length):
    if kind == "default":
        from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

        return LlamaRotaryEmbedding(config).inv_freq, 1.0
    return ROPE_INIT_FUNCTIONS[kind](config, "cpu", seq_len=length)


@pytest.mark.parametrize("length", [10, 600, LONGEST, 10_000])
@pytest.mark.parametrize("partial", [None, 0.5])
@pytest.mark.parametrize(("kind", "parameters"), [*TYPES.items(), *MORE])
def test_frequencies_are_those_of_transformers(kind, parameters, partial, length):
    if partial is not None and kind in ("proportional", "default"):
        pytest.skip("it has a share of its own, or transformers' function has none")
    config = config_of(kind, parameters, partial)
    expected, magnitude = theirs_of(config, kind, length)
    ours = built(config)
    assert_close(ours.frequencies(dtype=torch.float32, device=None, length=length), expected, rtol=1e-6, atol=0)
    assert ours.magnitude() == pytest.approx(magnitude, rel=1e-6)
    tensor = ours.frequencies(dtype=torch.float32, device=None, length=torch.tensor(length))
    assert_close(tensor, expected, rtol=1e-5, atol=0)


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize(("share", "share_of"), [(1.0, "channels"), (0.25, "channels"), (0.5, "frequencies")])
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_a_share_of_the_channels_turns_and_the_others_stay(share, share_of, interleaved, dtype):
    rope = Rotary(D, share=share, share_of=share_of, interleaved=interleaved, base=100.0)
    x, positions = torch.randn(2, 3, 5, D, dtype=dtype, requires_grad=True), torch.arange(5)[None] * 7 - 3
    leaf = x.detach().double().requires_grad_()
    channels = int(D * share) if share_of == "channels" else D
    turning = channels // 2 if share_of == "channels" else int(share * D) // 2
    columns = list(leaf.unbind(-1))
    for i in range(turning):
        a, b = (2 * i, 2 * i + 1) if interleaved else (i, i + channels // 2)
        angle = positions[0].double() * 100.0 ** (-2 * i / channels)
        columns[a], columns[b] = (
            leaf[..., a] * angle.cos() - leaf[..., b] * angle.sin(),
            leaf[..., b] * angle.cos() + leaf[..., a] * angle.sin(),
        )
    slow, ours = torch.stack(columns, -1), rope.rotate(x, positions)
    bound = {"rtol": 0, "atol": 1e-12 if dtype == torch.float64 else 0.05}
    assert_close(ours.double(), slow, **bound)
    upstream = torch.randn_like(slow)
    (expected,) = torch.autograd.grad(slow, leaf, upstream)
    (gradient,) = torch.autograd.grad(ours, x, upstream.to(dtype))
    assert_close(gradient.double(), expected, **bound)


def test_neighbours_are_pairs_in_another_order():
    halves, neighbours = Rotary(D), Rotary(D, interleaved=True)
    x, positions = torch.randn(1, 1, 6, D).double(), torch.arange(6)
    order = torch.arange(D).view(2, PAIRS).T.flatten()
    assert_close(neighbours.rotate(x[..., order], positions), halves.rotate(x, positions)[..., order])


@pytest.mark.parametrize("kind", ["dynamic", "longrope"])
def test_the_length_is_that_of_the_longest_row_wherever_positions_come_from(kind):
    rope = built(config_of(kind, {**TYPES[kind]}))
    long = rope.frequencies(dtype=torch.float32, device=None, length=5000)
    for key in (
        Contiguous(10, 4990),
        Contiguous(10, torch.tensor([3, 4990])),
        Arbitrary(torch.tensor([[4999, 3]])),
        Packed(torch.tensor([[0, 4999]]), torch.zeros(1, 2, dtype=torch.long)),
    ):
        of_query, of_key = rope(Contiguous(1, 7), key)
        angle = torch.atan2(of_query.sin_B1TK, of_query.cos_B1TK).flatten()
        turn = torch.atan2((7 * long).sin(), (7 * long).cos())
        assert_close(angle, turn, rtol=0, atol=2e-5)
        assert of_key.cos_B1TK.shape[-1] == PAIRS


@pytest.mark.parametrize("kind", ["dynamic", "longrope"])
def test_a_cache_turns_all_keys_by_the_length_so_far(kind):
    """Each step is what the whole text up to it gives for its last token."""
    name, options = from_rope_parameters(config_of(kind, TYPES[kind]))
    options |= {"original_positions": 6}
    decoder = Decoder(20, width=32, heads=2, layers=1, encoding=name, encoding_options=options).double().eval()
    ids, cache = torch.arange(10)[None], KeyValueCache()
    for t in range(10):
        step = decoder(ids[:, t : t + 1], cache=cache).hidden[:, -1]
        assert_close(step, decoder(ids[:, : t + 1]).hidden[:, -1], rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"rope_parameters": None}, "config must have rope_parameters, got none"),
        ({"rope_parameters": {"rope_type": "spiral"}}, "rope_type must be one of default, .*, got 'spiral'"),
        ({"rope_parameters": {"full_attention": {}}}, "layer_types must name full_attention and sliding_attention"),
        ({"rope_parameters": {}, "layer_types": ["chunked_attention"]}, "got {'chunked_attention'}"),
    ],
)
def test_what_cannot_be_read_is_said(fields, words):
    with pytest.raises(BadInput, match=words):
        from_rope_parameters(SimpleNamespace(max_position_embeddings=64, **fields))


def test_a_decoder_of_local_and_global_layers_is_that_of_gemma_3():
    from transformers import Gemma3TextConfig
    from transformers.models.gemma3.modeling_gemma3 import Gemma3RotaryEmbedding

    parameters = {
        "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
        "full_attention": {"rope_type": "linear", "rope_theta": 1e6, "factor": 8.0},
    }
    config = Gemma3TextConfig(
        hidden_size=64, num_attention_heads=4, head_dim=D, num_hidden_layers=7, sliding_window=5,
        sliding_window_pattern=6, rope_parameters=parameters,
    )  # fmt: skip
    name, options = from_rope_parameters(config)
    assert name == "rope:sliding@5*5,rope-linear:full,rope:sliding@5"
    assert options == {"rope:sliding": {"base": 1e4}, "rope-linear:full": {"base": 1e6, "factor": 8.0}}
    decoder = Decoder(20, width=64, heads=4, layers=7, encoding=name, encoding_options=options)
    assert [kind.window for kind in map(decoder.encoding.kind_of, range(7))] == [5] * 5 + [None, 5]
    theirs, positions = Gemma3RotaryEmbedding(config), torch.arange(9)[None]
    for layer, kind in ((0, "sliding_attention"), (5, "full_attention")):
        (part,) = decoder.encoding.parts_of(layer)
        cos, _ = theirs(torch.zeros(1, 9, 64), positions, layer_type=kind)
        assert_close(part.rotation(Contiguous(9)).cos_B1TK[0, 0], cos[0, :, :PAIRS], rtol=0, atol=1e-6)


def test_windows_without_parameters_of_their_own_need_no_label():
    config = SimpleNamespace(
        rope_parameters={"rope_type": "default", "rope_theta": 5e5}, max_position_embeddings=64, sliding_window=8,
        layer_types=["sliding_attention", "full_attention"] * 2,
    )  # fmt: skip
    name, options = from_rope_parameters(config)
    assert (name, options) == ("rope@8,rope,rope@8,rope", {"rope": {"base": 5e5}})


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("rope", {"share": 0.0}, r"share must lie in \(0, 1\], got 0.0"),
        ("rope", {"share": 0.2}, "must be an even number of channels, got 0.2 \\* 16 = 3"),
        ("rope", {"share_of": "heads"}, "share_of must be one of channels, frequencies"),
        ("rope-llama3", {"max_positions": 64, "low": 4.0}, "low and high must fulfil"),
        ("rope-longrope", {"max_positions": 64, "long_factor": [1.0]}, "long_factor must be 8 positive numbers"),
        ("rope-dynamic", {"max_positions": 64, "original_positions": 0}, "must be positive, got 0"),
        ("rope-yarn", {"max_positions": 64, "attention_factor": 0.0}, "attention_factor must be positive"),
    ],
)
def test_options_out_of_range_are_refused(name, options, words):
    with pytest.raises(ValueError, match=words):
        CATALOG[name](D, **options)
