"""The Triton kernels in their interpreter, against the slow attention in float64: output and every gradient."""

from dataclasses import replace

import pytest
import torch
from allocations import Allocations
from bias_cases import BIASES, HEADS, masks, tensors
from torch.testing import assert_close

from wordorder.attention import Call, attend, attention, plan_attention
from wordorder.attention.backends import VARIABLE
from wordorder.attention.backends.triton.operands import (
    blocks_of_same_ids,
    kernel_bias,
    kernel_mask,
    padded_rank,
    token_bounds,
)
from wordorder.encodings import Terms, build_encoding
from wordorder.errors import BadInput
from wordorder.memory import LookAheadMemory, SegmentRecurrence
from wordorder.networks import Decoder, Encoder, initialise
from wordorder.ops import Arbitrary, Contiguous, DenseBias, LowRankBias, Mask, Packed, ToeplitzBias

pytestmark = pytest.mark.usefixtures("interpreter")
# of the largest element
BOUND = {torch.float32: 2e-6, torch.float16: 4e-3}
MASKS = list(masks(1, 1))


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    """Tiles of 16 x 16, so that short texts have several of them: seen whole, in part, and not at all."""
    use_blocks(monkeypatch, 16, 16)


def use_blocks(monkeypatch, rows, keys):
    from wordorder.attention.backends.triton import operators
    from wordorder.attention.backends.triton.configurations import Blocks

    monkeypatch.setattr(operators, "blocks", lambda kernel, shape: Blocks(rows, keys, 4, 1))


def run(leaves, terms, mask, backend, upstream, *, wanted):
    """Output, log-sum-exp (0 where a query sees nothing), and gradients, by a backend."""
    outputs = list(attention(*leaves[:3], terms, mask, backend=backend, return_lse=True))
    outputs[1] = outputs[1].masked_fill(outputs[1] == -torch.inf, 0)
    given = [u.to(y.dtype) for u, y in zip(upstream, outputs, strict=True)]
    return [*outputs, *torch.autograd.grad(outputs, wanted, given)]


def compare(made, terms_of, mask, *, scale=0.3):
    """Hold the kernels to the slow attention in float64, of the same numbers."""
    q, v = made[0], made[2]
    upstream = [torch.randn(*q.shape[:3], v.shape[-1]).to(v.dtype), torch.randn(q.shape[:3])]
    found = []
    for backend, dtype in (("triton", None), ("reference", torch.float64)):
        leaves = [x.detach().to(dtype or x.dtype).requires_grad_() for x in made]
        terms = Terms(scale, terms_of(*leaves))
        wanted = leaves[:3] + list(terms.bias.tensors if terms.bias else ())
        found.append(run(leaves, terms, mask, backend, upstream, wanted=wanted))
    for number, (ours, exact) in enumerate(zip(*found, strict=True)):
        assert ours.shape == exact.shape
        # a log-sum-exp near 0 is a difference of scores about 1; gradients of one pair are sums of a few numbers
        least = 1.0 if number == 1 or q.shape[2] == 1 else 1e-9
        largest = max(exact.abs().max().item(), least)
        assert (ours.double() - exact).abs().max().item() <= BOUND[q.dtype] * (largest if largest > 1e-9 else 3.0)


@pytest.mark.parametrize("mask", ["causal and padded", "tensor per head", "within"])
def test_output_and_every_gradient(mask):
    compare(tensors(19, 37, torch.float32), BIASES["everything"], masks(19, 37)[mask])


@pytest.mark.slow
@pytest.mark.parametrize("dtype", list(BOUND))
@pytest.mark.parametrize("bias", list(BIASES))
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize(("T", "S"), [(1, 1), (41, 41), (13, 40)])
def test_every_mask_with_every_bias(dtype, bias, mask, T, S):
    compare(tensors(T, S, dtype), BIASES[bias], masks(T, S)[mask])


