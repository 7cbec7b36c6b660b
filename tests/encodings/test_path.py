"""PaTH against its equation in loops, and what it promises: padding, packing, reflections, PaTH-FoX."""

import math

import pytest
import torch
from torch.testing import assert_close

import wordorder
from wordorder.attention import Call, attend, plan_attention
from wordorder.encodings import CATALOG, Composition, Fox, OnScoresByInput, PaTH, TokenFeatures, path
from wordorder.ops import Arbitrary, Contiguous, DenseBias, Mask, Packed

HEADS, D, WIDTH, LAYERS, RANK, SCALE = 2, 5, 7, 2, 3, 0.3


@pytest.fixture(params=[4, 64], ids=["many chunks", "one chunk"])
def chunk(request, monkeypatch):
    monkeypatch.setattr(path, "CHUNK", request.param)


def built(*, std=0.6, **options):
    encoding = PaTH(WIDTH, heads=HEADS, head_dim=D, layers=LAYERS, rank=RANK, **options).double()
    for parameter in encoding.parameters():
        torch.nn.init.normal_(parameter, std=std)
    return encoding


def inputs(tokens, batch=2, **options):
    """x, then q and k, float64."""
    return (
        torch.randn(batch, tokens, WIDTH, dtype=torch.float64, **options),
        *(torch.randn(batch, HEADS, tokens, D, dtype=torch.float64, **options) for _ in "qk"),
    )


def term_of(encoding, x, q, k, *, layer=0, queries=None, keys=None, mask=None):
    """What is added to the scaled products of q and k; x is the input of all keys."""
    keys = Contiguous(x.shape[1]) if keys is None else keys
    queries = keys if queries is None else queries
    term = encoding(queries, keys).layer(layer)
    term = term.with_features(term.features(x), (queries, keys))
    vector, bias = term.as_bias(q, k, SCALE, mask, rotated=False)
    assert vector is None
    assert type(bias) is DenseBias
    assert not bias.may_hide
    return bias.dense()


def term_with(w, logit, q, k):
    """The term of given features: directions of any length, and the argument of beta's sigmoid."""
    where = Contiguous(q.shape[2])
    features = TokenFeatures({}, {"directions": w, "beta_logits": logit})
    term = PaTH(WIDTH, heads=HEADS, head_dim=D, layers=1)(where, where).with_features(features, (where, where))
    return term.as_bias(q, k, SCALE, None, rotated=False)[1].dense()


def scores_from_paper(weights, x, q, k, layer):
    """Scores of one text, number by number: the key goes through H of each token after it, up to the query's own."""
    down, up, u, b = (
        weights[f"{name}.{layer}.{part}"]
        for name, part in (
            ("directions", "0.weight"),
            ("directions", "1.weight"),
            ("betas", "weight"),
            ("betas", "bias"),
        )
    )

    def direction(head, token):
        low = [sum(down[r, c] * x[token, c] for c in range(WIDTH)) for r in range(RANK)]
        high = [sum(up[head * D + d, r] * low[r] for r in range(RANK)) for d in range(D)]
        length = sum(number**2 for number in high) ** 0.5
        return [number / length for number in high]

    def beta(head, token):
        return 2 / (1 + (-(sum(u[head, c] * x[token, c] for c in range(WIDTH)) + b[head])).exp())

    rows = []
    for head in range(HEADS):
        w = [direction(head, token) for token in range(len(x))]
        beta_of = [beta(head, token) for token in range(len(x))]
        for i in range(len(x)):
            for j in range(len(x)):
                if j > i:
                    rows.append(0 * x.sum())
                    continue
                key = list(k[head, j])
                for token in range(j + 1, i + 1):
                    length = sum(w[token][d] * key[d] for d in range(D))
                    key = [key[d] - beta_of[token] * w[token][d] * length for d in range(D)]
                rows.append(SCALE * sum(q[head, i, d] * key[d] for d in range(D)))
    return torch.stack(rows).view(HEADS, len(x), len(x))


def term_from_paper(weights, x, q, k, layer):
    scores = torch.stack([scores_from_paper(weights, *text, layer) for text in zip(x, q, k, strict=True)])
    return scores - (SCALE * q @ k.transpose(-1, -2)).tril()


def changed_by_loop(w, beta, q, k):
    """The same from w and beta, token by token in vectors, for long texts."""
    rows, moved = [], k[:, :, :0]
    for i in range(q.shape[2]):
        along = moved @ w[:, :, i, :, None]
        moved = torch.cat((moved - beta[:, :, i, None, None] * along * w[:, :, i, None], k[:, :, i : i + 1]), dim=2)
        row = (moved @ q[:, :, i, :, None])[..., 0] - (k[:, :, : i + 1] @ q[:, :, i, :, None])[..., 0]
        rows.append(torch.nn.functional.pad(row, (0, k.shape[2] - i - 1)))
    return SCALE * torch.stack(rows, 2)


