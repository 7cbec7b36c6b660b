import io
import itertools
import json
import re
from html import unescape

import numpy as np
import pytest
from comparison_example import example_results, read
from report_example import full_results
from rich.console import Console
from test_report import EVIL, Page

from wordorder.comparison import markdown_table, render_table
from wordorder.comparison.report.differences import (
    Unit,
    against,
    difference_title,
    in_percent,
    in_short,
    p_in_words,
    references,
    size_of,
    unit_of,
)
from wordorder.comparison.report.figures import figure_files, write_figures
from wordorder.comparison.report.html import difference_matrix, report_page, write_report
from wordorder.comparison.report.verdict import verdict
from wordorder.comparison.report.view import (
    COLOURS,
    ProbePoint,
    arm_styles,
    probe_panels,
    probe_table,
    spans_octaves,
    target_lines,
)
from wordorder.comparison.results_file import Claim, Comparison, ProbeResult

BETTER = {
    "arm": "tupe-r", "against": "rope", "n": 6, "test": "a test", "scale": "log", "difference": 0.12, "low": 0.08,
    "high": 0.17, "p": 0.01, "p_adjusted": 0.03, "margin": 0.00995, "outcome": "better",
}  # fmt: skip
CLAIM = Claim(
    method="sign flips of units", measure="F1", seeds=3, difference=0.25, low=0.2, high=0.3, p=0.01, p_adjusted=0.02,
    outcome="better",
)  # fmt: skip
SMALL = {"rope": 40.0, "alibi": 42.0, "tupe-r": 36.0}


@pytest.fixture(scope="module")
def full():
    return json.dumps(full_results(SMALL, seeds=6))


@pytest.fixture
def results(full):
    found = json.loads(full)
    unclear = {"difference": -0.05, "low": -0.11, "high": 0.02, "p_adjusted": 0.4, "outcome": "not distinguishable"}
    found["comparisons"] = [{**BETTER}, {**BETTER, "arm": "alibi", **unclear}]
    return found


def text_of(page):
    body = re.sub(r"<(script|style).*?</\1>", " ", page, flags=re.DOTALL)
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", body)).split())


PERCENT = Unit(percent=True)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, "−11.3% [−15.6%, −7.7%], p = 0.03"),  # exp(-0.12) = 0.887
        (
            {"outcome": "worse", "difference": -0.12, "low": -0.17, "high": -0.08},
            "+12.7% [+8.3%, +18.5%], p = 0.03",
        ),
        (
            {"outcome": "not distinguishable", "difference": 0.02, "low": -0.01, "high": 0.05, "p_adjusted": 0.4},
            "−2.0% [−4.9%, +1.0%], not significant (p = 0.4)",
        ),
        ({"outcome": "identical", "difference": 0.0}, "identical"),
        ({"outcome": "not tested", "low": None, "high": None, "p": None, "p_adjusted": None}, "−11.3%"),
        ({"outcome": "not tested", "difference": None, "low": None, "high": None}, "not tested: too few seeds"),
        ({"outcome": "same", "p_adjusted": 0.4}, "−11.3% [−15.6%, −7.7%], the same within 1% (p = 0.4)"),
        (
            {"outcome": "no claim", "lost": "t5 lost 1 of 8 runs"},
            "−11.3% [−15.6%, −7.7%], not significant: t5 lost 1 of 8 runs (p = 0.03)",
        ),
        ({"p_adjusted": None}, "−11.3% [−15.6%, −7.7%], p = 0.01"),
        ({"difference": -1.2, "low": -1.3, "high": -1.1}, "+232% [+200%, +267%], p = 0.03"),
    ],
)
def test_a_comparison_in_short(changes, words):
    assert in_short(Comparison(**{**BETTER, **changes}), PERCENT) == words


