"""FoX against its equations in loops, and its sums over long texts."""

import math

import pytest
import torch
from torch.testing import assert_close

import wordorder
from wordorder.attention import Call, attend, plan_attention
from wordorder.encodings import CATALOG, Composition, Fox, OnScoresByInput
from wordorder.networks import initialise
from wordorder.ops import Arbitrary, Contiguous, DenseBias, LowRankBias, Mask

HEADS, WIDTH, LAYERS = 3, 10, 2


def built(*, std=0.4, **options):
    fox = Fox(WIDTH, heads=HEADS, layers=LAYERS, **options).double()
    for parameter in fox.parameters():
        torch.nn.init.normal_(parameter, std=std)
    return fox


def log_gates_of(fox, x, layer=0):
    """log f of each token, then log g, (B, H, T, 1 or 2)."""
    return fox(Contiguous(x.shape[1]), Contiguous(x.shape[1])).layer(layer).features(x).of_keys["log_gates"]


def bias_of(fox, x, layer=0, queries=None, keys=None):
    """The bias of these queries, all by default, on the keys at these positions."""
    keys = Contiguous(x.shape[1]) if keys is None else keys
    queries = keys if queries is None else queries
    term = fox(queries, keys).layer(layer)
    term = term.with_features(term.features(x), (queries, keys))
    q = torch.zeros(len(x), HEADS, queries.length, 4, dtype=x.dtype)
    vector, bias = term.as_bias(q, q.new_zeros(len(x), HEADS, keys.length, 4), 1.0, None, rotated=False)
    assert vector is None
    return bias


def from_paper(weights, x, layer, *, bidirectional, first_bias, from_zero):
    """Eq. 5 and 6, entry by entry; the number of a zero start multiplies log f."""
    matrix, bias = (weights[f"gates.{layer}.{name}"] for name in ("weight", "bias"))

    def log_gate(head, token):
        log = -(1 + (-(matrix[head] @ x[token] + bias[head] + first_bias)).exp()).log()
        return log * weights["strength"][layer, head] if from_zero else log

    rows = []
    for head in range(HEADS):
        for i in range(len(x)):
            for j in range(len(x)):
                if j <= i:
                    between = [log_gate(head, token) for token in range(j + 1, i + 1)]
                else:
                    sides = HEADS if bidirectional else 0
                    between = [log_gate(sides + head, token) for token in range(i, j)]
                rows.append(sum(between, 0 * x.sum()))
    return torch.stack(rows).view(HEADS, len(x), len(x))


@pytest.mark.parametrize("options", [{}, {"first_bias": -0.5}, {"from_zero": True}])
@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("tokens", [1, 2, 11])
def test_bias_and_every_gradient_match_the_paper(tokens, bidirectional, options):
    fox, x = built(bidirectional=bidirectional, **options), torch.randn(2, tokens, WIDTH, dtype=torch.float64)
    x.requires_grad_()
    weights, layer = dict(fox.named_parameters()), 1
    bias = bias_of(fox, x, layer)
    assert type(bias) is (DenseBias if bidirectional else LowRankBias)
    how = {"first_bias": 5.0, "from_zero": False, **options, "bidirectional": bidirectional}
    paper = torch.stack([from_paper(weights, text, layer, **how) for text in x])
    seen = torch.ones(tokens, tokens, dtype=torch.bool)
    seen = seen if bidirectional else seen.tril()  # keys on the right are hidden by the mask
    assert_close(bias.dense()[..., seen], paper[..., seen], rtol=0, atol=1e-12)
    upstream = torch.randn(2, HEADS, tokens, tokens, dtype=torch.float64) * seen
    leaves = [x, *weights.values()]
    ours, reference = (
        torch.autograd.grad((y * upstream).sum(), leaves, allow_unused=True) for y in (bias.dense(), paper)
    )
    for name, one, other in zip(["x", *weights], ours, reference, strict=True):
        if other is None and one is None:  # of the other layer
            assert name.startswith("gates.0")
            continue
        other = torch.zeros_like(one) if other is None else other
        assert_close(one, other, rtol=0, atol=1e-11, msg=lambda text, name=name: f"{name}: {text}")


