"""DAPE against its equations, pair by pair, on every backend and with each of its biases."""

import math

import pytest
import torch
from attention_cases import (
    BACKENDS,
    MASKS,
    POSITIONS,
    assert_reads_alike_however_it_is_fed,
    hidden_in_segments,
    mask_case,
    positions_case,
    small_network,
)
from torch.testing import assert_close

from wordorder import Decoder, Encoder, LookAheadMemory, SegmentRecurrence
from wordorder.attention import attention
from wordorder.encodings import CATALOG, DAPE, Composition, OnScoresByContent
from wordorder.networks import initialise
from wordorder.ops import Contiguous, Mask

H, D, LAYERS, INNER = 3, 4, 2, 5
BASES = ["alibi", "kerple", "fire"]
SLOPES = [2.0**-4, 2.0**-8, 2.0**-2]
"""Of ALiBi for three heads: those for two, then the first one for four."""


def built(base="kerple", *, dtype=torch.float64, **options):
    encoding = DAPE(H, layers=LAYERS, base=base, inner=INNER, **options)
    for parameter in encoding.parameters():
        torch.nn.init.normal_(parameter, std=0.7)
    if base == "fire":
        torch.nn.init.constant_(encoding.base.c, -0.3)
        torch.nn.init.constant_(encoding.base.threshold, 0.01)
    return encoding.to(dtype)


def terms_of(encoding, query, key=None, layer=1, dtype=torch.float64):
    return Composition({"dape": encoding}, head_dim=D).prepare(query, key, dtype=dtype).layer(layer)


def tokens(T, S, dtype=torch.float64):
    return [torch.randn(2, H, n, D, dtype=dtype, requires_grad=True) for n in (T, S, S)]


def bias_from_paper(weights, base, head, i, j, *, bidirectional=True):
    """Press et al. 2022, Sec. 3; Chi et al. 2022, Sec. 4; Li et al. 2024, Sec. 3, mirrored for keys to the right."""
    if base == "alibi":
        return torch.tensor(-SLOPES[head] * abs(i - j), dtype=torch.float64)
    if base == "kerple":
        r1, r2 = (torch.log(1 + weights[f"base.raw_{r}"][head].exp()) for r in ("r1", "r2"))
        return -r1 * torch.log(1 + r2 * abs(i - j))
    c, longest = weights["base.c"][0].abs(), (512 * weights["base.threshold"][0]).abs()
    longest = torch.maximum(longest, torch.tensor(float(max(i, j)), dtype=torch.float64))
    share = torch.log(1 + c * abs(i - j)) / torch.log(1 + c * longest)
    share = -share if j > i and bidirectional else share
    neurons = zip(*(weights[f"base.{name}"] for name in ("inner_weight", "inner_bias")), strict=True)
    out = [max(weight * share + bias, 0 * share) for weight, bias in neurons]
    return sum(factor * number for factor, number in zip(weights["base.outer_weight"][head], out, strict=True))


def attention_from_paper(weights, base, layer, q, k, v, query_at, key_at, visible, **how):
    inner, inner_bias, outer = (weights[name][layer] for name in ("inner_weight", "inner_bias", "outer_weight"))
    nothing = sum(0 * weight.sum() for weight in (inner, inner_bias, outer))
    rows = []
    for b in range(len(q)):
        for i in range(q.shape[2]):
            seen, scores = [j for j in range(k.shape[2]) if visible(b, i, j)], []
            for j in seen:
                products = [q[b, h, i] @ k[b, h, j] / math.sqrt(D) for h in range(H)]
                at = int(query_at[b][i]), int(key_at[b][j])
                biases = [bias_from_paper(weights, base, h, *at, **how) for h in range(H)]
                hidden = []
                for m in range(INNER):
                    sum_m = inner[m] @ torch.stack(products + biases) + inner_bias[m]
                    hidden.append(sum_m if sum_m > 0 else 0.01 * sum_m)
                both = zip(products, biases, strict=True)
                scores.append([s + b + outer[h] @ torch.stack(hidden) for h, (s, b) in enumerate(both)])
            for h in range(H):
                rows.append(0 * (v[b, h, 0] + k[b].sum() + q[b].sum()) + nothing)
                if seen:
                    weight = torch.stack([of_heads[h] for of_heads in scores]).softmax(-1)
                    rows[-1] = sum((w * v[b, h, j] for w, j in zip(weight, seen, strict=True)), rows[-1])
    return torch.stack(rows).view(len(q), -1, H, D).transpose(1, 2)


