"""`MultiheadAttention` is torch's with "none", in its own layers too, and the slow attention with an encoding."""

import copy
from itertools import product

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from wordorder import MultiheadAttention
from wordorder.attention import Call, attend, plan_attention
from wordorder.encodings import CATALOG, OnEmbeddings, OnLayerInput, ReplacesEmbedding
from wordorder.errors import BadInput
from wordorder.networks import initialise
from wordorder.ops import Contiguous, Mask, Packed

B, T, S, E, H = 2, 5, 7, 12, 2
EXACT = {"rtol": 0, "atol": 1e-10}
ELSEWHERE = OnEmbeddings | ReplacesEmbedding | OnLayerInput
INSIDE = [name for name, kind in CATALOG.items() if not issubclass(kind, ELSEWHERE)]


def pair(encoding="none", *, dtype=torch.float64, causal=False, **options):
    torch.manual_seed(0)
    theirs = nn.MultiheadAttention(E, H, **options).to(dtype).eval()
    for parameter in theirs.parameters():
        nn.init.normal_(parameter, std=0.4)
    ours = MultiheadAttention(E, H, **options, encoding=encoding, causal=causal).to(dtype).eval()
    ours.load_state_dict(theirs.state_dict(), strict=encoding == "none")
    return ours, theirs


def masks(kind, keys):
    """attn_mask and key_padding_mask of which no row is hidden whole."""
    hidden = torch.rand(T, keys) < 0.3
    hidden[:, 0] = False
    padding = torch.zeros(B, keys, dtype=torch.bool)
    padding[1, -2:] = True
    by_head = torch.rand(B * H, T, keys) < 0.3
    by_head[..., 0] = False
    return {
        "none": (None, None),
        "bool": (hidden, None),
        "float": (torch.randn(T, keys).double(), None),
        "by head": (by_head, None),
        "float by head": (torch.randn(B * H, T, keys).double(), None),
        "padding": (None, padding),
        "float padding": (None, torch.zeros(B, keys).double().masked_fill(padding, -torch.inf)),
        "both": (hidden, padding),
        "bool and float": (torch.randn(T, keys).double(), padding),
    }[kind]


def gradients(output, inputs, module):
    parameters = [parameter for name, parameter in sorted(module.named_parameters()) if "encoding" not in name]
    upstream = torch.randn(output.shape, generator=torch.Generator().manual_seed(1)).type_as(output)
    return torch.autograd.grad((output * upstream).sum(), [*inputs, *parameters])


KINDS = ["none", "bool", "float", "by head", "float by head", "padding", "float padding", "both", "bool and float"]


@pytest.mark.filterwarnings("ignore:Support for mismatched")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("batch_first", "need_weights", "average"), [*product((True, False), repeat=3)])
@pytest.mark.parametrize("options", [{}, {"kdim": 8, "vdim": 9}, {"bias": False}], ids=str)
def test_without_positions_it_is_torchs_with_every_gradient(kind, batch_first, need_weights, average, options):
    ours, theirs = pair(batch_first=batch_first, **options)
    inputs = [
        torch.randn(B, n, c).double() for n, c in ((T, E), (S, options.get("kdim", E)), (S, options.get("vdim", E)))
    ]
    inputs = [(x if batch_first else x.transpose(0, 1)).requires_grad_() for x in inputs]
    attn_mask, padding = masks(kind, S)
    settings = {"attn_mask": attn_mask, "key_padding_mask": padding, "need_weights": need_weights}
    settings["average_attn_weights"] = average
    (output, weights), (expected, expected_weights) = ours(*inputs, **settings), theirs(*inputs, **settings)
    assert_close(output, expected, **EXACT)
    assert (weights is None) == (expected_weights is None)
    if weights is not None:
        assert_close(weights, expected_weights, **EXACT)
    for mine, other in zip(gradients(output, inputs, ours), gradients(expected, inputs, theirs), strict=True):
        assert_close(mine, other, **EXACT)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("is_causal", [True, False])
