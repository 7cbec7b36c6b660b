"""Cases that tests of several encodings share: who sees whom, positions of every kind, a text read in several ways."""

import torch
from torch.testing import assert_close

from wordorder.networks import KeyValueCache, initialise
from wordorder.ops import Arbitrary, Contiguous, Mask, Packed

BACKENDS = ["reference", "sdpa", "kept-tiles", "recomputed-tiles"]
MASKS = ["causal", "ahead", "all", "padded"]
POSITIONS = ["packed", "arbitrary", "offsets", "same offsets"]


def mask_case(seen, T, S):
    """Positions of queries and keys, their Mask, both positions as tensors, and who sees whom pair by pair."""
    query, key = Contiguous(T, 4), Contiguous(S, 4 + T - S if seen == "causal" else 2)
    valid = torch.ones(2, S, dtype=torch.bool)
    valid[1, S // 2 :] = seen != "padded"
    low, high = {"causal": (None, 0), "ahead": (1, None)}.get(seen, (None, None))
    mask = Mask(query, key, low, high, valid if seen == "padded" else None)
    at = [positions.index_BT().expand(2, -1) for positions in (query, key)]
    visible = {
        "causal": lambda b, i, j: at[0][b, i] >= at[1][b, j],
        "ahead": lambda b, i, j: at[0][b, i] < at[1][b, j],
        "all": lambda b, i, j: True,
        "padded": lambda b, i, j: bool(valid[b, j]),
    }[seen]
    return query, key, mask, at, visible


def positions_case(kind):
    """Positions of five queries and five keys, both as tensors, and who sees whom pair by pair."""
    sequence = torch.tensor([[0, 0, 1, 1, 1], [0, 0, 0, 0, 1]])
    index, offsets = torch.tensor([[0, 1, 0, 1, 2], [0, 1, 2, 3, 0]]), torch.tensor([0, -2])
    query, key = {
        "packed": (Packed(index, sequence),) * 2,
        "arbitrary": (Arbitrary(torch.tensor([[3, 9, 0, 1, 20]])), Arbitrary(torch.tensor([[0, 1, 1, 7, 5]]))),
        "offsets": (Contiguous(5, offsets + 3), Contiguous(5, offsets.clone())),
        "same offsets": (Contiguous(5, offsets),) * 2,
        "far apart": (Arbitrary(torch.tensor([[0, 10, 50_000, 1, 2]])),) * 2,
    }[kind]
    at = [positions.index_BT().expand(2, -1) for positions in (query, key)]

    def visible(b, i, j):
        return kind != "packed" or bool(sequence[b, i] == sequence[b, j])

    return query, key, at, visible


def small_network(kind, encoding, options=None, **more):
    """A network of two narrow layers in float64 with large weights, so that positions matter."""
    sizes = {"width": 24, "layers": 2, "heads": 4, "max_positions": 40, "dropout": 0.0, "attention_dropout": 0.0}
    built = kind(30, encoding=encoding, encoding_options=options or {}, **{**sizes, **more})
    initialise(built, seed=1, std=0.3)
    return built.double().eval()


def assert_reads_alike_however_it_is_fed(decoder):
    """Token by token with a cache, padded on either side beside another text, packed with it: always as alone."""
    texts = [torch.randint(1, 30, (length,)) for length in (7, 4)]
    alone = [decoder(text[None]).hidden[0] for text in texts]
    cache = KeyValueCache()
    steps = [decoder(texts[0][None, t : t + 1], cache=cache).hidden[0] for t in range(7)]
    assert_close(torch.cat(steps), alone[0], rtol=1e-10, atol=1e-10)
    for side, own in (("left", slice(3, 7)), ("right", slice(0, 4))):
        ids, valid = torch.zeros(2, 7).long(), torch.ones(2, 7, dtype=torch.bool)
        valid[1] = False
        ids[0], ids[1, own], valid[1, own] = texts[0], texts[1], True
        where = Contiguous(7, torch.tensor([0, -3])) if side == "left" else Contiguous(7)
        found = decoder(ids, where, key_padding_mask=~valid).hidden[valid]
        assert_close(found, torch.cat(alone), rtol=1e-10, atol=1e-10)
    place = torch.cat([torch.arange(7), torch.arange(4)])[None]
    packed = decoder(torch.cat(texts)[None], Packed(place, torch.tensor([[0] * 7 + [1] * 4]))).hidden[0]
    assert_close(packed, torch.cat(alone), rtol=1e-10, atol=1e-10)


def hidden_in_segments(network, ids, cut, **options):
    """Hidden states of a text that is read segment by segment, with the memory carried on."""
    state, states = None, []
    for step in ids.split(cut, 1):
        output = network(step, memory=state, **options)
        state = output.memory
        states.append(output.hidden)
    return torch.cat(states, 1)
