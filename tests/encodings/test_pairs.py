"""Every pair of names in the catalogue: what acts at different places adds up, or is refused with a reason."""

from itertools import combinations

import pytest
import torch
from torch.testing import assert_close

from wordorder.attention import Call, attend, plan_attention
from wordorder.encodings import (
    CATALOG,
    Composition,
    OnEmbeddings,
    OnQueriesAndKeys,
    ReplacesEmbedding,
    build_encoding,
)
from wordorder.ops import Contiguous, Mask

H, D, T = 2, 6, 7
SIZES = {"width": H * D, "heads": H, "layers": 2, "max_positions": 16, "vocabulary": 11}
PAIRS = list(combinations(CATALOG, 2))


def refusal(pair, use):
    """Why a pair cannot be built, in words that its error must hold; None where it can."""
    kinds = [CATALOG[name] for name in pair]
    both_move = all(issubclass(kind, OnQueriesAndKeys) for kind in kinds)
    for name, kind in zip(pair, kinds, strict=True):
        if use in kind.refused_in:
            return f"{name!r} is not defined for {use}"
        if both_move and "moved" in kind.refused_in:
            return f"{name!r} is not defined for layers with another encoding of queries and keys"
    if kinds[0].__module__ == kinds[1].__module__:
        return f"two variants of {kinds[0].__module__.rpartition('.')[2]}"
    if all(issubclass(kind, ReplacesEmbedding) for kind in kinds):
        return "only one encoding can replace the token embeddings"
    scales = [build_encoding(name, **SIZES, use=use).scales[0] for name in pair]
    return "different content scales" if len({*scales, D**-0.5}) > 2 else None


def built(pair, use):
    torch.manual_seed(3)
    encoding = build_encoding("+".join(pair), **SIZES, use=use).double()
    for parameter in encoding.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return encoding


@pytest.mark.parametrize("pair", PAIRS, ids="+".join)
def test_a_pair_is_the_sum_of_its_parts_or_refused(pair):
    """In an encoder; where it is refused there, in a decoder too."""
    for use in ("encoder", "decoder"):
        reason = refusal(pair, use)
        if reason is None:
            assert_sum_of_parts(pair, use)
            return
        with pytest.raises(ValueError, match=reason):
            built(pair, use)


def assert_sum_of_parts(pair, use):
    both = built(pair, use)
    alone = [Composition({key: part}, head_dim=D) for key, part in both.parts.items()]
    where = Contiguous(T)
    x = torch.randn(1, T, H * D, dtype=torch.float64)
    by_hand = x
    for one in alone:
        by_hand = one.embed(by_hand, where)
    assert_close(both.embed(x, where), by_hand, rtol=0, atol=0)

    q, k, v = torch.randn(3, 1, H, T, D, dtype=torch.float64)
    mask = Mask(where, where, high=0 if use == "decoder" else None)
    order = both.prepare(where, dtype=torch.float64).layer(1)
    orders = [one.prepare(where, dtype=torch.float64).layer(1) for one in alone]
    turned_q, turned_k, added = q, k, torch.zeros(1, H, T, T, dtype=torch.float64)
    for one in orders:
        turned_q, turned_k = one.move_queries(turned_q), one.move_keys(turned_k)
        if one.bias is not None:
            added = added + one.bias.dense()
        for term in one.content:  # of queries and keys as they are, at the scale of the pair
            bound = term.with_features(one.features(x), one.positions)
            added = added + bound.scores(q, k, order.scale, mask)
    assert order.scale == min(one.scale for one in orders)
    scores = order.scale * turned_q @ turned_k.transpose(-1, -2) + added
    hidden = torch.ones(T, T, dtype=torch.bool).triu(1) & (use == "decoder")
    scores = scores.masked_fill(hidden, -torch.inf)
    sinks = [sink.logit_LH[1] for one in alone for sink in one.prepare(where, dtype=torch.float64).layer(1).sinks]
    more = [logit_H[None, :, None, None].expand(1, H, T, 1) for logit_H in sinks]
    expected = torch.cat([scores, *more], -1).softmax(-1)[..., :T] @ v
    plan = plan_attention(order, mask, Call.of(q, k, v))
    assert_close(attend(q, k, v, plan, order.features(x))[0], expected, rtol=1e-10, atol=1e-10)


def test_the_pairs_are_many_and_most_can_be_built():
    kinds = [refusal(pair, "decoder") for pair in PAIRS]
    assert kinds.count(None) > 0.7 * len(PAIRS)
    assert any(issubclass(CATALOG[a], OnEmbeddings) and issubclass(CATALOG[b], ReplacesEmbedding) for a, b in PAIRS)
