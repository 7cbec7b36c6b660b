"""Batches of texts of several lengths, padded in several ways, for the tests of text networks."""

import torch

from wordorder.ops import Contiguous


def padded(texts, side, value=0):
    """Texts (n,) as token ids (B, T), valid (B, T) and positions, with ``value`` as padding."""
    longest = max(1, *(len(text) for text in texts))
    ids, valid = torch.full((len(texts), longest), value), torch.zeros(len(texts), longest, dtype=torch.bool)
    for b, text in enumerate(texts):
        where = slice(0, len(text)) if side == "right" else slice(longest - len(text), longest)
        ids[b, where], valid[b, where] = text, True
    first = valid.int().argmax(1)
    return ids, valid, (Contiguous(longest) if side == "right" else Contiguous(longest, -first))


def texts_of(*lengths, vocabulary=30):
    return [torch.randint(1, vocabulary, (length,)) for length in lengths]


def assert_same_with_gradients(ours, paper, parameters, tolerance=1e-12):
    """Outputs and the gradients of every parameter agree, against a random upstream."""
    from torch.testing import assert_close

    assert_close(ours, paper, rtol=tolerance, atol=tolerance)
    upstream = torch.randn_like(paper)
    pairs = [torch.autograd.grad(y, list(parameters.values()), upstream, allow_unused=True) for y in (ours, paper)]
    for name, mine, theirs in zip(parameters, *pairs, strict=True):
        zeros = torch.zeros_like(parameters[name])
        mine, theirs = (zeros if grad is None else grad for grad in (mine, theirs))
        assert_close(mine, theirs, rtol=tolerance, atol=tolerance, msg=lambda text, name=name: f"{name}: {text}")
