import sys
from pathlib import Path

import pytest
import torch
from torch.testing import assert_close

from wordorder import Encoder
from wordorder.inspection import toeplitz_share
from wordorder.models import build_config, build_model
from wordorder.ops import Contiguous

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "evidence" / "publish"))
from parts import keep_part, worth_of_parts

N = 9


def encoder(encoding, **options):
    torch.manual_seed(4)
    model = Encoder(40, width=16, layers=2, heads=2, max_positions=16, encoding=encoding, encoding_options=options)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.4)
    return model.eval()


def bias_of(model, part=None):
    """What attention adds, (H, N, N), with the whole of the map or a part."""
    if part is None:
        return model.encoding.prepare(Contiguous(N)).layer(0).bias.dense()[0].detach()
    with keep_part(part):
        return model.encoding.prepare(Contiguous(N)).layer(0).bias.dense()[0]


@pytest.mark.parametrize(
    ("encoding", "options", "first"),
    [("tupe-a", {"cls": "position-0"}, 1), ("tupe-r", {"cls": "position-0"}, 1), ("tupe-a", {}, 0)],
)
def test_the_parts_are_toeplitz_and_rest_and_make_up_the_whole(encoding, options, first):
    model = encoder(encoding, **options)
    whole, *parts = (bias_of(model, part) for part in (None, "toeplitz", "rest", "nothing"))
    for part in parts:
        if first:  # the reset of [CLS] stays
            assert_close(part[:, 0], whole[:, 0], rtol=0, atol=0)
            assert_close(part[:, :, 0], whole[:, :, 0], rtol=0, atol=0)
    inner, toeplitz, rest, nothing = (x[:, first:, first:] for x in (whole, *parts))
    for part in (toeplitz, rest, nothing):
        assert_close(part.mean(-1), inner.mean(-1), rtol=0, atol=1e-5)
    assert 0.01 < toeplitz_share(inner).share < 0.99
    assert toeplitz_share(toeplitz).share == pytest.approx(1, abs=1e-9)
    assert toeplitz_share(rest).share == pytest.approx(0, abs=1e-9)
    assert_close(nothing, nothing[..., :1].expand_as(nothing), rtol=0, atol=0)
    assert_close(toeplitz + rest - nothing, inner, rtol=0, atol=1e-5)


@torch.no_grad()
def test_a_relative_term_is_all_toeplitz():
    model, ids = encoder("t5"), torch.randint(40, (3, N))
    whole = model(ids).hidden
    outputs = {}
    for part in ("toeplitz", "rest", "nothing"):
        with keep_part(part):
            outputs[part] = model(ids).hidden
    assert_close(outputs["toeplitz"], whole, rtol=0, atol=1e-5)
    assert_close(outputs["rest"], outputs["nothing"], rtol=0, atol=1e-5)
    assert (outputs["rest"] - whole).abs().max() > 1e-2


@torch.no_grad()
def test_padded_batches_of_a_hugging_face_model_work():
    config = build_config(
        "encoder", vocab_size=40, hidden_size=16, num_hidden_layers=1, encoding="tupe-r", initializer_range=0.5
    )
    model = build_model(config, "masked-lm", seed=0).eval()
    ids, mask = torch.randint(40, (2, N)), torch.ones(2, N)
    mask[1, :4] = 0
    whole = model(ids, attention_mask=mask).logits
    with keep_part("toeplitz"):
        kept = model(ids, attention_mask=mask).logits
    assert 1e-3 < (kept - whole)[mask.bool()].abs().max() < torch.inf


def test_afterwards_everything_is_as_it_was():
    model = encoder("tupe-a")
    before = bias_of(model)
    bias_of(model, "rest")
    assert_close(bias_of(model), before, rtol=0, atol=0)
    with pytest.raises(RuntimeError, match="on purpose"), keep_part("rest"):
        raise RuntimeError("on purpose")
    assert_close(bias_of(model), before, rtol=0, atol=0)
    assert model.encoding.prepare(Contiguous(N)).layer(0).bias.requires_grad


@pytest.mark.parametrize("size", [1, 2])
def test_one_or_two_tokens_have_no_parts_but_work(size):
    model = encoder("tupe-a")
    for part in ("toeplitz", "rest", "nothing"):
        with keep_part(part):
            assert model(torch.zeros(1, size, dtype=torch.long)).hidden.isfinite().all()


def test_models_without_a_map_are_left_alone():
    model, ids = encoder("learned"), torch.randint(40, (2, N))
    before = model(ids).hidden
    with keep_part("nothing"):
        assert_close(model(ids).hidden, before, rtol=0, atol=0)


def test_unknown_parts_and_irregular_positions_are_refused():
    with pytest.raises(ValueError, match="part must be one of toeplitz, rest, nothing, got 'half'"), keep_part("half"):
        pass
    model = encoder("tupe-a")
    for positions in (torch.arange(N), Contiguous(N, 1), Contiguous(N, torch.zeros(2, dtype=torch.long))):
        with keep_part("rest"), pytest.raises(ValueError, match=r"positions 0 \.\. N - 1 only, got"):
            model(torch.zeros(2, N, dtype=torch.long), positions)


def test_worth_is_the_score_with_the_whole_and_with_each_part():
    model = encoder("tupe-a")

    def score():
        return {"sum": float(model.encoding.prepare(Contiguous(N)).layer(0).bias.dense()[0].detach().abs().sum())}

    worth = worth_of_parts(score)
    assert list(worth) == ["whole", "toeplitz", "rest", "nothing"]
    assert worth["whole"]["sum"] == pytest.approx(float(bias_of(model).abs().sum()))
    for part in ("toeplitz", "rest", "nothing"):
        assert worth[part]["sum"] == pytest.approx(float(bias_of(model, part).abs().sum()))