@pytest.mark.slow
@pytest.mark.parametrize(("rows", "keys"), [(32, 16), (16, 32), (64, 64), (16, 128)])
@pytest.mark.parametrize("mask", ["within", "packed"])
def test_blocks_of_any_size(rows, keys, mask, monkeypatch):
    use_blocks(monkeypatch, rows, keys)
    compare(tensors(70, 45, torch.float32), BIASES["low rank + toeplitz"], masks(70, 45)[mask])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("channels", "values", "rank", "dtype"),
    [
        (16, 40, 18, torch.float32),
        (20, 8, 3, torch.float32),
        (48, 64, 50, torch.float32),
        (64, 64, 66, torch.float32),
        (128, 128, 130, torch.float16),
    ],
)
def test_sizes_of_heads_and_factors(channels, values, rank, dtype):
    q, k, v = (torch.randn(2, 2, n, c).to(dtype) for n, c in ((17, channels), (21, channels), (21, values)))
    a, c = (torch.randn(1, 2, n, rank) / rank**0.5 for n in (17, 21))
    compare([q, k, v, a, c], lambda q, k, v, a, c: LowRankBias(a, c), None, scale=channels**-0.5)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", list(BOUND))
def test_grouped_heads(dtype):
    q, k, v = (torch.randn(2, heads, 37, 16).to(dtype) for heads in (6, 2, 2))
    a, c, table = torch.randn(1, 6, 37, 5), torch.randn(2, 6, 37, 5), torch.randn(6, 73)
    mask = Mask(Contiguous(37), Contiguous(37), high=0)
    compare([q, k, v, a, c, table], lambda q, k, v, a, c, t: LowRankBias(a, c) + ToeplitzBias(t, 37), mask)


@pytest.mark.slow
def test_one_table_and_one_matrix_for_all_heads():
    q, k, v = (torch.randn(2, 3, 20, 16) for _ in range(3))
    made = [q, k, v, torch.randn(1, 39), torch.randn(2, 1, 20, 20), torch.randn(1, 3, 20, 20)]
    compare(made, lambda q, k, v, t, m, n: ToeplitzBias(t, 20) + DenseBias(m) + DenseBias(n), None)
    compare(made, lambda q, k, v, t, m, n: DenseBias(m), None)
    compare(made, lambda q, k, v, t, m, n: DenseBias(n), None)


@pytest.mark.slow
def test_positions_in_tensors():
    index = torch.tensor([[0, 1, 2, 9, 4, 5, 6, 7, 8, 3, 10, 11, 12, 30, 14, 15, 16, 17, 18, 19]])
    mask = Mask(Arbitrary(index), Arbitrary(index), low=-8, high=0)
    compare(tensors(20, 20, torch.float32), BIASES["low rank"], mask)


@pytest.mark.slow
def test_offsets_in_tensors_move_the_mask_of_each_example():
    query, key = Contiguous(20, torch.tensor([3, 1, 17])), Contiguous(34, torch.tensor([0, -3, 2]))
    mask = Mask(query, key, low=-8, high=0)
    compare(tensors(20, 34, torch.float32), BIASES["toeplitz"], mask)
    compare(tensors(20, 34, torch.float32), BIASES["none"], Mask(query, key, low=1))


def test_a_query_that_sees_nothing_has_output_0_and_log_sum_exp_minus_infinity():
    q, k, v = (torch.randn(2, 1, 5, 16) for _ in range(3))
    padding = torch.tensor([[False] * 5, [True] * 5])
    output, lse = attention(q, k, v, key_padding_mask=padding, backend="triton", return_lse=True)
    assert torch.equal(lse == -torch.inf, padding[:, None])
    assert torch.equal(output[1], torch.zeros(1, 5, 16))


@pytest.mark.slow
def test_packed_sequences_in_any_order():
    ids = torch.tensor([[0] * 20 + [1] * 17, [2] * 5 + [0] * 30 + [2] * 2, list(range(37))])
    where = Packed(torch.arange(37).expand(3, -1), ids)
    compare(tensors(37, 37, torch.float32), BIASES["toeplitz"], Mask(where, where, high=0))


