"""Tiles, and every other backend of this machine, against the slow attention in float64."""

import pytest
import torch
from bias_cases import BIASES, BOUND, CHANNELS, HEADS, assert_equal_to_the_slow_one, assert_within, masks, run, tensors
from torch.testing import assert_close

from wordorder.attention import Call, attention, plan_attention
from wordorder.attention.backends.tiles.passes import Inputs
from wordorder.attention.backends.tiles.tile import Dropout, TileSlice
from wordorder.encodings import Terms
from wordorder.encodings.tupe import TUPERelative
from wordorder.networks import Encoder, initialise
from wordorder.ops import (
    Contiguous,
    DenseBias,
    LowRankBias,
    Mask,
    RelativeBias,
    RelativeKeyBias,
    ToeplitzBias,
)

TILES = ["kept-tiles", "recomputed-tiles"]


@pytest.mark.parametrize("backend", TILES)
@pytest.mark.parametrize("dtype", list(BOUND))
@pytest.mark.parametrize("bias", list(BIASES))
@pytest.mark.parametrize("mask", list(masks(1, 1))[:9])
@pytest.mark.parametrize(("T", "S"), [(1, 1), (41, 41), (13, 40)])
def test_output_and_every_gradient_over_masks_and_biases(backend, dtype, bias, mask, T, S):
    made = tensors(T, S, dtype)
    assert_equal_to_the_slow_one(made, bias, masks(T, S)[mask], backend)


@pytest.mark.parametrize("backend", TILES)
@pytest.mark.parametrize("dtype", list(BOUND))
@pytest.mark.parametrize("mask", ["all", "padded on the right", "causal and padded", "tensor", "ahead and padded"])
def test_log_sum_exp_and_its_gradient(backend, dtype, mask):
    assert_equal_to_the_slow_one(tensors(29, 40, dtype), "everything", masks(29, 40)[mask], backend, return_lse=True)


@pytest.mark.parametrize("backend", TILES)
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
@pytest.mark.parametrize("mask", ["all", "padded on the right", "causal and padded", "ahead and padded", "within"])
@pytest.mark.parametrize("share", ["all distances", "the first", "the last", "some"])
@pytest.mark.parametrize("kind", [RelativeBias, RelativeKeyBias])
def test_a_relative_bias_in_tiles(backend, dtype, mask, share, kind, monkeypatch):
    from wordorder.attention.backends.tiles import tile

    monkeypatch.setattr(tile, "ROW_TILE", 32 * 60)
    monkeypatch.setattr(tile, "SQUARE_TILE", (16, 24))
    monkeypatch.setattr(tile, "BAND_ROWS", 16)
    T, S = 47, 60
    first, stop = {"all distances": (0, 106), "the first": (0, 40), "the last": (70, 106), "some": (30, 50)}[share]
    q, k, v = (torch.randn(3, n, HEADS, CHANNELS).transpose(1, 2) for n in (T, S, S))
    met, other = (T, S) if kind is RelativeBias else (S, T)
    asked, rows = 0.6 * torch.randn(3, HEADS, met, 7), 0.6 * torch.randn(1, HEADS, stop - first, 7)
    upstream = [torch.randn(3, HEADS, T, CHANNELS), torch.randn(3, HEADS, T)]

    def outputs_and_gradients(backend, wide):
        leaves = [x.to(dtype).to(wide).requires_grad_() for x in (q, k, v, asked, rows)]
        order = Terms(0.3, kind(*leaves[3:], other, first=first))
        out, lse = attention(*leaves[:3], order, masks(T, S)[mask], backend=backend, return_lse=True)
        outputs = [out, lse.masked_fill(lse == -torch.inf, 0)]
        ups = [u.to(y.dtype) for u, y in zip(upstream, outputs, strict=True)]
        return *outputs, *torch.autograd.grad(outputs, leaves, ups)

    slow = outputs_and_gradients("reference", torch.float64)
    for ours, exact in zip(outputs_and_gradients(backend, dtype), slow, strict=True):
        assert_within(ours, exact, dtype)


