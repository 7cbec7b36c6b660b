"""Paths whose memory grows with the length make no T x S tensor, nor many tiles of one that are kept together.

Tiles run on real tensors: they read how long each text is, which fake ones cannot say, and are many small operators,
which take longer to fake than to run. Triton's operators run on fake ones, where their fake implementation answers.
"""

import copy

import pytest
import torch
from allocations import allocations

from wordorder import Encoder
from wordorder.attention import attention
from wordorder.attention.backends.flex import arguments
from wordorder.encodings import DeBERTa, Shaw, Terms, TransformerXL
from wordorder.encodings.composition import Composition
from wordorder.ops import Contiguous, LowRankBias, Mask, Packed, ToeplitzBias

LINEAR = ["recomputed-tiles", "far-and-near", "triton"]
FAKE = {"triton"}
H, D = 2, 16


def mask_of(kind, N):
    where, packed = Contiguous(N), Packed(torch.arange(N)[None] % 300, torch.arange(N)[None] // 300)
    return {
        "all": None,
        "causal": Mask(where, where, high=0),
        "within": Mask(where, where, low=-99, high=0),
        "window on both sides": Mask(where, where, low=-99, high=99),
        "padded": Mask(where, where, tokens_BS=torch.ones(2, N, dtype=torch.bool)),
        "packed": Mask(packed, packed),
    }[kind]


def tupe_r(N, backend, *, mask="all", dropout=0.0, lse=False):
    """Forward and backward of TUPE-R down to both factors and the table, as `allocations` wants it."""

    def prepare():
        q, k, v = (torch.randn(2, H, N, D, requires_grad=True) for _ in range(3))
        factors = [torch.randn(1, H, N, D + 2, requires_grad=True) for _ in range(2)]
        rows = torch.randn(H, 101, requires_grad=True)
        seen = mask_of(mask, N)

        def run():
            table = rows[:, torch.arange(1 - N, N).clamp(-50, 50) + 50]
            relative = ToeplitzBias(table, N, may_hide=False, edges=(N - 51, N + 49))
            terms = Terms(D**-0.5, LowRankBias(*factors) + relative)
            found = attention(q, k, v, terms, seen, backend=backend, dropout=dropout, return_lse=lse)
            total = found[0].sum() + found[1].sum() if lse else found.sum()
            return torch.autograd.grad(total, [q, k, v, *factors, rows])

        return run

    return prepare


def check_linear(at, N, *, fake=True):
    """Compare N and 2 N tokens: neither the largest tensor nor what is alive at once may grow much more than twice."""
    short, long = (allocations(at(length), fake=fake) for length in (N, 2 * N))
    assert long.largest < 2 * N * N, f"{long.by} makes a tensor of {long.largest:,} elements"
    assert long.largest <= 2.2 * short.largest, f"{long.by} makes a tensor of {long.largest:,} elements"
    assert long.peak <= 2.2 * short.peak, f"the peak is {long.peak:,} bytes, at half the length {short.peak:,}"


@pytest.mark.parametrize(
    ("backend", "mask"),
    [
        (backend, mask)
        for backend in LINEAR
        for mask in ("all", "causal", "padded", *(("within", "packed") if backend != "far-and-near" else ()))
    ],
)
def test_attention_with_a_bias_makes_no_matrix_of_scores(backend, mask):
    check_linear(lambda N: tupe_r(N, backend, mask=mask), 1000, fake=backend in FAKE)


@pytest.mark.parametrize("backend", LINEAR)
def test_neither_do_dropout_and_the_log_sum_exp(backend):
    if backend != "far-and-near":
        check_linear(lambda N: tupe_r(N, backend, dropout=0.1), 1000, fake=backend in FAKE)
    check_linear(lambda N: tupe_r(N, backend, lse=True), 1000, fake=backend in FAKE)


written_out = pytest.mark.xfail(reason="create_block_mask writes the mask out, T x S booleans", raises=AssertionError)


@pytest.mark.parametrize("mask", ["all", pytest.param("causal", marks=written_out)])
def test_flex_hands_over_no_matrix_of_scores(mask, monkeypatch):
    """On a GPU FlexAttention is compiled into one kernel; what is made before it is looked at here."""

    def fused(q, k, v, **handed):
        del q, k, handed
        return torch.empty_like(v)

    monkeypatch.setattr(arguments, "flex_attention", lambda device: fused)

    def at(N):
        def prepare():
            q, k, v = (torch.randn(2, H, N, D) for _ in range(3))
            terms = Terms(D**-0.5, ToeplitzBias(torch.randn(H, 2 * N - 1), N, may_hide=False))
            seen = mask_of(mask, N)
            return torch.no_grad()(lambda: attention(q, k, v, terms, seen, backend="flex"))

        return prepare

    check_linear(at, 1500, fake=False)


@pytest.mark.parametrize(
    "encoding", ["tupe-r", "tupe-a", "t5", "transformer-xl", "pope", "shaw", "deberta", "relative-logits"]
)
def test_a_training_step_of_an_encoder_makes_no_matrix_of_scores(encoding):
    def at(N):
        def prepare():
            options = {"width": 2 * D, "heads": 2, "layers": 2, "dropout": 0.0, "attention_dropout": 0.0}
            encoder = Encoder(8, max_positions=N, encoding=encoding, **options)
            ids = torch.zeros(1, N, dtype=torch.long)
            return lambda: encoder(ids).hidden.sum().backward()

        return prepare

    check_linear(at, 1000, fake=False)


BY_CONTENT = {
    "shaw": Shaw(D, layers=1),
    "deberta": DeBERTa(D, heads=1, head_dim=D, layers=1, max_distance=64),
    "transformer-xl": TransformerXL(D, heads=1, head_dim=D, layers=1),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("encoding", "backend"),
    [("shaw", None), ("deberta", None), ("deberta", "recomputed-tiles"), ("transformer-xl", None)],
)
def test_terms_by_content_at_16_384_tokens(encoding, backend):
    """Of a few queries, whose output and gradients the slow attention computes too."""
    N, few = 16_384, slice(9_000, 9_005)
    built = copy.deepcopy(BY_CONTENT[encoding])
    for parameter in built.parameters():
        torch.nn.init.normal_(parameter, std=0.2)
    composition = Composition({"encoding": built}, head_dim=D)
    q, k, v = (torch.randn(1, 1, N, D, requires_grad=True) for _ in range(3))
    upstream = torch.randn(1, 1, 5, D)

    def output_and_gradients(backend, rows, dtype):
        built.to(dtype)
        where, keys = Contiguous(rows.stop - rows.start, rows.start), Contiguous(N)
        terms = composition.prepare(where, keys, dtype=dtype).layer(0)
        queries, *others = (x.to(dtype) for x in (q[:, :, rows], k, v))
        output = attention(queries, *others, terms, Mask(where, keys), backend=backend)
        output = output[:, :, few.start - rows.start :][:, :, :5]
        gradients = torch.autograd.grad(output, [q, k, v, *built.parameters()], upstream.to(dtype), allow_unused=True)
        return [x for x in (output, *gradients) if x is not None]

    fast = output_and_gradients(backend, slice(0, N), torch.float32)
    slow = output_and_gradients("reference", few, torch.float64)
    assert len(fast) == len(slow)
    for ours, exact in zip(fast, slow, strict=True):
        assert (ours - exact).abs().max() <= 1e-4 * exact.abs().max()  # sines of 16,384 in float32
    seen = allocations(lambda: lambda: output_and_gradients(backend, slice(0, N), torch.float32), fake=False)
    assert seen.largest <= 2 * (2 * N - 1) * D, f"{seen.by} makes a tensor of {seen.largest:,} elements"


@pytest.mark.parametrize("fake", [True, False])
def test_a_matrix_of_scores_is_seen(fake):
    found = allocations(tupe_r(300, "reference"), fake=fake)
    assert found.largest == 2 * H * 300 * 300
    assert found.peak >= 4 * found.largest
    with pytest.raises(AssertionError, match="makes a tensor"):
        check_linear(lambda N: tupe_r(N, "sdpa"), 300)


def test_tiles_that_are_kept_together_are_seen():
    def at(N):
        return lambda: lambda: [torch.ones(50, N) for _ in range(N // 50)]

    with pytest.raises(AssertionError, match="the peak is 160,000 bytes, at half the length 40,000"):
        check_linear(at, 100)


@pytest.mark.parametrize("fake", [True, False])
def test_real_and_fake_runs_count_alike(fake):
    counted = allocations(tupe_r(400, "recomputed-tiles"), fake=fake)
    assert counted.largest == allocations(tupe_r(400, "recomputed-tiles")).largest


def test_what_is_freed_no_longer_counts_and_views_never_do():
    def prepare():
        x = torch.zeros(10, 10)

        def run():
            for _ in range(5):
                y = (x + 1)[:, :5].t()
                y.mul_(2)
            return y

        return run

    found = allocations(prepare, fake=False)
    assert (found.largest, found.peak) == (100, 2 * 400)


@torch.library.custom_op("wordorder_tests::fused", mutates_args=())
def fused_operator(x: torch.Tensor, matrix: bool) -> tuple[torch.Tensor, torch.Tensor]:
    raise AssertionError("a fake run computes nothing")


@fused_operator.register_fake
def _(x, matrix):
    return torch.empty_like(x), x.new_empty(*x.shape[:-1], x.shape[-2] if matrix else 1)


def keep(ctx, inputs, output):
    ctx.save_for_backward(output[1])


def backward(ctx, gradient, _):
    return gradient * ctx.saved_tensors[0].sum(-1, keepdim=True), None


fused_operator.register_autograd(backward, setup_context=keep)


def test_custom_operators_answer_by_their_fake_implementation():
    """Triton's operators are such ones: what they keep for the backward pass is seen, and no kernel runs."""

    def at(N, matrix):
        def prepare():
            x = torch.randn(2, N, D, requires_grad=True)
            return lambda: fused_operator(x, matrix)[0].sum().backward()

        return prepare

    check_linear(lambda N: at(N, False), 50_000)
    with pytest.raises(AssertionError, match=r"fused\.default makes a tensor of 20,000,000,000 elements"):
        check_linear(lambda N: at(N, True), 50_000)
