"""What an encoding of somebody's own sets in its constructor is what training starts with."""

import warnings

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from wordorder import Decoder, Encoder, Positional
from wordorder.encodings import CATALOG, T5, OnDistance, OnEmbeddings, Rotary, register_encoding
from wordorder.models import build_config, build_model
from wordorder.networks import check_encoding

SIZES = {"width": 16, "layers": 2, "heads": 2, "max_positions": 32}


class Near(OnDistance):
    """Add a learned number where a key stands beside the query, drawn or set, through a map that begins at 1."""

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.slope = nn.Parameter(torch.linspace(0.5, 1.0, heads))
        self.table = nn.Parameter(torch.full((3, heads), 0.25))
        self.drawn = nn.Parameter(torch.randn(heads))
        self.map = nn.Linear(heads, heads)
        nn.init.eye_(self.map.weight)

    def at_distance(self, distance, dtype=torch.float32):
        near = self.map(self.table[distance.clamp(-1, 1) + 1] * self.slope + 0 * self.drawn)
        return torch.where((distance.abs() <= 1)[..., None], near, 0.0).movedim(-1, 0)


class Drawn(Near):
    """Draw the slope from the seed."""

    def draw_parameters(self, std, generator_for):
        nn.init.normal_(self.slope, 3.0, std, generator=generator_for("slope") if generator_for else None)


class Louder(T5):
    """Multiply T5's numbers."""


class Scaled(Rotary):
    """Hold a number for each head, which begins at 1, beside the turns."""

    def __init__(self, head_dim: int, heads: int) -> None:
        super().__init__(head_dim)
        self.gain = nn.Parameter(torch.ones(heads))


class Summed(OnEmbeddings):
    """Add a vector to every embedding."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.vector = nn.Parameter(torch.ones(width))

    def forward(self, x_BTC, positions):
        return x_BTC + self.vector


@pytest.fixture(autouse=True)
def registered():
    names = {"near": Near, "drawn": Drawn, "louder": Louder, "summed": Summed}
    for name, kind in names.items():
        register_encoding(name, kind)
    yield
    for name in names:
        CATALOG.pop(name, None)


def networks(name):
    yield Encoder(30, encoding=name, **SIZES)
    yield Decoder(30, encoding=name, **SIZES)
    yield Positional(name, **SIZES)
    config = build_config("decoder", encoding=name, vocab_size=30, hidden_size=16, num_attention_heads=2)
    model = build_model(config, "causal-lm", seed=0)
    yield model.model.decoder
    yield type(model)(config).model.decoder


def part_of(network, name):
    return network.encoding.parts[name]


def test_what_the_constructor_sets_stays():
    for network in networks("near"):
        part = part_of(network, "near")
        assert_close(part.slope.detach(), torch.tensor([0.5, 1.0]))
        assert (part.table == 0.25).all()
        assert torch.equal(part.map.weight.detach(), torch.eye(2))
        assert part.drawn.any()
    for network in networks("summed"):
        assert (part_of(network, "summed").vector == 1).all()


def test_a_class_with_a_rule_or_of_the_catalogue_is_drawn():
    for network in networks("drawn"):
        assert 2.5 < part_of(network, "drawn").slope.mean() < 3.5
    for network in networks("louder"):
        assert 0 < part_of(network, "louder").table.weight.std() < 0.1


def test_drawn_constructors_follow_the_seed_and_leave_the_global_generator():
    config = build_config("decoder", encoding="near", vocab_size=30, hidden_size=16, num_attention_heads=2)
    state = torch.get_rng_state()
    first = build_model(config, "causal-lm", seed=3)
    assert torch.equal(torch.get_rng_state(), state)
    torch.randn(5)
    second, other = (build_model(config, "causal-lm", seed=seed) for seed in (3, 4))
    drawn = [part_of(model.model.decoder, "near").drawn for model in (first, second, other)]
    assert torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[0], drawn[2])


def test_a_loaded_model_without_them_draws_them(tmp_path):
    plain = {"vocab_size": 30, "hidden_size": 16, "num_attention_heads": 2}
    build_model(build_config("decoder", encoding="none", **plain), "causal-lm", seed=0).save_pretrained(tmp_path)
    from wordorder.models import WordOrderDecoderForCausalLM

    with pytest.warns(UserWarning, match=r"Near was built on the meta device.*draw_parameters"):
        model = WordOrderDecoderForCausalLM.from_pretrained(tmp_path, encoding="near")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.save_pretrained(tmp_path / "with")
        WordOrderDecoderForCausalLM.from_pretrained(tmp_path / "with")
    assert all(parameter.isfinite().all() and parameter.abs().max() < 10 for parameter in model.parameters())


def test_the_checks_tell_with_what_training_starts():
    told = [finding.message for finding in check_encoding(Near) if finding.check == "start values"]
    assert len(told) == 1
    assert "table (3, 4) from 0.25 to 0.25" in told[0]
    assert "draw_parameters" in told[0]
    for kind in (Drawn, Louder, "t5"):
        assert not any(finding.check == "start values" for finding in check_encoding(kind))
    with pytest.warns(UserWarning, match="Scaled derives from Rotary.*draw_parameters"):
        told = [finding.message for finding in check_encoding(Scaled) if finding.check == "start values"]
    assert told == [told[0]]
    assert "Rotary draws" in told[0]
