"""Log-n scaling against its equation in loops, in networks of every kind, and against models of transformers."""

import copy
import math

import pytest
import torch
from attention_cases import BACKENDS, assert_reads_alike_however_it_is_fed, hidden_in_segments, small_network
from torch import nn
from torch.testing import assert_close

from wordorder import Decoder, Encoder, LookAheadMemory, MultiheadAttention, Positional, SegmentRecurrence
from wordorder.attention import attention
from wordorder.encodings import CATALOG, Composition, LogN, build_encoding
from wordorder.errors import BadInput
from wordorder.networks import check_encoding
from wordorder.ops import Arbitrary, Contiguous, Mask, Packed

H, D = 2, 6
STEEP = {"original_positions": 3, "alpha": 0.8}
"""Options by which texts of ten tokens show what it does."""
FORMS = [STEEP, {"original_positions": 5, "alpha": 1.7}, {**STEEP, "floor": True}]


def factor_from_equation(position, *, original_positions, alpha, floor=False):
    """s_i of one position."""
    if floor:
        return 1 + alpha * math.log(max(0, math.floor((position + 1) / original_positions)) + 1)
    return 1 + alpha * math.log(max(1.0, (position + 1) / original_positions))


def attention_from_equation(q, k, v, query_at, visible, **options):
    """Row by row: softmax of s_i q_i . k_j / sqrt(D) over the keys that are seen."""
    rows = []
    for b in range(len(q)):
        for h in range(q.shape[1]):
            for i in range(q.shape[2]):
                seen = [j for j in range(k.shape[2]) if visible(b, i, j)]
                factor = factor_from_equation(int(query_at[b][i]), **options)
                scores = [factor * sum(q[b, h, i] * k[b, h, j]) / math.sqrt(q.shape[-1]) for j in seen]
                weight = torch.stack(scores).softmax(-1)
                rows.append(sum(w * v[b, h, j] for w, j in zip(weight, seen, strict=True)))
    return torch.stack(rows).view(len(q), q.shape[1], -1, v.shape[-1])


def tokens(T, S, dtype=torch.float64):
    return [torch.randn(2, H, n, D, dtype=dtype, requires_grad=True) for n in (T, S, S)]


def terms(query, key=None, *, dtype=torch.float64, **options):
    return (
        Composition({"log_n": LogN(max_positions=9, **options)}, head_dim=D).prepare(query, key, dtype=dtype).layer(0)
    )


def factors(encoding, positions, dtype=torch.float32):
    move, of_keys = encoding(positions, positions, dtype=dtype)
    assert of_keys is None
    return move.factor_B1T1[:, 0, :, 0]


@pytest.mark.parametrize("options", FORMS, ids=str)
@pytest.mark.parametrize(("T", "S"), [(1, 1), (1, 9), (9, 9), (4, 9)])
def test_output_and_every_gradient_match_the_equation(options, T, S):
    leaves, query, key = tokens(T, S), Contiguous(T, S - T), Contiguous(S)
    at = [positions.index_BT().expand(2, -1) for positions in (query, key)]
    slow = attention_from_equation(*leaves, at[0], lambda b, i, j: at[0][b, i] >= at[1][b, j], **options)
    upstream = torch.randn_like(slow)
    expected = [slow, *torch.autograd.grad(slow, leaves, upstream)]
    for backend in BACKENDS:
        ours = attention(*leaves, terms(query, key, **options), Mask(query, key, high=0), backend=backend)
        for one, other in zip([ours, *torch.autograd.grad(ours, leaves, upstream)], expected, strict=True):
            limit = 1e-12 * max(1.0, other.abs().max().item())
            assert_close(one, other, rtol=0, atol=limit, msg=lambda text, backend=backend: f"{backend}: {text}")


