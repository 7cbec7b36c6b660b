"""What the page does with its arms and figures, in a real Chromium; with the fixtures of the other browser test."""

import json
import shutil
import subprocess

import pytest
from comparison_example import example_results, read
from report_example import FINALS, full_results
from test_report_in_browser import CHROMIUM, DRIVER, arms, browser, open_report  # noqa: F401

from wordorder.comparison.costs import COSTS, front_of

pytestmark = pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="chromium or chromedriver is not installed")
FIGURES = ("#curves", "#scatter", "#forest", "figure.probe[data-probe='extrapolation'] .chart")
TABLES = ("#results-table", "#comparisons-table", "#steps-table", "#budget-table", "#fronts-table", "#matrix")

# Texts of figures that leave their figure or cover one another.
TEXT_FAULTS = """
const faults = [];
for (const svg of document.querySelectorAll(".chart svg")) {
  const frame = svg.getBoundingClientRect();
  const texts = [...svg.querySelectorAll("text")].filter((text) => text.textContent)
    .map((text) => ({ words: text.textContent, box: text.getBoundingClientRect() }));
  for (const { words, box } of texts)
    if (box.left < frame.left - 1 || box.right > frame.right + 1 || box.bottom > frame.bottom + 1)
      faults.push(`cut: ${words}`);
  texts.forEach((one, index) => texts.slice(index + 1).forEach((other) => {
    const [a, b] = [one.box, other.box];
    const across = Math.min(a.right, b.right) - Math.max(a.left, b.left);
    const down = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
    if (across > 1 && down > 3) faults.push(`${one.words} and ${other.words}`);
  }));
}
return faults;"""


@pytest.fixture(scope="module")
def full():
    return json.dumps(full_results(seeds=4))


@pytest.fixture
def page(open_report, full):  # noqa: F811
    return open_report(json.loads(full))


def where(page, arm):
    """The places where an arm is seen: figures that draw it, tables with a row of it that shows."""
    return page.execute_script(
        """const own = `[data-arm="${CSS.escape(arguments[0])}"]`;
        const drawn = (place) => document.querySelector(`${place} g${own}`);
        const listed = (place) => [...document.querySelectorAll(`${place} tr${own}`)].some((row) => !row.hidden);
        return [...arguments[1].filter(drawn), ...arguments[2].filter(listed)];""",
        arm,
        FIGURES,
        TABLES,
    )


def shown(page):
    rows = page.find_elements("css selector", "#results-table tbody tr[data-arm]:not([hidden])")
    return [row.get_attribute("data-arm") for row in rows]


def test_an_arm_that_is_switched_off_is_gone_everywhere_and_comes_back(page):
    assert where(page, "alibi") == [*FIGURES, *TABLES]
    (button,) = page.find_elements("css selector", ".legend button[data-arm='alibi']")  # one bar for the whole page
    button.click()
    assert button.get_attribute("aria-pressed") == "false"
    assert where(page, "alibi") == []
    assert where(page, "fire") == [*FIGURES, *TABLES]
    assert page.find_element("id", "arms-status").text == "7 of 8 models shown"
    assert not page.find_elements("css selector", "#matrix td[data-arm='alibi']:not([hidden])")
    page.find_element("css selector", ".legend .all").click()
    assert button.get_attribute("aria-pressed") == "true"
    assert where(page, "alibi") == [*FIGURES, *TABLES]


def test_the_bar_of_models_and_the_contents_stay_in_sight(page):
    page.execute_script("document.getElementById('costs').scrollIntoView()")
    assert page.execute_script("return document.getElementById('models').getBoundingClientRect().top") == 0
    assert page.execute_script("return document.querySelector('.contents').getBoundingClientRect().top") == 0
    # what is jumped to is not below the bar
    title = "return document.getElementById('scatter-title').getBoundingClientRect().top"
    bar = "return document.getElementById('models').getBoundingClientRect().bottom"
    assert page.execute_script(title) >= page.execute_script(bar)


def test_every_link_in_the_page_leads_somewhere(page):
    lost = page.execute_script(
        """return [...document.querySelectorAll("a[href^='#']")].map((link) => link.getAttribute("href"))
          .filter((href) => href.length > 1 && !document.getElementById(href.slice(1)))"""
    )
    assert lost == []
    assert len(page.find_elements("css selector", ".contents a")) >= 8


def test_buttons_work_by_keyboard_and_say_their_state(page):
    from selenium.webdriver.common.keys import Keys

    button = page.find_element("css selector", ".legend button[data-arm='t5']")
    button.send_keys(Keys.SPACE)
    assert (button.get_attribute("aria-pressed"), where(page, "t5")) == ("false", [])
    button.send_keys(Keys.ENTER)
    assert (button.get_attribute("aria-pressed"), where(page, "t5")) == ("true", [*FIGURES, *TABLES])