def assert_equal(encoding, outputs, slow, leaves, *, bound=1e-12):
    """Compare the output of each backend, and every gradient, with those of the slow reference."""
    upstream, names = torch.randn_like(slow), ["output", "q", "k", "v", *dict(encoding.named_parameters())]
    leaves = [*leaves, *encoding.parameters()]
    how = {"allow_unused": True, "materialize_grads": True}  # where a query sees nothing
    expected = [slow, *torch.autograd.grad(slow, leaves, upstream, **how)]
    for name, y in outputs.items():
        found = [y, *torch.autograd.grad(y, leaves, upstream, **how)]
        for what, one, other in zip(names, found, expected, strict=True):
            limit = bound * max(1.0, other.abs().max().item())
            assert_close(
                one, other, rtol=0, atol=limit, msg=lambda text, name=name, what=what: f"{name} {what}: {text}"
            )


@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize("seen", MASKS)
@pytest.mark.parametrize(("T", "S"), [(1, 1), (1, 7), (7, 7), (3, 7)])
def test_output_and_every_gradient_match_the_paper(base, seen, T, S):
    encoding, leaves = built(base), tokens(T, S)
    query, key, mask, at, visible = mask_case(seen, T, S)
    ours = {backend: attention(*leaves, terms_of(encoding, query, key), mask, backend=backend) for backend in BACKENDS}
    slow = attention_from_paper(dict(encoding.named_parameters()), base, 1, *leaves, *at, visible)
    assert_equal(encoding, ours, slow, leaves)


@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize("kind", POSITIONS)
def test_positions_of_every_kind(base, kind):
    encoding, leaves = built(base, bidirectional=False), tokens(5, 5)
    query, key, at, visible = positions_case(kind)
    mask = Mask(query, key) if kind == "packed" else None
    ours = {"default": attention(*leaves, terms_of(encoding, query, key, layer=0), mask)}
    weights = dict(encoding.named_parameters())
    slow = attention_from_paper(weights, base, 0, *leaves, *at, visible, bidirectional=False)
    assert_equal(encoding, ours, slow, leaves)


@pytest.mark.parametrize("backend", ["triton", *BACKENDS])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_lower_precisions(dtype, backend, request):
    """The term is in float32; to 16 bits it is rounded once, as scores up to 16 are, and so is the output."""
    if backend == "triton":
        request.getfixturevalue("interpreter")
    if (dtype == torch.float16 and "tiles" in backend) or (dtype == torch.bfloat16 and backend == "triton"):
        pytest.skip("not of this backend")
    encoding, where = built(dtype=torch.float32), Contiguous(40)
    leaves = tokens(40, 40, dtype)
    wide, exact_leaves = built(), [x.detach().double().requires_grad_() for x in leaves]
    wide.load_state_dict(encoding.state_dict())
    mask, upstream, found = Mask(where, where, high=0), torch.randn(2, H, 40, D, dtype=torch.float64), []
    for kind, x in ((encoding, leaves), (wide, exact_leaves)):
        y = attention(*x, terms_of(kind, where, dtype=x[0].dtype), mask, backend=backend if kind is encoding else None)
        assert y.dtype == x[0].dtype
        found.append([y, *torch.autograd.grad(y, [*x, *kind.parameters()], upstream.to(y.dtype))])
    bound = 16 * torch.finfo(dtype).eps
    for one, exact in zip(*found, strict=True):
        assert (one.double() - exact).abs().max() <= bound * max(1.0, exact.abs().max().item())


def test_products_that_no_16_bits_hold_hide_no_gradient():
    """Hidden keys whose products are beyond float16's 65,504 send nothing back, and nothing that is not finite."""
    encoding, where, (q, k, v) = built(dtype=torch.float16), Contiguous(6), tokens(6, 6, torch.float16)
    with torch.no_grad():
        q.mul_(100)
        k[:, :, 5] = 2000.0
    valid = torch.ones(1, 6, dtype=torch.bool)
    valid[:, 5] = False
    output = attention(q, k, v, terms_of(encoding, where, dtype=q.dtype), Mask(where, where, tokens_BS=valid))
    gradients = torch.autograd.grad(output.sum(), [q, k, v, *encoding.parameters()])
    assert output.isfinite().all()
    assert all(gradient.isfinite().all() for gradient in gradients)
    assert (gradients[1][:, :, 5] == 0).all()