def test_itself_in_other_dtypes_and_causal(dtype, is_causal):
    ours, theirs = pair(dtype=dtype, batch_first=True)
    x = torch.randn(B, T, E, dtype=dtype)
    mask = nn.Transformer.generate_square_subsequent_mask(T, dtype=dtype) if is_causal else None
    found = ours(x, x, x, attn_mask=mask, is_causal=is_causal, need_weights=False)[0]
    expected = theirs(x, x, x, attn_mask=mask, is_causal=is_causal, need_weights=False)[0]
    tolerance = {torch.float32: 1e-6, torch.bfloat16: 0.05}[dtype]
    assert_close(found, expected, rtol=tolerance, atol=tolerance)


def test_one_text_without_a_batch():
    ours, theirs = pair()
    x, padding = torch.randn(T, E).double(), torch.tensor([False] * 4 + [True])
    for mine, other in zip(ours(x, x, x, padding), theirs(x, x, x, padding), strict=True):
        assert_close(mine, other, **EXACT)


def test_a_row_that_sees_nothing_gives_zero():
    ours, _ = pair(batch_first=True, bias=False)
    x = torch.randn(B, T, E).double()
    hidden = torch.zeros(T, T, dtype=torch.bool).index_fill(0, torch.tensor([2]), True)
    output, weights = ours(x, x, x, attn_mask=hidden)
    assert not output[:, 2].any()
    assert not weights[:, 2].any()
    assert output.isfinite().all()


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")  # of torch's own, which expects it
@pytest.mark.parametrize("norm_first", [True, False])
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("padded", [True, False])
@pytest.mark.parametrize("nested", [True, False])
def test_torchs_encoder_with_it_is_torchs_encoder(norm_first, training, padded, nested):
    layer = nn.TransformerEncoderLayer(E, H, 16, dropout=0.0, batch_first=True, norm_first=norm_first)
    theirs = nn.TransformerEncoder(layer, 2, enable_nested_tensor=nested and not norm_first).double().train(training)
    ours = copy.deepcopy(theirs)
    assert MultiheadAttention.swap_in(ours, "none") == 2
    assert ours.state_dict().keys() == theirs.state_dict().keys()
    x, padding = torch.randn(B, T, E).double(), torch.zeros(B, T, dtype=torch.bool)
    padding[1, -2:] = padded
    with torch.set_grad_enabled(training):
        output = ours(x, src_key_padding_mask=padding if padded else None)
        expected = theirs(x, src_key_padding_mask=padding if padded else None)
    assert_close(output[~padding], expected[~padding], **EXACT)


@pytest.mark.parametrize("encoding", ["rope", "t5", "tupe-r", "alibi", "rope+t5"])
@pytest.mark.parametrize("training", [True, False])
def test_torchs_encoder_knows_word_order_then(encoding, training):
    layer = nn.TransformerEncoderLayer(E, H, 16, dropout=0.0, batch_first=True)
    network = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False).double().train(training)
    x, other = torch.randn(1, T, E).double(), [0, 3, 2, 1, 4]
    with torch.no_grad():
        assert_close(network(x[:, other]), network(x)[:, other], **EXACT)
        MultiheadAttention.swap_in(network, encoding)
        initialise(network.layers[0].self_attn.encoding, seed=0, std=0.5)
        assert (network(x[:, other]) - network(x)[:, other]).abs().max() > 1e-3


def test_torchs_decoder_with_it_is_torchs_decoder():
    layer = nn.TransformerDecoderLayer(E, H, 16, dropout=0.0, batch_first=True)
    theirs = nn.TransformerDecoder(layer, 2).double().eval()
    ours = copy.deepcopy(theirs)
    assert MultiheadAttention.swap_in(ours, "none", causal=True) == 2
    x, source = torch.randn(B, T, E).double(), torch.randn(B, S, E).double()
    mask = nn.Transformer.generate_square_subsequent_mask(T, dtype=torch.float64)
    assert_close(ours(x, source), theirs(x, source, tgt_mask=mask), **EXACT)
    assert_close(ours(x, source, tgt_mask=mask, tgt_is_causal=True), theirs(x, source, tgt_mask=mask), **EXACT)