def test_showing_all_again_keeps_the_focus_in_the_page(page):
    page.find_element("css selector", ".legend button[data-arm='rope']").click()
    page.find_element("css selector", ".legend .all").click()
    assert sorted(shown(page)) == sorted(FINALS)
    assert page.execute_script("return document.activeElement.tagName") == "BUTTON"


def test_the_front_is_that_of_pareto_py_for_every_cost(page, full):
    results = json.loads(full)
    buttons = page.find_elements("css selector", "#scatter-costs label")
    assert [button.text for button in buttons] == [cost.short for cost in COSTS]
    for cost, button in zip(COSTS, buttons, strict=True):
        button.click()
        drawn = page.execute_script(
            "return [...document.querySelectorAll('#scatter g[data-front=on]')].map(g => g.dataset.arm)"
        )
        assert sorted(drawn) == sorted(front_of(read(results), cost).on)
        assert page.find_element("id", "front-words").text == front_of(read(results), cost).words
        assert cost.title in page.find_element("id", "scatter").get_attribute("textContent")


def test_the_front_of_the_arms_that_are_shown(page):
    page.find_element("css selector", ".legend button[data-arm='rope']").click()
    assert "of the models shown: alibi, tupe-a, tupe-r" in page.find_element("id", "front-words").text


def test_differences_are_in_percent_the_best_first(page):
    names = "return [...document.querySelectorAll('#forest g[data-arm]')].map(g => g.dataset.arm)"
    assert page.execute_script(names)[0] == "tupe-r"
    assert page.execute_script(names)[-1] == "none"
    forest = page.find_element("id", "forest")
    row = forest.find_element("css selector", "g[data-arm='none']")
    assert "+138%" in row.text  # 96 beside 40
    assert "0%" in [text.text for text in forest.find_elements("css selector", "text")]
    assert "(percent) from rope" in forest.get_attribute("textContent")
    assert not page.find_elements("css selector", "#forest g[data-arm='rope']")


def test_probes_are_lines_or_dots_and_are_read_by_keyboard(page):
    from selenium.webdriver.common.keys import Keys

    lines = page.find_element("css selector", "figure.probe[data-probe='extrapolation']")
    assert len(lines.find_elements("css selector", "path.series")) == 7  # without learned, which was skipped
    chart = lines.find_element("css selector", ".chart")
    chart.send_keys(Keys.END)
    readout = lines.find_element("css selector", ".readout").get_attribute("textContent")
    assert readout.startswith("Length of the text (tokens): 1,024: alibi")
    dots = page.find_element("css selector", "figure.probe[data-probe='words']")
    assert len(dots.find_elements("css selector", ".dot")) == 8 * 5  # models x labels
    panels = page.find_element("css selector", "figure.probe[data-probe='layers']")
    shape = "return document.querySelector(\"figure.probe[data-probe='layers'] .series\").getAttribute('d')"
    before = page.execute_script(shape)
    choice = panels.find_element("css selector", ".segments input:checked")
    choice.send_keys(Keys.ARROW_RIGHT)
    assert page.execute_script("return document.activeElement.parentElement.textContent") == "distance"
    assert page.execute_script(shape) != before


def test_steps_to_loss_are_marked_on_the_curves(page):
    assert len(page.find_elements("css selector", "#curves .target")) == 1
    reached = page.execute_script("return [...document.querySelectorAll('#curves .reached')].map(g => g.dataset.arm)")
    assert reached == ["tupe-a", "tupe-r"]