def test_a_difference_has_the_sign_of_its_metric():
    accuracy = Unit(percent=False, higher_is_better=True, places=3)
    entry = Comparison(**BETTER | {"scale": "difference", "difference": 0.0262, "low": 0.012, "high": 0.041})
    assert in_short(entry, accuracy) == "+0.026 [+0.012, +0.041], p = 0.03"
    error = Unit(percent=False, places=3)
    assert in_short(entry, error) == "−0.026 [−0.041, −0.012], p = 0.03"


def test_differences_have_enough_digits_to_be_seen():
    results = example_results({"rope": 0.91, "tupe-r": 0.92}, task="classification", seeds=6)

    def places(*halves, difference=0.05):
        entries = [
            {**BETTER, "scale": "difference", "difference": difference, "low": difference - h, "high": difference + h}
            for h in halves
        ]
        return unit_of(read({**results, "comparisons": entries})).places

    assert places(0.04) == 3
    assert places(0.4) == 2
    assert places(0.4, difference=0.003) == 3  # two would show it as zero
    assert places(0.4, difference=0.00000003) == 4  # but not without end
    assert places(0.0004, 0.04, 0.004) == 4
    logs = [{**BETTER, "difference": 0.002, "low": 0.0005, "high": 0.0035}]
    assert unit_of(read({**results, "comparisons": logs})) == Unit(percent=True, higher_is_better=True, places=1)


def test_small_p_values():
    assert p_in_words(Comparison(**BETTER | {"p": 0.2, "p_adjusted": 0.0004})) == "p < 0.001"
    assert p_in_words(CLAIM) == "p = 0.02"
    assert p_in_words(CLAIM.having(p_adjusted=None)) == "p = 0.01"
    assert p_in_words(CLAIM.having(p_adjusted=None, p=None)) == ""


def test_the_size_of_an_advantage_and_its_evidence_are_apart():
    assert size_of(CLAIM, ratio=False, confidence=0.95) == ("0.25", "95% interval 0.2 to 0.3, p = 0.02")
    found = size_of(CLAIM.having(low=None, high=None), ratio=True, confidence=0.95)
    assert found == ("22%", "p = 0.02")  # exp(-0.25) = 0.78


@pytest.mark.parametrize(("value", "words"), [(7.64, "7.6%"), (0.0123, "0.012%"), (69.4, "69%"), (99.93, "99.93%")])
def test_a_percentage_has_two_digits_and_never_says_a_hundred_for_less(value, words):
    assert in_percent(value) == words


def test_the_tables_say_the_outcome_against_the_baseline(results):
    table = markdown_table(read(results))
    lines = {
        line.split("|")[1].strip(): line.split("|")[3].strip() for line in table.splitlines() if line.startswith("| ")
    }
    assert lines["Model"] == "Difference from rope"
    assert lines["tupe-r"] == "−11.3% [−15.6%, −7.7%], p = 0.03"
    assert lines["alibi"] == "+5.1% [−2.0%, +11.6%], not significant (p = 0.4)"
    assert lines["rope"] == "baseline"
    assert "All arms have the parameters of rope" in table
    assert "of geometric means over the runs; below zero is better. [...]: its 95% interval, for all" in table
    said, status, *_ = table.split("\n\n")
    assert said.startswith("tupe-r is best: masked-token perplexity 3")
    assert status.startswith("Significant (")
    assert table.index("How this was tested: ") > table.index("| alibi")


def test_tables_of_older_files_have_no_such_column():
    assert "Difference from" not in markdown_table(read(example_results(SMALL)))


@pytest.mark.parametrize("width", [80, 200])
def test_the_terminal_table_has_five_columns_and_fits(results, width):
    console = Console(record=True, width=width, file=io.StringIO(), force_terminal=True)
    render_table(read(results), console)
    text = console.export_text()
    assert all(len(line) <= width for line in text.splitlines())
    row = next(line for line in text.splitlines() if line.strip().startswith("tupe-r"))
    assert re.fullmatch(r" *tupe-r +3\d\.\d+ ± \d\.\d+ +−11\.3%\* +[\d,]+ +\d+\.?\d* (s|min) *", row)
    assert "* significant" in text
    assert "tupe-r is best: masked-token perplexity 3" in text
    assert "How this was tested" not in text
    assert "|" not in text


