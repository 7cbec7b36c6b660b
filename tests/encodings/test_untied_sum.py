import math

import pytest
import torch
from torch.testing import assert_close
from tupe_from_paper import layer_norm

from wordorder.attention import attention
from wordorder.encodings import CATALOG, Shift, UntiedSum, build_encoding
from wordorder.networks import initialise
from wordorder.ops import Arbitrary, Contiguous

HEADS, WIDTH, LIMIT = 4, 24, 160
D = WIDTH // HEADS


def build(dtype=torch.float64, **options):
    encoding = UntiedSum(WIDTH, heads=HEADS, max_positions=LIMIT, **options)
    initialise(encoding, seed=3, std=0.5)
    for parameter in encoding.parameters():  # biases and norms too, so that nothing hides behind a 0 or a 1
        parameter.data += 0.1 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(parameter.numel()))
    return encoding.to(dtype)


def combine_terms(encoding, positions):
    composition = build_encoding("untied-sum", width=WIDTH, heads=HEADS, layers=1, max_positions=LIMIT)
    composition.parts["untied_sum"] = encoding
    return composition.prepare(positions)


def from_paper(weights, q, k, v, positions):
    """The equation, one pair of tokens at a time: (B, H, T, D)."""
    P = layer_norm(weights["table.weight"], weights["norm.weight"], weights["norm.bias"])
    zero = torch.zeros(WIDTH, dtype=P.dtype)
    a, c = (
        (P @ weights[f"{name}_projection.weight"].T + weights.get(f"{name}_projection.bias", zero)).view(-1, HEADS, D)
        for name in ("query", "key")
    )
    out = []
    for b in range(q.shape[0]):
        p = positions[b]
        rows = []
        for i in range(q.shape[2]):
            scores = []
            for j in range(q.shape[2]):
                x_i, x_j, p_i, p_j = q[b, :, i], k[b, :, j], a[p[i]], c[p[j]]
                four = (x_i * x_j + x_i * p_j + p_i * x_j + p_i * p_j).sum(-1)
                scores.append(four / math.sqrt(4 * D))
            rows.append((torch.stack(scores, -1).softmax(-1)[..., None] * v[b]).sum(1))
        out.append(torch.stack(rows, 1))
    return torch.stack(out)


@pytest.mark.parametrize(("dtype", "bound"), [(torch.float64, 1e-12), (torch.float32, 1e-5)])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("length", [1, 2, 9])
def test_output_and_every_gradient_match_the_equation(length, bias, dtype, bound):
    encoding = build(dtype, projection_bias=bias)
    q, k, v = (torch.randn(2, HEADS, length, D, dtype=dtype, requires_grad=True) for _ in range(3))
    weights = dict(encoding.named_parameters())
    ours = attention(q, k, v, combine_terms(encoding, Contiguous(length)))
    paper = from_paper(weights, q, k, v, [range(length)] * 2)
    assert_close(ours, paper, rtol=0, atol=bound * paper.abs().max().item())
    upstream = torch.randn_like(paper)
    wanted = [q, k, v, *weights.values()]
    grads = [torch.autograd.grad(y, wanted, upstream) for y in (ours, paper)]
    for name, ours_grad, paper_grad in zip(["q", "k", "v", *weights], *grads, strict=True):
        largest = max(1.0, paper_grad.abs().max().item())
        assert_close(ours_grad, paper_grad, rtol=0, atol=bound * largest, msg=lambda text, name=name: f"{name}: {text}")