@pytest.mark.parametrize("backend", TILES)
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
@pytest.mark.parametrize("mask", ["all", "padded on the right", "causal and padded", "within"])
@pytest.mark.parametrize("far", [1, 4, 8, 30])
def test_a_table_that_is_constant_beyond_a_distance(backend, dtype, mask, far, monkeypatch):
    """Tiles in which it is one number, near ones, and those between."""
    from wordorder.attention.backends.tiles import tile

    monkeypatch.setattr(tile, "ROW_TILE", 8 * 60)
    monkeypatch.setattr(tile, "SQUARE_TILE", (8, 10))
    monkeypatch.setattr(tile, "BAND_ROWS", 8)
    T, S = 47, 60
    q, k, v = (torch.randn(3, n, HEADS, CHANNELS).transpose(1, 2) for n in (T, S, S))
    numbers, factors = 0.6 * torch.randn(HEADS, 2 * far + 1), [0.6 * torch.randn(1, HEADS, n, 3) for n in (T, S)]
    upstream = torch.randn(3, HEADS, T, CHANNELS)

    def output_and_gradients(backend, wide, edges):
        leaves = [x.to(dtype).to(wide) for x in (q, k, v)]
        leaves += [x.to(torch.promote_types(wide, torch.float32)) for x in (numbers, *factors)]
        leaves = [x.requires_grad_() for x in leaves]
        table = leaves[3][:, torch.arange(1 - T, S).clamp(-far, far) + far]
        bias = LowRankBias(*leaves[4:]) + ToeplitzBias(table, T, may_hide=False, edges=edges)
        output = attention(*leaves[:3], Terms(0.3, bias), masks(T, S)[mask], backend=backend)
        return output, *torch.autograd.grad(output, leaves, upstream.to(dtype).to(output.dtype))

    zero = T - 1  # the column of the diagonal j = i
    slow = output_and_gradients("reference", torch.float64, None)
    for ours, exact in zip(output_and_gradients(backend, dtype, (zero - far, zero + far)), slow, strict=True):
        assert_within(ours, exact, dtype)


@pytest.mark.parametrize("backend", TILES)
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
@pytest.mark.parametrize("mask", ["all", "causal and padded", "within"])
@pytest.mark.parametrize("far", [1, 8, 30])
@pytest.mark.parametrize("kind", [RelativeBias, RelativeKeyBias])
def test_vectors_that_are_constant_beyond_a_distance(backend, dtype, mask, far, kind, monkeypatch):
    from wordorder.attention.backends.tiles import tile

    monkeypatch.setattr(tile, "ROW_TILE", 8 * 60)
    monkeypatch.setattr(tile, "SQUARE_TILE", (8, 10))
    monkeypatch.setattr(tile, "BAND_ROWS", 8)
    T, S = 47, 60
    q, k, v = (torch.randn(3, n, HEADS, CHANNELS).transpose(1, 2) for n in (T, S, S))
    met, other = (T, S) if kind is RelativeBias else (S, T)
    asked, vectors = 0.6 * torch.randn(3, HEADS, met, 7), 0.6 * torch.randn(1, HEADS, 2 * far + 1, 7)
    upstream = torch.randn(3, HEADS, T, CHANNELS)

    def output_and_gradients(backend, wide, edges):
        leaves = [x.to(dtype).to(wide) for x in (q, k, v)]
        leaves += [x.to(torch.promote_types(wide, torch.float32)) for x in (asked, vectors)]
        leaves = [x.requires_grad_() for x in leaves]
        rows = leaves[4][:, :, torch.arange(1 - met, other).clamp(-far, far) + far]
        bias = kind(leaves[3], rows, other, edges=edges)
        output = attention(*leaves[:3], Terms(0.3, bias), masks(T, S)[mask], backend=backend)
        return output, *torch.autograd.grad(output, leaves, upstream.to(dtype).to(output.dtype))

    slow = output_and_gradients("reference", torch.float64, None)
    for ours, exact in zip(output_and_gradients(backend, dtype, (met - 1 - far, met - 1 + far)), slow, strict=True):
        assert_within(ours, exact, dtype)


