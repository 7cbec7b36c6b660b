"""The common suite: the whole catalogue passes it, and each planted fault is found and named."""

import random
import re

import pytest
import torch
from torch import nn

from wordorder.encodings import (
    CATALOG,
    Move,
    OnDistance,
    OnEmbeddings,
    OnQueriesAndKeys,
    OnScores,
    Rotary,
    build_encoding,
)
from wordorder.errors import BadInput
from wordorder.networks.encoding_checks import USES, check_encoding
from wordorder.ops import DenseBias, as_positions
from wordorder.ops.positions import distances_BTS

NAMES = [*CATALOG, "learned+t5", "rope+tupe-a", "rope,none"]


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("name", NAMES)
def test_every_encoding_passes_or_is_refused_with_its_reason(name, use):
    findings = check_encoding(name, use=use)
    assert [finding.message for finding in findings if finding.kind == "fault"] == []
    refused = [finding.message for finding in findings if finding.kind == "refused"]
    parts = [CATALOG[part] for part in name.replace(",", "+").split("+")]
    assert refused == [kind.refused_in[use] for kind in parts if use in kind.refused_in]
    if use == "cross-attention" or refused:
        return
    (seen,) = [finding.message for finding in findings if finding.check == "word order"]
    assert ("not visible" in seen) == (name in ("none", "softmax-sink", "complex-vanilla", "log-n"))


def test_options_reach_the_encoding():
    assert not [f for f in check_encoding("t5", options={"buckets": 8}) if f.kind == "fault"]
    (finding,) = check_encoding("t5", options={"bucket": 8})
    assert (finding.kind, finding.check) == ("fault", "construction")
    assert "no option 'bucket'" in finding.message


class Added(OnEmbeddings):
    """Adds the position, scaled: nothing wrong with it."""

    paper = "https://arxiv.org/abs/0"

    def __init__(self, width: int, *, slope: float = 0.1) -> None:
        super().__init__()
        self.weight, self.slope = nn.Parameter(torch.ones(width)), slope

    def forward(self, x_BTC, positions):
        return (x_BTC + self.at(as_positions(positions).index_BT(x_BTC.device), x_BTC)).type_as(x_BTC)

    def at(self, position_BT, x_BTC):
        return self.slope * position_BT[..., None] * self.weight


class Leaking(Added):
    def forward(self, x_BTC, positions):
        return super().forward(x_BTC, positions) + 0.1 * x_BTC.roll(-1, dims=1)


class OfTheRow(Added):
    """Place in the row instead of the positions that were given."""

    def at(self, position_BT, x_BTC):
        return super().at(torch.arange(x_BTC.shape[1])[None], x_BTC)


class OfTheLength(Added):
    def at(self, position_BT, x_BTC):
        return super().at(position_BT, x_BTC) / x_BTC.shape[1]


class Widening(Added):
    def forward(self, x_BTC, positions):
        return super().forward(x_BTC, positions).double()


class Logarithmic(OnDistance):
    def __init__(self, heads: int) -> None:
        super().__init__()
        self.heads = heads

    def at_distance(self, distance, dtype=torch.float32):
        far = distance.abs().to(torch.promote_types(dtype, torch.float32)).log()
        return far.expand(self.heads, *distance.shape) * 0.0


class Detached(Added):
    def at(self, position_BT, x_BTC):
        return self.slope * position_BT[..., None] * self.weight.detach()


class WithBuffer(Added):
    def __init__(self, width: int) -> None:
        super().__init__(width)
        self.register_buffer("table", torch.ones(width), persistent=False)


class Forgetful(Added):
    """Draws a number that is not saved."""

    def __init__(self, width: int) -> None:
        super().__init__(width)
        self.drawn = random.random()

    def at(self, position_BT, x_BTC):
        return super().at(position_BT, x_BTC) * self.drawn


class Counting(Added):
    calls = 1

    def at(self, position_BT, x_BTC):
        self.calls += 1
        return super().at(position_BT, x_BTC) * self.calls


class Narrow(OnScores):
    """Forgets that there are more keys than queries with a cache, and that a bias is float32 at least."""

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.heads = heads

    def forward(self, query, key, *, dtype=torch.float32, device=None):
        distance = distances_BTS(key, key)
        return DenseBias(-distance.abs().half()[:, None].expand(-1, self.heads, -1, -1))


class Needy(Added):
    def __init__(self, width: int, wavelength: int) -> None:
        super().__init__(width)


class NoTurn(Rotary):
    def forward(self, query, key, *, dtype=torch.float32, device=None):
        return super().forward(query, key, dtype=dtype, device=device)[:1]


class Twice(Move):
    def apply(self, x_BHTD):
        return torch.cat((x_BHTD, x_BHTD), dim=-1)


class Widened(OnQueriesAndKeys):
    """Widens queries and keys, and does not say so."""

    def forward(self, query, key, *, dtype=torch.float32, device=None):
        return Twice(), Twice()


