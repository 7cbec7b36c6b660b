"""Relative logits against their equation in loops, and against transformers' own module."""

import pytest
import torch
from torch.testing import assert_close

from wordorder.encodings import RelativeLogits
from wordorder.ops import Arbitrary, Contiguous, DenseBias, Mask, RelativeBias

HEADS, WIDTH, LAYERS = 3, 10, 2


def built(**options):
    encoding = RelativeLogits(WIDTH, heads=HEADS, layers=LAYERS, **{"rank": 4, "max_distance": 5, **options}).double()
    for parameter in encoding.parameters():
        torch.nn.init.normal_(parameter, std=0.4)
    return encoding


def bias_of(encoding, x, layer, queries, keys, mask=None):
    """The bias of these queries on these keys; x holds the queries' tokens."""
    term = encoding(queries, keys).layer(layer)
    term = term.with_features(term.features(x), (queries, keys))
    q, k = x.new_zeros(len(x), HEADS, queries.length, 4), x.new_zeros(len(x), HEADS, keys.length, 4)
    vector, bias = term.as_bias(q, k, 0.5, mask, rotated=False)
    assert vector is None
    return bias


def from_equation(weights, x, layer, query_positions, key_positions, *, max_distance, bidirectional):
    """Entry by entry: r_i . P[i - j] where the bank has that distance, else 0."""
    maps, bank = weights[f"maps.{layer}.weight"], weights[f"profiles.{layer}.weight"]
    rank = bank.shape[1]
    rows = []
    for head in range(HEADS):
        for token, i in zip(x, query_positions, strict=True):
            mix = maps[head * rank : (head + 1) * rank] @ token
            for j in key_positions:
                inside = 0 <= i - j < max_distance or (bidirectional and abs(i - j) < max_distance)
                rows.append(mix @ bank[j - i + max_distance - 1] if inside else 0 * mix.sum())
    return torch.stack(rows).view(HEADS, len(query_positions), len(key_positions))


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("tokens", [1, 2, 11])
def test_bias_and_every_gradient_match_the_equation(tokens, bidirectional):
    encoding = built(bidirectional=bidirectional)
    x, layer = torch.randn(2, tokens, WIDTH, dtype=torch.float64, requires_grad=True), 1
    where, weights = Contiguous(tokens), dict(encoding.named_parameters())
    bias = bias_of(encoding, x, layer, where, where)
    assert type(bias) is RelativeBias
    order = list(range(tokens))
    how = {"max_distance": 5, "bidirectional": bidirectional}
    exact = torch.stack([from_equation(weights, text, layer, order, order, **how) for text in x])
    assert_close(bias.dense(), exact, rtol=0, atol=1e-12)
    upstream = torch.randn_like(exact)
    leaves = [x, *(weights[f"{name}.{layer}.weight"] for name in ("maps", "profiles"))]
    ours, reference = (torch.autograd.grad((y * upstream).sum(), leaves) for y in (bias.dense(), exact))
    assert_close(ours, reference, rtol=0, atol=1e-11)


@pytest.mark.parametrize("bidirectional", [False, True])
def test_queries_and_keys_anywhere(bidirectional):
    encoding, x = built(bidirectional=bidirectional), torch.randn(1, 9, WIDTH, dtype=torch.float64)
    weights, how = dict(encoding.named_parameters()), {"max_distance": 5, "bidirectional": bidirectional}
    cached = bias_of(encoding, x[:, 6:], 0, Contiguous(3, 6), Contiguous(9))
    expected = from_equation(weights, x[0, 6:], 0, [6, 7, 8], list(range(9)), **how)
    assert_close(cached.dense()[0], expected)
    order = torch.randperm(9)
    scattered = bias_of(encoding, x, 0, Arbitrary(order[None]), Arbitrary(order[None]))
    assert type(scattered) is DenseBias
    assert_close(scattered.dense()[0], from_equation(weights, x[0], 0, order.tolist(), order.tolist(), **how))


def test_under_a_causal_mask_only_what_is_seen_is_computed():
    encoding, x, where = built(bidirectional=True), torch.randn(1, 9, WIDTH, dtype=torch.float64), Contiguous(9)
    seen = bias_of(encoding, x, 0, where, where, Mask(where, where, high=0))
    assert seen.row_BHRD.shape[2] == 5  # of the nine distances that are seen, those that have a profile
    assert_close(seen.dense().tril(), bias_of(encoding, x, 0, where, where).dense().tril())


def test_it_is_the_module_of_transformers():
    inkling = pytest.importorskip("transformers.models.inkling.modeling_inkling")
    encoding, x, where = built(bidirectional=False), torch.randn(2, 12, WIDTH, dtype=torch.float64), Contiguous(12)
    theirs = inkling.InklingRelativeLogits(4, 5).double()
    # their column is the distance i - j; ours count from the furthest
    theirs.proj.data = encoding.profiles[1].weight.flip(0).T
    states = encoding.maps[1](x).unflatten(-1, (HEADS, 4))
    expected = theirs(states, torch.arange(12), torch.arange(12))
    assert_close(bias_of(encoding, x, 1, where, where).dense(), expected)


def test_profiles_of_zero_leave_a_network_as_it_is():
    encoding, x, where = built(), torch.randn(1, 6, WIDTH, dtype=torch.float64), Contiguous(6)
    for parameter in encoding.zero_init_parameters():
        torch.nn.init.zeros_(parameter)
    bias = bias_of(encoding, x, 0, where, where).dense()
    assert (bias == 0).all()
    (gradient,) = torch.autograd.grad(bias.sum(), encoding.profiles[0].weight)
    assert gradient.abs().sum() > 0


@pytest.mark.parametrize("name", ["width", "heads", "layers", "rank", "max_distance"])
def test_sizes_out_of_range_are_named(name):
    sizes = {"width": 8, "heads": 2, "layers": 1, name: 0}
    with pytest.raises(ValueError, match=f"{name} must be positive, got 0"):
        RelativeLogits(**sizes)