@pytest.mark.parametrize("backend", ["sdpa", *TILES])
@pytest.mark.parametrize(
    ("mask", "sees"),
    [
        ("ahead", lambda query, key: query < key),
        ("ahead and padded", lambda query, key: query < key),
        ("within", lambda query, key: query - 9 < key <= query),
        ("window on both sides", lambda query, key: abs(query - key) < 9),
    ],
)
@pytest.mark.parametrize(("T", "S"), [(1, 1), (1, 9), (40, 13), (29, 29)])
def test_bands_of_diagonals_are_what_their_positions_say(backend, mask, sees, T, S):
    """Against a mask tensor that loops over positions fill."""
    made, band = tensors(T, S, torch.float64), masks(T, S)[mask]
    where = band.query.index_BT()[0].tolist(), band.key.index_BT()[0].tolist()
    seen = [[sees(query, key) for key in where[1]] for query in where[0]]
    valid = torch.ones(3, S, dtype=torch.bool) if band.tokens_BS is None else band.tokens_BS
    visible = torch.tensor(seen)[None, None] & valid[:, None, None]
    upstream = [torch.randn(3, HEADS, T, 11, dtype=torch.float64)]
    ours = run(made, "low rank + toeplitz", band, backend, upstream)
    for one, other in zip(ours, run(made, "low rank + toeplitz", visible, "reference", upstream), strict=True):
        assert_within(one, other, torch.float64)


def test_tiles_beside_a_band_are_never_computed(monkeypatch):
    from wordorder.attention.backends.tiles import passes

    computed = []
    count = passes.Inputs.scores
    monkeypatch.setattr(passes.Inputs, "scores", lambda *a: (computed.append(a[5].size()), count(*a))[1])
    q = torch.randn(1, 1, 512, 8)
    for (low, high), share in (((1, None), 0.57), ((None, 0), 0.57), ((-31, 0), 0.19), ((-31, 31), 0.26)):
        for backend in TILES:
            computed.clear()
            mask = Mask(Contiguous(512), Contiguous(512), low, high)
            attention(q, q, q, mask=mask, backend=backend)
            assert sum(computed) <= share * 512 * 512


@pytest.mark.parametrize("backend", TILES)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize(
    "mask",
    ["padded on the right", "padded on the left", "causal and padded", "packed", "ahead", "ahead and padded", "within"],
)
def test_rows_and_columns_that_fall_into_several_tiles(backend, dtype, mask, monkeypatch):
    from wordorder.attention.backends.tiles import tile

    monkeypatch.setattr(tile, "ROW_TILE", 32 * 150)
    monkeypatch.setattr(tile, "SQUARE_TILE", (32, 48))
    assert_equal_to_the_slow_one(tensors(101, 150, dtype), "everything", masks(101, 150)[mask], backend)


