"""docs/add-encoding.md: the tutorial's class passes the checks, and what the page names is there."""

import re
from pathlib import Path

from wordorder import encodings
from wordorder.encodings.places import GIVEN_BY_NETWORK
from wordorder.networks import check_encoding
from wordorder.networks.encoding_checks import CHECKS

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "add-encoding.md").read_text(encoding="utf-8")
TUTORIAL = (ROOT / "docs" / "tutorials" / "my-own-encoding.md").read_text(encoding="utf-8")


def test_the_class_of_the_tutorial_passes_and_is_that_of_the_example():
    code = re.findall(r"```python title=\"neighbours.py\"\n(.*?)```", TUTORIAL, flags=re.DOTALL)[0]
    assert "`Neighbours` in `neighbours.py`" in PAGE
    found = {}
    exec(compile(code, "neighbours.py", "exec"), found)
    for use in ("encoder", "decoder", "cross-attention"):
        assert not [finding for finding in check_encoding(found["Neighbours"], use=use) if finding.kind == "fault"]
    example = (ROOT / "examples" / "own_encoding.py").read_text(encoding="utf-8")
    body = code[code.index("        super().__init__()\n        self.table") : code.index("    def at_distance")]
    assert body in example
    assert len(code.splitlines()) <= 20


def test_the_places_and_the_checks_are_those_of_the_page():
    places = re.findall(r"^\| `(On\w+|Replaces\w+)` \|", PAGE, flags=re.MULTILINE)
    assert len(places) == 6
    assert all(hasattr(encodings, place) for place in places)
    section = PAGE[PAGE.index("## Checks") : PAGE.index("## Saved models")]
    told = re.findall(r"^\| ([a-z ]+) \| ", section, flags=re.MULTILINE)
    assert told[:2] == ["check", "construction"]
    assert told[2:] == list(CHECKS)


def test_what_a_class_may_define_and_what_the_network_passes_are_those_of_the_code():
    table = PAGE[PAGE.index("| define | for | default |") : PAGE.index("## Checks")]
    defined = re.findall(r"^\| `(\w+)", table, flags=re.MULTILINE)
    assert len(defined) == 9
    known = {*dir(encodings.OnScores), "draw_parameters"}
    assert set(defined) <= known, set(defined) - known
    passed = re.findall(r"The network passes (.*?) and the defaults of", PAGE)[0]
    assert tuple(re.findall(r"`(\w+)`", passed)) == GIVEN_BY_NETWORK