@pytest.mark.parametrize("width", [390, 768, 1280])
def test_nothing_but_tables_scrolls_sideways(open_report, full, width):  # noqa: F811
    page = open_report(json.loads(full), width=width)
    assert page.execute_script("return document.documentElement.scrollWidth") <= width
    for details in page.find_elements("css selector", "details"):
        page.execute_script("arguments[0].open = true", details)
    assert page.execute_script("return document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("width", [390, 1280])
def test_no_text_of_a_figure_is_cut_off_or_covers_another(open_report, full, width):  # noqa: F811
    page = open_report(json.loads(full), width=width)
    assert page.execute_script(TEXT_FAULTS) == []


def fonts():
    """The generic families, and the installed ones that hold English letters."""
    found = ["sans-serif", "serif", "monospace"]
    if shutil.which("fc-list"):
        listed = subprocess.run(["fc-list", ":lang=en", "family"], capture_output=True, text=True, check=True).stdout
        found += sorted({json.dumps(line.split(",")[0]) for line in listed.splitlines()})[:20]
    return found


@pytest.mark.slow
@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("results", [lambda: full_results(seeds=4), example_results], ids=["full", "example"])
def test_texts_of_figures_keep_apart_with_any_font(open_report, results, width):  # noqa: F811
    page = open_report(results(), width=width)
    page.execute_script("document.head.append(Object.assign(document.createElement('style'), { id: 'own-font' }))")
    faults = {}
    for font in fonts():
        page.execute_script(
            """document.getElementById("own-font").textContent = `.chart text { font-family: ${arguments[0]} }`;
            document.querySelector(".legend .all").click();  // draws all figures anew""",
            font,
        )
        faults[font] = page.execute_script(TEXT_FAULTS)
    assert {font: found for font, found in faults.items() if found} == {}


def test_every_control_has_a_name_and_every_figure_a_text(page):
    unnamed = page.execute_script(
        """const named = (node) => node.getAttribute("aria-label") || node.textContent.trim()
          || (node.labels && node.labels.length) || document.getElementById(node.getAttribute("aria-labelledby"));
        const roles = ["img", "group", "region", "radiogroup"].map((role) => `[role=${role}]`);
        return [...document.querySelectorAll(["button", "input", "[tabindex='0']", ...roles].join())]
          .filter((node) => !named(node)).map((node) => node.outerHTML.slice(0, 80))"""
    )
    assert unnamed == []
    ids = page.execute_script("return [...document.querySelectorAll('[id]')].map(node => node.id)")
    assert len(ids) == len(set(ids))
    assert not page.find_elements("css selector", "table thead th:not([scope=col]), table tbody th:not([scope=row])")


def test_text_has_the_contrast_that_wcag_asks_for(open_report, browser, full):  # noqa: F811
    page = open_report(json.loads(full))
    measure = """
        const lin = (c) => { c /= 255; return c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4; };
        const rgb = (text) => text.match(/[\\d.]+/g).map(Number);
        const lum = ([r, g, b]) => 0.2126 * lin(r) + 0.7152 * lin(g) + 0.0722 * lin(b);
        const ground = (node) => rgb(getComputedStyle(node).backgroundColor);
        const behind = (node) => (ground(node)[3] === 0 ? behind(node.parentElement) : ground(node));
        const hasText = (node) => [...node.childNodes].some((child) => child.nodeType === 3 && child.data.trim());
        const faults = [];
        for (const node of document.querySelectorAll("main *")) {
          if (node.closest("[hidden], details:not([open]), title") || !hasText(node)) continue;
          const style = getComputedStyle(node), colour = node.namespaceURI.endsWith("svg") ? style.fill : style.color;
          const [a, b] = [lum(rgb(colour)), lum(behind(node))].sort((x, y) => y - x);
          if ((a + 0.05) / (b + 0.05) < 4.5) faults.push(`${node.tagName} ${node.textContent.trim().slice(0, 30)}`);
        }
        return faults;"""
    for mode in ("light", "dark"):
        media = [{"name": "prefers-color-scheme", "value": mode}]
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": media})
        assert page.execute_script(measure) == []
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def test_on_paper_there_are_no_controls_and_no_dark_page(open_report, browser, full):  # noqa: F811
    page = open_report(json.loads(full))
    media = {"media": "print", "features": [{"name": "prefers-color-scheme", "value": "dark"}]}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
    try:
        visible = "return [...document.querySelectorAll(arguments[0])].filter(n => n.offsetParent !== null).length"
        assert page.execute_script(visible, ".controls, .skip") == 0
        assert page.execute_script(visible, "#results-table, figcaption") > 5
        assert page.execute_script("return getComputedStyle(document.body).backgroundColor") == "rgb(253, 253, 251)"
        assert len(browser.execute_cdp_cmd("Page.printToPDF", {})["data"]) > 50_000
    finally:
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "", "features": []})


def test_hostile_names_everywhere_stay_text(open_report):  # noqa: F811
    name = "\"></script><img src=x onerror=document.title='broken'>'"
    results = json.loads(json.dumps(full_results(FINALS, seeds=2)).replace('"rope"', json.dumps(name)))
    results["probes"][name] = {**results["probes"]["extrapolation"], "title": name, "meaning": name}
    results["probes"][name]["skipped"] = [{"arm": name, "reason": name}]
    page = open_report(results)
    assert page.title == "demo: word-order comparison"
    assert not page.find_elements("css selector", "main img")
    page.find_elements("css selector", ".legend button")[2].click()
    assert where(page, name) == []


def test_sixteen_arms_and_an_old_file_are_drawn_too(open_report):  # noqa: F811
    page = open_report(example_results({f"arm-{n}": 30.0 + n for n in range(16)}))
    assert len(page.find_elements("css selector", "#curves path.series")) == 16
    assert not page.find_elements("id", "forest")
    assert len(arms(page)) == 16