@pytest.mark.parametrize("backend", ["sdpa", *TILES])
@pytest.mark.parametrize("dtype", list(BOUND))
@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("N", [1, 63, 200, 513])
def test_tupe_r_down_to_its_parameters(backend, dtype, padded, N):
    """q, k, v, both factors, theta and the table, on every backend that this machine has."""
    sizes = {"heads": HEADS, "max_positions": 513}
    encoding = TUPERelative(HEADS * CHANNELS, **sizes, cls="position-0", theta="free").double()
    initialise(encoding, seed=0, std=0.3)
    valid = torch.ones(3, N, dtype=torch.bool)
    valid[0, (2 * N) // 3 :] = False
    valid[1] = False  # fully masked keys
    mask = Mask(Contiguous(N), Contiguous(N), tokens_BS=valid) if padded else None
    made = [torch.randn(3, N, HEADS, CHANNELS).transpose(1, 2).to(dtype) for _ in range(3)]
    upstream = torch.randn(3, HEADS, N, CHANNELS)

    def output_and_gradients(dtype, backend):
        # mixed precision: parameters stay in at least float32
        encoding.to(torch.promote_types(dtype, torch.float32))
        q, k, v = (x.to(dtype).requires_grad_() for x in made)
        bias = encoding(Contiguous(N), Contiguous(N))
        out = attention(q, k, v, Terms(0.18, bias), mask, backend=backend)
        wanted = [q, k, v, *bias.tensors, encoding.free_theta, encoding.relative.table.weight]
        gradients = [*torch.autograd.grad(out, wanted, upstream.to(dtype))]
        before, behind = bias.parts()[1].edges  # the gradient of a constant may stand in one of its columns
        parts = gradients[5].tensor_split((max(before + 1, 0), behind), dim=1)
        gradients[5] = torch.cat((parts[0].sum(1, True), parts[1], parts[2].sum(1, True)), dim=1)
        return out, *gradients

    encoding.float().double()  # parameters that float32 can hold
    slow = output_and_gradients(torch.float64, "reference")
    fast = output_and_gradients(dtype, backend)
    factors = max(gradient.abs().max().item() for gradient in slow[4:6])
    for index, (ours, exact) in enumerate(zip(fast, slow, strict=True)):
        # theta is a sum over all rows of what the factors get, in which most of it cancels (of theta1 everything)
        assert_within(ours, exact, dtype, least=factors if index == 7 else 0.0)


def test_dropout_is_the_same_in_the_forward_and_the_backward_pass():
    """Values that are the identity show the weights that were dropped; autograd over those gives the gradients."""
    made = tensors(300, 300, torch.float64)
    q, k, a, c, table = (made[i].requires_grad_() for i in (0, 1, 3, 4, 7))
    order = Terms(0.3, LowRankBias(a, c) + ToeplitzBias(table, 300))
    eye = torch.eye(300, dtype=torch.float64).expand(3, HEADS, -1, -1).clone().requires_grad_()
    upstream = torch.randn(3, HEADS, 300, 300, dtype=torch.float64)
    slow_weights = attention(q, k, eye, order, backend="reference")
    for backend in TILES:
        torch.manual_seed(7)
        dropped = attention(q, k, eye, order, dropout=0.25, backend=backend)
        stays = dropped != 0
        assert abs(stays.double().mean() - 0.75) < 5 * (0.25 * 0.75 / stays.numel()) ** 0.5
        expected = slow_weights * stays / 0.75
        assert_close(dropped, expected, rtol=1e-12, atol=1e-12)
        wanted = [q, k, eye, *order.bias.tensors]
        ours = torch.autograd.grad(dropped, wanted, upstream, retain_graph=True)
        # eye's gradient: dropped' upstream
        theirs = torch.autograd.grad(expected, [q, k, *order.bias.tensors], upstream, retain_graph=True)
        for one, other in zip((ours[0], ours[1], *ours[3:]), theirs, strict=True):
            assert_close(one, other, rtol=1e-9, atol=1e-11)
        assert_close(ours[2], dropped.detach().transpose(-1, -2) @ upstream, rtol=1e-9, atol=1e-11)
        torch.manual_seed(7)
        assert_close(attention(q, k, eye, order, dropout=0.25, backend=backend), dropped, rtol=0, atol=0)
        assert not torch.equal(attention(q, k, eye, order, dropout=0.25, backend=backend), dropped)


@pytest.mark.parametrize("padded", [False, True])
def test_dropout_tiles_that_many_tiles_share_differ(padded, monkeypatch):
    from wordorder.attention.backends.tiles import tile

    monkeypatch.setattr(tile, "SQUARE_TILE", (32, 64))
    q, k, v = torch.zeros(2, HEADS, 96, 4), torch.zeros(2, HEADS, 128, 4), torch.eye(128).expand(2, HEADS, 128, 128)
    valid = torch.arange(128) < torch.tensor([[128], [114]])
    mask = Mask(Contiguous(96), Contiguous(128), tokens_BS=valid) if padded else None
    stays = attention(q, k, v, mask=mask, dropout=0.5, backend="recomputed-tiles") != 0
    blocks = stays.view(2, HEADS, 3, 32, 2, 64).movedim(4, 3)[..., :50].flatten(0, 3)
    agreement = [(a == b).double().mean().item() for i, a in enumerate(blocks) for b in blocks[:i]]
    assert max(agreement) < 0.6


@pytest.mark.parametrize("backend", TILES)
def test_second_derivatives_are_refused(backend):
    q, k, v, *_ = tensors(5, 5, torch.float32)
    out = attention(q.requires_grad_(), k, v, backend=backend)
    with pytest.raises(RuntimeError, match="backend='reference'"):
        torch.autograd.grad(out.sum(), q, create_graph=True)


def saved_elements(backend, N):
    """The largest tensor that a layer keeps for its backward pass."""
    q, k, v = (torch.randn(1, 1, N, 4, requires_grad=True) for _ in range(3))
    a, c = (torch.randn(1, 1, N, 3, requires_grad=True) for _ in range(2))
    table = torch.randn(1, 2 * N - 1, requires_grad=True)
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda x: kept.append(x.numel()) or x, lambda x: x):
        attention(q, k, v, Terms(0.5, LowRankBias(a, c) + ToeplitzBias(table, N)), backend=backend)
    return max(kept)


