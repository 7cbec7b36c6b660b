import json
import shutil

import pytest
from comparison_example import FINAL, example_results, read

from wordorder.comparison import write_report

CHROMIUM = next(
    (path for name in ("chromium", "chromium-browser", "google-chrome", "chrome") if (path := shutil.which(name))), None
)
DRIVER = shutil.which("chromedriver")
pytestmark = pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="chromium or chromedriver is not installed")
SWITCHES = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-dev-shm-usage",
    "--window-size=1280,900",
)


@pytest.fixture(scope="module")
def browser():
    webdriver = pytest.importorskip("selenium.webdriver")
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for switch in SWITCHES:
        options.add_argument(switch)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(service=Service(DRIVER), options=options)
    yield driver
    driver.quit()


@pytest.fixture
def open_report(browser, tmp_path):
    """Write a report, open it, and hand back the browser; at the end no error and no request may have happened."""

    def open_page(results, *, width=1280):
        browser.execute_cdp_cmd(
            "Emulation.setDeviceMetricsOverride",
            {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False},
        )
        browser.get_log("performance")
        browser.get_log("browser")
        write_report(read(results), tmp_path)
        browser.get(f"file://{tmp_path}/report.html")
        return browser

    yield open_page
    assert browser.get_log("browser") == []
    events = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    requests = [e["params"]["request"]["url"] for e in events if e["method"] == "Network.requestWillBeSent"]
    assert [url for url in requests if not url.startswith(("file:", "data:", "blob:"))] == []
    assert sum(url.startswith("file:") for url in requests) == 1


def arms(browser):
    return browser.execute_script(
        "return [...document.querySelectorAll('#results-table tbody th')].map(th => th.dataset.value)"
    )


def test_the_page_is_drawn_without_errors_or_requests(open_report):
    page = open_report(example_results())
    assert len(page.find_elements("css selector", "#curves path.series")) == 7
    assert len(page.find_elements("css selector", "#curves path.band")) == 7
    assert len(page.find_elements("css selector", "#scatter g[data-arm]")) == 7


@pytest.mark.parametrize("width", [1280, 390])
def test_nothing_but_tables_scrolls_sideways(open_report, width):
    page = open_report(example_results(), width=width)
    assert page.execute_script("return document.documentElement.scrollWidth") <= width


def test_the_table_sorts_by_click(open_report):
    page = open_report(example_results())
    best_first = sorted(FINAL, key=FINAL.get)
    assert arms(page) == best_first
    buttons = page.find_elements("css selector", "#results-table th button")
    buttons[1].click()
    assert arms(page) == best_first[::-1]
    buttons[0].click()
    assert arms(page) == sorted(FINAL)
    heading = page.find_element("css selector", "#results-table thead th")
    assert heading.get_attribute("aria-sort") == "ascending"
    page.find_element("id", "more-columns").click()
    place = [button.text for button in buttons].index("Tokens per second")
    buttons[place].click()  # the fastest first
    speeds = page.execute_script(
        "return [...document.querySelectorAll('#results-table tbody tr')]"
        ".map(r => +r.cells[arguments[0]].dataset.value)",
        place,
    )
    assert speeds == sorted(speeds, reverse=True)
    assert len(set(speeds)) > 1


def test_further_columns_are_shown_on_demand(open_report):
    page = open_report(example_results())
    heads = page.find_elements("css selector", "#results-table thead th")
    seen = [head.text for head in heads if head.is_displayed()]
    assert seen == ["Model", "Test masked-token perplexity", "Parameters", "Training time"]
    page.find_element("id", "more-columns").click()
    assert all(head.is_displayed() for head in heads)


def test_the_table_sorts_by_keyboard(open_report):
    from selenium.webdriver.common.keys import Keys

    page = open_report(example_results())
    button = page.find_element("css selector", "#results-table th button")
    button.send_keys(Keys.ENTER)
    assert arms(page) == sorted(FINAL)
    button.send_keys(Keys.SPACE)
    assert arms(page) == sorted(FINAL, reverse=True)
    assert "descending" in page.find_element("id", "sort-status").get_attribute("textContent")


def test_the_legend_hides_an_arm_in_both_figures(open_report):
    page = open_report(example_results())
    button = page.find_element("css selector", ".legend button[data-arm='rope']")
    button.click()
    assert button.get_attribute("aria-pressed") == "false"
    assert not page.find_elements("css selector", "#curves [data-arm='rope'], #scatter [data-arm='rope']")
    button.click()
    assert len(page.find_elements("css selector", "#curves [data-arm='rope'], #scatter [data-arm='rope']")) == 2


def test_curves_are_read_by_keyboard_and_pointer(open_report):
    from selenium.webdriver import ActionChains
    from selenium.webdriver.common.keys import Keys

    page = open_report(example_results())
    chart = page.find_element("id", "curves")
    chart.send_keys(Keys.END)
    text = page.find_element("id", "curves-readout").get_attribute("textContent")
    assert text.startswith("Step 1,000: tupe-")
    assert "±" in text
    chart.send_keys(Keys.ARROW_LEFT)
    assert page.find_element("id", "curves-readout").get_attribute("textContent").startswith("Step 950:")
    ActionChains(page).move_to_element(chart).perform()
    assert "tupe-r" in page.find_element("id", "tooltip").text


def test_the_cost_axis_is_chosen_by_arrow_keys(open_report):
    from selenium.webdriver.common.keys import Keys

    page = open_report(example_results())
    page.find_element("css selector", "#scatter-costs input:checked").send_keys(Keys.ARROW_RIGHT)
    assert page.execute_script("return document.activeElement.parentElement.textContent") == "FLOPs"
    assert page.find_element("css selector", "#scatter-costs :checked + span").text == "FLOPs"


def test_an_arm_named_like_a_script_is_shown_as_its_name(open_report):
    name = "<script>document.title='broken'</script>"
    page = open_report(example_results({name: 30.0, "rope": 40.0}))
    assert arms(page) == [name, "rope"]
    assert page.title == "demo: word-order comparison"
    assert name in page.find_element("css selector", ".legend").text


def test_a_report_of_nothing_yet_has_no_errors(open_report):
    results = example_results()
    results.update(rows=[], summary=[], tuning=[], environment={}, complete=False)
    assert "No run has finished yet." in open_report(results).find_element("id", "verdict").text