@pytest.mark.parametrize("width", [36, 48, 60, 72])
def test_a_narrow_terminal_loses_columns_and_never_names_or_digits(results, width):
    console = Console(record=True, width=width, file=io.StringIO(), force_terminal=True)
    render_table(read(results), console)
    text = console.export_text()
    assert "\u2026" not in text
    assert all(len(line) <= width for line in text.splitlines())
    assert any(re.match(r" *tupe-r +3\d\.\d+ ± \d\.\d+( |$)", line) for line in text.splitlines())
    assert ("* significant" in text) == ("−11.3%*" in text)


def test_to_a_pipe_goes_plain_text_of_whole_lines(results):
    name = "a-name-that-is-longer-than-a-terminal-is-wide-" * 2
    results = json.loads(json.dumps(results).replace('"alibi"', json.dumps(name)))
    stream = io.StringIO()
    render_table(read(results), Console(file=stream, width=80))
    lines = stream.getvalue().splitlines()
    assert any(line.startswith(f"{name} ") for line in lines)
    assert any(line.startswith("tupe-r is best: ") and line.endswith(".") for line in lines)
    assert not set("|│─\x1b") & set(stream.getvalue())


def test_a_pair_is_seen_from_both_sides():
    results = full_results(SMALL, seeds=6)
    assert references(read(results)) == ["rope", "alibi", "tupe-r"]
    one, other = against(read(results), "rope")["tupe-r"], against(read(results), "tupe-r")["rope"]
    assert (one.difference, one.low, one.high) == (-other.difference, -other.high, -other.low)
    matrix = difference_matrix(read(results))
    assert matrix["names"] == ["tupe-r", "rope", "alibi"]  # best first
    assert [cell is None for _, cells in matrix["rows"] for cell in cells] == [True, *[False] * 3] * 2 + [True]


def test_with_few_seeds_that_is_the_result_in_every_place():
    results = full_results(SMALL, seeds=3)
    text = text_of(report_page(read(results)))
    assert "Significant (Welch's test with a common floor): better than" in text
    assert re.search(r"% \[.*\], p (=|&lt;) 0\.\d+ \|", markdown_table(read(results)))
    results = full_results(SMALL, seeds=2)
    assert {entry["outcome"] for entry in results["comparisons"]} == {"not tested"}
    text = text_of(report_page(read(results)))
    assert text.count("Pilot: 2 seeds; a test needs 3: --seeds 3.") == 1
    assert not re.search(r"too few seeds|\?|no claim", text.split("Learning curves")[-1])
    assert "or not tested with so few seeds" in text
    assert "interval" not in markdown_table(read(results)).split("Difference: in")[1].split("\n")[0]


def test_against_a_baseline_alone_there_is_no_matrix(results):
    assert references(read(results)) == ["rope"]
    assert difference_matrix(read(results)) is None
    assert 'id="matrix"' not in report_page(read(results))
    assert difference_title(read(results)) == "Difference in masked-token perplexity (percent)"


def test_every_block_is_in_the_page(results):
    text = text_of(report_page(read(results)))
    for words in (
        "Differences",
        "−11.3% [−15.6%, −7.7%]",
        "−0.120 [−0.170, −0.080]",  # in nats
        "not significant",
        "significantly better",
        "Longer texts than in training",
        "What was held equal",
        "model.intermediate_size 512 → 490",
        "segment and memory together",
        "64 in the segment + 64 in the memory",
        "128 windows of 64 tokens.",
        "earlier",
        "On the Pareto front",
        "probe_extrapolation.svg",
        "differences.png",
        "Figure 1.",
        "Table 1.",
    ):
        assert words in text, words