@pytest.mark.parametrize("options", FORMS, ids=str)
@pytest.mark.parametrize(
    "positions",
    [
        Contiguous(63),
        Contiguous(1, 8_192 * 5_000 - 1),
        Contiguous(9, torch.tensor([-4, 0, 7])),
        Packed(torch.tensor([[0, 1, 2, 3, 0, 1, 2]]), torch.tensor([[0, 0, 0, 0, 1, 1, 1]])),
        Arbitrary(torch.tensor([[3, 40, 7, 0, 2_000_000]])),
    ],
    ids=lambda positions: type(positions).__name__,
)
def test_factors_follow_the_positions_and_padding_has_factor_1(positions, options):
    ours = factors(LogN(max_positions=9, **options), positions, torch.float64)
    expected = [[factor_from_equation(int(i), **options) for i in row] for row in positions.index_BT()]
    assert_close(ours, torch.tensor(expected, dtype=torch.float64), rtol=1e-15, atol=0)
    assert (ours[positions.index_BT() < 0] == 1).all()


def test_nothing_changes_up_to_the_original_length_and_steps_are_where_it_is_reached():
    smooth, steps = (LogN(max_positions=8, floor=floor) for floor in (False, True))
    assert (factors(smooth, Contiguous(8)) == 1).all()
    assert factors(smooth, Contiguous(9))[0, 8] > 1
    of_steps = factors(steps, Contiguous(17))[0]
    assert of_steps.unique_consecutive(return_counts=True)[1].tolist() == [7, 8, 2]
    far = Contiguous(2, 8_191 * 3_000_017 - 2)  # beyond the integers of float32
    before, at = factors(LogN(max_positions=8_191, floor=True), far, torch.float64)[0].tolist()
    assert before < at


def test_queries_alone_are_moved():
    order = terms(Contiguous(4), **STEEP)
    assert (len(order.query_moves), order.key_moves) == (1, (None,))
    both = Composition({"log_n": LogN(max_positions=2), "rope": CATALOG["rope"](D)}, head_dim=D).prepare(4).layer(0)
    assert both.key_moves[0] is None
    assert not list(LogN(max_positions=4).parameters())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_lower_precisions_round_once(dtype):
    """Of what comes out half a step of the dtype, and of the factors a few steps of float32."""
    positions = Arbitrary(torch.tensor([[0, 2, 63, 4_095, 1_000_000]]))
    (move,) = terms(positions, dtype=dtype, **STEEP).query_moves
    assert move.factor_B1T1.dtype == torch.float32
    x, upstream = (torch.randn(2, H, 5, D).to(dtype) for _ in range(2))
    x.requires_grad_()
    y = move.apply(x)
    assert y.dtype == dtype
    (gradient,) = torch.autograd.grad(y, x, upstream)
    of_positions = [[factor_from_equation(int(i), **STEEP)] for i in positions.position_BT[0]]
    exact = torch.tensor(of_positions, dtype=torch.float64)
    relative = torch.finfo(dtype).eps / 2 + 8 * torch.finfo(torch.float32).eps
    for ours, operand in ((y, x), (gradient, upstream)):
        expected = operand.double() * exact
        # float16 has an absolute step too, below its smallest normal number
        assert ((ours.double() - expected).abs() <= relative * expected.abs() + 2.0**-24).all()


def network(encoding="log-n", options=None, **more):
    parts = options or (STEEP if encoding == "log-n" else {"log-n": STEEP})
    return small_network(Decoder, encoding, parts, **more)


@pytest.mark.parametrize("options", FORMS, ids=str)
def test_every_check_of_an_encoding_finds_nothing(options):
    findings = check_encoding("log-n", use="decoder", options=options)
    assert {finding.kind for finding in findings} == {"information"}


@pytest.mark.parametrize("encoding", ["log-n", "rope+log-n", "none+log-n", "log-n@3,none", "t5+log-n", "shaw+log-n"])
def test_caches_padding_and_packing(encoding):
    assert_reads_alike_however_it_is_fed(network(encoding))
    ids = torch.randint(1, 30, (1, 9))
    flat = network(encoding, {"log-n": {"original_positions": 9}})
    flat.load_state_dict(network(encoding).state_dict())
    assert (flat(ids).hidden - network(encoding)(ids).hidden).abs().max() > 1e-3


