"""Adaptive input and output against loops written from the equations, and against torch's class where they coincide."""

import math

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from wordorder.networks import AdaptiveEmbedding, AdaptiveSoftmax, Decoder, initialise

V, C, CUTOFFS = 37, 12, (7, 16, 30)
EXACT = {"rtol": 0, "atol": 1e-12}
# divisor, width of the first cluster, biases
FORMS = [(1, None, True), (1, 8, True), (2, None, True), (2, 10, False), (1, None, False)]


def clusters():
    return list(zip((0, *CUTOFFS), (*CUTOFFS, V), strict=True))


def build_softmax(divisor=2, width=None, bias=True):
    head = AdaptiveSoftmax(C, V, cutoffs=CUTOFFS, divisor=divisor, width=width, bias=bias).double()
    for parameter in head.parameters():
        nn.init.normal_(parameter)
    return head


def build_embedding(divisor=2, width=None, **options):
    table = AdaptiveEmbedding(V, C, cutoffs=CUTOFFS, divisor=divisor, width=width, **options).double()
    for parameter in table.parameters():
        nn.init.normal_(parameter)
    return table


def rows_of(tables, index):
    """Weights and bias of a cluster's words."""
    start, end = clusters()[index]
    table = tables[index] if len(tables) > 1 else tables[0]
    bias = getattr(table, "bias", None)
    if len(tables) > 1:
        return table.weight, bias
    return table.weight[start:end], None if bias is None else bias[start:end]


def log_probability_from_paper(head, h, word):
    """Equation by equation, for one hidden state and one word; divides by sums of exponentials."""

    def logits(weight, bias, z):
        found = [sum(weight[r, c] * z[c] for c in range(len(z))) for r in range(len(weight))]
        return found if bias is None else [value + bias[r] for r, value in enumerate(found)]

    def narrow(index):
        if not head.projections:
            return h
        P = head.projections[index].weight
        return [sum(P[c, k] * h[c] for c in range(C)) for k in range(P.shape[1])]

    index = next(i for i, (start, end) in enumerate(clusters()) if start <= word < end)
    first = logits(*rows_of(head.tables, 0), narrow(0)) + logits(head.clusters.weight, head.clusters.bias, narrow(0))
    total = sum(value.exp() for value in first)
    if index == 0:
        return first[word] - total.log()
    within = logits(*rows_of(head.tables, index), narrow(index))
    chosen = within[word - clusters()[index][0]]
    return first[CUTOFFS[0] + index - 1] - total.log() + chosen - sum(value.exp() for value in within).log()


@pytest.mark.parametrize(("divisor", "width", "bias"), FORMS)
def test_likelihood_and_every_gradient_are_the_paper_s(divisor, width, bias):
    head = build_softmax(divisor, width, bias)
    h = (torch.randn(6, C, dtype=torch.float64) / 3).requires_grad_()
    words = torch.tensor([3, 36, 7, 15, 29, 0])
    ours = head.negative_log_likelihood(h, words)
    paper = -torch.stack([log_probability_from_paper(head, row, int(word)) for row, word in zip(h, words, strict=True)])
    assert_close(ours, paper, **EXACT)
    upstream, leaves = torch.randn_like(paper), [h, *head.parameters()]
    for a, b in zip(*(torch.autograd.grad(y, leaves, upstream) for y in (ours, paper)), strict=True):
        assert_close(a, b, rtol=0, atol=1e-12 * max(1.0, b.abs().max().item()))


@pytest.mark.parametrize(("divisor", "width", "bias"), FORMS)
def test_all_log_probabilities_are_a_distribution_and_those_of_the_loss(divisor, width, bias):
    head, h = build_softmax(divisor, width, bias), torch.randn(2, 5, C, dtype=torch.float64)
    whole = head(h)
    assert whole.shape == (2, 5, V)
    assert_close(whole.exp().sum(-1), torch.ones(2, 5, dtype=torch.float64), **EXACT)
    words = torch.arange(V)
    one = head.negative_log_likelihood(h[0, :1].expand(V, C), words)
    assert_close(-one, whole[0, 0], **EXACT)