def test_the_title_and_the_notes_are_those_of_the_recipe(results):
    plain = report_page(read(results))
    assert "<h1>demo</h1>" in plain
    assert 'class="notes"' not in plain
    results["recipe"]["compare"] |= {"title": "Which <b>encoding</b>?", "notes": "On letters,\nat equal size."}
    page = report_page(read(results))
    assert "<h1>Which &lt;b&gt;encoding&lt;/b&gt;?</h1>" in page
    assert '<p class="notes">On letters,\nat equal size.</p>' in page
    assert "<title>Which &lt;b&gt;encoding&lt;/b&gt;?: word-order comparison</title>" in page


def test_the_head_says_how_large_how_long_on_what_and_when(results):
    results["recipe"]["model"] |= {"num_hidden_layers": 1, "hidden_size": 96}
    results["recipe"]["data"] |= {"source": "letters", "length": 64}
    results["recipe"]["training"]["batch_size"] = 32
    results["data"] = {"train": {"tokens": 224850}}
    results["environment"] |= {"started": "2026-11-23T09:04:14+00:00", "device": "cpu: x", "processors": 2}
    results["environment"]["packages"] = {"wordorder": "0.2.0", "torch": "2.13.0", "numpy": "2.4"}
    head = text_of(report_page(read(results)).split("<dl")[1].split("</dl>")[0])
    for words in (
        "Network 1 layer, width 96",
        "Data letters Tokens to train on 224,850",
        "Batch 32 × 64 tokens",
        "Date 2026-11-23",
        "Machine cpu: x, 2 cores",
        "Versions wordorder 0.2.0, torch 2.13.0",
    ):
        assert words in head


def test_the_verdict_is_the_description_of_the_page(results):
    judged = verdict(read(results))
    told = re.search(r'<meta name="description" content="([^"]*)">', report_page(read(results))).group(1)
    assert unescape(told) == f"{judged.sentence} {judged.status}"


def test_the_recipe_is_shown_as_it_was_written_and_its_defaults_on_demand(results):
    (shown,) = re.findall(r"<pre.*?</pre>", report_page(read(results)), re.DOTALL)  # how it was written is not known
    assert "max_steps" in shown
    results["written"] = {"data": {"source": "letters"}, "model": {"encoding": "rope"}}
    written, resolved = re.findall(r"<pre.*?</pre>", report_page(read(results)), re.DOTALL)
    assert "max_steps" not in written
    assert "letters" in unescape(written)
    assert "max_steps" in resolved


def test_a_loss_that_was_there_at_the_first_evaluation_is_an_upper_bound(results):
    first = results["rows"][0]["curve"][0][0]
    entry = {"arm": "alibi", "baseline": "rope", "target": 3.0, "low": first, "high": 400, "n": 6}
    results["steps_to_loss"] = [{**entry, "steps": first, "share": 0.2}]
    text = text_of(report_page(read(results)))
    assert f"alibi ≤ {first} ≤ {first} to 400 at least 80% earlier" in text
    results["steps_to_loss"] = [{**entry, "low": 2 * first, "steps": 3 * first, "share": 0.6}]
    assert f"alibi {3 * first} {2 * first} to 400 40% earlier" in text_of(report_page(read(results)))


def test_a_probe_where_neither_is_better_says_neither(results):
    results["probes"] = {"layers": results["probes"]["layers"]}
    figure = report_page(read(results)).split('data-probe="layers"')[1].split("</figure>")[0]
    assert "is better" not in figure


def test_histories_are_shown_where_nothing_was_sized(results):
    results["budget"] |= {"match": "none", "arms": {}, "sentence": ""}
    text = text_of(report_page(read(results)))
    assert "nothing: every model as its recipe says" in text
    assert "64 in the segment + 64 in the memory" in text
    assert "Changed to fit" not in text