def test_recomputed_tiles_keep_memory_that_grows_with_the_length_and_not_with_its_square():
    assert saved_elements("recomputed-tiles", 600) == 2 * saved_elements("recomputed-tiles", 300)
    assert saved_elements("kept-tiles", 600) == 600 * 600


def test_nothing_is_kept_without_gradients():
    q, k, v, *_ = tensors(40, 40, torch.float32)
    kept = []
    with torch.no_grad(), torch.autograd.graph.saved_tensors_hooks(lambda x: kept.append(x) or x, lambda x: x):
        out = attention(q, k, v, backend="kept-tiles")
    assert not kept
    assert_close(out, attention(q, k, v, backend="reference"))


@pytest.mark.parametrize("backend", TILES)
def test_terms_by_content_pass_through_tiles(backend):
    options = {"tupe-r": {"cls": "position-0"}}  # else the bias of the keys adds a constant, whose gradient is noise
    sizes = {"width": 24, "layers": 2, "heads": 3, "max_positions": 33}
    encoder = Encoder(20, **sizes, encoding="shaw+tupe-r", encoding_options=options).eval()
    initialise(encoder, seed=0, std=0.4)
    ids, valid = torch.randint(20, (2, 33)), torch.arange(33) < torch.tensor([[33], [20]])
    results = []
    for name in (backend, "reference"):
        hidden = encoder(ids, key_padding_mask=~valid, backend=name).hidden[valid]
        results.append([hidden, *torch.autograd.grad(hidden.pow(3).sum(), encoder.parameters(), allow_unused=True)])
    for ours, slow in zip(*results, strict=True):
        if slow is not None:
            assert_close(ours, slow, rtol=2e-4, atol=2e-5 * slow.abs().max().item())


@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_gradient_checkpointing_computes_the_same(dropout):
    gradients = []
    for checkpointing in (False, True):
        encoder = Encoder(20, width=32, layers=2, heads=2, dropout=0.0, attention_dropout=dropout, max_positions=160)
        initialise(encoder, seed=0, std=0.3)
        encoder.gradient_checkpointing = checkpointing
        torch.manual_seed(3)
        hidden = encoder(torch.arange(320).view(2, 160) % 20).hidden
        gradients.append(torch.autograd.grad(hidden.pow(2).sum() + hidden[0].sum(), encoder.parameters()))
    for one, other in zip(*gradients, strict=True):
        assert_close(one, other, rtol=1e-5, atol=1e-5 * one.abs().max().item())