@pytest.mark.usefixtures("chunk")
@pytest.mark.parametrize("from_zero", [False, True])
@pytest.mark.parametrize("tokens", [1, 2, 9])
def test_term_and_every_gradient_match_the_paper(tokens, from_zero):
    encoding, layer = built(from_zero=from_zero), 1
    x, q, k = inputs(tokens, requires_grad=True)
    weights = dict(encoding.named_parameters())
    term = term_of(encoding, x, q, k, layer=layer)
    paper = term_from_paper(weights, x, q, k, layer)
    if from_zero:
        paper = paper * weights["strength"][layer][:, None, None]
    assert_close(term, paper, rtol=0, atol=1e-13)
    upstream = torch.randn_like(paper)
    used = (f"directions.{layer}", f"betas.{layer}", "strength")
    leaves = {"x": x, "q": q, "k": k, **{name: weights[name] for name in weights if name.startswith(used)}}
    ours, reference = (
        torch.autograd.grad((y * upstream).sum(), list(leaves.values()), materialize_grads=True, allow_unused=True)
        for y in (term, paper)
    )
    for name, one, other in zip(leaves, ours, reference, strict=True):
        assert_close(one, other, rtol=0, atol=1e-12, msg=lambda text, name=name: f"{name}: {text}")
        assert tokens == 1 or one.abs().max() > 1e-3, name


@pytest.mark.parametrize("tokens", [64, 131])
def test_a_text_of_several_chunks_matches_a_loop_with_every_gradient(tokens):
    w, q, k = (torch.randn(1, HEADS, tokens, D, dtype=torch.float64, requires_grad=True) for _ in "wqk")
    logit = torch.randn(1, HEADS, tokens, 1, dtype=torch.float64, requires_grad=True)
    term = term_with(w, logit, q, k)
    loop = changed_by_loop(w / (w * w).sum(-1, keepdim=True).sqrt(), 2 / (1 + (-logit[..., 0]).exp()), q, k)
    assert_close(term, loop, rtol=0, atol=1e-12)
    upstream = torch.randn_like(loop)
    ours, reference = (torch.autograd.grad((y * upstream).sum(), (w, logit, q, k)) for y in (term, loop))
    assert_close(ours, reference, rtol=0, atol=1e-10)


@pytest.mark.usefixtures("chunk")
def test_some_queries_are_rows_of_the_whole():
    encoding, (x, q, k) = built(), inputs(9)
    whole = term_of(encoding, x, q, k)

    def rows(queries, first):
        return term_of(encoding, x, q[:, :, first : first + queries.length], k, queries=queries, keys=Contiguous(9))

    assert_close(rows(Contiguous(3, 6), 6), whole[:, :, 6:])  # the last ones, as with a cache
    assert_close(rows(Contiguous(1, 8), 8), whole[:, :, 8:])
    assert_close(rows(Contiguous(2, 4), 4), whole[:, :, 4:6])
    assert_close(rows(Contiguous(2, torch.tensor([4])), 4), whole[:, :, 4:6])  # a static cache has empty slots
    offset = torch.tensor([0, -3])  # padding on the left: columns are the same in all rows
    left = term_of(encoding, x, q[:, :, 6:], k, queries=Contiguous(3, offset + 6), keys=Contiguous(9, offset))
    assert_close(left, whole[:, :, 6:])
    each = torch.tensor([4, 2])
    of_rows = torch.stack([q[b, :, column : column + 2] for b, column in enumerate(each.tolist())])
    expected = torch.stack([whole[b, :, column : column + 2] for b, column in enumerate(each.tolist())])
    assert_close(term_of(encoding, x, of_rows, k, queries=Contiguous(2, each), keys=Contiguous(9)), expected)


@pytest.mark.usefixtures("chunk")
def test_tokens_in_any_order_are_multiplied_by_their_positions():
    encoding, (x, q, k) = built(), inputs(9)
    order = torch.stack([torch.randperm(9) for _ in x])
    moved = [tensor.gather(1, order[..., None].expand_as(tensor)) for tensor in (x,)]
    moved += [tensor.gather(2, order[:, None, :, None].expand_as(tensor)) for tensor in (q, k)]
    term, expected = term_of(encoding, *moved, keys=Arbitrary(order)), term_of(encoding, x, q, k)
    for row, columns in enumerate(order):
        assert_close(term[row], expected[row][:, columns][:, :, columns])