class Looking(Added):
    """Looks at what its parameter contains, which has no content on the meta device."""

    def __init__(self, width: int) -> None:
        super().__init__(width)
        self.slope = float(self.weight.detach().sum())


class SharedPosition(OnScores):
    """Everybody's bias from the first example's positions."""

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.zeros(heads, 64))

    def forward(self, query, key, *, dtype=torch.float32, device=None):
        key = key.index_BT(device)[:1] % 64
        queries = query.length
        return DenseBias(self.table[:, key[0]][None, :, None, :].expand(-1, -1, queries, -1), may_hide=False)


class HeadForLayer(OnDistance):
    """Takes the number of layers for that of the heads."""

    def __init__(self, layers: int) -> None:
        super().__init__()
        self.slopes = nn.Parameter(torch.ones(layers))

    def at_distance(self, distance, dtype=torch.float32):
        return -self.slopes.view(-1, *(1,) * distance.dim()) * distance.abs()


class OnlyDecoders(Added):
    refused_in = {"encoder": "it says so"}  # noqa: RUF012


@pytest.mark.parametrize(
    ("kind", "use", "check", "words"),
    [
        (Leaking, "decoder", "causality", "see what comes after them"),
        (Leaking, "encoder", "packing", "packed into one row"),
        (OfTheRow, "encoder", "padding", "padded on the left"),
        (OfTheRow, "encoder", "packing", r"positions\.index_BT"),
        (OfTheRow, "decoder", "cache", "with a cache"),
        (OfTheLength, "encoder", "padding", "padded on the right"),
        (Widening, "encoder", "terms", r"float64.*end with \.type_as"),
        (Logarithmic, "encoder", "terms", "NaN or infinity; look at distance 0"),
        (Logarithmic, "encoder", "shapes and dtypes", "NaN or infinity"),
        (Detached, "encoder", "gradients", "do not detach"),
        (WithBuffer, "encoder", "construction", "holds a buffer, table"),
        (Forgetful, "encoder", "saving and repeating", "saved and loaded, gives another output"),
        (Counting, "encoder", "saving and repeating", "output"),
        (Narrow, "decoder", "terms", r"must be \(B or 1, H or 1, T, S\)"),
        (Narrow, "encoder", "terms", "compute it in at least that"),
        (Needy, "encoder", "construction", "wavelength: an argument without a default"),
        (NoTurn, "encoder", "terms", "two Moves"),
        (Widened, "encoder", "terms", r"queries are \(3, 4, 5, 12\), and must be \(3, 4, 5, 6\)"),
        (Looking, "encoder", "construction", "meta device"),
        (SharedPosition, "encoder", "padding", "padded on the left"),
        (Narrow, "cross-attention", "terms", "the bias is"),
        (HeadForLayer, "encoder", "terms", r"the bias is \(1, 2, 5, 7\), and must be .* = \(1, 4, 5, 7\)"),
    ],
)
def test_a_planted_fault_is_found_and_named(kind, use, check, words):
    findings = check_encoding(kind, use=use)
    said = [finding.message for finding in findings if finding.kind == "fault" and finding.check == check]
    assert any(re.search(words, message) for message in said), findings
    assert "encoding-under-test" not in CATALOG


class WithoutConstructor(OnEmbeddings):
    def forward(self, x_BTC, positions):
        return (x_BTC + as_positions(positions).index_BT(x_BTC.device)[..., None]).type_as(x_BTC)


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("kind", [Added, WithoutConstructor])
def test_what_is_right_has_no_fault(kind, use):
    findings = check_encoding(kind, use=use)
    assert [f for f in findings if f.kind == "fault"] == []


def test_a_refusal_is_that_alone():
    (finding,) = check_encoding(OnlyDecoders)
    assert (finding.kind, finding.message) == ("refused", "it says so")
    assert not [f for f in check_encoding(OnlyDecoders, use="decoder") if f.kind != "information"]


@pytest.mark.parametrize(
    ("encoding", "use", "words"),
    [(nn.Linear, "encoder", "a class of wordorder"), (3, "encoder", "got 3"), ("rope", "dream", "use must be one of")],
)
def test_what_is_no_encoding_or_use_is_refused(encoding, use, words):
    with pytest.raises(ValueError, match=words):
        check_encoding(encoding, use=use)
    with pytest.raises(BadInput, match="unknown encoding"):
        check_encoding("rpoe")


def test_random_numbers_of_the_caller_are_left_alone(monkeypatch):
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    monkeypatch.setattr(torch.cuda, "manual_seed_all", lambda seed: pytest.fail("GPUs start anew"))
    check_encoding(Added)
    assert torch.equal(torch.rand(2), expected)
    assert build_encoding("rope", width=8, heads=2, layers=1, max_positions=4).parts
