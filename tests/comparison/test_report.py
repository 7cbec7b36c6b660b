import copy
import io
import json
import re
import tomllib
from html.parser import HTMLParser

import pytest
from comparison_example import FINAL, example_results, read, summarised
from rich.console import Console

from wordorder.comparison import markdown_table, render_table, write_report
from wordorder.comparison.report.figures import draw_costs, write_figures
from wordorder.comparison.report.html import json_in_html, report_page
from wordorder.comparison.report.table import caption
from wordorder.errors import BadInput

EVIL = "<script>alert(1)</script>\u2028&'\"|[bold]$x$"


class Page(HTMLParser):
    """Collects tags, attributes and the text of script elements."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.scripts, self.inside = [], [], None
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag == "script":
            self.scripts.append([dict(attrs), ""])
        self.inside = tag

    def handle_endtag(self, tag):
        self.inside = None

    def handle_data(self, data):
        if self.inside == "script":
            self.scripts[-1][1] += data


def with_evil_names():
    results = json.loads(json.dumps(example_results({"rope": 40.0, "tupe-r": 30.0})).replace('"rope"', '"EVIL"'))
    return json.loads(json.dumps(results).replace('"EVIL"', json.dumps(EVIL)))


def test_the_report_needs_nothing_but_itself():
    page = Page(report_page(read(example_results())))
    addresses = [value for _, attrs in page.tags for name, value in attrs.items() if name in {"src", "href"}]
    assert all(address.startswith(("data:", "#")) for address in addresses)
    text = report_page(read(example_results()))
    assert not re.search(r"@import|url\(|fetch\(|XMLHttpRequest|import\(", text)
    assert "default-src 'none'" in text


def test_text_from_data_cannot_become_markup():
    results = with_evil_names()
    results["name"] = results["recipe"]["data"]["source"] = EVIL
    results["failed"] = [
        {"arm": EVIL, "seed": 0, "stage": "seeds", "learning_rate": 0.1, "reason": EVIL, "status": "failed"}
    ]
    results["environment"][EVIL], results["data"][EVIL] = EVIL, EVIL
    text = report_page(read(results))
    assert len(Page(text).scripts) == 2
    assert "<script>alert" not in text
    assert "\u2028" not in text.split('id="view-json"')[1]
    assert "<script>" not in markdown_table(read(results))


def test_json_in_html_cannot_end_its_script_element():
    text = json_in_html({"a": "</script><!--\u2028\u2029&"})
    assert not re.search("[<>&\u2028\u2029]", text)
    assert json.loads(text) == {"a": "</script><!--\u2028\u2029&"}


def test_tables_come_from_the_results_alone_and_leave_them_as_they_were(tmp_path):
    results = example_results()
    before = copy.deepcopy(results)
    (tmp_path / "one").mkdir()
    write_report(read(json.loads(json.dumps(results))), tmp_path / "one")
    write_report(read(results), tmp_path)
    assert results == before
    for name in ("table.md", "report.html"):
        assert (tmp_path / name).read_bytes() == (tmp_path / "one" / name).read_bytes()


def test_the_markdown_table_is_sorted_by_quality_and_has_units():
    lines = markdown_table(read(example_results())).splitlines()
    lines = [line for line in lines if line.startswith("|")]
    assert [line.split(" | ")[0].strip("| ") for line in lines[2:9]] == sorted(FINAL, key=FINAL.get)
    assert "MFLOP per token" in lines[0]
    assert "MiB" in lines[0]
    assert "±" in lines[2]
    assert "3 seeds" in markdown_table(read(example_results()))
    assert "1,000 training steps" in markdown_table(read(example_results()))


def test_the_caption_says_what_speed_and_memory_do_not_show():
    results = example_results()
    shared, roughly = "it may have trained other models before", "they compare only roughly"
    assert shared in caption(read(results))
    assert roughly in caption(read(results))
    results["recipe"]["compare"]["workers"] = 1
    assert shared in caption(read(results))
    assert roughly not in caption(read(results))
    results["environment"]["device"] = "cuda: a GPU"  # there the memory of tensors is measured, from zero in each run
    assert shared not in caption(read(results))


def test_speed_that_something_disturbed_is_a_median_with_its_range():
    results = example_results()
    assert "are a median" not in caption(read(results))
    for row, speed in zip([row for row in results["rows"] if row["arm"] == "rope"], (2e4, 2.1e4, 1e3), strict=True):
        row["tokens_per_second"] = speed
    results["summary"] = summarised(results["rows"])
    table = markdown_table(read(results))
    assert "20,000 (1,000 to 21,000)" in table
    assert "±" in next(line for line in table.splitlines() if line.startswith("| tupe-r")).split("|")[7]
    assert "are a median (lowest to highest)" in caption(read(results))
    for entry in results["summary"]:  # as versions wrote it that had no median
        entry["tokens_per_second"] = {name: entry["tokens_per_second"][name] for name in ("mean", "std", "n")}
    assert "20,000 (" not in markdown_table(read(results))


def test_the_caption_says_with_how_many_threads_each_run_was_timed():
    results = example_results()
    assert "2 trainings side by side, one thread each" in caption(read(results))
    results["recipe"]["training"]["threads"] = 4
    assert "2 trainings side by side, 4 threads each" in caption(read(results))


def test_the_caption_says_where_the_arms_started():
    results = example_results()
    assert "start from the same weights where they share them." in caption(read(results))
    results["recipe"]["model"] = {"pretrained": "runs/pretraining/{arm}/model"}
    assert "start from saved models of their own." in caption(read(results))
    results["recipe"]["model"] = {"pretrained": "runs/one/model"}
    assert "start from the same saved model." in caption(read(results))
    results["recipe"]["compare"]["arms"][0]["model.pretrained"] = "runs/other/model"
    assert "start from saved models of their own." in caption(read(results))


def test_too_few_seeds_show_no_spread():
    table = markdown_table(read(example_results(seeds=2)))
    assert "fewer than 3 seeds give no spread" in table
    assert " ± " not in table


def test_an_arm_without_a_finished_run_is_in_the_table():
    results = example_results()
    results["rows"] = [row for row in results["rows"] if row["arm"] != "rope"]
    results["summary"] = [entry for entry in results["summary"] if entry["arm"] != "rope"]
    arm = next(arm for arm in results["arms"] if arm["name"] == "rope")
    arm.update(parameters=None, encoding_parameters={}, flops_per_token=None, learning_rate=None)
    assert "| rope | – |" in markdown_table(read(results))
    assert "rope" in report_page(read(results))


def test_the_terminal_table_takes_names_literally():
    console = Console(record=True, width=200, file=io.StringIO())
    render_table(read(with_evil_names()), console)
    assert "[bold]" in console.export_text()


def test_the_recipe_in_the_page_can_be_read_again():
    text = re.search(r"<pre[^>]*><code>(.*?)</code></pre>", report_page(read(example_results())), re.DOTALL).group(1)
    recipe = tomllib.loads(text.replace("&#34;", '"'))
    assert recipe["compare"]["seeds"] == [0, 1, 2]
    assert recipe["compare"]["arms"][3] == {"name": "rope", "model.encoding": "rope"}


@pytest.mark.parametrize("task", ["masked-lm", "classification"])
def test_figures_are_files(tmp_path, task):
    finals = {"rope": 0.7, "tupe-r": 0.8} if task == "classification" else {"rope": 40.0, "tupe-r $x$": 30.0}
    results = example_results(finals, task=task)
    names = {path.name for path in write_figures(read(results), tmp_path)}
    assert names == {
        f"{name}.{ending}" for name in ("learning_curves", "quality_against_cost") for ending in ("png", "svg")
    }
    assert all((tmp_path / name).stat().st_size > 1000 for name in names)


def test_figures_replace_links_and_are_not_written_through_them(tmp_path):
    results = read(example_results({"rope": 40.0, "tupe-r": 30.0}))
    (tmp_path / "victim").write_text("mine")
    (tmp_path / "figures").mkdir()
    for ending in ("png", "svg"):
        (tmp_path / "figures" / f"learning_curves.{ending}").symlink_to(tmp_path / "victim")
    written = write_figures(results, tmp_path / "figures")
    assert (tmp_path / "victim").read_text() == "mine"
    assert sorted((tmp_path / "figures").iterdir()) == sorted(written)
    assert not any(path.is_symlink() for path in written)


def test_a_folder_of_figures_that_is_a_link_to_elsewhere_is_refused(tmp_path):
    results = read(example_results({"rope": 40.0, "tupe-r": 30.0}))
    for name in ("elsewhere", "out", "out/drawn"):
        (tmp_path / name).mkdir()
    (tmp_path / "out" / "figures").symlink_to("../elsewhere")
    with pytest.raises(BadInput, match=r"out/figures' is a link to '.*elsewhere', .* --output-dir FOLDER"):
        write_figures(results, tmp_path / "out" / "figures")
    assert not list((tmp_path / "elsewhere").iterdir())
    (tmp_path / "out" / "figures").unlink()
    (tmp_path / "out" / "figures").symlink_to("drawn")
    assert write_figures(results, tmp_path / "out" / "figures")


def test_quality_is_drawn_against_what_an_arm_costs(tmp_path):
    from matplotlib.figure import Figure

    results = example_results({"rope": 0.7, "tupe-r": 0.8}, task="classification")
    axes = dict(zip(("parameters", "flops_per_token"), Figure().subplots(1, 2), strict=True))
    draw_costs(read(results), axes, lambda name: {"label": name})
    for cost, area in axes.items():
        assert area.get_ylabel() == "Test accuracy"
        for bars in area.containers:
            (entry,) = [entry for entry in results["summary"] if entry["arm"] == bars.get_label()]
            (arm,) = [arm for arm in results["arms"] if arm["name"] == bars.get_label()]
            price = (arm["parameters"]["total"] if cost == "parameters" else arm["flops_per_token"]) / 1e6
            assert bars[0].get_xydata().tolist() == [[price, pytest.approx(entry["accuracy"]["mean"])]]
            (segment,) = bars[2][0].get_segments()
            half = (segment[1][1] - segment[0][1]) / 2
            assert half == pytest.approx(entry["accuracy"]["std"])
        assert len(area.containers) == 2
    alone = example_results({"rope": 0.7}, task="classification")
    assert not any("quality" in path.name for path in write_figures(read(alone), tmp_path))


def test_medians_are_drawn_with_the_range_of_their_seeds():
    results = example_results({"rope": 0.7, "tupe-r": 0.8}, task="classification")
    for statistic, expected in (("mean", ("mean", "std")), ("median", ("median", "low", "high"))):
        results["statistic"] = statistic
        scripts = {attrs.get("id"): text for attrs, text in Page(report_page(read(results))).scripts}
        view = json.loads(scripts["view-json"])
        for point in view["costs"][0]["points"]:
            (entry,) = [entry["accuracy"] for entry in results["summary"] if entry["arm"] == point["name"]]
            values = [entry[name] for name in expected]
            assert point["quality"] == values[0]
            ends = values[1:] if statistic == "median" else [values[0] - values[1], values[0] + values[1]]
            assert view["ranges"][point["name"]] == pytest.approx(ends)


def test_the_losses_unit_is_that_of_the_task():
    results = example_results({"rope": 0.7, "tupe-r": 0.8}, task="classification")
    assert "Validation loss (nats)" in report_page(read(results))
    results["task"], results["metric"] = "regression", "accuracy"
    assert "Validation loss (squared error)" in report_page(read(results))
    assert "(nats)" not in report_page(read(results)).split("view-json")[0].split("To repeat it")[0]


def test_an_empty_results_file_still_makes_a_page(tmp_path):
    results = example_results()
    results.update(rows=[], summary=[], tuning=[], environment={}, complete=False)
    assert "No run has finished yet." in report_page(read(results))
