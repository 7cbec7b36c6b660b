from unittest.mock import patch

import pytest
import torch
from encoder_from_paper import encode
from torch.testing import assert_close

from wordorder import Encoder
from wordorder.encodings import CATALOG, Composition
from wordorder.networks import initialise
from wordorder.ops import Contiguous, Packed

DEFINED = [name for name, kind in CATALOG.items() if "encoder" not in kind.refused_in]
NAMES = [*DEFINED, "learned+t5", "rope+tupe-a"]


def build(encoding, *, dtype=torch.float64, layers=2, std=0.2, **options):
    settings = {
        "width": 24,
        "layers": layers,
        "heads": 4,
        "max_positions": 160,
        "dropout": 0.0,
        "attention_dropout": 0.0,
    }
    encoder = Encoder(40, encoding=encoding, **{**settings, **options})
    initialise(encoder, seed=5, std=std)
    for parameter in encoder.parameters():
        parameter.data += 0.05 * torch.randn(
            parameter.shape, generator=torch.Generator().manual_seed(parameter.numel())
        )
    return encoder.to(dtype)


def padded(texts, side, pad=0):
    longest = max(len(text) for text in texts)
    ids, valid = torch.full((len(texts), longest), pad), torch.zeros(len(texts), longest, dtype=torch.bool)
    for b, text in enumerate(texts):
        where = slice(0, len(text)) if side == "right" else slice(longest - len(text), longest)
        ids[b, where], valid[b, where] = text, True
    offset = valid.int().argmax(1)
    return ids, valid, (Contiguous(longest) if side == "right" else Contiguous(longest, -offset))


@pytest.mark.parametrize("length", [1, 2, 19, pytest.param(160, marks=pytest.mark.slow)])
@pytest.mark.parametrize(("norm", "placement"), [("layer", "post"), ("layer", "pre"), ("rms", "pre"), ("rms", "post")])
@pytest.mark.parametrize(("encoding", "reset"), [("tupe-a", None), ("tupe-r", "paper"), ("tupe-r", "reference-code")])
def test_tupe_encoder_and_every_gradient_match_the_equations(encoding, reset, norm, placement, length):
    options = {"cls": "position-0", **({"reset": reset} if reset else {})}
    encoder = build(encoding, norm=norm, norm_placement=placement, encoding_options=options)
    texts = [torch.randint(1, 40, (length,)), torch.randint(1, 40, (max(1, length - 5),))]
    weights = dict(encoder.named_parameters())
    settings = {"heads": 4, "layers": 2, "norm": norm, "placement": placement, "reset": reset}
    paper = torch.cat([encode(weights, text, **settings) for text in texts])
    upstream = torch.randn_like(paper)
    wanted = torch.autograd.grad(paper, weights.values(), upstream, allow_unused=True)
    for side in ("left", "right"):
        ids, valid, positions = padded(texts, side)
        ours = encoder(ids, positions, key_padding_mask=~valid).hidden[valid]
        assert_close(ours, paper, rtol=1e-12, atol=1e-12, msg=lambda text, side=side: f"{side}: {text}")
        found = torch.autograd.grad(ours, weights.values(), upstream, allow_unused=True)
        for name, ours_grad, paper_grad in zip(weights, found, wanted, strict=True):
            pair = [torch.zeros_like(weights[name]) if grad is None else grad for grad in (ours_grad, paper_grad)]
            place, largest = f"{name}, padded on the {side}", max(1.0, pair[1].abs().max().item())
            assert_close(*pair, rtol=0, atol=1e-12 * largest, msg=lambda text, place=place: f"{place}: {text}")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_shapes_and_dtypes(name, dtype):
    encoder = build(name, dtype=dtype, std=0.02)
    for length in (1, 63):
        hidden = encoder(torch.randint(40, (2, length))).hidden
        assert hidden.shape == (2, length, 24)
        assert hidden.dtype == dtype
        assert hidden.isfinite().all()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("length", [1, 2, 63])