def test_figures_and_tables_are_numbered_in_order(results):
    text = text_of(report_page(read(results)))
    for word in ("Figure", "Table"):
        numbers = [int(n) for n in re.findall(rf"{word} (\d+)\.", text)]
        assert numbers == list(range(1, len(numbers) + 1))


def test_keys_that_a_file_may_lack_may_be_missing_each(results):
    for key in ("baseline", "budget", "comparisons", "significance", "steps_to_loss", "probes"):
        assert "Learning curves" in report_page(read({name: value for name, value in results.items() if name != key}))


def test_a_claim_that_lost_runs_forbid_is_told_with_the_reason(results):
    results["comparisons"][0] |= {"outcome": "no claim", "lost": "tupe-r lost 1 of 8 runs"}
    for told in (text_of(report_page(read(results))), markdown_table(read(results))):
        assert "Not significant against rope: tupe-r lost 1 of 8 runs." in told
        assert "not significantly below rope (40." in told
        assert "not significant: tupe-r lost 1 of 8 runs" in told
    results["comparisons"][0]["lost"] = EVIL
    assert "<script>alert" not in report_page(read(results)) + markdown_table(read(results))


def test_hostile_text_in_every_new_place(results):
    arms = json.dumps(results).replace('"tupe-r"', json.dumps(EVIL))
    results = json.loads(arms)
    results["probes"]["words"] |= {name: EVIL for name in ("title", "x", "value", "meaning")}
    results["probes"]["words"]["rows"][0]["x"] = results["probes"]["words"]["rows"][1]["group"] = EVIL
    results["probes"][EVIL] = results["probes"].pop("extrapolation")
    results["probes"][EVIL]["skipped"] = [{"arm": EVIL, "reason": EVIL}]
    results["budget"]["sentence"] = EVIL
    results["budget"]["arms"][EVIL]["changed"] = {EVIL: [1, 2]}
    results["significance"] = {"test": EVIL, "correction": EVIL, "sentence": EVIL}
    page = report_page(read(results))
    assert len(Page(page).scripts) == 2
    assert "<script>alert" not in page
    assert "<script>alert" not in markdown_table(read(results))


def test_a_terminal_that_shows_the_files_is_not_driven_by_them(results, tmp_path):
    text = json.dumps(results).replace('"tupe-r"', json.dumps("tupe-r\x1b[31m"))
    write_report(read(json.loads(text)), tmp_path)
    for name in ("report.html", "table.md"):
        written = (tmp_path / name).read_text(encoding="utf-8")
        assert "\x1b" not in written
        assert "tupe-r\\u001b[31m" in written


def test_only_the_pages_own_script_may_run(results):
    from base64 import b64encode
    from hashlib import sha256

    page = report_page(read(results))
    own = re.search(r"<script>(.*)</script>\s*</body>", page, re.DOTALL).group(1)
    assert f"script-src 'sha256-{b64encode(sha256(own.encode()).digest()).decode()}'" in page


def test_the_files_that_the_page_names_are_those_that_are_written(results, tmp_path):
    written = write_figures(read(results), tmp_path)
    named = [name for names in figure_files(read(results)).values() for name in names]
    assert sorted(path.name for path in written) == sorted(named)
    assert {"differences.png", "learning_curves.svg", "probe_words.png", "quality_against_cost.svg"} <= set(named)
    assert all(name in report_page(read(results)) for name in named)


def test_probe_points_are_means_over_seeds_in_order():
    probe = {
        **{name: "" for name in ("title", "x", "value")},
        "higher_is_better": None,
        "x_kind": "number",
        "rows": [
            {"arm": arm, "seed": seed, "x": x, "value": x + seed}
            for arm, seed, x in itertools.product(("b", "a"), range(3), (64, 32))
        ]
        + [{"arm": "a", "seed": 9, "x": 32, "value": None}],
    }
    (panel,) = probe_panels(ProbeResult(**probe), ["a", "b", "c"])
    assert (panel.xs, list(panel.points)) == ((32, 64), ["a", "b"])
    assert panel.points["a"][0] == ProbePoint(x=32, mean=33.0, std=1.0, n=3)
    assert probe_table(panel)[0] == ("a", ["33.0 ± 1.0", "65.0 ± 1.0"])
    probe["rows"][0]["group"] = "g"
    assert [panel.group for panel in probe_panels(ProbeResult(**probe), ["a", "b"])] == ["g", ""]