@pytest.mark.parametrize("moved", ["rope", "xpos", "untied-sum", "pope"])
def test_products_are_those_before_any_move(moved):
    network = small_network(Decoder, f"{moved}+dape")
    (term,) = network.encoding.prepare(Contiguous(7), dtype=torch.float64).layer(1).content
    (alone,) = Composition({"dape": network.encoding.parts["dape"]}, head_dim=6).prepare(Contiguous(7)).layer(1).content
    q, k = torch.randn(2, 1, 4, 7, 6, dtype=torch.float64)
    assert_close(term.scores(q, k, 0.4, None), alone.scores(q, k, 0.4, None), rtol=0, atol=0)


def test_heads_learn_from_each_other():
    """A score of one head depends on the products of the others: without the network it would not."""
    encoding, (q, k, _) = built(), tokens(3, 3)
    (term,) = terms_of(encoding, Contiguous(3)).content
    (gradient,) = torch.autograd.grad(term.scores(q, k, 0.5, None)[:, 0].sum(), q)
    assert (gradient[:, 1:].abs().amax((0, 2, 3)) > 0).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_networks_start_as_torchs_linear_layers_do(dtype):
    encoding = DAPE(12, layers=4)
    initialise(encoding, seed=0, std=0.5)
    for name, inputs in (("inner_weight", 24), ("inner_bias", 24), ("outer_weight", 32)):
        parameter, bound = encoding.get_parameter(name), inputs**-0.5
        assert 0.95 * bound < parameter.max() <= bound
        assert -bound <= parameter.min() < -0.95 * bound


def test_with_fire_it_can_start_at_0_and_be_learned_from_there():
    encoding, (q, k, _) = built("fire"), tokens(5, 5)
    for parameter in encoding.zero_init_parameters():
        torch.nn.init.zeros_(parameter)
    (term,) = terms_of(encoding, Contiguous(5), layer=0).content
    scores = term.scores(q, k, 0.5, None)
    assert (scores == 0).all()
    gradients = torch.autograd.grad((scores * torch.randn_like(scores)).sum(), encoding.zero_init_parameters())
    assert all((gradient != 0).any() for gradient in gradients)
    assert built("alibi").zero_init_parameters() == built("kerple").zero_init_parameters() == ()


def test_a_swapped_model_starts_as_it_was():
    transformers = pytest.importorskip("transformers")
    from wordorder.models import swap_encoding

    config = transformers.GPT2Config(vocab_size=20, n_positions=16, n_embd=24, n_layer=2, n_head=4)
    model = transformers.GPT2LMHeadModel(config).eval()
    ids = torch.randint(20, (2, 9))
    with torch.no_grad():
        before = model(ids).logits
    swap_encoding(model, "model+dape", options={"base": "fire"})
    assert_close(model(ids).logits, before, rtol=0, atol=1e-5)
    model(ids, labels=ids).loss.backward()
    weights = model.transformer.wordorder.encoding.parts["dape"].zero_init_parameters()
    assert all((weight.grad != 0).any() for weight in weights)


@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize("key_value_heads", [4, 1])
def test_grouped_queries_caches_padding_and_packing(base, key_value_heads):
    assert_reads_alike_however_it_is_fed(
        small_network(Decoder, "dape", {"base": base}, key_value_heads=key_value_heads)
    )


@pytest.mark.parametrize("base", BASES)
def test_memories(base):
    """One layer: slots hold what the tokens were, so that a text in segments is the text itself."""
    options, ids = {"base": base}, torch.randint(30, (2, 12))
    decoder = small_network(Decoder, "dape", options, layers=1, memory=SegmentRecurrence(40))
    assert_close(hidden_in_segments(decoder, ids, [5, 4, 3]), decoder(ids).hidden, rtol=1e-10, atol=1e-10)
    for kind in (Decoder, Encoder):
        looking = small_network(kind, "dape", options, layers=2, memory=LookAheadMemory(6))
        assert hidden_in_segments(looking, ids, [5, 4, 3]).isfinite().all()


def test_flex_refuses_it_with_the_remedy():
    q, k, v = (x.detach() for x in tokens(4, 4))
    assert issubclass(CATALOG["dape"], OnScoresByContent)
    with pytest.raises(ValueError, match="terms by content; take backend='reference' or None"):
        attention(q, k, v, terms_of(built(), Contiguous(4)), backend="flex")


@pytest.mark.parametrize(
    ("argument", "words"),
    [
        ({"heads": 0}, "heads must be positive, got 0"),
        ({"layers": -1}, "layers must be positive, got -1"),
        ({"inner": 0}, "inner must be positive, got 0"),
        ({"base": "t5"}, "base must be one of alibi, kerple, fire, got 't5'"),
    ],
)
def test_arguments_out_of_range_are_named(argument, words):
    with pytest.raises(ValueError, match=words):
        DAPE(**{"heads": H, "layers": 1, **argument})
