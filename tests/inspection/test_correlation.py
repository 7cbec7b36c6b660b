import pytest
import torch
from torch.testing import assert_close

from wordorder import Encoder
from wordorder.inspection import position_correlation, score_maps
from wordorder.models import build_config, build_model
from wordorder.ops import Contiguous

N = 9


def encoder(encoding: str, **options) -> Encoder:
    """A tiny encoder whose weights are large enough to tell terms apart."""
    torch.manual_seed(1)
    made = Encoder(
        50,
        width=32,
        layers=1,
        heads=4,
        max_positions=16,
        encoding=encoding,
        encoding_options=options.pop("options", None),
    )
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.2)
    return made


@pytest.mark.parametrize(
    ("encoding", "names"),
    [
        ("tupe-a", ["absolute"]),
        ("tupe-r", ["absolute", "relative", "sum"]),
        ("t5", ["relative"]),
        ("alibi", ["relative"]),
        ("learned+t5", ["relative"]),
        ("rope+tupe-a", ["absolute"]),
        ("tupe-a+t5", ["tupe-a absolute", "t5 relative", "sum"]),
        ("tupe-r+alibi", ["tupe-r absolute", "tupe-r relative", "alibi relative", "sum"]),
        ("none", []),
        ("rope", []),
        ("learned", []),
        ("shaw", []),
        ("untied-sum", []),
    ],
)
def test_every_content_free_term_has_a_map_and_the_last_is_what_attention_adds(encoding, names):
    untied = {name: {"cls": "position-0"} for name in encoding.split("+") if "tupe" in name}
    model = encoder(encoding, options=untied)
    maps = score_maps(model, N)
    assert list(maps) == names
    for found in maps.values():
        assert (found.values_HNN.shape, found.values_HNN.dtype) == ((4, N, N), torch.float32)
        assert found.skip_first == ("tupe" in encoding)
    bias = model.encoding.prepare(Contiguous(N)).layer(0).bias
    assert (bias is None) == (not names)
    if names:
        assert_close(maps[names[-1]].values_HNN, bias.dense()[0], rtol=0, atol=1e-5)


def test_without_the_reset_nothing_is_left_out():
    assert not score_maps(encoder("tupe-a"), N)["absolute"].skip_first


def test_tupe_alone_gives_position_correlations():
    maps, same = score_maps(encoder("tupe-r"), N), position_correlation(encoder("tupe-r"), N)
    assert list(maps) == list(same)
    for name, values in same.items():
        assert_close(maps[name].values_HNN, values, rtol=0, atol=0)
    assert position_correlation(encoder("t5"), N) == {}


@pytest.mark.parametrize("function", [position_correlation, score_maps])
@pytest.mark.parametrize(("length", "said"), [(0, "length must be positive, got 0"), (17, "max_positions=16")])
def test_a_length_that_does_not_fit_is_refused(function, length, said):
    with pytest.raises(ValueError, match=said):
        function(encoder("tupe-a"), length)


@pytest.mark.parametrize("layer", [-1, 1])
def test_a_layer_that_the_model_does_not_have_is_refused(layer):
    with pytest.raises(ValueError, match=f"layer must lie between 0 and 0, got {layer}"):
        score_maps(encoder("tupe-a"), N, layer=layer)


def test_a_model_of_something_else_has_no_maps():
    assert score_maps(torch.nn.Linear(2, 2), N) == {}


@pytest.mark.parametrize(
    ("name", "parts"), [("tupe-a", ["absolute"]), ("tupe-r", ["absolute", "relative", "sum"]), ("t5", [])]
)
def test_correlations_of_what_was_learned(name, parts):
    config = build_config("encoder", encoding=name, vocab_size=50, hidden_size=32, num_hidden_layers=1, cls_token_id=1)
    model = build_model(config, "masked-lm", seed=0)
    maps = position_correlation(model, 9)
    assert list(maps) == parts
    for values in maps.values():
        assert values.shape == (4, 9, 9)
    if name == "tupe-r":
        off_cls = slice(1, None)
        assert_close(maps["sum"][:, off_cls, off_cls], (maps["absolute"] + maps["relative"])[:, off_cls, off_cls])
        assert_close(maps["sum"][:, 0], maps["absolute"][:, 0])  # the paper's reset leaves theta1 alone
    with pytest.raises(ValueError, match="length"):
        position_correlation(model, 0)