@pytest.mark.parametrize("divisor", [2, 3])
def test_same_function_and_gradients_as_torch_s_where_both_can_be_built(divisor):
    cutoffs = CUTOFFS[: 3 if divisor == 2 else 2]  # a third division by 3 would leave nothing of 12 channels
    torch_s = nn.AdaptiveLogSoftmaxWithLoss(C, V, list(cutoffs), div_value=divisor, head_bias=False).double()
    head = AdaptiveSoftmax(C, V, cutoffs=cutoffs, divisor=divisor, bias=False).double()
    with torch.no_grad():
        head.projections[0].weight.copy_(torch.eye(C))
        head.tables[0].weight.copy_(torch_s.head.weight[: cutoffs[0]])
        head.clusters.weight.copy_(torch_s.head.weight[cutoffs[0] :])
        for index, (narrow, words) in enumerate(torch_s.tail, 1):
            head.projections[index].weight.copy_(narrow.weight.T)
            head.tables[index].weight.copy_(words.weight)
    h, words = torch.randn(40, C, dtype=torch.float64, requires_grad=True), torch.randint(V, (40,))
    assert_close(head(h), torch_s.log_prob(h), **EXACT)
    ours, theirs = head.negative_log_likelihood(h, words), -torch_s(h, words).output
    assert_close(ours, theirs, **EXACT)
    upstream = torch.randn_like(ours)
    mine = torch.autograd.grad(ours, [h, head.tables[2].weight, head.projections[1].weight], upstream)
    other = torch.autograd.grad(theirs, [h, torch_s.tail[1][1].weight, torch_s.tail[0][0].weight], upstream)
    for a, b in zip(mine, (other[0], other[1], other[2].T), strict=True):
        assert_close(a, b, **EXACT)


def test_a_cluster_without_labels_has_gradients_of_zero():
    head, h = build_softmax(), torch.randn(3, C, dtype=torch.float64)
    head.negative_log_likelihood(h, torch.tensor([1, 8, 9])).sum().backward()
    assert all(parameter.grad is not None for parameter in head.parameters())
    assert head.tables[1].weight.grad.abs().sum() > 0
    assert head.tables[3].weight.grad.abs().sum() == 0


def test_no_matrix_of_all_words_is_kept_for_the_backward_pass():
    head, sizes = build_softmax(divisor=1), []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: sizes.append(t.shape) or t, lambda t: t):
        head.negative_log_likelihood(torch.randn(50, C, dtype=torch.float64), torch.randint(7, (50,)))
    assert max(shape[-1] for shape in sizes if len(shape) > 1 and shape[0] == 50) <= max(CUTOFFS[0], C)


@pytest.mark.parametrize(("divisor", "width"), [(1, None), (1, 8), (2, None), (2, 10)])
def test_embedding_and_every_gradient_are_those_of_a_loop(divisor, width):
    table, ids = build_embedding(divisor, width), torch.tensor([[0, 6, 7, 15], [16, 29, 30, 36], [7, 7, 7, 0]])
    ours, rows = table(ids), []
    for word in ids.flatten().tolist():
        index = next(i for i, (start, end) in enumerate(clusters()) if start <= word < end)
        vector = rows_of(table.tables, index)[0][word - clusters()[index][0]]
        if table.projections:
            vector = table.projections[index if len(table.projections) > 1 else 0].weight @ vector
        rows.append(vector)
    paper = torch.stack(rows).view(3, 4, C)
    assert_close(ours, paper, **EXACT)
    upstream, leaves = torch.randn_like(paper), list(table.parameters())
    for a, b in zip(*(torch.autograd.grad(y, leaves, upstream) for y in (ours, paper)), strict=True):
        assert_close(a, b, **EXACT)


@pytest.mark.parametrize(("divisor", "width", "projections"), [
    (1, None, False), (1, 8, True), (1, 8, [False, True, True, True]), (2, None, [False, True, True, True]),
    (2, 10, True),
])  # fmt: skip
def test_ties_make_one_parameter_of_two(divisor, width, projections):
    table, head = build_embedding(divisor, width), build_softmax(divisor, width)
    head.tie(table, projections=projections)
    shared = {id(parameter) for parameter in table.parameters()} & {id(parameter) for parameter in head.parameters()}
    chosen = projections if isinstance(projections, list) else [projections] * 4
    assert all(head.tables[i].weight is tied.weight for i, tied in enumerate(table.tables))
    for index, tied in enumerate(chosen if head.projections else ()):
        of_words = table.projections[index if divisor > 1 else 0].weight
        assert (head.projections[index].weight is of_words) == tied
    assert len(shared) == len(table.tables) + (min(sum(chosen), len(table.projections)))
    ids = torch.randint(V, (9,))
    loss = head.negative_log_likelihood(table(ids[None])[0], ids).mean()
    loss.backward()
    paper = -torch.stack(
        [log_probability_from_paper(head, row, int(w)) for row, w in zip(table(ids[None])[0], ids, strict=True)]
    )
    assert_close(loss, paper.mean(), **EXACT)
    expected = torch.autograd.grad(paper.mean(), table.tables[0].weight)[0]
    assert_close(table.tables[0].weight.grad, expected, **EXACT)


