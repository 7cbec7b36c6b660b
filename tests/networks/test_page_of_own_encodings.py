"""docs/add-encoding.md: what the page names is there."""

import re
from pathlib import Path

from wordorder import encodings
from wordorder.encodings.places import GIVEN_BY_NETWORK, PLACES
from wordorder.networks.encoding_checks import CHECKS

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "add-encoding.md").read_text(encoding="utf-8")


def test_the_places_and_the_checks_are_those_of_the_page():
    places = re.findall(r"^\| `(On\w+|Replaces\w+)` \|", PAGE, flags=re.MULTILINE)
    assert {*places} == {place.__name__ for place in PLACES} | {"OnDistance", "ReplacesEmbedding"}
    assert all(hasattr(encodings, place) for place in places)
    section = PAGE[PAGE.index("## Checks") : PAGE.index("## Saved models")]
    told = re.findall(r"^\| ([a-z ]+) \| ", section, flags=re.MULTILINE)
    assert told[:2] == ["check", "construction"]
    assert told[2:] == list(CHECKS)


def test_what_a_class_may_define_and_what_the_network_passes_are_those_of_the_code():
    table = PAGE[PAGE.index("| define | for | default |") : PAGE.index("## Checks")]
    defined = re.findall(r"^\| `(\w+)", table, flags=re.MULTILINE)
    assert len(defined) == 10
    known = {*dir(encodings.OnScores), "draw_parameters"}
    assert set(defined) <= known, set(defined) - known
    passed = re.findall(r"The network passes (.*?) and the defaults of", PAGE)[0]
    assert tuple(re.findall(r"`(\w+)`", passed)) == GIVEN_BY_NETWORK
