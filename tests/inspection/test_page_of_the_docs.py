"""docs/inspect.md: its code runs, and what it names is there."""

import re
from pathlib import Path

import pytest
import torch

from wordorder import inspection
from wordorder.encodings import CATALOG

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "inspect.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("drawn", ["map-absolute.png", "alpha.png"])
def test_the_examples_run(drawn: str, capsys: pytest.CaptureFixture[str]):
    examples = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
    code = examples[drawn == "alpha.png"]
    with torch.random.fork_rng():
        exec(compile(code, "inspect.md", "exec"), {})
    assert drawn in capsys.readouterr().out


def test_every_figure_option_and_function_that_is_named_is_there():
    from typer.testing import CliRunner

    from wordorder.cli.app import app

    assert all((ROOT / "docs" / name).is_file() for name in re.findall(r"\]\((figures/[^)]+)\)", PAGE))
    help_text = CliRunner().invoke(app, ["inspect", "--help"]).stdout
    options = set(re.findall(r"`(--[a-z-]+)", PAGE))
    assert options == {"--length", "--output-dir", "--text", "--json"}
    assert all(option in help_text for option in options)
    for name in ("inspect_model_dir", "inspect_model", "score_maps", "toeplitz_share"):
        assert name in PAGE
        assert hasattr(inspection, name)


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