@pytest.mark.parametrize(
    ("backend", "bound"),
    # weights kept in 16 bits are never chosen for this; torch's own kernel rounds the weights too
    [("recomputed-tiles", 1e-3), ("reference", 1e-3), ("sdpa", 5e-2), ("kept-tiles", 1e-1)],
)
def test_autocast_keeps_the_bias_and_its_gradient_in_float32(backend, bound):
    encoder = Encoder(50, width=32, layers=2, heads=2, max_positions=160, encoding="tupe-a", attention_dropout=0.0)
    initialise(encoder, seed=0, std=0.5)
    x = torch.zeros(4, 160, 32)
    exact = encoder.encoding.prepare(Contiguous(160)).layer(0).bias.dense()
    with torch.autocast("cpu", torch.bfloat16):
        plan = encoder.plan(Contiguous(160), x, backend=backend).layer(0)
    bias = plan.prepared.mask_BHTS if backend == "sdpa" else plan.prepared.bias.dense()
    assert_close(bias.float(), exact, rtol=1e-2 if backend == "sdpa" else 1e-6, atol=1e-6)
    upstream, found = torch.randn(4, 160, 32).bfloat16().float(), []
    for narrow in (False, True):
        with torch.autocast("cpu", torch.bfloat16, enabled=narrow):
            q, k, v = (torch.linspace(-1, 1, 4 * 2 * 160 * 16).view(4, 2, 160, 16).sin() for _ in range(3))
            q, k, v = (x.bfloat16() if narrow else x.bfloat16().float() for x in (q, k, v))
            order = encoder.encoding.prepare(Contiguous(160))
            out = attention(q, k, v, order, backend=backend)
        wanted = list(encoder.encoding.parameters())
        found.append(torch.autograd.grad(out.float(), wanted, upstream.view_as(out)))
    # what adds the same to a whole row (theta1, the bias of the key projection) should get nothing, so the largest of
    # all gradients is the measure
    largest = max(gradient.abs().max() for gradient in found[0])
    for wide, narrow in zip(*found, strict=True):
        assert narrow.dtype == torch.float32
        assert (wide - narrow).abs().max() <= bound * largest


@pytest.mark.parametrize("backend", TILES)
@pytest.mark.parametrize("offset", [0, 4])
def test_what_all_keys_have_in_common_cancels_in_bfloat16(backend, offset):
    q, k, v = (torch.randn(2, 2, 150, 64) for _ in range(3))
    q, k, v = (q + offset).bfloat16(), (k + offset).bfloat16(), v.bfloat16()
    upstream, found = torch.randn(2, 2, 150, 64).bfloat16(), []
    for chosen, dtype in ((backend, torch.bfloat16), ("reference", torch.float64)):
        leaves = [x.to(dtype).requires_grad_() for x in (q, k, v)]
        out = attention(*leaves, backend=chosen)
        found.append([out, *torch.autograd.grad(out, leaves, upstream.to(dtype))])
    for ours, exact in zip(*found, strict=True):
        assert_within(ours, exact, torch.bfloat16)


@pytest.mark.parametrize("backend", TILES)
@pytest.mark.parametrize(("T", "S"), [(5, 0), (0, 5), (0, 0)])
def test_nothing_to_compute_is_no_error(backend, T, S):
    q, k, v = torch.randn(2, 2, T, 8, requires_grad=True), torch.randn(2, 2, S, 8), torch.randn(2, 2, S, 8)
    out, lse = attention(q, k, v, return_lse=True, backend=backend)
    assert out.shape == (2, 2, T, 8)
    assert (out == 0).all()
    assert (lse == -torch.inf).all()
    assert (torch.autograd.grad(out.sum(), q)[0] == 0).all()


@pytest.mark.filterwarnings("ignore:The .grad attribute:UserWarning")  # torch's tracer looks at it
def test_layers_that_are_compiled_alone_break_the_graph_and_go_on():
    encoder = Encoder(50, width=32, layers=2, heads=2, max_positions=200, dropout=0.0, attention_dropout=0.0)
    ids = torch.randint(50, (2, 200))
    assert encoder.plan(Contiguous(200), encoder.embedding(ids)).layer(0).backend.name == "kept-tiles"
    before = encoder(ids).hidden
    for layer in encoder.layers:
        layer.compile(backend="eager")
    assert_close(encoder(ids).hidden, before)


