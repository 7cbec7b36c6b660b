from itertools import product

import pytest
import torch
from torch.testing import assert_close
from tupe_from_paper import position_term

from wordorder.attention import attention
from wordorder.encodings import TUPE, TUPERelative, build_encoding
from wordorder.networks import initialise
from wordorder.ops import Arbitrary, Contiguous, LowRankBias, SumBias, ToeplitzBias

HEADS, WIDTH, LIMIT = 4, 24, 160


def build(reset, **options):
    options = {"cls": "position-0", **options}
    encoding = TUPE(WIDTH, heads=HEADS, max_positions=LIMIT, **options)
    if reset is not None:
        encoding = TUPERelative(WIDTH, heads=HEADS, max_positions=LIMIT, reset=reset, **options)
    initialise(encoding, seed=3, std=0.5)
    for parameter in encoding.parameters():  # biases and norms too, so that nothing hides behind a 0 or a 1
        parameter.data += 0.1 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(parameter.numel()))
    return encoding.double()


@pytest.mark.parametrize("reset", [None, "paper", "reference-code"])
@pytest.mark.parametrize("length", [1, 2, 63, pytest.param(160, marks=pytest.mark.slow)])
def test_bias_and_gradients_match_the_paper(reset, length):
    encoding = build(reset)
    weights = dict(encoding.named_parameters())
    ours = encoding(Contiguous(length), Contiguous(length)).dense()[0]
    paper = position_term(weights, HEADS, range(length), reset=reset)
    assert_close(ours, paper, rtol=1e-12, atol=1e-12)
    upstream = torch.randn_like(paper)
    grads = [torch.autograd.grad(y, weights.values(), upstream, allow_unused=True) for y in (ours, paper)]
    for name, ours_grad, paper_grad in zip(weights, *grads, strict=True):
        zeros = torch.zeros_like(weights[name])
        pair = [zeros if grad is None else grad for grad in (ours_grad, paper_grad)]
        assert_close(*pair, rtol=1e-12, atol=1e-12, msg=lambda text, name=name: f"{name}: {text}")


@pytest.mark.parametrize("reset", [None, "paper", "reference-code"])
def test_positions_of_any_kind_give_the_same_term(reset):
    encoding = build(reset)
    scattered = torch.tensor([[0, 7, 3, 3, 159], [12, 0, 0, 1, 2]])
    ours = encoding(Arbitrary(scattered), Arbitrary(scattered)).dense()
    for b in range(2):
        assert_close(
            ours[b], position_term(dict(encoding.named_parameters()), HEADS, scattered[b].tolist(), reset=reset)
        )
    offset = encoding(Contiguous(4, 5), Contiguous(4, 5)).dense()[0]
    assert_close(offset, position_term(dict(encoding.named_parameters()), HEADS, range(5, 9), reset=reset))
    rectangle = encoding(Contiguous(2, 3), Contiguous(7)).dense()[0]
    assert_close(rectangle, position_term(dict(encoding.named_parameters()), HEADS, range(7), reset=reset)[:, 3:5])


