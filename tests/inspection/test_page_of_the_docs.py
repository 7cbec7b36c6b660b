"""docs/inspect.md: its table of encodings is what the functions find."""

import re
from pathlib import Path

from wordorder import inspection
from wordorder.encodings import CATALOG

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "inspect.md").read_text(encoding="utf-8")


def test_the_table_of_encodings_is_what_the_functions_find():
    from wordorder import Encoder

    rows = re.findall(r"^\| (`[^|]*) \| ([^|]*) \|$", PAGE, flags=re.MULTILINE)
    told = {name: maps for names, maps in rows for name in re.findall(r"`([a-z0-9-]+)`", names) if name in CATALOG}
    assert set(told) >= {"learned", "untied-sum", "tupe-a", "tupe-r", "t5", "alibi", "rope", "shaw", "none"}
    for name, maps in told.items():
        model = Encoder(20, width=16, layers=1, heads=2, max_positions=8, encoding=name)
        found = inspection.inspect_model(model, 8)
        assert all(map_name in maps for map_name in found.maps)
        assert bool(found.maps) == (not maps.startswith("none"))