def test_transforms_of_functions_get_a_backend_that_knows_them():
    encoder = Encoder(50, width=16, layers=1, heads=2, max_positions=200).eval()
    parameters = {name: parameter.detach() for name, parameter in encoder.named_parameters()}
    ids = torch.randint(50, (1, 200))

    def loss(values):
        return torch.func.functional_call(encoder, values, (ids,)).hidden.pow(2)[..., ::3].sum()

    ours = torch.func.grad(loss)(parameters)
    loss(dict(encoder.named_parameters())).backward()
    for name, parameter in encoder.named_parameters():
        assert_close(
            ours[name], torch.zeros_like(parameter) if parameter.grad is None else parameter.grad, rtol=1e-4, atol=1e-5
        )


def wrong_sizes():
    q, k = torch.randn(3, 2, 15, 8), torch.randn(3, 2, 20, 8)
    where = Contiguous(15)
    for bias in (
        ToeplitzBias(torch.randn(2, 39), 20),
        DenseBias(torch.randn(2, 2, 15, 20)),
        DenseBias(torch.randn(1, 2, 15, 21)),
        LowRankBias(torch.randn(1, 2, 20, 3), torch.randn(1, 2, 20, 3)),
        LowRankBias(torch.randn(1, 3, 15, 3), torch.randn(1, 3, 20, 3)),
        RelativeBias(torch.randn(1, 2, 15, 3), torch.randn(1, 2, 35, 3), 21),
        RelativeBias(torch.randn(2, 2, 15, 3), torch.randn(1, 2, 34, 3), 20),
        RelativeKeyBias(torch.randn(1, 2, 20, 3), torch.randn(1, 2, 35, 3), 16),
    ):
        yield q, k, Terms(0.3, bias), None
    yield q, q, Terms(0.3), Mask(where, where, tokens_BS=torch.ones(4, 15, dtype=torch.bool))
    yield q, q, Terms(0.3), Mask(Contiguous(10), Contiguous(10), high=0)


@pytest.mark.parametrize("backend", TILES)
@pytest.mark.parametrize("case", range(10))
def test_sizes_that_do_not_fit_are_refused(backend, case):
    q, k, order, mask = list(wrong_sizes())[case]
    with pytest.raises(ValueError, match=r"does not fit|the mask is of"):
        attention(q, k, k, order, mask, backend=backend)


@pytest.mark.parametrize("backend", TILES)
def test_a_local_window_written_as_a_bias(backend):
    table = torch.where(torch.arange(-699, 700).abs() < 50, 0.0, -torch.inf)[None].expand(2, -1)
    q = torch.randn(1, 2, 700, 8)
    order = Terms(0.3, ToeplitzBias(table, 700))
    ours = attention(q, q, q, order, return_lse=True, backend=backend)
    for one, other in zip(ours, attention(q, q, q, order, return_lse=True, backend="reference"), strict=True):
        assert_close(one, other)


@pytest.mark.parametrize("backend", ["reference", "sdpa", *TILES])
def test_the_output_has_the_dtype_of_the_values_under_autocast_too(backend):
    q = torch.randn(1, 2, 9, 8)
    with torch.autocast("cpu", torch.bfloat16):
        assert attention(q, q, q, backend=backend).dtype == torch.float32
        assert attention(q.bfloat16(), q.bfloat16(), q.bfloat16(), backend=backend).dtype == torch.bfloat16


def test_inference_runs_on_torchs_fused_kernel():
    """Kind 1 is the fused kernel; kind 0, which a bias that wants a gradient gets, writes every matrix out."""
    q, k, v, _, _, _, _, _, matrix, _ = tensors(64, 64, torch.float32)
    bias = matrix.expand(1, HEADS, 64, 64).contiguous()
    v = v[..., :1].expand(-1, -1, -1, CHANNELS).contiguous()
    order = Terms(0.3, DenseBias(bias.requires_grad_()))
    with torch.no_grad():
        plan = plan_attention(order, None, Call.of(q, k))
        assert plan.backend.name == "sdpa"
        assert torch._fused_sdp_choice(q, k, v, plan.prepared.mask_BHTS) == 1
    assert torch._fused_sdp_choice(q, k, v, bias) == 0