@pytest.mark.usefixtures("chunk")
@pytest.mark.parametrize("padding", [[0, 1, 2], [7, 8, 9], [0, 3, 6], [2, 3, 4]], ids=str)
def test_padding_multiplies_no_key(padding):
    encoding, (x, q, k) = built(), inputs(10)
    valid = torch.ones(10, dtype=torch.bool).index_fill(0, torch.tensor(padding), False)
    where = Contiguous(10)
    mask = Mask(where, where, high=0, tokens_BS=valid.expand(2, -1))
    term = term_of(encoding, x, q, k, mask=mask)
    alone = term_of(encoding, x[:, valid], q[:, :, valid], k[:, :, valid])
    assert_close(term[:, :, valid][..., valid], alone, rtol=0, atol=1e-13)


@pytest.mark.usefixtures("chunk")
def test_a_hidden_text_changes_nothing():
    encoding, (x, q, k) = built(), inputs(11, requires_grad=True)
    text = torch.tensor([0] * 5 + [1] * 6).expand(2, -1)
    packed = Packed(torch.tensor([*range(5), *range(6)]).expand(2, -1), text)
    term, second = term_of(encoding, x, q, k, keys=packed)[..., 5:, 5:], slice(5, None)
    assert_close(term, term_of(encoding, x[:, second], q[:, :, second], k[:, :, second]), rtol=0, atol=1e-13)
    gradients = torch.autograd.grad(term.sum(), (x, q, k))
    assert [
        gradient.flatten().any().item() for gradient in (gradients[0][:, :5], *(g[:, :, :5] for g in gradients[1:]))
    ] == [False] * 3
    other = [tensor.detach().clone() for tensor in (x, q, k)]
    for tensor, axis in zip(other, (1, 2, 2), strict=True):
        tensor.narrow(axis, 0, 5).mul_(-3.7)
    assert torch.equal(term_of(encoding, *other, keys=packed)[..., 5:, 5:], term)


def test_a_key_is_carried_along_by_swaps_of_channels():
    """With beta = 2 and w along e_a - e_b a token exchanges channels a and b: the cups and the ball of a shell game."""
    tokens, cups = 150, torch.eye(D, dtype=torch.float64)
    pairs = [(a, (a + step) % D) for a, step in torch.randint(1, D, (tokens, 2)).tolist()]
    w = torch.stack([cups[a] - cups[b] for a, b in pairs]).expand(D, HEADS, -1, -1)
    q, k = cups[:, None, None].expand(-1, HEADS, tokens, -1), cups[0].expand(D, HEADS, tokens, -1)
    term = term_with(w, torch.full((D, HEADS, tokens, 1), 60.0, dtype=torch.float64), q, k)
    scores = (SCALE * q @ k.transpose(-1, -2) + term)[:, 0, :, 0]  # of the first key, by cup and query
    ball, balls = 0, []
    for token, (a, b) in enumerate(pairs):
        ball = {a: b, b: a}.get(ball, ball) if token else ball
        balls.append(ball)
    assert_close(scores, SCALE * cups[balls].T, rtol=0, atol=1e-12)
    assert set(balls) == set(range(D))


@pytest.mark.parametrize(("logit", "shortest", "longest"), [(-800.0, 1, 1), (0.3, 0, 1), (60.0, 1, 1)])
def test_no_matrix_makes_a_key_longer_and_reflections_keep_its_length(logit, shortest, longest):
    w, k = torch.randn(2, D, HEADS, 90, D, dtype=torch.float64)
    w, k = w[:1].expand(D, -1, -1, -1), k[:1].expand(D, -1, -1, -1)
    q = torch.eye(D, dtype=torch.float64)[:, None, None].expand(-1, HEADS, 90, -1)  # each asks for one channel
    term = term_with(w, torch.full((D, HEADS, 90, 1), logit, dtype=torch.float64), q, k)
    moved = (SCALE * q @ k.transpose(-1, -2) + term)[:, :, 89] / SCALE
    shares = moved.square().sum(0).sqrt() / k[0].norm(dim=-1)
    assert shares[:, :89].min() >= shortest - 1e-12
    assert shares.max() <= longest + 1e-12
    assert term.any() == (logit > -800)


def test_path_and_fox_together_are_path_fox():
    """exp(score) times the product of the forget gates, as the paper writes PaTH-FoX."""
    encoding, fox, (x, q, k) = built(), Fox(WIDTH, heads=HEADS, layers=LAYERS).double(), inputs(9)
    torch.nn.init.normal_(fox.gates[1].weight)
    v, where = torch.randn(2, HEADS, 9, 3, dtype=torch.float64), Contiguous(9)
    terms = Composition({"path": encoding, "fox": fox}, head_dim=D).prepare(where, dtype=x.dtype).layer(1)
    plan = plan_attention(terms, Mask(where, where, high=0), Call.of(q, k, v))
    output = attend(q, k, v, plan, terms.features(x))[0]
    weights = dict(encoding.named_parameters())
    gates = fox.gates[1](x) + fox.first_bias
    for text in range(2):
        scores = scores_from_paper(weights, x[text], q[text], k[text], 1) * D**-0.5 / SCALE
        for head in range(HEADS):
            for i in range(9):
                parts = [
                    scores[head, i, j].exp() * gates[text, j + 1 : i + 1, head].sigmoid().prod() for j in range(i + 1)
                ]
                mixed = sum(part * v[text, head, j] for j, part in enumerate(parts)) / sum(parts)
                assert_close(output[text, head, i], mixed, rtol=0, atol=1e-12)


