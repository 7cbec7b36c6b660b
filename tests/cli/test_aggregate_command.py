"""`wordorder aggregate` on two committed results, and wrong use."""

import json
from hashlib import sha256
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from wordorder.cli.app import app

RESULTS = Path(__file__).resolve().parents[2] / "evidence" / "results"
FILES = [str(RESULTS / "compare-mlm.json"), str(RESULTS / "compare-clm.json")]


def run(*arguments: str, code: int = 0) -> Result:
    result = CliRunner().invoke(app, ["aggregate", *arguments])
    assert result.exit_code == code, result.stderr
    return result


def test_two_committed_comparisons_become_a_table(tmp_path: Path):
    shown = run(*FILES, "--common-arms", "--title", "Letters", "--output-dir", str(tmp_path / "out")).stdout
    assert shown.startswith("Letters\n")
    for arm in ("tupe-r", "t5", "rope", "none"):
        assert f"  {arm} " in shown
    assert " has the best mean rank, 1." in shown
    assert "over 2 tasks" in shown
    written = json.loads((tmp_path / "out" / "aggregate.json").read_text())
    assert written["arms"] == ["rope", "none", "t5", "tupe-r"]
    assert [source["sha256"] for source in written["sources"]] == [
        sha256(Path(file).read_bytes()).hexdigest() for file in FILES
    ]
    assert {cell["runs"] for cell in written["cells"]} == {8, 3}
    falling = {cell["arm"]: cell["still_falling"] for cell in written["cells"] if cell["task"] == "compare_mlm"}
    assert falling == {"rope": True, "none": False, "t5": True, "tupe-r": True}
    assert (tmp_path / "out" / "table.md").read_text().startswith("# Letters\n")
    assert len(list((tmp_path / "out" / "figures").iterdir())) == 4


def test_json_alone_on_stdout(tmp_path: Path):
    shown = run(*FILES, "--common-arms", "--json", "--output-dir", str(tmp_path)).stdout
    assert json.loads(shown) == json.loads((tmp_path / "aggregate.json").read_text())


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([*FILES, "--output-dir", "{tmp}"], "--common-arms keeps the 4 that all files have"),
        ([FILES[0], FILES[0], "--output-dir", "{tmp}"], "is named twice"),
        ([FILES[0]], "Missing option '--output-dir'"),
        ([FILES[0], "--output-dir", FILES[1]], "name a folder that can be written"),
        (["--output-dir", "{tmp}"], "Missing argument 'RESULTS...'"),
    ],
)
def test_wrong_use_exits_with_2_and_writes_nothing(tmp_path: Path, arguments: list[str], words: str):
    result = run(*(argument.format(tmp=tmp_path / "out") for argument in arguments), code=2)
    assert words in result.stderr
    assert result.stdout == ""
    assert not (tmp_path / "out").exists()