@pytest.mark.parametrize("kind", [Packed, Arbitrary])
@pytest.mark.parametrize(
    "number",
    [torch.arange(60).reshape(20, 3).T % 7, torch.tensor([[0], [5], [2]], dtype=torch.int32).expand(3, 20)],
    ids=["transposed", "expanded"],
)
def test_ids_and_positions_in_any_layout(kind, number):
    where = Packed(torch.arange(20).expand(3, -1), number) if kind is Packed else Arbitrary(number)
    q, k, v = (torch.randn(3, HEADS, 20, 16) for _ in range(3))
    ours, slow = (
        attention(q, k, v, mask=Mask(where, where, high=0), backend=backend) for backend in ("triton", "reference")
    )
    assert_close(ours, slow, rtol=1e-5, atol=1e-6)


def test_wide_values_and_factors_have_blocks_or_are_refused(monkeypatch):
    from wordorder.attention.backends.triton import configurations, launch, operators

    asked = []
    monkeypatch.setattr(operators, "blocks", lambda *of: asked.append(of) or configurations.blocks(*of))
    monkeypatch.setattr(launch.Launch, "run", lambda self: None)
    q, k, v = (torch.randn(1, 1, 5, n).half().requires_grad_() for n in (16, 16, 80))
    attention(q, k, v, backend="triton").sum().backward()
    factors = [torch.randn(1, 1, 5, 100, requires_grad=True) for _ in range(2)]
    attention(q, k, k, LowRankBias(*factors), backend="triton").sum().backward()
    assert {shape.width for _, shape in asked} == {128}
    assert {kernel for kernel, shape in asked if shape.ranked} >= {"query_factors", "key_factors"}
    with pytest.raises(ValueError, match="at most 128 channels here, got 144"):
        attention(q, k, k.new_zeros(1, 1, 5, 144), backend="triton")
    with pytest.raises(ValueError, match="at most 144 channels here, got 160"):
        attention(q, k, k, LowRankBias(*factors) + LowRankBias(*(x[..., :60] for x in factors)), backend="triton")


@pytest.mark.parametrize("shape", [(1, HEADS, 1, 20), (3, 1, 20, 1)])
def test_a_dense_part_of_one_query_or_key_is_read_for_all(shape):
    compare(
        [torch.randn(3, HEADS, 20, 16) for _ in range(3)] + [torch.randn(shape)], lambda q, k, v, m: DenseBias(m), None
    )


@pytest.mark.parametrize(
    ("bias", "words"),
    [
        (ToeplitzBias(torch.randn(2, 11), 6), r"table must begin with the sizes \(2, 9\).* got \(2, 11\)"),
        (LowRankBias(torch.randn(1, 2, 4, 3), torch.randn(1, 2, 5, 3)), "factor of the queries"),
        (LowRankBias(torch.randn(1, 2, 5, 3), torch.randn(1, 2, 1, 3)), "factor of the keys"),
        (LowRankBias(torch.randn(3, 2, 5, 3), torch.randn(3, 2, 5, 3)), "factor of the queries"),
        (DenseBias(torch.randn(3, 2, 5, 5)), "dense part"),
    ],
)
def test_a_bias_of_other_sizes_is_refused(bias, words):
    with pytest.raises(BadInput, match=words):
        kernel_bias(bias, 2, torch.float32).fitted(2, 2, 5, 5)