def test_lengths_are_drawn_on_a_logarithmic_axis_and_depths_are_not():
    assert spans_octaves((64, 128, 256))
    assert not spans_octaves((1, 2))
    assert not spans_octaves((0, 1, 8))
    assert not spans_octaves(("a", "b", "c"))


def test_the_target_is_drawn_in_the_curves_unit():
    results = example_results({"rope": 0.7, "tupe-r": 0.8}, task="classification")
    entry = {
        "arm": "tupe-r",
        "baseline": "rope",
        "target": 0.25,
        "steps": 300,
        "low": 250,
        "high": 350,
        "share": 0.6,
        "n": 3,
    }
    results["steps_to_loss"] = [entry]
    assert target_lines(read(results)) == [(0.25, "rope")]
    results["task"] = "masked-lm"
    assert target_lines(read(results)) == [(pytest.approx(np.exp(0.25)), "rope")]
    assert "40% earlier" in text_of(report_page(read(results)))
    results["steps_to_loss"] = [{**entry, "steps": None, "share": None, "n": 3}]
    assert "not reached" in text_of(report_page(read(results)))


def test_arms_look_apart_also_to_colour_blind_readers():
    """Distance in OKLab of every two colours as seen with the dichromacies of Machado et al. 2009 (severity 1)."""
    page = report_page(read(example_results(SMALL)))
    light, dark = page.split("@media screen and (prefers-color-scheme: dark)")[:2]
    palettes = [re.findall(r"--c\d: (#\w{6})", part)[:8] for part in (light, dark)]
    assert tuple(palettes[0]) == COLOURS
    protanopia = [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    deuteranopia = [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.01182, 0.04294, 0.968881]]
    tritanopia = [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.3039]]
    seen = [(np.eye(3), 0.12), (protanopia, 0.1), (deuteranopia, 0.1), (tritanopia, 0.08)]
    for palette, paper in zip(palettes, ("#fdfdfb", "#14171a"), strict=True):
        for matrix, least in seen:
            places = [oklab(np.asarray(matrix) @ linear(colour)) for colour in palette]
            apart = min(np.linalg.norm(a - b) for a, b in itertools.combinations(places, 2))
            assert apart >= least, (least, palette)
        for colour in palette:  # WCAG 1.4.11: graphics
            high, low = sorted((luminance(colour), luminance(paper)), reverse=True)
            assert (high + 0.05) / (low + 0.05) >= 3, colour


def test_no_two_of_twenty_arms_look_the_same():
    styles = arm_styles(read({"arms": [{"name": str(n)} for n in range(20)]}))
    assert len(set(styles.values())) == 20
    assert len({style.marker for style in list(styles.values())[:8]}) == 8


def linear(colour):
    channels = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    return np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)


def luminance(colour):
    return float(linear(colour) @ [0.2126, 0.7152, 0.0722])


def oklab(rgb):
    cones = np.array([[0.41222, 0.53633, 0.05145], [0.21190, 0.68070, 0.10740], [0.08830, 0.28172, 0.62998]])
    lab = np.array([[0.21045, 0.79362, -0.00407], [1.97800, -2.42859, 0.45059], [0.02590, 0.78277, -0.80868]])
    return lab @ np.cbrt(cones @ np.clip(rgb, 0, 1))


def test_the_report_of_decoders_says_nothing_of_cls():
    results = full_results()
    results["task"] = "causal-lm"
    assert "[CLS]" not in report_page(read(results))
