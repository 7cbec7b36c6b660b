"""A sink is one more key of score s_h and value 0: every backend, every gradient."""

import copy
import math
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from torch.testing import assert_close

from wordorder import Decoder, Encoder
from wordorder.attention import Call, attend, plan_attention
from wordorder.attention.attend import attention_weights
from wordorder.encodings import Composition, SoftmaxSink
from wordorder.networks import KeyValueCache
from wordorder.ops import Contiguous, Mask

LAYERS, HEADS, DIM = 2, 3, 6
BACKENDS = ["reference", "kept-tiles", "recomputed-tiles"]


def slow(q, k, v, logit_H, visible, scale):
    """One query, one head, one key at a time: the softmax over the keys and one more of score s_h and value 0."""
    out = torch.zeros(*q.shape[:3], v.shape[-1], dtype=q.dtype)
    rows = []
    for b in range(q.shape[0]):
        for h in range(q.shape[1]):
            for i in range(q.shape[2]):
                seen = [j for j in range(k.shape[2]) if visible[b, i, j]]
                scores = [scale * (q[b, h, i] * k[b, h, j]).sum() for j in seen] + [logit_H[h]]
                weights = torch.softmax(torch.stack(scores), 0)[:-1]
                value = sum((w * v[b, h, j] for w, j in zip(weights, seen, strict=True)), torch.zeros_like(v[b, h, 0]))
                rows.append(value)
    return torch.stack(rows).view_as(out)


def masks(T):
    tokens = torch.ones(2, T, dtype=torch.bool)
    tokens[1, -2:] = False
    left = torch.ones(2, T, dtype=torch.bool)
    left[0, :3] = False
    where = Contiguous(T)
    return {
        "all": Mask(where, where),
        "causal": Mask(where, where, high=0),
        "padded": Mask(where, where, tokens_BS=tokens),
        "causal, padded on the left": Mask(where, where, high=0, tokens_BS=left),
    }


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("mask", list(masks(3)))
@pytest.mark.parametrize(("dtype", "bound"), [(torch.float64, 1e-12), (torch.float32, 1e-5)])
def test_output_and_every_gradient(backend, mask, dtype, bound):
    T = 7
    encoding = SoftmaxSink(heads=HEADS, layers=LAYERS).double()
    torch.nn.init.normal_(encoding.logits)
    made = [torch.randn(2, HEADS, T, DIM, dtype=torch.float64) for _ in range(3)]
    upstream, results = torch.randn(2, HEADS, T, DIM, dtype=torch.float64), []
    visible = masks(T)[mask].dense("cpu")
    visible = torch.ones(2, T, T) if visible is None else visible[:, 0].expand(2, T, T)
    for ours in (True, False):
        q, k, v = (x.to(dtype if ours else torch.float64).requires_grad_() for x in made)
        part = copy.deepcopy(encoding).to(q.dtype)
        if ours:
            terms = Composition({"sink": part}, head_dim=DIM).prepare(T, dtype=dtype).layer(1)
            out, _ = attend(q, k, v, plan_attention(terms, masks(T)[mask], Call.of(q, k, v), backend=backend))
        else:
            out = slow(q, k, v, part.logits[1], visible, 1 / math.sqrt(DIM))
        out.backward(upstream.to(out.dtype))
        results.append([x.double() for x in (out.detach(), q.grad, k.grad, v.grad, part.logits.grad)])
    for ours, exact in zip(*results, strict=True):
        assert_close(ours, exact, rtol=0, atol=bound * max(1, exact.abs().max().item()))
    assert not results[0][-1][0].any()  # the first layer's sinks were not asked


def test_it_is_the_sink_of_gpt_oss():
    from transformers.models.gpt_oss.modeling_gpt_oss import eager_attention_forward

    q, k, v = (torch.randn(2, HEADS, 7, DIM, dtype=torch.float64) for _ in range(3))
    part = SoftmaxSink(heads=HEADS, layers=1).double()
    torch.nn.init.normal_(part.logits)
    module = SimpleNamespace(num_key_value_groups=1, sinks=part.logits[0], training=False)
    hidden = torch.zeros(7, 7, dtype=torch.float64).masked_fill(torch.ones(7, 7).triu(1).bool(), -1e9)
    expected, weights = eager_attention_forward(module, q, k, v, hidden[None, None], scaling=0.3)
    terms = replace(Composition({"sink": part}, head_dim=DIM).prepare(7, dtype=torch.float64).layer(0), scale=0.3)
    plan = plan_attention(terms, masks(7)["causal"], Call.of(q, k, v))
    assert_close(attend(q, k, v, plan)[0].transpose(1, 2), expected, rtol=0, atol=1e-12)
    assert_close(attention_weights(q, k, plan), weights, rtol=0, atol=1e-12)


def test_attention_weights_leave_room_for_the_sink():
    encoder = Encoder(20, width=18, heads=3, layers=2, encoding="t5+softmax-sink", dropout=0.0).double().eval()
    torch.nn.init.normal_(encoder.encoding.parts["softmax_sink"].logits)
    ids = torch.arange(12).view(2, 6)
    attentions = encoder(ids, return_attentions=True).attentions
    plan = encoder.plan(Contiguous(6), encoder.embed(ids, None, None)[0])
    assert all((weights.sum(-1) < 1).all() for weights in attentions)
    q, k, v = (torch.randn(2, 3, 6, 6, dtype=torch.float64) for _ in range(3))
    assert_close(attention_weights(q, k, plan.layer(1)) @ v, attend(q, k, v, plan.layer(1))[0], rtol=0, atol=1e-12)


@pytest.mark.parametrize("encoding", ["rope+softmax-sink", "none,softmax-sink", "transformer-xl+softmax-sink@4"])
def test_a_cache_gives_what_the_whole_text_gives(encoding):
    decoder = Decoder(20, width=24, heads=2, layers=4, encoding=encoding).double().eval()
    for parameter in decoder.parameters():
        torch.nn.init.normal_(parameter, std=0.4)
    ids, cache = torch.arange(22).view(2, 11) % 20, KeyValueCache()
    steps = [decoder(ids[:, start:stop], cache=cache).hidden for start, stop in ((0, 4), (4, 5), (5, 9), (9, 11))]
    assert_close(torch.cat(steps, 1), decoder(ids).hidden, rtol=0, atol=1e-11)


@pytest.mark.parametrize(("options", "words"), [({"first_logit": math.inf}, "must be finite, got inf")])
def test_bad_options_are_refused(options, words):
    with pytest.raises(ValueError, match=words):
        SoftmaxSink(heads=2, layers=1, **options)