def test_what_dropout_leaves_depends_on_place_and_seed_only():
    dropout = Dropout(0.5, batch=2, queries=8, keys=8)
    tile = TileSlice(slice(0, 1), slice(0, 8), slice(0, 8))
    first = dropout.keep_mask(0, tile)
    torch.randn(5)
    assert torch.equal(first, dropout.keep_mask(0, tile))
    assert not torch.equal(first, dropout.keep_mask(1, tile))
    assert not torch.equal(first, Dropout(0.5, batch=2, queries=8, keys=8).keep_mask(0, tile))


@pytest.mark.parametrize("bias", ["none", "toeplitz"])
@pytest.mark.parametrize(("low", "high"), [(-255, 0), (1, 255), (-255, 255)])
def test_what_a_band_hides_costs_nothing(low, high, bias, monkeypatch):
    """Twice the text takes twice as many tiles, in both passes."""
    counts = {}
    for T in (2048, 4096):
        done, original = [], Inputs.scores
        masks_made, mask_of = [], Mask.tile

        def tile(self, rows, keys, device=None, of=mask_of, made=masks_made):
            made.append((rows, keys))
            return of(self, rows, keys, device)

        def scores(self, *args, of=original, made=done):
            made.append(1)
            return of(self, *args)

        with monkeypatch.context() as patched:
            patched.setattr(Mask, "tile", tile)
            patched.setattr(Inputs, "scores", scores)
            q, k, v = (torch.randn(1, 1, T, 8, requires_grad=True) for _ in range(3))
            table = torch.randn(1, 2 * T - 1, requires_grad=True)
            terms = Terms(0.3, ToeplitzBias(table, T) if bias == "toeplitz" else None)
            mask = Mask(Contiguous(T), Contiguous(T), low=low, high=high)
            attention(q, k, v, terms, mask, backend="recomputed-tiles").sum().backward()
        counts[T] = len(done), len(masks_made)
    assert counts[4096][0] <= 2.25 * counts[2048][0]
    assert counts[4096][1] <= 2.25 * counts[2048][1]


@pytest.mark.parametrize("low", [None, -63, -20])
@pytest.mark.parametrize("backend", TILES)
def test_both_passes_drop_the_same_weights_under_a_window(backend, low):
    """The output is linear in the values: their product with its gradient is the output."""
    torch.manual_seed(0)
    q, k, v = (torch.randn(1, 2, 256, 8, dtype=torch.float64, requires_grad=True) for _ in range(3))
    bias = ToeplitzBias(torch.zeros(2, 511, dtype=torch.float64, requires_grad=True), 256)
    mask = Mask(Contiguous(256), Contiguous(256), low=low, high=0)
    output = attention(q, k, v, Terms(0.3, bias), mask, dropout=0.3, backend=backend)
    (of_values,) = torch.autograd.grad(output.sum(), v)
    assert_close((of_values * v).sum(), output.sum())


@pytest.mark.parametrize("window", [1, 100, 512, 513, 1024, 1025])
@pytest.mark.parametrize("two_sided", [False, True])
def test_windows_in_one_tile_and_in_several(window, two_sided):
    """More keys than a tile has, the last queries of a text, and rows of several lengths."""
    torch.manual_seed(0)
    queries, keys = 700, 1100
    q, k, v = (torch.randn(2, 1, tokens, 4, dtype=torch.float64) for tokens in (queries, keys, keys))
    table, upstream = torch.randn(1, queries + keys - 1, dtype=torch.float64), torch.randn_like(q)
    tokens_BS = torch.arange(keys) < torch.tensor([[keys], [900]])
    high = window - 1 if two_sided else 0
    mask = Mask(Contiguous(queries, keys - queries), Contiguous(keys), low=1 - window, high=high, tokens_BS=tokens_BS)

    def outputs_and_gradients(backend):
        leaves = [tensor.clone().requires_grad_() for tensor in (q, k, v, table)]
        output = attention(*leaves[:3], Terms(0.5, ToeplitzBias(leaves[3], queries)), mask, backend=backend)
        return output, *torch.autograd.grad(output, leaves, upstream)

    pairs = zip(outputs_and_gradients("recomputed-tiles"), outputs_and_gradients("reference"), strict=True)
    for ours, slow in pairs:
        assert_close(ours, slow, rtol=0, atol=1e-11)