@pytest.mark.parametrize("bidirectional", [False, True])
def test_some_queries_are_rows_of_the_whole(bidirectional):
    fox, x = built(bidirectional=bidirectional), torch.randn(2, 9, WIDTH, dtype=torch.float64)
    whole = bias_of(fox, x).dense()
    assert_close(bias_of(fox, x, queries=Contiguous(3, 6)).dense(), whole[:, :, 6:])  # the last ones, as with a cache
    offset = torch.tensor([4])  # the next slots of a static cache are empty still
    assert_close(bias_of(fox, x, queries=Contiguous(2, offset)).dense(), whole[:, :, 4:6])
    assert_close(bias_of(fox, x, queries=Contiguous(2, 4)).dense(), whole[:, :, 4:6])


@pytest.mark.parametrize("bidirectional", [False, True])
def test_tokens_in_any_order_are_summed_by_their_positions(bidirectional):
    fox, x = built(bidirectional=bidirectional), torch.randn(2, 9, WIDTH, dtype=torch.float64)
    order = torch.stack([torch.randperm(9) for _ in x])
    moved = x.gather(1, order[..., None].expand(-1, -1, WIDTH))
    found = bias_of(fox, moved, keys=Arbitrary(order)).dense()
    expected = bias_of(fox, x).dense()
    for row, columns in enumerate(order):
        pairs = expected[row][:, columns][:, :, columns]
        seen = torch.ones(9, 9, dtype=torch.bool) if bidirectional else columns[:, None] >= columns
        assert_close(found[row][:, seen], pairs[:, seen])


def test_the_own_token_is_never_forgotten_and_gates_near_1_forget_nothing():
    fox, x = built(bidirectional=True), torch.randn(1, 9, WIDTH, dtype=torch.float64)
    bias = bias_of(fox, x).dense()
    assert (bias.diagonal(dim1=-2, dim2=-1) == 0).all()
    assert (bias <= 1e-12).all()
    nearer = bias[..., :-1] <= bias[..., 1:]  # of a query's keys on its left the nearer is forgotten less
    assert nearer[..., torch.ones(9, 8, dtype=torch.bool).tril(-1)].all()
    open_gates = built(first_bias=60.0)
    assert_close(bias_of(open_gates, x).dense().tril(), torch.zeros(1, 3, 9, 9).double())


def test_the_first_gates_forget_half_in_a_hundred_tokens():
    fox = Fox(WIDTH, heads=HEADS, layers=1)
    initialise(fox, seed=0, std=0.0)
    bias = bias_of(fox, torch.randn(1, 104, WIDTH)).dense()
    assert bias[0, :, 103, 0].exp().tolist() == pytest.approx([0.5] * HEADS, abs=0.01)


def test_a_start_at_zero_can_be_learned_from():
    fox = built(from_zero=True)
    (strength,) = fox.zero_init_parameters()
    torch.nn.init.zeros_(strength)
    bias = bias_of(fox, torch.randn(1, 9, WIDTH, dtype=torch.float64)).dense()
    assert (bias == 0).all()
    (gradient,) = torch.autograd.grad(bias.tril().sum(), strength)
    assert (gradient[0] != 0).all()
    assert built().zero_init_parameters() == ()