@pytest.mark.parametrize(("name", "causal"), [*product(INSIDE, (True, False))])
def test_with_an_encoding_it_is_the_slow_attention(name, causal):
    if ("decoder" if causal else "encoder") in CATALOG[name].refused_in:
        with pytest.raises(BadInput, match="is not defined for"):
            pair(name, causal=causal)
        return
    ours, _ = pair(name, causal=causal, batch_first=True)
    initialise(ours.encoding, seed=3, std=0.4)
    ours.double()
    x = torch.randn(B, T, E).double()
    padding = torch.zeros(B, T, dtype=torch.bool)
    padding[0, -1] = True
    positions = Contiguous(T)
    q, k, v = (
        nn.functional.linear(x, w, b).unflatten(-1, (H, -1)).transpose(1, 2)
        for w, b in zip(ours.in_proj_weight.chunk(3), ours.in_proj_bias.chunk(3), strict=True)
    )
    terms = ours.encoding.prepare(positions, dtype=torch.float64).layer(0)
    mask = Mask(positions, positions, high=0 if causal else None, tokens_BS=~padding)
    plan = plan_attention(terms, mask, Call.of(q, k, v), backend="reference")
    mixed = attend(q, k, v, plan, terms.features(x))[0]
    expected = ours.out_proj(mixed.transpose(1, 2).flatten(2))
    output, weights = ours(x, x, x, padding)
    assert_close(output, expected, **EXACT)
    if name == "softmax-sink":
        assert (weights.sum(-1) < 1).all()
    else:
        assert_close(weights.sum(-1), torch.ones(B, T).double(), **EXACT)
    moved = torch.randn(T, T).double()
    both = ours(x, x, x, padding, attn_mask=moved)[0]
    assert (both - output).abs().max() > 1e-3
    assert_close(ours(x, x, x, padding, attn_mask=torch.zeros(T, T).double())[0], output, **EXACT)


def test_positions_say_where_tokens_stand():
    ours, _ = pair("tupe-r", batch_first=True)
    initialise(ours.encoding, seed=3, std=0.4)
    ours.double()
    x, first = torch.randn(B, T, E).double(), torch.randn(1, 2, E).double()
    padded = torch.cat((torch.zeros(1, 2, E).double(), x[:1, :3]), 1)
    padding = torch.tensor([[True, True, False, False, False]])
    numbers = (torch.zeros(1, T).masked_fill(padding, low) for low in (-torch.inf, torch.finfo(torch.float32).min))
    for hidden in (padding, *numbers):
        with pytest.raises(BadInput, match="pass positions"):
            ours(padded, padded, padded, hidden)
    at = Contiguous(T, torch.tensor([-2]))
    assert_close(
        ours(padded, padded, padded, padding, positions=at)[0][:, 2:], ours(x[:1, :3], x[:1, :3], x[:1, :3])[0], **EXACT
    )
    packed = torch.cat((x[:1, :3], first), 1)
    texts = Packed(torch.tensor([[0, 1, 2, 0, 1]]), torch.tensor([[0, 0, 0, 1, 1]]))
    output = ours(packed, packed, packed, positions=texts)[0]
    assert_close(output[:, 3:], ours(first, first, first)[0], **EXACT)


@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("padded", [True, False])
def test_causal_and_a_bias_act_together(need_weights, padded):
    ours, theirs = pair(batch_first=True)
    x, bias = torch.randn(B, T, E).double(), torch.randn(T, T).double()
    padding = torch.zeros(B, T).double().index_fill(1, torch.tensor([T - 1]), -torch.inf if padded else 0.0)
    causal = nn.Transformer.generate_square_subsequent_mask(T, dtype=torch.float64)
    output = ours(x, x, x, padding, need_weights, attn_mask=bias, is_causal=True)[0]
    assert_close(output, theirs(x, x, x, padding, attn_mask=bias + causal)[0], **EXACT)


def test_hooks_copies_and_weights_drawn_anew():
    ours, _ = pair("t5", batch_first=True)
    x = torch.randn(B, T, E).double()
    assert_close(copy.deepcopy(ours)(x, x, x)[0], ours(x, x, x)[0], **EXACT)
    before = ours.encoding.parts["t5"].table.weight.clone()
    ours._reset_parameters()
    assert not torch.equal(ours.encoding.parts["t5"].table.weight, before)
    assert not ours._qkv_same_embed_dim