def test_fast_backend_equals_the_reference_with_every_gradient(name, dtype, length):
    encoder = build(name, dtype=dtype)
    ids = torch.randint(1, 40, (3, length))
    valid = torch.ones(3, length, dtype=torch.bool)
    valid[1, length // 2 + 1 :] = False
    fast, slow = (encoder(ids, key_padding_mask=~valid, backend=backend).hidden for backend in (None, "reference"))
    bound = {torch.float64: 1e-12, torch.float32: 1e-5}[dtype]
    assert_close(fast[valid], slow[valid], rtol=bound, atol=bound)
    upstream = torch.randn_like(fast) * valid[..., None]
    grads = [torch.autograd.grad(y, list(encoder.parameters()), upstream, allow_unused=True) for y in (fast, slow)]
    for ours, reference in zip(*grads, strict=True):
        if reference is not None:
            assert_close(ours, reference, rtol=0, atol=bound * max(1.0, reference.abs().max().item()))


@pytest.mark.parametrize("name", NAMES)
def test_left_padding_equals_right_padding(name):
    encoder = build(name)
    texts = [torch.randint(1, 40, (length,)) for length in (9, 4, 1)]
    outputs = []
    for side in ("left", "right"):
        ids, valid, positions = padded(texts, side)
        outputs.append(encoder(ids, positions, key_padding_mask=~valid).hidden[valid])
    assert_close(*outputs, rtol=1e-10, atol=1e-10)
    alone = torch.cat([encoder(text[None]).hidden[0] for text in texts])
    assert_close(outputs[0], alone, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", NAMES)
def test_packed_equals_separate(name):
    encoder = build(name)
    texts = [torch.randint(1, 40, (length,)) for length in (7, 1, 12)]
    position = torch.cat([torch.arange(len(text)) for text in texts])[None]
    sequence = torch.cat([torch.full((len(text),), i) for i, text in enumerate(texts)])[None]
    packed = encoder(torch.cat(texts)[None], Packed(position, sequence)).hidden[0]
    separate = torch.cat([encoder(text[None]).hidden[0] for text in texts])
    assert_close(packed, separate, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", NAMES)
def test_order_matters_unless_there_is_no_encoding(name):
    encoder, ids = build(name, std=0.5), torch.randperm(39)[None, :12] + 1  # all different
    swapped = ids[:, torch.tensor([0, 1, 2, 3, 9, 5, 6, 7, 8, 4, 10, 11])]
    first = [encoder(x).hidden[0, 0] for x in (ids, swapped)]
    assert torch.allclose(*first, rtol=1e-9, atol=1e-9) == (name in ("none", "softmax-sink", "complex-vanilla"))


@pytest.mark.parametrize(
    "name",
    [
        *("rope", "shaw", "t5", "alibi", "rope+shaw", "rope+t5", "alibi+shaw", "rope-yarn"),
        *("transformer-xl", "kerple", "kerple-power", "sandwich"),
    ],
)
def test_relative_encodings_and_their_compositions_know_distance_alone(name):
    encoder, ids = build(name), torch.randint(40, (2, 11))
    here, there = (encoder(ids, Contiguous(11, offset)).hidden for offset in (0, 70))
    assert_close(here, there, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", NAMES)
def test_autocast_in_both_backends(name):
    encoder, ids = build(name, dtype=torch.float32), torch.randint(1, 40, (2, 11))
    valid = torch.ones(2, 11, dtype=torch.bool)
    valid[1, 6:] = False
    exact = encoder(ids, key_padding_mask=~valid).hidden
    for backend in (None, "reference"):
        with torch.autocast("cpu", torch.bfloat16):
            hidden = encoder(ids, key_padding_mask=~valid, backend=backend).hidden
            plan = encoder.plan(Contiguous(11), exact, key_padding_mask=~valid, backend=backend)
        if plan.layer(0).backend.name == "sdpa":
            assert plan.layer(0).prepared.mask_BHTS.dtype in (torch.bool, torch.bfloat16)
        assert_close(hidden[valid].float(), exact[valid], rtol=0, atol=0.1 * exact.abs().max().item())
        grads = torch.autograd.grad(hidden[valid].float().pow(2).sum(), list(encoder.parameters()), allow_unused=True)
        assert all(grad is None or (grad.dtype == torch.float32 and grad.isfinite().all()) for grad in grads)


@pytest.mark.filterwarnings("ignore:There is a performance drop:UserWarning")  # of vmap over attention
@pytest.mark.parametrize("name", ["rope", "complex-order", "complex-vanilla"])
def test_a_gradient_per_text_under_autocast(name):
    encoder, ids = build(name, dtype=torch.float32), torch.randint(1, 40, (3, 11))
    parameters = dict(encoder.named_parameters())
    upstream = torch.randn(11, 24)

    def loss(parameters, ids_T):
        return (torch.func.functional_call(encoder, parameters, (ids_T[None],)).hidden.float() * upstream).sum()

    with torch.autocast("cpu", torch.bfloat16):
        assert encoder.embed(ids, None, None)[0].dtype == torch.float32
        each = torch.func.vmap(torch.func.grad(loss), (None, 0))(parameters, ids)
        alone = torch.func.grad(loss)(parameters, ids[1])
    for parameter in (
        "embedding.waves.amplitude" if "complex" in name else "embedding.weight",
        "layers.0.feedforward.up.weight",
    ):
        grad = alone[parameter]
        assert_close(each[parameter][1], grad, rtol=0, atol=0.05 * grad.abs().max().item())


@pytest.mark.parametrize("name", NAMES)
def test_state_dict_round_trip(name):
    first, second = (
        build(name),
        Encoder(40, encoding=name, width=24, layers=2, heads=4, max_positions=160).double().eval(),
    )
    assert not second.load_state_dict(first.state_dict()).missing_keys
    ids = torch.randint(40, (2, 11))
    assert_close(second(ids).hidden, first(ids).hidden, rtol=0, atol=0)
    assert not list(first.buffers())  # what is not a parameter is computed: nothing to lose in a round trip


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("checkpointing", [False, True])
def test_order_is_prepared_once_per_forward(name, checkpointing):
    encoder = build(name, layers=3).train()
    encoder.gradient_checkpointing = checkpointing
    with patch.object(Composition, "terms", autospec=True, side_effect=Composition.terms) as calls:
        encoder(torch.randint(40, (2, 7))).hidden.sum().backward()
    assert calls.call_count == 1


@pytest.mark.parametrize("name", ["tupe-r", "t5", "shaw", "rope"])
def test_gradient_checkpointing_changes_nothing(name):
    encoder, ids = build(name).train(), torch.randint(40, (2, 7))
    grads = []
    for encoder.gradient_checkpointing in (False, True):
        grads.append(
            torch.autograd.grad(encoder(ids).hidden.pow(2).sum(), list(encoder.parameters()), allow_unused=True)
        )
    for plain, checkpointed in zip(*grads, strict=True):
        assert (plain is None) == (checkpointed is None)
        if plain is not None:
            assert_close(plain, checkpointed, rtol=0, atol=0)


@pytest.mark.parametrize("activation", ["gelu", "relu", "silu", "swiglu"])
@pytest.mark.parametrize("key_value_heads", [None, 2, 1])
def test_block_styles_train(activation, key_value_heads):
    encoder = build("rope", activation=activation, key_value_heads=key_value_heads, norm="rms", norm_placement="pre")
    encoder(torch.randint(40, (2, 7))).hidden.pow(2).sum().backward()
    assert all(parameter.grad is not None for parameter in encoder.parameters())


def test_hidden_states_and_attentions_on_request():
    encoder, ids = build("tupe-r"), torch.randint(40, (2, 7))
    output = encoder(ids, return_all_hidden=True, return_attentions=True)
    assert [h.shape for h in output.all_hidden] == [(2, 7, 24)] * 3
    assert_close(output.all_hidden[-1], output.hidden)
    assert_close(output.hidden, encoder(ids).hidden)
    for weights in output.attentions:
        assert_close(weights.sum(-1), torch.ones(2, 4, 7, dtype=torch.float64))


def test_padding_row_starts_at_zero():
    assert (Encoder(10, width=8, layers=1, heads=2, padding_idx=3).embedding.weight[3] == 0).all()


def test_weights_are_drawn_per_name_from_the_seed():
    first, second = (Encoder(40, encoding=name, width=24, layers=2, heads=4) for name in ("tupe-a", "tupe-r"))
    for encoder in (first, second):
        initialise(encoder, seed=7)
    shared = dict(second.named_parameters())
    assert set(dict(first.named_parameters())) <= set(shared)
    for name, parameter in first.named_parameters():
        assert torch.equal(parameter, shared[name]), name
    before = first.layers[0].attention.qkv.weight.clone()
    initialise(first, seed=8)
    assert not torch.equal(before, first.layers[0].attention.qkv.weight)
    assert abs(before.std().item() - 0.02) < 0.002


@pytest.mark.parametrize(
    ("build_wrong", "word"),
    [
        (lambda: Encoder(0), "vocabulary"),
        (lambda: Encoder(9, width=10, heads=4), "width"),
        (lambda: Encoder(9, layers=0), "layers"),
        (lambda: Encoder(9, encoding="tupe"), "did you mean 'tupe-"),
        (lambda: Encoder(9, encoding="t5", encoding_options={"bucket": 3}), "buckets"),
        (lambda: Encoder(9, norm="batch"), "norm"),
        (lambda: Encoder(9, norm_placement="middle"), "norm_placement"),
        (lambda: Encoder(9, activation="tanh"), "activation"),
        (lambda: Encoder(9, key_value_heads=3), "key_value_heads"),
        (lambda: Encoder(9, encoding="learned", max_positions=4)(torch.zeros(1, 5).long()), "max_positions=4"),
        (lambda: Encoder(9)(), "exactly one"),
        (lambda: Encoder(9)(torch.zeros(1, 5)), "integers"),
        (lambda: Encoder(9)(torch.zeros(5).long()), "integers"),
        (lambda: Encoder(9)(torch.full((1, 5), 9)), "0 .. 8, got 9"),
    ],
)
def test_wrong_arguments_are_named(build_wrong, word):
    with pytest.raises(ValueError, match=word):
        build_wrong()