def test_terms_by_content_are_not_multiplied():
    """As with rotations, which act on the product of queries and keys alone."""
    shaw = small_network(Decoder, "shaw+log-n", {"log-n": STEEP}).encoding
    order, (q, k, _) = shaw.prepare(Contiguous(5), dtype=torch.float64).layer(0), tokens(5, 5)
    v = torch.eye(5).double().expand(2, H, 5, 5)
    factor = torch.tensor([[factor_from_equation(i, **STEEP)] for i in range(5)], dtype=torch.float64)
    content = order.content[0].scores(q.repeat(1, 2, 1, 1), k.repeat(1, 2, 1, 1), order.scale, None)[:, :H]
    expected = (factor * order.scale * q @ k.mT + content).softmax(-1)
    assert_close(attention(q, k, v, order), expected, rtol=0, atol=1e-12)


def test_with_a_memory_positions_are_those_of_the_window():
    decoder, ids = network(layers=1, memory=SegmentRecurrence(4)), torch.randint(1, 30, (2, 14))
    plain = network(layers=1)
    plain.load_state_dict(decoder.state_dict())
    read = hidden_in_segments(decoder, ids, [5, 4, 3, 2])
    for start, stop in ((0, 5), (5, 9), (9, 12), (12, 14)):
        first = max(start - 4, 0)  # the oldest slot is at 0
        assert_close(read[:, start:stop], plain(ids[:, first:stop]).hidden[:, start - first :], rtol=0, atol=1e-10)


def test_your_own_network_and_torchs_attention():
    x, (q, k, v) = torch.randn(2, 9, H * D).double(), (x.detach() for x in tokens(9, 9))
    at = torch.arange(9).expand(2, -1)
    expected = attention_from_equation(q, k, v, at, lambda b, i, j: j <= i, **STEEP)
    positional = Positional("log-n", width=H * D, heads=H, layers=1, causal=True, options=STEEP).double()
    assert_close(positional.prepare(x).attend(0, q, k, v), expected, rtol=0, atol=1e-12)
    cache, steps = positional.cache(), []
    for first, last in ((0, 4), (4, 5), (5, 9)):
        order = positional.prepare(x[:, first:last], cache=cache)
        steps.append(order.attend(0, *(tensor[:, :, first:last] for tensor in (q, k, v))))
    assert_close(torch.cat(steps, 2), expected, rtol=0, atol=1e-12)

    module = MultiheadAttention(
        H * D, H, batch_first=True, encoding="log-n", encoding_options=STEEP, causal=True
    ).double()
    projected = nn.functional.linear(x, module.in_proj_weight, module.in_proj_bias).chunk(3, dim=-1)
    heads = (part.unflatten(-1, (H, D)).transpose(1, 2) for part in projected)
    mixed = attention_from_equation(*heads, at, lambda b, i, j: j <= i, **STEEP)
    assert_close(module(x, x, x)[0], module.out_proj(mixed.transpose(1, 2).flatten(2)), rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"alpha": 0.0}, "alpha must be positive, got 0"),
        ({"alpha": math.inf}, "alpha must be positive and finite, got inf"),
        ({"original_positions": 0}, "original_positions must be positive, got 0"),
    ],
)
def test_wrong_arguments_are_named(options, words):
    with pytest.raises(ValueError, match=words):
        LogN(max_positions=8, **options)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (lambda: Encoder(9, encoding="log-n"), "not defined for encoder.*every token sees every key"),
        (lambda: Decoder(9, encoding="log-n", memory=LookAheadMemory(4)), "look-ahead memory.*to their right"),
        (
            lambda: build_encoding("log-n", width=8, heads=2, layers=1, max_positions=8, use="cross-attention"),
            "of a source it sees every key",
        ),
    ],
)
def test_where_a_position_is_no_number_of_keys_it_is_refused(wrong, words):
    with pytest.raises(BadInput, match=words):
        wrong()


def test_its_steps_are_those_of_llama_4():
    """Its attention in a layer that does not rotate; transformers has the factors in float32."""
    llama4 = pytest.importorskip("transformers.models.llama4.modeling_llama4")
    sizes = {"hidden_size": 24, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 6}
    config = llama4.Llama4TextConfig(
        **sizes, num_hidden_layers=1, no_rope_layers=[0], floor_scale=3, attn_scale=0.8, attn_implementation="sdpa"
    )
    theirs, x = llama4.Llama4TextAttention(config, layer_idx=0).double().eval(), torch.randn(2, 13, 24).double()
    for parameter in theirs.parameters():
        nn.init.normal_(parameter, std=0.4)
    expected = theirs(x, None, None)[0]
    q, k, v = (
        projection(x).unflatten(-1, (-1, 6)).transpose(1, 2)
        for projection in (theirs.q_proj, theirs.k_proj, theirs.v_proj)
    )
    positional = Positional(
        "log-n", width=24, heads=4, layers=1, causal=True, options={**STEEP, "floor": True}
    ).double()
    mixed = positional.prepare(x).attend(0, q, k, v)
    assert_close(theirs.o_proj(mixed.transpose(1, 2).flatten(2)), expected, rtol=0, atol=1e-6)