def test_a_gradient_of_a_log_sum_exp_that_sees_nothing_is_not_read():
    q, k, v = (torch.randn(1, 2, 5, 16, requires_grad=True) for _ in range(3))
    visible = torch.ones(5, 5, dtype=torch.bool)
    visible[2] = False
    found = []
    for backend in ("triton", "reference"):
        output, lse = attention(q, k, v, mask=visible, backend=backend, return_lse=True)
        upstream = torch.where(lse == -torch.inf, torch.nan, 1.0)  # as torch.logaddexp(-inf, -inf) sends it
        found.append(torch.autograd.grad([output, lse], [q, k], [torch.ones_like(output), upstream]))
    for ours, slow in zip(*found, strict=True):
        assert_close(ours, slow, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("extra", ["dense part", "mask tensor", "dropout", "groups"])
def test_a_call_with_more_than_the_plain_parts_has_blocks_of_its_own(extra, monkeypatch):
    from wordorder.attention.backends.triton import configurations, launch, operators

    asked = []
    monkeypatch.setattr(operators, "blocks", lambda *of: asked.append(of) or configurations.blocks(*of))
    monkeypatch.setattr(launch.Launch, "run", lambda self: None)
    q = torch.randn(1, 1, 5, 64).half()
    bias = DenseBias(torch.zeros(1, 1, 5, 5)) if extra == "dense part" else None
    mask = torch.ones(5, 5, dtype=torch.bool) if extra == "mask tensor" else None
    queries = torch.randn(1, 2, 5, 64).half() if extra == "groups" else q
    attention(q, q, q, backend="triton")
    attention(queries, q, q, bias, mask, backend="triton", dropout=0.1 if extra == "dropout" else 0.0)
    (_, plain), (_, other) = asked
    assert (plain.extras, other.extras) == (False, True)
    assert configurations.blocks("forward", plain) != configurations.blocks("forward", other)


def test_entries_of_minus_infinity():
    table, dense = torch.randn(HEADS, 2 * 20 - 1), torch.randn(1, 1, 20, 20)
    table[:, 25:], dense[..., 3, :] = -torch.inf, -torch.inf  # a row that sees nothing
    dense[..., 7, :6] = -torch.inf
    made = [torch.randn(2, HEADS, 20, 16) for _ in range(3)]
    compare([*made, table, dense], lambda q, k, v, t, m: ToeplitzBias(t, 20) + DenseBias(m), None)


def test_layouts_that_are_not_contiguous():
    q, k = (torch.randn(2, 20, 2, 16).transpose(1, 2) for _ in range(2))
    v = torch.randn(2, 2, 16, 20).transpose(2, 3)
    output = attention(q, k, v, backend="triton")
    assert_close(output, attention(q, k, v, backend="reference"), rtol=1e-5, atol=1e-6)
    upstream = torch.randn(2, 2, 16, 20).transpose(2, 3)
    for backend in ("triton", "reference"):
        leaves = [x.clone().requires_grad_() for x in (q, k, v)]
        found = torch.autograd.grad(attention(*leaves, backend=backend), leaves, upstream)
        expected = found if backend == "triton" else expected  # noqa: F821
    for ours, slow in zip(expected, found, strict=True):
        assert_close(ours, slow, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_dropout_drops_the_same_weights_in_both_passes():
    T, p = 33, 0.3
    q, k = (torch.randn(2, 2, T, 16, requires_grad=True) for _ in range(2))
    a, c = (torch.randn(1, 2, T, 3, requires_grad=True) for _ in range(2))
    table, v, leaves = torch.randn(2, 2 * T - 1, requires_grad=True), torch.eye(T).expand(2, 2, T, T), []
    v = v.clone().requires_grad_()
    leaves = [q, k, v, a, c, table]
    terms = Terms(0.25, LowRankBias(a, c) + ToeplitzBias(table, T))
    torch.manual_seed(3)
    output = attention(q, k, v, terms, dropout=p, backend="triton")  # of v = 1: the weights themselves
    kept = output.detach() > 0
    assert 0.2 < 1 - kept.float().mean() < 0.4
    assert len({kept[b, h].numpy().tobytes() for b in range(2) for h in range(2)}) == 4
    weights = (0.25 * q @ k.transpose(-1, -2) + terms.bias.dense()).softmax(-1)
    slow = (weights * kept / (1 - p)) @ v
    assert_close(output, slow, rtol=1e-5, atol=1e-6)
    upstream = torch.randn_like(output)
    ours, expected = (torch.autograd.grad(x, leaves, upstream) for x in (output, slow))
    for one, other in zip(ours, expected, strict=True):
        assert_close(one, other, rtol=1e-4, atol=1e-5)
    torch.manual_seed(3)
    assert torch.equal(attention(q, k, v, terms, dropout=p, backend="triton"), output)
    assert not torch.equal(attention(q, k, v, terms, dropout=p, backend="triton"), output)


@pytest.mark.slow
def test_deterministic_algorithms_add_by_block():
    made = tensors(50, 50, torch.float32)
    torch.use_deterministic_algorithms(True)
    try:
        compare(made, BIASES["low rank + toeplitz"], masks(50, 50)["causal and padded"])
    finally:
        torch.use_deterministic_algorithms(False)


def test_second_derivatives_are_refused():
    leaves = [torch.randn(1, 1, 5, 16, requires_grad=True) for _ in range(3)]
    first = torch.autograd.grad(attention(*leaves, backend="triton").sum(), leaves, create_graph=True)
    with pytest.raises(RuntimeError, match="no second derivatives"):
        torch.autograd.grad(first[0].sum(), leaves)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["tupe-r", "transformer-xl", "shaw", "deberta", "rope+t5", "kerple"])
def test_encodings_in_an_encoder(name):
    options = {"width": 32, "heads": 2, "layers": 2, "max_positions": 40, "encoding": name}
    network = Encoder(50, **options).eval()
    ids = torch.randint(5, 50, (2, 33))
    valid = torch.arange(33) < torch.tensor([[33], [20]])
    found = []
    for backend in ("triton", "reference"):
        network.zero_grad()
        out = network(ids, key_padding_mask=~valid, backend=backend).hidden
        (out * valid[..., None]).square().sum().backward()
        found.append([out * valid[..., None], *(p.grad for p in network.parameters() if p.grad is not None)])
    for ours, slow in zip(*found, strict=True):
        assert (ours - slow).abs().max() <= 1e-5 * slow.abs().max().clamp(min=1)


def test_torch_checks_the_operators():
    from wordorder.attention.backends.triton.operators import attention_forward

    q, k, v = (torch.randn(1, 2, 18, 16, requires_grad=True) for _ in range(3))
    a, c = (torch.randn(1, 2, 18, 16, requires_grad=True) for _ in range(2))
    table = torch.randn(2, 35, requires_grad=True)
    arguments = (q, k, v, a, c, table, *[None] * 10, 0.25, None, 0, 0.0)
    torch.library.opcheck(attention_forward, arguments)


@pytest.mark.slow
def test_compile_without_a_graph_break():
    encoding = build_encoding("tupe-r", width=32, heads=2, layers=1, max_positions=40, use="encoder")
    initialise(encoding, seed=0, std=0.3)

    def step(q, k, v, valid):
        order = encoding.prepare(Contiguous(33))
        return attention(q, k, v, order, Mask(Contiguous(33), Contiguous(33), tokens_BS=valid), backend="triton")

    leaves = [torch.randn(2, 2, 33, 16, requires_grad=True) for _ in range(3)]
    valid = torch.arange(33) < torch.tensor([[33], [20]])
    wanted = [*leaves, *encoding.parameters()]
    compiled = torch.compile(step, backend="aot_eager", fullgraph=True)
    ours = torch.autograd.grad(compiled(*leaves, valid).square().sum(), wanted)
    plain = torch.autograd.grad(step(*leaves, valid).square().sum(), wanted)
    for one, other in zip(ours, plain, strict=True):
        assert_close(one, other, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_export_for_any_batch_and_length():
    network = Encoder(50, width=32, heads=2, layers=1, max_positions=60, encoding="tupe-r").eval()

    class Hidden(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.network = network

        def forward(self, ids, padding):
            return self.network(ids, key_padding_mask=padding, backend="triton").hidden

    sizes = {0: torch.export.Dim("batch", max=100_000), 1: torch.export.Dim("length", max=60)}

    def text(batch, length):
        return torch.randint(5, 50, (batch, length)), torch.arange(length).expand(batch, -1) >= length - 3

    graph = torch.export.export(Hidden(), text(3, 20), dynamic_shapes=(sizes, sizes))
    assert any("attention_forward" in str(node.target) for node in graph.graph.nodes)
    ids, padding = text(2, 37)
    slow = network(ids, key_padding_mask=padding, backend="reference").hidden
    assert_close(graph.module()(ids, padding)[~padding], slow[~padding], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
@pytest.mark.parametrize("mask", [None, "causal", "padded"])
def test_no_tensor_has_an_element_for_each_pair(mask, dtype, monkeypatch):
    from wordorder.attention.backends.triton.launch import Launch

    ran = []
    monkeypatch.setattr(Launch, "run", lambda self: ran.append(self.kernel.__name__))
    B, H, T, D = 2, 2, 2048, 16
    encoding = build_encoding("tupe-r", width=H * D, heads=H, layers=1, max_positions=T, use="encoder")
    leaves = [torch.randn(B, H, T, D, dtype=dtype, requires_grad=True) for _ in range(3)]
    where, valid = Contiguous(T), torch.arange(T) < torch.tensor([[T], [T // 2]])
    chosen = {"causal": Mask(where, where, high=0), "padded": Mask(where, where, tokens_BS=valid)}
    order = encoding.prepare(where)
    with Allocations() as seen:
        attention(*leaves, order, chosen.get(mask), backend="triton").sum().backward()
    times = 1 if dtype == torch.float16 else 2  # in float32 the factors' gradients have launches of their own
    assert ran == ["forward", "row_sums", *["query_gradients"] * times, *["key_gradients"] * times]
    assert seen.largest <= B * H * T * 48  # the factors' gradient; a pair of one head has 43 times as many


def test_a_plan_for_several_layers_reads_bias_and_mask_once():
    bias = LowRankBias(torch.randn(1, 2, 9, 4), torch.randn(1, 2, 9, 4)) + ToeplitzBias(torch.randn(2, 17), 9)
    q, k, v = (torch.randn(2, 2, 9, 16) for _ in range(3))
    plan = plan_attention(Terms(0.25, bias), None, Call.of(q, k, layers=3), backend="triton")
    assert plan.prepared.kernel_bias.a_BHTR.shape == (1, 2, 9, 16)
    expected = attention(q, k, v, Terms(0.25, bias), backend="reference")
    assert_close(attend(q, k, v, plan)[0], expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("rank", "padded"),
    [(1, (16, 0)), (16, (16, 0)), (17, (32, 0)), (18, (32, 0)), (34, (32, 16)), (50, (64, 0)), (66, (64, 16)),
     (130, (128, 16))],
)  # fmt: skip
def test_padded_rank(rank, padded):
    assert padded_rank(rank) == padded
    assert padded_rank(sum(padded)) == padded


def test_parts_that_share_their_factors_keep_one_example():
    shared, own = (LowRankBias(torch.randn(b, 1, 9, 3), torch.randn(b, 1, 9, 3)) for b in (1, 4))
    assert kernel_bias(shared + shared, 2, torch.float32).a_BHTR.shape == (1, 2, 9, 16)
    assert kernel_bias(shared + own, 2, torch.float32).a_BHTR.shape == (4, 2, 9, 16)
    written = (shared + own).dense().expand(-1, 2, -1, -1)
    made = kernel_bias(shared + own, 2, torch.float32)
    assert_close(made.a_BHTR @ made.c_BHSR.transpose(-1, -2), written)


def test_token_bounds():
    valid = torch.tensor([[0, 1, 1, 0, 1, 0], [0, 0, 0, 0, 0, 0], [1, 1, 1, 1, 1, 1]], dtype=torch.bool)
    assert token_bounds(valid).tolist() == [[1, 5], [0, 0], [0, 6]]


def test_blocks_of_same_ids():
    own, other = torch.tensor([[0, 0, 0, 1, 1, 2, 2]]), torch.tensor([[0, 0, 1, 1, 1, 1, 1, 1, 3]])
    # blocks of 2: [0 0] [0 1] [1 2] [2 2]; of 3: [0 0 1] [1 1 1] [1 1 3]
    assert blocks_of_same_ids(own, other, 2, 3).tolist() == [[[0, 1], [0, 3], [0, 3], [2, 3]]]
    assert blocks_of_same_ids(own, torch.full((1, 4), 9), 2, 2).tolist() == [[[0, 0]] * 4]


def test_a_mask_known_by_its_diagonals_needs_no_tensor():
    query, key = Contiguous(5, 3), Contiguous(8)
    device = torch.device("cpu")
    assert kernel_mask(Mask(query, key, low=-3, high=0), 2, device).low == 0
    assert kernel_mask(Mask(query, key, low=-3, high=0), 2, device).high == 3
    assert kernel_mask(Mask(query, key, low=1), 2, device).low == 4
    offset = torch.tensor([0, -2])
    moved = kernel_mask(Mask(Contiguous(5, offset + 3), Contiguous(8, offset.clone()), high=0), 2, device)
    assert (moved.shift_B.tolist(), moved.high) == ([-3, -3], 0)
    assert replace(moved, shift_B=None, high=None) == type(moved)()


@pytest.mark.slow
def test_a_decoder_with_left_padding():
    network = Decoder(50, width=32, heads=2, layers=2, max_positions=40, encoding="tupe-r").eval()
    ids = torch.randint(5, 50, (2, 33))
    valid = torch.arange(33) >= torch.tensor([[0], [13]])
    positions = Contiguous(33, torch.tensor([0, -13]))
    ours, slow = (
        network(ids, positions, key_padding_mask=~valid, backend=backend).hidden for backend in ("triton", "reference")
    )
    assert (ours - slow)[valid].abs().max() < 1e-5


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "encoding"), [(SegmentRecurrence, "t5"), (LookAheadMemory, "transformer-xl")])
def test_memories_over_three_segments(kind, encoding):
    network = Decoder(
        50, width=32, heads=2, layers=2, max_positions=60, encoding=encoding, memory=kind(length=11)
    ).eval()
    segments, found = [torch.randint(5, 50, (2, n)) for n in (9, 17, 5)], []
    for backend in ("triton", "reference"):
        network.zero_grad()
        memory, outputs = None, []
        for ids in segments:
            step = network(ids, memory=memory, backend=backend)
            memory, outputs = step.memory, [*outputs, step.hidden]
        torch.cat(outputs, 1).square().sum().backward()
        found.append([*outputs, *(p.grad for p in network.parameters() if p.grad is not None)])
    for ours, slow in zip(*found, strict=True):
        assert (ours - slow).abs().max() <= 1e-5 * slow.abs().max().clamp(min=1)


class StandIn:
    """A kernel that does not start, or one whose result is too large by a tenth."""

    def __init__(self, kernel, result):
        self.kernel, self.result = kernel, result

    def __getitem__(self, grid):
        if self.result is None:
            raise RuntimeError("Failed to find C compiler.\nmore")

        def launch(**arguments):
            self.kernel[grid](**arguments)
            arguments[self.result].mul_(1.1)

        return launch


@pytest.fixture
def untested(monkeypatch):
    """Calls go to Triton, and no self-test has run in this process."""
    from wordorder.attention.plan import _self_test_fails

    monkeypatch.setenv(VARIABLE, "triton")
    _self_test_fails.cache_clear()
    yield _self_test_fails
    _self_test_fails.cache_clear()


def test_the_self_test_runs_every_kernel_once_for_all_calls(untested, monkeypatch):
    from wordorder.attention.backends.triton import launch

    run, kernels = launch.Launch.run, []
    monkeypatch.setattr(launch.Launch, "run", lambda self: kernels.append(self.kernel.fn.__name__) or run(self))
    q = torch.randn(1, 1, 4, 16)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        draws = torch.get_rng_state()
        attention(q, q, q)
        attention(q, q, q)
    assert torch.equal(draws, torch.get_rng_state())
    tested = ["forward", "row_sums", *["query_gradients"] * 2, *["key_gradients"] * 2, "dense_gradients"]
    assert kernels == [*tested, "forward", "forward"]


@pytest.mark.parametrize(
    ("name", "result", "words"),
    [
        ("forward", None, "Failed to find C compiler"),
        ("query_gradients", None, "Failed to find C compiler"),
        ("forward", "o", "the output is off by 1.0e-01"),
        ("query_gradients", "dq", "gradient of q is off"),
        ("key_gradients", "dv", "gradient of v is off"),
        ("dense_gradients", "ddense", "gradient of the matrix is off"),
    ],
)
def test_where_the_self_test_fails_one_warning_is_given_and_others_compute(untested, monkeypatch, name, result, words):
    from wordorder.attention.backends.triton import launch

    monkeypatch.setattr(launch.kernels, name, StandIn(getattr(launch.kernels, name), result))
    q = torch.randn(1, 1, 4, 16)
    call = Call.of(q, q, q)
    with pytest.warns(RuntimeWarning, match=f"(?s){words}.*{VARIABLE}=sdpa") as warned:
        plans = [plan_attention(Terms(0.25), None, call) for _ in range(2)]
    assert len(warned) == 1
    assert [plan.backend.name for plan in plans] == ["sdpa", "sdpa"]
    assert plan_attention(Terms(0.25), None, replace(call, return_lse=True)).backend.name == "recomputed-tiles"
    assert_close(attention(q, q, q), attention(q, q, q, backend="reference"))
    assert plan_attention(Terms(0.25), None, call, backend="triton").backend.name == "triton"


@pytest.mark.parametrize("kernel", ["forward", "query_gradients", "key_gradients"])
@pytest.mark.parametrize("target", ["sm_80", "sm_90"])
def test_a_narrow_window_leaves_out_the_blocks_that_it_hides(monkeypatch, kernel, target):
    """At 4,096 tokens a window of 512 takes a third of causal attention's products, in blocks as GPUs take them."""
    import triton
    import triton.language as tl

    from wordorder.attention.backends.triton import kernels
    from wordorder.attention.backends.triton.configurations import Shape, blocks

    # the interpreter looks names up among the globals of a kernel
    monkeypatch.setitem(globals(), "tl", tl)

    tokens, window = 4096, 512
    shape = blocks(kernel, Shape(width=64, ranked=False, itemsize=2, target=target))
    rows, keys = (shape.keys, shape.rows) if kernel == "key_gradients" else (shape.rows, shape.keys)

    @triton.jit
    def count(
        seen, low, high, stop,
        ROWS: tl.constexpr, KEYS: tl.constexpr, LOW: tl.constexpr, HIGH: tl.constexpr, SEEN: tl.constexpr,
    ):  # fmt: skip
        block = tl.program_id(0)
        begin, last, _, _ = SEEN(block * ROWS, low, high, 0, stop, ROWS, KEYS, LOW, HIGH, False)
        tl.store(seen + block, last - begin)

    def products(low, high):
        seen = torch.zeros(tokens // rows, dtype=torch.int32)
        count[(tokens // rows,)](
            seen, low or 0, high or 0, tokens, rows, keys, low is not None, high is not None, kernels._blocks_seen
        )
        return int(seen.sum()) * rows * keys

    behind, ahead = (0, window - 1) if kernel == "key_gradients" else (1 - window, 0)
    causal = products(0, None) if kernel == "key_gradients" else products(None, 0)
    assert products(behind, ahead) <= 0.33 * causal
    assert products(None, None) == tokens**2
