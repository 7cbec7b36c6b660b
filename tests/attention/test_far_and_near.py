"""Far and near parts against the slow attention in float64: output, normaliser and every gradient."""

import re
from dataclasses import replace

import pytest
import torch
from bias_cases import CHANNELS, HEADS
from torch.testing import assert_close

from wordorder.attention import Call, attention, choose_backend
from wordorder.attention.backends import far_and_near
from wordorder.attention.backends.far_and_near import FarAndNear
from wordorder.encodings import CATALOG, DeBERTa, RelativeLogits, Shaw, Terms
from wordorder.encodings.composition import Composition
from wordorder.encodings.places import ContentTerm, OnDistance
from wordorder.encodings.t5 import T5
from wordorder.networks import Decoder, Encoder, initialise
from wordorder.ops import Contiguous, DenseBias, LowRankBias, Mask, Packed, RelativeBias, RelativeKeyBias, ToeplitzBias
from wordorder.ops.bias import SumBias

BOUND = {torch.float64: 1e-13, torch.float32: 1e-5, torch.bfloat16: 5e-2}
"""Of the largest element."""
FAR = 6
"""The distance from which the table is constant."""


def masks(T, S):
    """By name: who sees whom among T queries, the last positions, and S keys of three examples."""
    query, key = Contiguous(T, S - T), Contiguous(S)
    right, left, holes = (torch.ones(3, S, dtype=torch.bool) for _ in range(3))
    right[0, S - S // 3 :] = False
    right[1] = False  # nothing to see
    left[0, : S // 3] = False
    left[2, : S // 5] = False
    holes[0, ::3] = False
    holes[1, S // 4 : S // 2] = False
    return {
        "all": Mask(query, key),
        "causal": Mask(query, key, high=0),
        "one ahead": Mask(query, key, high=1),
        "padded on the right": Mask(query, key, tokens_BS=right),
        "padded on the left": Mask(query, key, tokens_BS=left),
        "causal, padded on the right": Mask(query, key, high=0, tokens_BS=right),
        "causal, padded on the left": Mask(query, key, high=0, tokens_BS=left),
        "holes": Mask(query, key, tokens_BS=holes),
        "causal, holes": Mask(query, key, high=0, tokens_BS=holes[:1]),
    }


def table_of(numbers_HX, T, S, mask):
    """A table that is constant from FAR on, of numbers for -FAR .. FAR."""
    distance_W = torch.arange(1 - T, S) + mask.key.offset - mask.query.offset
    zero = T - 1 - (mask.key.offset - mask.query.offset)
    table_HW = numbers_HX[:, distance_W.clamp(-FAR, FAR) + FAR]
    return ToeplitzBias(table_HW, T, may_hide=False, edges=(zero - FAR, zero + FAR))


BIASES = {
    "table": lambda table, a, c, e, f: table,
    "low rank": lambda table, a, c, e, f: LowRankBias(a, c),
    "low rank + table": lambda table, a, c, e, f: LowRankBias(a, c) + table,
    "two of low rank + table": lambda table, a, c, e, f: LowRankBias(a, c) + LowRankBias(e, f) + table,
    "none": lambda table, a, c, e, f: None,
}


class ByContent(ContentTerm):
    """A vector by distance for queries, and one for keys, each constant from FAR on; those of keys for one head."""

    def __init__(self, by_query_HXD, by_key_HXD, zero, kinds):
        self.by_query_HXD, self.by_key_HXD, self.zero, self.kinds = by_query_HXD, by_key_HXD, zero, kinds
        self.edges = zero - FAR, zero + FAR

    def layer(self, index):
        return self

    def as_bias(self, q_BHTD, k_BHSD, scale, visible, *, rotated):
        T, S = q_BHTD.shape[2], k_BHSD.shape[2]
        distance_W = (torch.arange(T + S - 1) - self.zero).clamp(-FAR, FAR) + FAR
        last = T + S - 2
        biases = {
            "query": lambda: RelativeBias(
                q_BHTD, self.by_query_HXD[None, :, distance_W].type_as(q_BHTD), S, edges=self.edges
            ),
            "key": lambda: RelativeKeyBias(
                k_BHSD,
                self.by_key_HXD[None, :1, distance_W.flip(0)].type_as(k_BHSD),
                T,
                edges=(last - self.edges[1], last - self.edges[0]),
            ),
            "nothing": lambda: RelativeBias(
                q_BHTD,
                self.by_query_HXD[None, :, distance_W[self._near(last)]].type_as(q_BHTD),
                S,
                first=self._near(last).start,
                edges=self.edges,
            ),
        }
        return None, SumBias([biases[kind]() for kind in self.kinds])

    def _near(self, last):
        start = min(max(self.edges[0] + 1, 0), last)
        return slice(start, max(start, min(self.edges[1], last + 1)))


CONTENT = {
    "by query": (["query"], "none"),
    "by key": (["key"], "none"),
    "by query, beyond it 0": (["nothing"], "none"),
    "by query twice and by key + low rank + table": (["query", "key", "query"], "low rank + table"),
    "by key + table": (["key"], "table"),
}


def outputs_and_gradients(backend, dtype, T, S, bias, mask, *, return_lse, values=11, fixed=False):
    torch.manual_seed(0)
    q, k, v = (torch.randn(3, n, HEADS, c).transpose(1, 2) for n, c in ((T, CHANNELS), (S, CHANNELS), (S, values)))
    factors = [0.6 * torch.randn(rows, HEADS, n, rank) for rows, rank in ((1, 5), (3, 2)) for n in (T, S)]
    leaves = [x.to(dtype[0]).to(dtype[1]) for x in (q, k, v)]
    # terms by position are parameters, in float32 where heads are in 16 bits
    wide = torch.promote_types(dtype[1], torch.float32)
    leaves += [x.to(wide) for x in (0.6 * torch.randn(HEADS, 2 * FAR + 1), *factors)]
    upstream = [torch.randn(3, HEADS, T, values).to(dtype[0]), torch.randn(3, HEADS, T)]
    for leaf in leaves[: 3 if fixed else None]:
        leaf.requires_grad_()
    kinds, bias = CONTENT.get(bias, ([], bias))
    content = ()
    if kinds:
        vectors = [(0.6 * torch.randn(HEADS, 2 * FAR + 1, CHANNELS)).to(wide).requires_grad_() for _ in range(2)]
        content = (ByContent(*vectors, T - 1 - (mask.key.offset - mask.query.offset), kinds),)
    terms = Terms(0.3, BIASES[bias](table_of(leaves[3], T, S, mask), *leaves[4:8]), content=content)
    leaves += vectors if kinds else []
    output = attention(*leaves[:3], terms, mask, backend=backend, return_lse=return_lse)
    outputs = list(output) if return_lse else [output]
    if return_lse:
        outputs[1] = outputs[1].masked_fill(outputs[1] == -torch.inf, 0)
    ups = [u.to(y.dtype) for u, y in zip(upstream, outputs, strict=False)]
    gradients = torch.autograd.grad(outputs, [x for x in leaves if x.requires_grad], ups, allow_unused=True)
    return [*outputs, *(gradient for gradient in gradients if gradient is not None)]


def assert_exact(fast, slow, dtype):
    """Each tensor within the bound of its dtype; what is exactly 0 is a difference of numbers about 1."""
    assert len(fast) == len(slow)
    for ours, exact in zip(fast, slow, strict=True):
        assert ours.shape == exact.shape
        largest = exact.abs().max().item()
        assert (ours.double() - exact).abs().max().item() <= BOUND[dtype] * (largest if largest > 1e-9 else 3.0)


@pytest.mark.parametrize(
    ("dtype", "bias"),
    [(dtype, bias) for dtype in BOUND for bias in (*BIASES, *(CONTENT if dtype != torch.bfloat16 else ()))],
)
@pytest.mark.parametrize("mask", list(masks(1, 1)))
@pytest.mark.parametrize(("T", "S"), [(41, 41), (13, 40), (40, 13), (5, 5), (1, 30)])
@pytest.mark.parametrize("return_lse", [False, True])
def test_output_and_every_gradient(dtype, bias, mask, T, S, return_lse):
    seen = masks(T, S)[mask]
    fast = outputs_and_gradients("far-and-near", (dtype, dtype), T, S, bias, seen, return_lse=return_lse)
    slow = outputs_and_gradients("reference", (dtype, torch.float64), T, S, bias, seen, return_lse=return_lse)
    assert_exact(fast, slow, dtype)


NETWORKS = [
    ("t5", Encoder, {"max_distance": 8, "buckets": 8}),
    ("t5", Decoder, {"max_distance": 8, "buckets": 8}),
    ("tupe-a", Encoder, {}),
    ("tupe-r", Encoder, {"max_distance": 8, "buckets": 8, "cls": "position-0"}),
    ("tupe-r", Decoder, {"max_distance": 8, "buckets": 8}),
    ("rope+t5", Decoder, {}),
    ("fox", Decoder, {}),
    ("softmax-sink+t5", Decoder, {}),
    ("shaw", Encoder, {"max_distance": 5}),
    ("rope+shaw", Decoder, {"shaw": {"max_distance": 5}}),
    ("deberta", Encoder, {"max_distance": 7}),
    ("deberta", Decoder, {"max_distance": 12, "buckets": 8, "variant": "reference-code"}),
    ("relative-logits", Encoder, {"max_distance": 6}),
    ("relative-logits", Decoder, {"max_distance": 6}),
    ("t5+shaw", Encoder, {"t5": {"max_distance": 9}, "shaw": {"max_distance": 3}}),
]


@pytest.mark.parametrize(("encoding", "network", "options"), NETWORKS)
@pytest.mark.parametrize("padded", ["right", "left", ""])
def test_networks_have_the_same_output_and_gradients(encoding, network, options, padded):
    if padded == "left" and (network is Encoder or encoding == "tupe-r"):
        pytest.skip("padding on the left has positions of its own, which are not contiguous")
    tokens = torch.randint(30, (2, 37), generator=torch.Generator().manual_seed(1))
    padding = torch.zeros(2, 37, dtype=torch.bool)
    if padded:
        padding[0, 30:] = True
        padding = padding if padded == "right" else padding.flip(1)
    results = []
    for backend in ("far-and-near", "reference"):
        torch.manual_seed(0)
        model = network(30, width=32, layers=2, heads=4, encoding=encoding, max_positions=40, encoding_options=options)
        initialise(model)
        model.double().eval()
        hidden = model(tokens, key_padding_mask=padding if padded else None, backend=backend).hidden
        hidden.square()[~padding].sum().backward()
        gradients = {name: parameter.grad for name, parameter in model.named_parameters()}
        results.append({"hidden": hidden[~padding], **{n: g for n, g in gradients.items() if g is not None}})
    fast, slow = results
    assert fast.keys() == slow.keys()
    for name, exact in slow.items():
        assert (fast[name] - exact).abs().max() <= 1e-12 * max(1e-3, exact.abs().max()), name


@pytest.mark.parametrize("encoding", [name for name, kind in CATALOG.items() if issubclass(kind, OnDistance)])
@pytest.mark.parametrize("offset", [0, 7])
def test_a_table_is_constant_where_its_encoding_says_so(encoding, offset):
    options = {"max_distance": 9} if encoding == "t5" else {}
    kind = CATALOG[encoding]
    built = kind(4, **({"head_dim": 8} if encoding == "t5" else {}), **options) if encoding != "sandwich" else kind(4)
    for parameter in built.parameters():
        torch.nn.init.normal_(parameter)
    bias = built(Contiguous(30, offset), Contiguous(30 + offset))
    assert isinstance(bias, ToeplitzBias)
    assert (bias.edges is not None) == (encoding == "t5")
    if bias.edges is not None:
        first, last = bias.edges
        table_HW = bias.table_HW
        assert (table_HW[:, : first + 1] == table_HW[:, :1]).all()
        assert (table_HW[:, last:] == table_HW[:, -1:]).all()
        assert last - first == 18
        assert bias.to(torch.float64).edges == bias.edges


@pytest.mark.parametrize(
    ("network", "encoding", "options"),
    [
        (Encoder, "shaw,fox", {"shaw": {"max_distance": 2}}),
        (Encoder, "shaw,transformer-xl", {"shaw": {"max_distance": 2}}),
        (Decoder, "shaw:a,shaw:b", {"shaw:a": {"max_distance": 1}, "shaw:b": {"max_distance": 9}}),
    ],
)
def test_layers_with_other_terms_by_content_have_a_plan_of_their_own(monkeypatch, network, encoding, options):
    monkeypatch.setattr(far_and_near, "FEWEST_KEYS", {torch.float64: (16, 16, 16)})
    results, upstream = [], torch.randn(1, 150, 16, dtype=torch.float64)
    for backend in (None, "reference"):
        model = network(30, width=16, heads=2, layers=2, encoding=encoding, encoding_options=options, max_positions=200)
        initialise(model, seed=0, std=0.3)
        hidden = model.double().eval()(torch.arange(150)[None] % 30, backend=backend).hidden
        hidden.backward(upstream)
        results.append([hidden.detach(), *(p.grad for p in model.parameters() if p.grad is not None)])
    assert len(results[0]) == len(results[1])
    for ours, exact in zip(*results, strict=True):
        assert (ours - exact).abs().max() <= 1e-11 * max(1.0, exact.abs().max())


@pytest.mark.parametrize(("T", "S", "offset"), [(3, 10, 100), (40, 10, 20), (10, 40, 20), (4, 9, -30), (9, 4, 3)])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("ranges", [(8, 4), (4, 8), (40, 4), (4, 40)])
def test_queries_and_keys_anywhere_with_terms_of_two_ranges(T, S, offset, causal, ranges):
    parts = {
        "t5": T5(2, head_dim=8, max_distance=ranges[0], buckets=4),
        "shaw": Shaw(8, layers=1, max_distance=ranges[1]),
    }
    composition = Composition(parts, head_dim=8).double()
    for parameter in composition.parameters():
        torch.nn.init.normal_(parameter)
    query, key = Contiguous(T, offset), Contiguous(S)
    terms = composition.prepare(query, key, dtype=torch.float64).layer(0)
    q, k, v = (torch.randn(2, 2, n, 8, dtype=torch.float64) for n in (T, S, S))
    mask = Mask(query, key, high=0 if causal else None)
    expected = attention(q, k, v, terms, mask, backend="recomputed-tiles")
    distance = (torch.arange(S) - torch.arange(T)[:, None] - offset).clamp(-ranges[1], ranges[1]) + ranges[1]
    scores = torch.einsum("bhtd,tsd->bhts", q, parts["shaw"].tables[0].weight[distance]) * terms.scale
    written = Terms(terms.scale, terms.bias + DenseBias(scores))
    call = Call.of(q, k, v).with_terms(terms, mask)
    for backend in ("reference", *(() if FarAndNear().refusal(call) else ("far-and-near",))):
        found = attention(q, k, v, terms, mask, backend=backend)
        assert_close(found, attention(q, k, v, written, mask, backend="reference"))
        assert_close(found, expected)


def test_where_every_key_is_hidden_the_output_is_0():
    query, key = Contiguous(4), Contiguous(9, 4)
    q, k = torch.randn(1, 2, 4, 8, requires_grad=True), torch.randn(1, 2, 9, 8)
    bias = T5(2, head_dim=8)(query, key)
    output = attention(q, k, k, bias, Mask(query, key, high=0), backend="far-and-near")
    assert not output.any()
    assert not torch.autograd.grad(output.sum(), q)[0].any()


@pytest.mark.parametrize("kind", [Shaw, DeBERTa, RelativeLogits])
def test_a_class_that_changes_the_rows_of_a_term_by_content_promises_nothing(kind):
    class Coarse(kind):
        def row(self, distance):
            return super().row(torch.div(distance, 4, rounding_mode="trunc"))

    sizes = {Shaw: {"head_dim": 8}, DeBERTa: {"width": 8, "heads": 1, "head_dim": 8}}
    sizes = sizes.get(kind, {"width": 8, "heads": 1})
    where = Contiguous(60)
    assert kind(**sizes, layers=1, max_distance=8)(where, where).edges == (51, 67)
    assert Coarse(**sizes, layers=1, max_distance=8)(where, where).edges is None


def test_a_term_by_content_that_breaks_its_promise_is_named():
    class Broken(ByContent):
        def as_bias(self, *tensors, **how):
            vector, bias = super().as_bias(*tensors, **how)
            return vector, bias + DenseBias(torch.zeros(1, 1, 20, 20))

    q = torch.randn(1, HEADS, 20, CHANNELS)
    vectors = torch.randn(HEADS, 2 * FAR + 1, CHANNELS)
    terms = Terms(0.3, content=(Broken(vectors, vectors, 19, ["query"]),))
    with pytest.raises(TypeError, match="promised edges, and gave a DenseBias that has none"):
        attention(q, q, q, terms, backend="far-and-near")


def test_a_class_that_changes_the_numbers_of_t5_promises_nothing():
    class Fading(T5):
        def at_distance(self, distance, dtype=torch.float32):
            return super().at_distance(distance, dtype) - distance.abs()

    assert Fading(2, head_dim=4)(Contiguous(9), Contiguous(9)).edges is None


def test_threads_may_change_between_the_passes():
    seen, threads = masks(20, 20)["all"], torch.get_num_threads()
    q, k, v = (torch.randn(1, HEADS, 20, 4, dtype=torch.float64, requires_grad=True) for _ in range(3))
    numbers = torch.randn(HEADS, 2 * FAR + 1, dtype=torch.float64, requires_grad=True)
    gradients = []
    for backend in ("far-and-near", "reference"):
        try:
            torch.set_num_threads(1)
            terms = Terms(1.0, table_of(numbers, 20, 20, seen))
            output = attention(q, k, v, terms, Mask(*[Contiguous(20)] * 2), backend=backend)
            torch.set_num_threads(HEADS)
            gradients.append(torch.autograd.grad(output.square().sum(), [q, k, v, numbers]))
        finally:
            torch.set_num_threads(threads)
    for ours, exact in zip(*gradients, strict=True):
        assert torch.allclose(ours, exact, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("network", [Encoder, Decoder])
def test_layers_may_be_computed_again(network):
    results = []
    for checkpointed in (False, True):
        torch.manual_seed(0)
        model = network(20, width=16, heads=2, layers=2, encoding="t5", dropout=0.0, attention_dropout=0.0).train()
        model.gradient_checkpointing = checkpointed
        model(torch.arange(19)[None], backend="far-and-near").hidden.square().sum().backward()
        results.append([parameter.grad for parameter in model.parameters() if parameter.grad is not None])
    assert all(torch.equal(x, y) for x, y in zip(*results, strict=True))


@pytest.mark.parametrize("which", range(3))
@pytest.mark.parametrize("bias", ["table", "low rank"])
def test_channels_need_not_be_side_by_side(which, bias):
    seen, wide = masks(30, 30)["all"], torch.float64
    tensors = [torch.randn(2, HEADS, 30, 8, dtype=wide) for _ in range(3)]
    tensors[which] = tensors[which].mT.contiguous().mT
    of_bias = [torch.randn(HEADS, 2 * FAR + 1, dtype=wide), *torch.randn(2, 1, HEADS, 30, 3, dtype=wide)]
    leaves = [x.requires_grad_() for x in (*tensors, *of_bias)]
    used, gradients = leaves[:4] if bias == "table" else leaves[:3] + leaves[4:], []
    for backend in ("far-and-near", "reference"):
        terms = Terms(1.0, BIASES[bias](table_of(leaves[3], 30, 30, seen), *leaves[4:], None, None))
        output = attention(*leaves[:3], terms, backend=backend)
        gradients.append(torch.autograd.grad(output.square().sum(), used))
    for ours, exact in zip(*gradients, strict=True):
        assert torch.allclose(ours, exact, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("middle", [0, 10])
def test_in_16_bits_values_may_be_far_from_0(middle):
    seen = masks(300, 300)["all"]
    tensors = [torch.randn(1, HEADS, 300, 16) for _ in range(3)]
    tensors[2] += middle
    errors = {}
    for backend, dtype in (("reference", torch.float64), ("far-and-near", torch.bfloat16), ("sdpa", torch.bfloat16)):
        torch.manual_seed(0)
        numbers = torch.randn(HEADS, 2 * FAR + 1).to(torch.promote_types(dtype, torch.float32)).requires_grad_()
        leaves = [x.bfloat16().to(dtype).requires_grad_() for x in tensors]
        output = attention(*leaves, Terms(0.3, table_of(numbers, 300, 300, seen)), seen, backend=backend)
        upstream = torch.randn(output.shape).bfloat16().to(dtype)
        gradients = torch.autograd.grad(output, [*leaves, numbers], upstream)
        errors[backend] = [x.double() for x in (*gradients[:3], gradients[3][:, 1:-1], gradients[3][:, [0, -1]])]
    for exact, ours, sdpa in zip(*errors.values(), strict=True):
        assert (ours - exact).norm() <= max(3 * (sdpa - exact).norm(), 5e-3 * exact.norm())


@pytest.mark.parametrize(("query", "key"), [((25, 60), (30, 0)), ((25, 0), (30, 60)), ((30, 2100), (30, 0))])
def test_a_text_that_is_far_as_a_whole_goes_elsewhere(query, key):
    query, key = Contiguous(*query), Contiguous(*key)
    bias = T5(HEADS, scale=1.0, max_distance=20)(query, key)
    call = Call.of(torch.zeros(1, HEADS, query.length, 4), torch.zeros(1, HEADS, key.length, 4))
    for mask in (None, Mask(query, key), Mask(query, key, high=0)):
        assert call.with_terms(Terms(1.0, bias), mask).reach is None


def test_without_texts_there_is_nothing_to_do():
    x = torch.randn(0, HEADS, 20, 4, requires_grad=True)
    mask = Mask(Contiguous(20), Contiguous(20), tokens_BS=torch.ones(0, 20, dtype=torch.bool))
    for seen in (None, mask):
        output = attention(x, x, x, T5(HEADS, scale=1.0, max_distance=9, buckets=8), seen, backend="far-and-near")
        assert torch.autograd.grad(output.sum(), x)[0].shape == x.shape


def test_padding_all_over_the_text_goes_to_tiles():
    tokens = torch.ones(1, 40, dtype=torch.bool)
    tokens[:, 5:9] = False
    where, prepared = Contiguous(40), []
    for hidden in (slice(0), slice(20, 30, 2)):
        tokens[:, hidden] = False
        mask = Mask(where, where, tokens_BS=tokens.clone())
        call = Call.of(torch.zeros(1, HEADS, 40, 4), torch.zeros(1, HEADS, 40, 4))
        terms = Terms(1.0, T5(HEADS, scale=1.0, max_distance=9, buckets=8)(where, where))
        prepared.append(type(far_and_near.FarAndNear().prepare(terms, mask, call)).__name__)
    assert prepared == ["Prepared", "InTiles"]


SHORT = {"training": True, "dtype": torch.bfloat16}
MIDDLE = {"training": True, "queries": 2048, "keys": 2048}


def long_call(**facts):
    sizes = {"batch": 1, "heads": 4, "queries": 4096, "keys": 4096, "head_dim": 64, "dtype": torch.float32}
    return Call(**{**sizes, **facts}, device=torch.device("cpu"))


@pytest.mark.parametrize(
    ("facts", "name"),
    [
        ({"bias": "learned", "reach": 255, "training": True}, "far-and-near"),
        ({"bias": "fixed", "reach": 255}, "far-and-near"),
        ({"bias": "fixed", "reach": 255, "keys": 2048, "queries": 2048}, "sdpa"),
        ({"bias": "learned", "reach": 255, "keys": 2048, "queries": 2048, "training": True}, "far-and-near"),
        ({"bias": "learned", "reach": 255, "keys": 2047, "queries": 2047, "training": True}, "recomputed-tiles"),
        ({**MIDDLE, "bias": "learned", "reach": 255, "rank": 64}, "recomputed-tiles"),
        ({**MIDDLE, "bias": "learned", "reach": 255}, "far-and-near"),
        ({**MIDDLE, "bias": "learned", "reach": 0, "rank": 64}, "far-and-near"),
        ({"bias": "learned", "reach": 255, "keys": 8192, "queries": 1, "training": True}, "sdpa"),
        ({**SHORT, "bias": "learned", "reach": 255, "keys": 1024, "queries": 1024}, "far-and-near"),
        ({**SHORT, "bias": "learned", "reach": 0, "keys": 512, "queries": 512}, "far-and-near"),
        ({**SHORT, "bias": "learned", "reach": 255, "keys": 512, "queries": 512}, "recomputed-tiles"),
        ({"bias": "learned", "reach": 0, "rank": 64, "training": True}, "far-and-near"),
        ({"bias": "learned", "reach": 255, "training": True, "return_lse": True}, "far-and-near"),
        ({"bias": "learned", "reach": None, "training": True}, "recomputed-tiles"),
        ({"bias": "learned", "reach": 2047, "training": True}, "recomputed-tiles"),
        ({"bias": "learned", "reach": 255, "training": True, "dropout": 0.1}, "recomputed-tiles"),
        ({"bias": "none", "reach": 0, "training": True}, "sdpa"),
        ({"bias": "none", "reach": 31, "content": True, "training": True}, "far-and-near"),
        ({"bias": "none", "reach": 1023, "content": True, "training": True}, "recomputed-tiles"),
        ({"bias": "learned", "reach": 255, "training": True, "traced": True}, "sdpa"),
    ],
)
def test_it_is_chosen_where_it_is_faster(monkeypatch, facts, name):
    monkeypatch.delenv("WORDORDER_BACKEND", raising=False)
    assert choose_backend(long_call(**facts)).name == name


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"dtype": torch.float16}, "no dropout or float16 on a CPU"),
        ({"dropout": 0.1}, "no dropout"),
        ({"reach": None}, "constant beyond a distance or of low rank, and no window"),
        ({"content": True, "dtype": torch.bfloat16}, "terms by content in float32 or float64 alone"),
    ],
)
def test_what_it_cannot_do_is_refused(facts, words):
    call = replace(long_call(**{"reach": 0, "bias": "learned"}), **facts)
    with pytest.raises(ValueError, match=f"backend 'far-and-near' .*{words}.*; take"):
        choose_backend(call, "far-and-near")


def test_a_version_of_torch_without_the_operator_takes_tiles(monkeypatch):
    monkeypatch.setattr(far_and_near, "OPERATORS", {"cpu": "_no_such_operator"})
    call = long_call(bias="learned", reach=255, training=True)
    assert choose_backend(call).name == "recomputed-tiles"
    with pytest.raises(ValueError, match=f"torch {re.escape(torch.__version__)} does not have; take None"):
        choose_backend(call, "far-and-near")


@pytest.mark.parametrize(
    ("mask", "reach"),
    [
        (lambda p: None, 2 * FAR - 1),
        (lambda p: Mask(p, p), 2 * FAR - 1),
        (lambda p: Mask(p, p, high=0), 2 * FAR - 1),
        (lambda p: Mask(p, p, high=FAR - 1), 2 * FAR - 1),
        (lambda p: Mask(p, p, high=FAR), None),
        (lambda p: Mask(p, p, high=-FAR), None),
        (lambda p: Mask(p, p, low=-9, high=0), None),
        (lambda p: Mask(Contiguous(20, torch.tensor([3])), p, high=0), None),
        (lambda p: Mask(*[Packed(torch.arange(20)[None], torch.zeros(1, 20).long())] * 2), None),
        (lambda p: torch.ones(20, 20, dtype=torch.bool), None),
    ],
)
def test_how_far_the_bias_differs(mask, reach):
    positions = Contiguous(20)
    table = table_of(torch.randn(HEADS, 2 * FAR + 1), 20, 20, Mask(positions, positions))
    call = Call.of(torch.zeros(1, HEADS, 20, 4), torch.zeros(1, HEADS, 20, 4))
    seen = mask(positions)
    assert call.with_terms(Terms(1.0, table), seen).reach == reach
    assert call.with_terms(Terms(1.0, table + table), seen).reach is None
    hiding = ToeplitzBias(table.table_HW, 20, edges=table.edges)
    assert call.with_terms(Terms(1.0, hiding), seen).reach is None


@pytest.mark.parametrize("bias", ["table", "low rank + table"])
@pytest.mark.parametrize("mask", ["all", "causal"])
def test_in_16_bits_it_is_about_as_far_from_float64_as_the_fused_kernel_with_the_bias_written_out(bias, mask):
    """Which has no gradient for a bias; torch's other kernel has, and gradients 1.5 to 2 times as near."""
    T = 300
    seen, of_bias = masks(T, T)[mask], 4
    exact = outputs_and_gradients("reference", (torch.bfloat16, torch.float64), T, T, bias, seen, return_lse=False)
    errors = {}
    for backend, fixed in (("far-and-near", False), ("sdpa", True), ("sdpa", False)):
        results = outputs_and_gradients(backend, (torch.bfloat16,) * 2, T, T, bias, seen, return_lse=False, fixed=fixed)
        errors[backend, fixed] = [
            ((x - y).square().mean().sqrt() / y.std()).item() for x, y in zip(results, exact, strict=False)
        ]
    ours = errors["far-and-near", False]
    for error, fused in zip(ours[:of_bias], errors["sdpa", True], strict=True):
        assert error <= 1.5 * fused
    for error, written_out in zip(ours[of_bias:], errors["sdpa", False][of_bias:], strict=True):
        assert error <= 2 * written_out


def test_there_are_no_second_derivatives():
    seen = masks(20, 20)["all"]
    q = torch.randn(1, HEADS, 20, 4, requires_grad=True)
    terms = Terms(1.0, table_of(torch.randn(HEADS, 2 * FAR + 1), 20, 20, seen))
    output = attention(q, q, q, terms, seen, backend="far-and-near")
    with pytest.raises(RuntimeError, match="far-and-near gives no second derivatives"):
        torch.autograd.grad(output.sum(), q, create_graph=True)


@pytest.mark.filterwarnings("ignore:The .grad attribute:UserWarning")  # torch's tracer looks at it
def test_layers_that_are_compiled_alone_break_the_graph_and_go_on():
    encoder = Encoder(50, width=32, layers=2, heads=2, encoding="t5", dropout=0.0, attention_dropout=0.0)
    ids = torch.randint(50, (2, 30))
    before = encoder(ids, backend="far-and-near").hidden
    for layer in encoder.layers:
        layer.compile(backend="eager")
    assert torch.allclose(encoder(ids, backend="far-and-near").hidden, before, atol=1e-6)


@pytest.mark.parametrize(("capability", "two_sided"), [("AVX2", 6144), ("AVX512", 3072), ("DEFAULT", 6144)])
def test_texts_from_which_it_is_chosen_for_a_table_beside_low_rank(monkeypatch, capability, two_sided):
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: capability)
    for causal, least in ((False, two_sided), (True, 3072)):
        for keys in (least - 1, least):
            q, term = torch.empty(1, 4, keys, 64, device="meta"), {"bias": "learned", "rank": 64, "training": True}
            call = replace(Call.of(q, q), device=torch.device("cpu"), reach=257, causal=causal, **term)
            assert (choose_backend(call).name == "far-and-near") == (keys == least)