@pytest.mark.parametrize("learning", [False, True])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_long_texts_in_sixteen_bits_are_rounded_no_more_than_their_values(dtype, learning):
    """The bias near the diagonal is the difference of two sums of thousands, which 16 bits hold in steps of 16."""
    tokens, positions = 8192, Contiguous(8192)
    fox = Fox(WIDTH, heads=HEADS, layers=1, first_bias=-1.0)
    initialise(fox, seed=0, std=0.1)
    x = torch.randn(1, tokens, WIDTH)
    q, v = torch.zeros(1, HEADS, tokens, 8, dtype=dtype), torch.randn(1, HEADS, tokens, 8).to(dtype)
    with torch.set_grad_enabled(learning):
        terms = Composition({"fox": fox}, head_dim=8).prepare(positions, dtype=dtype).layer(0)
        plan = plan_attention(terms, Mask(positions, positions, high=0), Call.of(q, q, v))
        output = attend(q, q, v, plan, terms.features(x))[0].detach().double()
    with torch.no_grad():
        sums = log_gates_of(fox, x)[..., 0].double().cumsum(-1)
        assert sums.min() < -10_000
        last = slice(tokens - 200, tokens)
        scores = sums[:, :, last, None] - sums[:, :, None]
        scores = scores.masked_fill(torch.ones(tokens, tokens, dtype=torch.bool).triu(1)[last], -math.inf)
        exact = scores.softmax(-1) @ v.double()
    # half a step of a value between 2 and 4; in float32 a step of sums near 10,000 times the values' spread
    bound = {torch.bfloat16: 2.0**-6, torch.float32: 2.0**-9}[dtype]
    assert_close(output[:, :, last], exact, rtol=0, atol=bound)


@pytest.mark.parametrize(("causal", "tokens"), [(True, 8192), (False, 2048)])
def test_a_long_text_is_as_its_equation_says(causal, tokens):
    positions = Contiguous(tokens)
    fox = built(bidirectional=not causal)
    x = torch.randn(1, tokens, WIDTH, dtype=torch.float64)
    q, k, v = torch.randn(3, 1, HEADS, tokens, 4, dtype=torch.float64)
    terms = Composition({"fox": fox}, head_dim=4).prepare(positions, dtype=x.dtype).layer(1)
    mask = Mask(positions, positions, high=0 if causal else None)
    with torch.no_grad():
        output = attend(q, k, v, plan_attention(terms, mask, Call.of(q, k, v)), terms.features(x))[0]
        log = log_gates_of(fox, x, 1)
        for row in (0, 1, tokens // 2, tokens - 1):
            scores = 0.5 * (q[:, :, row, None] * k).sum(-1)
            for j in range(tokens):
                scores[..., j] += log[:, :, j + 1 : row + 1, 0].sum(-1) if j <= row else 0.0
                if j > row:
                    scores[..., j] += -math.inf if causal else log[:, :, row:j, 1].sum(-1)
            exact = (scores.softmax(-1)[..., None] * v).sum(2)
            assert_close(output[:, :, row], exact, rtol=0, atol=1e-5)


def test_gates_are_in_float32_under_autocast():
    fox, x = Fox(WIDTH, heads=HEADS, layers=1).bfloat16(), torch.randn(1, 5, WIDTH).bfloat16()
    with torch.autocast("cpu", torch.bfloat16):
        log_gates, bias = log_gates_of(fox, x), bias_of(fox, x)
    assert log_gates.dtype == torch.float32
    assert {tensor.dtype for tensor in bias.tensors} == {torch.float32}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"width": 0}, "width must be positive"),
        ({"heads": -1}, "heads must be positive"),
        ({"layers": 0}, "layers must be positive"),
        ({"first_bias": math.inf}, "first_bias must be finite"),
        ({"first_bias": math.nan}, "first_bias must be finite"),
    ],
)
def test_arguments_out_of_range_are_refused(arguments, words):
    width, others = arguments.get("width", 8), {"heads": 2, "layers": 1, **arguments}
    others.pop("width", None)
    with pytest.raises(ValueError, match=words):
        Fox(width, **others)


def test_it_reads_the_layers_input_and_says_where_it_cannot():
    assert CATALOG["fox"] is Fox
    assert issubclass(Fox, OnScoresByInput)
    assert {*Fox.refused_in} == {"cross-attention", "right"}
    text = wordorder.Decoder(9, width=16, layers=1, heads=2, encoding="fox").encoding.prepare(Contiguous(5))
    q = torch.zeros(1, 2, 5, 8)
    for terms in (text.layer(0), Fox(16, heads=2, layers=1)):
        with pytest.raises(ValueError, match=r"wordorder\.Positional"):
            wordorder.attention(q, q, q, terms)