def test_its_curve_is_that_of_inkling(monkeypatch):
    inkling = pytest.importorskip("transformers.models.inkling.modeling_inkling")
    sizes = {"hidden_size": 24, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 6}
    queries = []

    def noted(module, query, key, value, mask, **kwargs):
        queries.append(query)
        return value.repeat_interleave(2, dim=1).transpose(1, 2), None

    monkeypatch.setattr(inkling, "eager_attention_forward", noted)
    for scaled in ({}, {"log_scaling_n_floor": 3, "log_scaling_alpha": 0.8}):
        config = inkling.InklingTextConfig(
            **sizes, num_hidden_layers=1, layer_types=["full_attention"], attn_implementation="eager", **scaled
        )
        torch.manual_seed(0)
        inkling.InklingAttention(config, layer_idx=0)(torch.randn(2, 13, 24), None)
    ratio = (queries[1] / queries[0]).median(dim=-1).values[:, 0]
    assert_close(factors(LogN(max_positions=9, **STEEP), Contiguous(13)).expand(2, -1), ratio, rtol=1e-6, atol=0)


def test_its_steps_are_those_of_ministral_3_a_token_later():
    ministral3 = pytest.importorskip("transformers.models.ministral3.modeling_ministral3")
    theirs = ministral3.get_llama_4_attn_scale(torch.arange(1, 14)[None], 0.8, 3)[:, 0, :, 0]
    assert_close(factors(LogN(max_positions=9, **STEEP, floor=True), Contiguous(13)), theirs, rtol=1e-6, atol=0)


def scaled_llama(model, options):
    """A Llama whose projections of queries are multiplied by s_i, columns counted from the first token."""

    def scale(module, args, output):
        return output * model.factors[..., None]

    for layer in model.model.layers:
        layer.self_attn.q_proj.register_forward_hook(scale)

    def read(ids, mask):
        position = mask.cumsum(1) - 1
        model.factors = torch.tensor([[factor_from_equation(int(i), **options) for i in row] for row in position])
        return model(ids, attention_mask=mask, position_ids=position.clamp(min=0), use_cache=False).logits

    return read


@pytest.mark.parametrize("encoding", ["rope+log-n", "model+log-n"])
def test_a_swapped_llama_has_scaled_queries(encoding):
    transformers = pytest.importorskip("transformers")
    from wordorder.models import swap_encoding

    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
    config = transformers.LlamaConfig(vocab_size=60, num_key_value_heads=2, pad_token_id=0, **sizes)
    model = transformers.LlamaForCausalLM(config).eval()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.3)
    reference = scaled_llama(copy.deepcopy(model), STEEP)
    swap_encoding(model, encoding, options={"log-n": STEEP}, start="drawn")
    ids, mask = torch.randint(3, 60, (2, 11)), torch.ones(2, 11, dtype=torch.long)
    mask[1, :4] = 0
    expected = reference(ids, mask)
    assert_close(model(ids, attention_mask=mask).logits[mask.bool()], expected[mask.bool()], rtol=1e-4, atol=1e-4)
    steps, cache = [], None
    for first, last in ((0, 7), (7, 8), (8, 11)):
        output = model(ids[:, first:last], attention_mask=mask[:, :last], past_key_values=cache, use_cache=True)
        steps.append(output.logits)
        cache = output.past_key_values
    assert_close(torch.cat(steps, 1)[mask.bool()], expected[mask.bool()], rtol=1e-4, atol=1e-4)
    beams, alone = (
        model.generate(ids, attention_mask=mask, num_beams=3, max_new_tokens=5, use_cache=cached)
        for cached in (True, False)
    )
    assert torch.equal(beams, alone)