def test_the_term_describes_itself():
    a, r = build(None)(Contiguous(9), Contiguous(9)), build("paper")(Contiguous(9), Contiguous(9))
    assert isinstance(a, LowRankBias)
    assert a.query_factor_BHTR.shape == (1, HEADS, 9, WIDTH // HEADS + 2)
    assert isinstance(r, SumBias)
    assert [type(part) for part in r.parts()] == [LowRankBias, ToeplitzBias]


@pytest.mark.parametrize("reset", [None, "paper", "reference-code"])
def test_theta1_is_inert_under_softmax(reset):
    encoding = build(reset, theta="free")
    encoding.free_theta.data.copy_(torch.randn(2, HEADS))
    q, k, v = (torch.randn(2, HEADS, 9, WIDTH // HEADS, dtype=torch.float64) for _ in range(3))

    def output():
        from wordorder.encodings import Terms

        return attention(q, k, v, Terms(encoding.content_scale(WIDTH // HEADS), encoding(Contiguous(9), Contiguous(9))))

    before = output()
    gradient = torch.autograd.grad(before.pow(2).sum(), encoding.free_theta)[0]
    assert gradient[0].abs().max() < 1e-14
    assert gradient[1].abs().max() > 1e-4
    encoding.free_theta.data[0] += 3.7
    assert_close(output(), before, rtol=0, atol=1e-14)
    encoding.free_theta.data[1] += 3.7
    assert (output() - before).abs().max() > 1e-3


@pytest.mark.parametrize(
    ("reset", "options"),
    [
        *product([None, "paper", "reference-code"], [{}, {"theta": "free"}]),
        *product([None, "paper"], [{"cls": "none"}]),
    ],
)
def test_without_its_silent_parameters_the_term_is_zero(reset, options):
    encoding = build(reset, **options)
    silent = encoding.zero_init_parameters()
    with torch.no_grad():
        for parameter in silent:
            parameter.zero_()
    term = encoding(Contiguous(9), Contiguous(9)).dense()
    assert (term == 0).all()
    grads = torch.autograd.grad((term * torch.randn_like(term)).sum(), silent)
    assert all((grad != 0).any() for grad in grads)  # and can be learned from there


def test_tie_cls_treats_the_first_token_like_any_other():
    encoding = build("paper", cls="none")
    assert encoding.table.num_embeddings == LIMIT
    whole = encoding(Contiguous(8), Contiguous(8)).dense()
    weights = dict(encoding.named_parameters())
    untied = {**weights, "table.weight": torch.cat([weights["table.weight"][:1]] * 1 + [weights["table.weight"]])}
    paper = position_term(untied, HEADS, range(8), reset="paper")
    assert_close(whole[0, :, 1:, 1:], paper[:, 1:, 1:])
    p0 = position_term(
        {**untied, "table.weight": torch.cat([weights["table.weight"][:2], weights["table.weight"]])},
        HEADS,
        range(1, 9),
        reset="paper",
    )
    assert_close(whole[0], p0)  # shifted by one row, position 0 is an ordinary place


def test_scale_of_the_content_is_one_over_root_two_d():
    assert build_encoding("tupe-a", width=64, heads=4, layers=1, max_positions=8).scales[0] == pytest.approx(
        (2 * 16) ** -0.5
    )
    assert build_encoding("rope+tupe-a", width=64, heads=4, layers=1, max_positions=8).scales[0] == pytest.approx(
        32**-0.5
    )


def test_bert_base_adds_the_paper_s_parameters():
    parts = TUPERelative(768, heads=12, max_positions=512, cls="position-0", reset="reference-code").cost_parts()
    assert parts == {
        "projections": 1_181_184,
        "position table": 513 * 768,
        "norm": 1536,
        "relative table": 33 * 12,
    }
    assert TUPE(768, heads=12, max_positions=512, projection_bias=False).cost_parts()["projections"] == 2 * 768 * 768


def test_only_the_reference_code_s_reset_has_the_extra_row():
    assert not hasattr(build("paper"), "others_to_cls")
    assert build("reference-code").others_to_cls.shape == (1, HEADS)


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ({"width": 10}, "width"),
        ({"max_positions": 0}, "max_positions"),
        ({"cls": "first"}, "cls"),
        ({"theta": "rows"}, "theta"),
        ({"reset": "code"}, "reset"),
        ({"cls": "position-0", "reset": "reference-code", "bidirectional": False}, "bidirectional"),
        ({"reset": "reference-code"}, "cls='position-0'"),
    ],
)
def test_wrong_arguments_are_named(arguments, word):
    given = {"width": 8, "heads": 4, "max_positions": 8, **arguments}
    with pytest.raises(ValueError, match=word):
        TUPERelative(given.pop("width"), **given)


def test_cross_attention_is_refused_with_the_reason():
    with pytest.raises(ValueError, match=r"cross-attention.*no common axis"):
        build_encoding("tupe-r", width=8, heads=2, layers=1, max_positions=8, use="cross-attention")
    assert (
        build_encoding("tupe-r", width=8, heads=2, layers=1, max_positions=8, use="decoder").parts["tupe"].cls == "none"
    )
