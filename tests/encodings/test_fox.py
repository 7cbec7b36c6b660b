"""FoX against its equations in loops, and its sums over long texts."""

import math

import pytest
import torch
from torch.testing import assert_close

from wordorder.attention import Call, attend, plan_attention
from wordorder.encodings import CATALOG, Fox, Terms
from wordorder.networks import initialise
from wordorder.ops import Contiguous, DenseBias, LowRankBias, Mask

HEADS, WIDTH, LAYERS = 3, 10, 2


def built(*, std=0.4, **options):
    fox = Fox(WIDTH, heads=HEADS, layers=LAYERS, **options).double()
    for parameter in fox.parameters():
        torch.nn.init.normal_(parameter, std=std)
    return fox


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
    bias = fox.bias(fox(x, layer), torch.arange(tokens))
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
def test_queries_at_any_column_are_rows_of_the_whole(bidirectional):
    fox, x = built(bidirectional=bidirectional), torch.randn(1, 9, WIDTH, dtype=torch.float64)
    log_gates = fox(x, 0)
    whole = fox.bias(log_gates, torch.arange(9)).dense()
    assert_close(fox.bias(log_gates, torch.tensor([8, 3])).dense(), whole[:, :, [8, 3]])


def test_the_own_token_is_never_forgotten_and_gates_near_1_forget_nothing():
    fox, x = built(bidirectional=True), torch.randn(1, 9, WIDTH, dtype=torch.float64)
    bias = fox.bias(fox(x, 0), torch.arange(9)).dense()
    assert (bias.diagonal(dim1=-2, dim2=-1) == 0).all()
    assert (bias <= 1e-12).all()
    nearer = bias[..., :-1] <= bias[..., 1:]  # of a query's keys on its left the nearer is forgotten less
    assert nearer[..., torch.ones(9, 8, dtype=torch.bool).tril(-1)].all()
    open_gates = built(first_bias=60.0)
    assert_close(open_gates.bias(open_gates(x, 0), torch.arange(9)).dense().tril(), torch.zeros(1, 3, 9, 9).double())


def test_the_first_gates_forget_half_in_a_hundred_tokens():
    fox = Fox(WIDTH, heads=HEADS, layers=1)
    initialise(fox, seed=0, std=0.0)
    bias = fox.bias(fox(torch.randn(1, 104, WIDTH), 0), torch.arange(104)).dense()
    assert bias[0, :, 103, 0].exp().tolist() == pytest.approx([0.5] * HEADS, abs=0.01)


def test_a_start_at_zero_can_be_learned_from():
    fox = built(from_zero=True)
    (strength,) = fox.zero_init_parameters()
    torch.nn.init.zeros_(strength)
    bias = fox.bias(fox(torch.randn(1, 9, WIDTH, dtype=torch.float64), 0), torch.arange(9)).dense()
    assert (bias == 0).all()
    (gradient,) = torch.autograd.grad(bias.tril().sum(), strength)
    assert (gradient[0] != 0).all()
    assert built().zero_init_parameters() == ()


@pytest.mark.parametrize("learning", [False, True])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_long_texts_in_sixteen_bits_are_rounded_no_more_than_their_values(dtype, learning):
    """The bias near the diagonal is the difference of two sums of thousands, which 16 bits hold in steps of 16."""
    tokens = 4096
    fox = Fox(WIDTH, heads=2, layers=1, first_bias=-1.0)
    initialise(fox, seed=0, std=0.1)
    x = torch.randn(1, tokens, WIDTH)
    q, v = torch.zeros(1, 2, tokens, 8, dtype=dtype), torch.randn(1, 2, tokens, 8).to(dtype)
    with torch.set_grad_enabled(learning):
        bias = fox.bias(fox(x, 0), torch.arange(tokens))
        visible = Mask(Contiguous(tokens), Contiguous(tokens), high=0)
        plan = plan_attention(Terms(scale=1.0, bias=bias), visible, Call.of(q, q, v))
        output = attend(q, q, v, plan)[0].detach().double()
    with torch.no_grad():
        sums = fox(x, 0).double().cumsum(-1)
        assert sums.min() < -5000
        last = slice(tokens - 200, tokens)
        scores = sums[:, :, last, None] - sums[:, :, None]
        scores = scores.masked_fill(torch.ones(tokens, tokens, dtype=torch.bool).triu(1)[last], -math.inf)
        exact = scores.softmax(-1) @ v.double()
    # half a step of a value between 2 and 4; in float32 a step of sums near 5,000 times the values' spread
    bound = {torch.bfloat16: 2.0**-6, torch.float32: 2.0**-10}[dtype]
    assert_close(output[:, :, last], exact, rtol=0, atol=bound)


def test_gates_are_in_float32_under_autocast():
    fox, x = Fox(WIDTH, heads=HEADS, layers=1).bfloat16(), torch.randn(1, 5, WIDTH).bfloat16()
    with torch.autocast("cpu", torch.bfloat16):
        log_gates = fox(x, 0)
        bias = fox.bias(log_gates, torch.arange(5))
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


def test_it_reads_the_layers_input_and_says_where_it_can():
    assert CATALOG["fox"] is Fox
    assert [name for name, kind in CATALOG.items() if kind.reads_layer_input] == ["fox"]
    assert {*Fox.refused_in} == {"encoder", "decoder", "cross-attention", "memory", "right"}
    assert all("swap_encoding" in reason for reason in Fox.refused_in.values())
