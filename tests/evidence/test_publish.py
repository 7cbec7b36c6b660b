"""The numbers that the scripts of evidence/publish/ compute for the pages, on made-up results."""

import json
import math
from pathlib import Path
from xml.etree import ElementTree

import pytest

from wordorder.comparison.results_file import parse_results

ROOT = Path(__file__).resolve().parents[2]


def with_curves(steps: dict[str, list[int]]):
    """A results file of curves that fall from 2.0 to 1.0 within so many steps, by arm and seed, and stay there."""
    rows = [
        {"arm": arm, "seed": seed, "perplexity": 4.0, "curve": [[0, 2.0], [end, 1.0], [200, 1.0]]}
        for arm, ends in steps.items()
        for seed, end in enumerate(ends)
    ]
    planned = {"arms": len(steps), "seeds": [], "runs": len(rows)}
    arms = [{"name": arm} for arm in steps]
    return {"name": "made up", "task": "masked-lm", "recipe": {}, "planned": planned, "rows": rows, "arms": arms}


def test_the_share_of_steps_is_a_geometric_mean_over_seeds(script):
    """The baseline is at its lowest loss, 1.0, after 100 steps; the other one after 25 and after 50."""
    publish = script("publish_scales")
    own = publish.shares(
        parse_results(with_curves({"slow": [100, 100, 100], "fast": [25, 50, 50]}) | {"baseline": "slow"})
    )
    assert own == {"fast": [0.25, 0.5, 0.5]}
    assert publish.in_words([0.25, 0.5, 0.5]) == "40% [15%, 107%]"  # exp(-4 log(2) / 3 +- 4.303 log(2) / 3)
    assert publish.in_words([0.5, math.inf]) == "never in 1 of 2 seeds"


def test_short_tables_name_the_limit_and_what_differs_between_sections(script):
    tables = script("speed_tables")
    (left_out,) = tables.IN_FIGURES_ONLY
    times = {"plain": {"ratio": 1.0}, "ours": {"ratio": 1.254}, left_out: {"ratio": 9.0}}
    found = tables.speed_table({"sections": {"step, 2 x 8, float32": times, "step, 2 x 9, float32": times}})
    assert found.splitlines() == [
        "| Step, float32 | 2 x 8 | 2 x 9 |",
        "| :--- | ---: | ---: |",
        "| plain | 1.00 | 1.00 |",
        "| ours | 1.25 | 1.25 |",
    ]
    both = {"none": {"ratio": 1.0}, "rope": {"ratio": 1.01}}
    networks = {"encoder": both, "decoder": {**both, "cope": {"ratio": 1.2}}}
    encodings = tables.speed_table({"settings": {}, "networks": networks, "limit": "none"})
    assert "| cope | not defined | 1.20 |" in encodings
    assert encodings.endswith("The other 1 take 1.01 to 1.01 times as long as `none`.")
    curve = {str(2**n): {"bytes": 2**20 * n, "seconds": 0.04} for n in range(10, 14)}
    assert "| 8,192 | 13 | 0.0 |" in (lengths := tables.speed_table({"sections": {"training step": curve}}))
    assert "| 4,096 |" not in lengths


def test_results_of_a_gpu_stand_on_the_page_once_there_are_some(script, tmp_path):
    publish = script("publish_backends")
    first = publish.gpu_section(publish.gpu_results(tmp_path))
    assert "| t5, 512 tokens | 2.1 | 1.7 |" in first
    assert "| tupe-r, 8,192 tokens | 32.4 | 66.5 |" in first
    measured = {"share": 0.8, "share_quartiles": [0.7, 0.9], "milliseconds": 2.0, "tflops": 300.0}
    goal = {"section": "tupe-r, 512 tokens", "goal": "at least 0.9", "found": 0.8, "met": False}
    rows = {"wordorder, triton": measured, "FlexAttention": {"failed": "out of memory"}}
    shared = {"dry": False, "gpu": {"name": "H100"}, "versions": {"torch": "2.13.0"}, "finished": False}
    (tmp_path / "gpu-attention.json").write_text(
        json.dumps(
            shared
            | {"limit": "FlashAttention", "dtype": "torch.bfloat16", "sections": {goal["section"]: rows}}
            | {"goals": [goal], "memory": {"8,192": {"wordorder, triton": {"bytes": 2**21}}}}
        )
    )
    section = publish.gpu_section(publish.gpu_results(tmp_path))
    assert "Measured on one H200" not in section
    assert "| tupe-r, 512 tokens | wordorder, triton | 0.80 | 0.70 to 0.90 | 2.000 | 300 |" in section
    assert "not measured: out of memory" in section
    assert "| tupe-r, 512 tokens | at least 0.9 | 0.80 | missed |" in section
    assert "| 8,192 tokens | 2 |" in section
    assert "H100, torch 2.13.0. Stopped at its time limit." in section
    (tmp_path / "gpu-training.json").write_text(json.dumps(shared | {"dry": True, "arms": {}}))
    with pytest.raises(ValueError, match="dry run"):
        publish.gpu_section(publish.gpu_results(tmp_path))


def test_several_charts_are_one_picture(script):
    charts = script("charts")
    rows = [("a", "limit", 1.0, 1.0, 1.0), ("b & c", "ours", 1.5, 1.4, 1.6)]
    drawn = [charts.ratios(title, rows) for title in ("first", "second < third")]
    root = ElementTree.fromstring(charts.picture(*drawn))
    groups = [element for element in root if element.tag.endswith("}g")]
    assert root[0].text == "first; second < third"
    assert [group.get("transform") for group in groups] == [
        "translate(0 0)",
        f"translate(0 {drawn[0].height + 2 * charts.MARGIN:g})",
    ]
    assert [len(group) for group in groups] == [len(chart.parts) for chart in drawn]
    assert float(root.get("viewBox").split()[3]) == sum(chart.height + 2 * charts.MARGIN for chart in drawn)


@pytest.mark.parametrize("path", sorted((ROOT / "docs").rglob("*.svg")), ids=lambda path: path.stem)
def test_every_drawing_is_a_picture_by_itself(path):
    assert ElementTree.parse(path).getroot().tag == "{http://www.w3.org/2000/svg}svg"