def test_beside_rotations_the_products_are_of_what_is_not_rotated():
    network = wordorder.Decoder(9, width=20, layers=1, heads=2, encoding="rope+path").double()
    terms, where = network.encoding.prepare(Contiguous(7), dtype=torch.float64).layer(0), Contiguous(7)
    x, (q, k, v) = torch.randn(1, 7, 20).double(), torch.randn(3, 1, 2, 7, 10).double()
    plan = plan_attention(terms, Mask(where, where, high=0), Call.of(q, k, v))
    (term,) = (term.with_features(terms.features(x), terms.positions) for term in terms.content)
    added = term.scores(q, k, terms.scale, None)
    scores = terms.scale * terms.move_queries(q) @ terms.move_keys(k).transpose(-1, -2) + added
    expected = scores.masked_fill(torch.ones(7, 7).triu(1).bool(), -math.inf).softmax(-1) @ v
    assert_close(attend(q, k, v, plan, terms.features(x))[0], expected)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("alike", [False, True])
def test_products_of_many_matrices_are_as_exact_as_float32(dtype, alike):
    """Each of S matrices takes a product of D numbers: at most S (D + 4) roundings of a key that never grows."""
    tokens = 700
    w, q, k = (torch.randn(1, HEADS, tokens, D).to(dtype) for _ in "wqk")
    logit = torch.randn(1, HEADS, tokens, 1).to(dtype)
    if alike:  # reflections along one direction, each of which undoes the last one
        w, logit = w[:, :, :1].expand_as(w), torch.full_like(logit, 30.0)
    term = term_with(w, logit, q, k)
    assert term.dtype == torch.float32
    w, logit, q, k = (tensor.double() for tensor in (w, logit, q, k))
    w = w / w.norm(dim=-1, keepdim=True)
    exact = changed_by_loop(w, 2 * logit[..., 0].sigmoid(), q, k)
    bound = tokens * (D + 4) * 2.0**-24 * SCALE * q.norm(dim=-1).max() * k.norm(dim=-1).max()
    assert_close(term.double(), exact, rtol=0, atol=bound.item())


def test_products_are_in_float32_under_autocast():
    encoding = PaTH(WIDTH, heads=HEADS, head_dim=D, layers=1).bfloat16()
    with torch.autocast("cpu", torch.bfloat16):
        term = term_of(encoding, *(tensor.bfloat16() for tensor in inputs(5)))
    assert term.dtype == torch.float32


def test_a_start_at_zero_can_be_learned_from():
    encoding = built(from_zero=True)
    (strength,) = encoding.zero_init_parameters()
    torch.nn.init.zeros_(strength)
    term = term_of(encoding, *inputs(9))
    assert (term == 0).all()
    (gradient,) = torch.autograd.grad(term.sum(), strength)
    assert (gradient[0] != 0).all()
    assert built().zero_init_parameters() == ()


@pytest.mark.parametrize("name", ["width", "heads", "head_dim", "layers", "rank"])
def test_sizes_out_of_range_are_named(name):
    sizes = {"width": 8, "heads": 2, "head_dim": 4, "layers": 1, name: 0}
    with pytest.raises(ValueError, match=f"{name} must be positive, got 0"):
        PaTH(**sizes)


def test_it_reads_the_layers_input_and_says_where_it_cannot():
    assert CATALOG["path"] is PaTH
    assert issubclass(PaTH, OnScoresByInput)
    assert {*PaTH.refused_in} == {"encoder", "cross-attention", "memory", "right"}
    with pytest.raises(ValueError, match="'path' is not defined for encoder: it multiplies a key by the matrices"):
        wordorder.Encoder(9, width=12, layers=1, heads=2, encoding="path")
    with pytest.raises(ValueError, match="'path' is not defined for memory: a slot would need the matrices"):
        wordorder.Decoder(9, width=12, layers=1, heads=2, encoding="path", memory=wordorder.SegmentRecurrence(4))
    text = wordorder.Decoder(9, width=12, layers=1, heads=2, encoding="path").encoding.prepare(Contiguous(5))
    q = torch.zeros(1, 2, 5, 6)
    for terms in (text.layer(0), PaTH(12, heads=2, head_dim=6, layers=1)):
        with pytest.raises(ValueError, match=r"wordorder\.Positional"):
            wordorder.attention(q, q, q, terms)