@pytest.mark.slow
@pytest.mark.parametrize("encoding", ["none", "rope", "t5"])
def test_it_compiles_in_one_graph(encoding):
    layer = nn.TransformerEncoderLayer(E, H, 16, dropout=0.0, batch_first=True)
    MultiheadAttention.swap_in(layer, encoding)
    x, padding = torch.randn(B, T, E), torch.zeros(B, T, dtype=torch.bool)
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    assert_close(compiled(x, src_key_padding_mask=padding), layer(x, src_key_padding_mask=padding), rtol=0, atol=1e-5)


def test_a_layer_whose_attention_was_wrapped_is_no_half_swapped_network():
    network = nn.TransformerEncoder(nn.TransformerEncoderLayer(E, H, batch_first=True), 2)
    network.layers[1].self_attn = type("Mine", (nn.MultiheadAttention,), {})(E, H, batch_first=True)
    with pytest.raises(BadInput, match="self_attn of a layer is a Mine"):
        MultiheadAttention.swap_in(network, "rope")
    assert type(network.layers[0].self_attn) is nn.MultiheadAttention
    MultiheadAttention.swap_in(network.layers[0], "rope")
    with pytest.raises(BadInput, match="swap before it is wrapped, and once"):
        MultiheadAttention.swap_in(network.layers[0], "rope")
    nested = torch.nested.nested_tensor([torch.randn(3, E), torch.randn(2, E)], layout=torch.jagged)
    with pytest.raises(BadInput, match="set its use_nested_tensor = False"):
        network.layers[0].self_attn(nested, nested, nested)


SHAPES = [
    ((B, T, E), (B, S, E), (B, S + 2, E)),
    ((B, T, E), (B, S, E), (B, S - 1, E)),
    ((B, T, E), (1, S, E), (1, S, E)),
    ((T, E), (B, S, E), (B, S, E)),
    ((1, B, T, E), (1, B, S, E), (1, B, S, E)),
    ((B, T, E + 1), (B, S, E), (B, S, E)),
    ((B, T, E), (B, S, E - 1), (B, S, E)),
]


@pytest.mark.parametrize("shapes", SHAPES)
@pytest.mark.parametrize("encoding", ["none", "t5"])
def test_inputs_that_do_not_fit_are_refused(shapes, encoding):
    with pytest.raises(BadInput, match="key and value of as many tokens, got"):
        MultiheadAttention(E, H, batch_first=True, encoding=encoding)(*map(torch.randn, shapes))


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (lambda: call(attn_mask=[[False] * T] * T), "attn_mask must be a tensor, got list"),
        (lambda: MultiheadAttention(E, H, encoding="rope*1,none"), "is a pattern over layers, and this is one layer"),
        (lambda: MultiheadAttention(E, H, encoding="learned"), "acts on embeddings, which attention does not see"),
        (lambda: MultiheadAttention(E, H, encoding="complex-order"), "acts on embeddings"),
        (lambda: MultiheadAttention(E, H, encoding="rop"), "unknown encoding 'rop'"),
        (lambda: MultiheadAttention(E, H, add_zero_attn=True), "keys that stand at no position"),
        (lambda: MultiheadAttention.swap_in(nn.Linear(2, 2), "rope"), "Linear has no layers of nn.Transformer"),
        (lambda: call(attn_mask=torch.zeros(T, T, dtype=torch.long)), r"attn_mask must be .*got torch\.int64 \(5, 5\)"),
        (lambda: call(attn_mask=torch.zeros(B, T, T)), r"attn_mask must be \(5, 5\) or \(4, 5, 5\)"),
        (lambda: call(key_padding_mask=torch.zeros(T, B)), r"key_padding_mask must be \(2, 5\)"),
        (lambda: call(positions=torch.arange(4)), "positions must be"),
    ],
)
def test_misuse_is_one_clear_error(wrong, words):
    with pytest.raises(BadInput, match=words):
        wrong()


def call(**settings):
    x = torch.randn(B, T, E)
    return MultiheadAttention(E, H, batch_first=True)(x, x, x, **settings)


def test_what_reads_the_tokens_between_query_and_key_wants_one_text():
    ours, _ = pair("fox", batch_first=True)
    x = torch.randn(B, T, E).double()
    with pytest.raises(BadInput, match="pass one tensor as both"):
        ours(x, x.clone(), x)
