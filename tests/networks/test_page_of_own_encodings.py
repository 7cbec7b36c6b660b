"""docs/add-encoding.md: its class passes the suite, and what it names is there."""

import re
from pathlib import Path

from wordorder import encodings
from wordorder.networks import check_encoding
from wordorder.networks.encoding_checks import CHECKS

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "add-encoding.md").read_text(encoding="utf-8")


def test_the_class_of_the_page_passes_and_is_that_of_the_example(tmp_path):
    code = re.findall(r"```python title=\"my.py\"\n(.*?)```", PAGE, flags=re.DOTALL)[0]
    found = {}
    exec(compile(code, "my.py", "exec"), found)
    for use in ("encoder", "decoder", "cross-attention"):
        assert not [finding for finding in check_encoding(found["Neighbours"], use=use) if finding.kind == "fault"]
    example = (Path(__file__).resolve().parents[2] / "examples" / "own_encoding.py").read_text(encoding="utf-8")
    body = code[code.index("        super().__init__()\n        self.table") : code.index("    def at_distance")]
    assert body in example
    assert len(code.splitlines()) <= 20


def test_the_places_and_the_checks_are_those_of_the_page():
    places = re.findall(r"^\| `(On\w+|Replaces\w+)` \|", PAGE, flags=re.MULTILINE)
    assert len(places) == 6
    assert all(hasattr(encodings, place) for place in places)
    section = PAGE[PAGE.index("## What the suite") : PAGE.index("## Saved models")]
    told = re.findall(r"^\| ([a-z ]+) \| ", section, flags=re.MULTILINE)
    assert told[:2] == ["check", "construction"]
    assert told[2:] == list(CHECKS)