def test_positions_of_any_kind_read_their_rows():
    encoding = build()
    q, k, v = (torch.randn(2, HEADS, 5, D, dtype=torch.float64) for _ in range(3))
    scattered = torch.tensor([[0, 7, 3, 3, 159], [12, 0, 0, 1, 2]])
    paper = from_paper(dict(encoding.named_parameters()), q, k, v, scattered.tolist())
    assert_close(attention(q, k, v, combine_terms(encoding, Arbitrary(scattered))), paper, rtol=1e-12, atol=1e-12)
    paper = from_paper(dict(encoding.named_parameters()), q, k, v, [range(9, 14)] * 2)
    assert_close(attention(q, k, v, combine_terms(encoding, Contiguous(5, 9))), paper, rtol=1e-12, atol=1e-12)
    each = Contiguous(5, torch.tensor([9, 9]))
    assert_close(attention(q, k, v, combine_terms(encoding, each)), paper, rtol=1e-12, atol=1e-12)


def test_the_first_token_is_not_reset():
    """TUPE would make row 0 constant; here [CLS] is a place like any other."""
    encoding = build()
    queries, keys = encoding(Contiguous(9), Contiguous(9))
    term = queries.vector_BHTD @ keys.vector_BHTD.mT
    assert (term[..., 0, :].std(-1) > 1e-2).all()
    assert (term[..., 1:, 0].std(-1) > 1e-2).all()


def test_grouped_queries_have_position_keys_of_their_own():
    encoding = build()
    q = torch.randn(2, HEADS, 7, D, dtype=torch.float64)
    k, v = (torch.randn(2, 2, 7, D, dtype=torch.float64) for _ in range(2))
    order = combine_terms(encoding, Contiguous(7))
    repeated = [x.repeat_interleave(HEADS // 2, dim=1) for x in (k, v)]
    paper = from_paper(dict(encoding.named_parameters()), q, *repeated, [range(7)] * 2)
    assert_close(attention(q, k, v, order), paper, rtol=1e-12, atol=1e-12)


def test_a_shift_keeps_the_dtype_of_what_it_moves_and_refuses_other_heads():
    shift = Shift(torch.randn(1, HEADS, 7, D))
    assert shift.apply(torch.randn(2, HEADS, 7, D, dtype=torch.bfloat16)).dtype == torch.bfloat16
    with pytest.raises(ValueError, match="projected for 4 heads, got 2"):
        shift.apply(torch.randn(2, 2, 7, D))


def test_the_content_scale_is_one_over_root_four_d():
    sizes = {"width": 64, "heads": 4, "layers": 1, "max_positions": 8}
    assert build_encoding("untied-sum", **sizes).scales[0] == pytest.approx((4 * 16) ** -0.5)
    assert build_encoding("rope+untied-sum", **sizes).scales[0] == pytest.approx((4 * 16) ** -0.5)
    with pytest.raises(ValueError, match="different content scales"):
        build_encoding("untied-sum+tupe-a", **sizes)


def test_bert_base_adds_two_projections():
    parts = UntiedSum(768, heads=12, max_positions=512).cost_parts()
    assert parts == {"projections": 1_181_184, "position table": 512 * 768, "norm": 1536}
    assert UntiedSum(768, heads=12, max_positions=512, projection_bias=False).cost_parts()["projections"] == 2 * 768**2


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: UntiedSum(10, heads=4, max_positions=8), "width"),
        (lambda: UntiedSum(0, heads=4, max_positions=8), "width"),
        (lambda: UntiedSum(8, heads=0, max_positions=8), "heads"),
        (lambda: UntiedSum(8, heads=4, max_positions=0), "max_positions"),
        (lambda: build()(Contiguous(161), Contiguous(161)), "max_positions=160"),
        (lambda: build()(Contiguous(1, 160), Contiguous(1)), "max_positions=160"),
        (lambda: build()(Arbitrary(torch.tensor([[-1]])), Contiguous(1)), "negative"),
        (
            lambda: build_encoding("untied-sum", width=8, heads=2, layers=1, max_positions=8, use="cross-attention"),
            "cross-attention.*no common axis",
        ),
    ],
)
def test_wrong_arguments_are_named(call, words):
    with pytest.raises(ValueError, match=words):
        call()


def test_it_stands_in_the_catalogue():
    assert CATALOG["untied-sum"] is UntiedSum
    assert CATALOG["untied-sum"].place == "queries and keys"