@pytest.mark.parametrize("padding", [2, 20])
@pytest.mark.parametrize("divisor", [1, 2])
def test_padding_is_0_and_stays_0(divisor, padding):
    table = AdaptiveEmbedding(V, C, cutoffs=CUTOFFS, divisor=divisor, padding_idx=padding)
    initialise(table)
    ids = torch.tensor([[padding, 1, 21]])
    assert table(ids)[0, 0].abs().sum() == 0
    table(ids).pow(2).sum().backward()
    torch.optim.SGD(table.parameters(), lr=1.0).step()
    assert table(ids)[0, 0].abs().sum() == 0
    assert table(ids)[0, 1:].abs().min() > 0


def test_a_decoder_reads_what_stands_in_for_its_table_and_scales_it():
    table = AdaptiveEmbedding(V, C, cutoffs=CUTOFFS, divisor=2)
    sizes = {"width": C, "layers": 1, "heads": 2, "encoding": "rope", "dropout": 0.0}
    decoder = Decoder(V, embedding=table, embedding_scale=3.0, **sizes).double().eval()
    assert decoder.embedding is table
    ids = torch.randint(V, (2, 5))
    plain = Decoder(V, **sizes).double().eval()
    plain.load_state_dict({k: v for k, v in decoder.state_dict().items() if "embedding" not in k}, strict=False)
    scaled = plain(inputs_embeds=3.0 * table(ids)).hidden
    assert_close(decoder(ids).hidden, scaled, **EXACT)
    assert_close(decoder(inputs_embeds=table(ids)).hidden, scaled, **EXACT)


def test_half_precision_adds_up_in_float32():
    head, h = build_softmax().bfloat16(), torch.randn(8, C).bfloat16()
    words = torch.randint(V, (8,))
    assert head.negative_log_likelihood(h, words).dtype == torch.float32
    assert_close(head(h).exp().sum(-1), torch.ones(8), rtol=0, atol=1e-5)


@pytest.mark.parametrize(("arguments", "said"), [
    ({"cutoffs": ()}, "at least one id"),
    ({"cutoffs": (7, 7)}, "must grow"),
    ({"cutoffs": (7, 37)}, "1 .. 36"),
    ({"cutoffs": (0,)}, "must grow"),
    ({"cutoffs": (7, 16, 30), "divisor": 4}, "leaves no channel to cluster 3"),
    ({"cutoffs": (7,), "divisor": 0}, "divisor must be positive"),
    ({"cutoffs": (7,), "width": -1}, "width must be positive"),
])  # fmt: skip
def test_sizes_out_of_range_are_named(arguments, said):
    for make in (lambda: AdaptiveEmbedding(V, C, **arguments), lambda: AdaptiveSoftmax(C, V, **arguments)):
        with pytest.raises(ValueError, match=said):
            make()


def test_wrong_ties_and_labels_are_named():
    with pytest.raises(ValueError, match="the embedding's clusters"):
        build_softmax(2).tie(build_embedding(1))
    with pytest.raises(ValueError, match="none to tie"):
        build_softmax(1).ties(projections=True)
    with pytest.raises(ValueError, match="each of 4 clusters"):
        build_softmax(2).ties(projections=[True])
    with pytest.raises(ValueError, match="one for each row"):
        build_softmax().negative_log_likelihood(torch.zeros(3, C, dtype=torch.float64), torch.zeros(2).long())


def test_uniform_words_cost_what_the_entropy_says():
    head = build_softmax(bias=False)
    for parameter in head.parameters():
        nn.init.zeros_(parameter)
    found = head.negative_log_likelihood(torch.zeros(2, C, dtype=torch.float64), torch.tensor([0, 20]))
    expected = torch.tensor([math.log(7 + 3), math.log(7 + 3) + math.log(14)], dtype=torch.float64)
    assert_close(found, expected, **EXACT)
