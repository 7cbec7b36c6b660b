"""The site in a browser, on a phone and on a screen, light and dark: figures have a size, and text can be read."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
CHROMIUM = next((path for name in NAMES if (path := shutil.which(name))), None)
DRIVER = shutil.which("chromedriver")
SWITCHES = ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage")
LOOK = r"""
document.head.insertAdjacentHTML('beforeend', '<style>* { transition: none !important }</style>');
document.body.setAttribute('data-md-color-scheme', arguments[0]);
const numbers = text => (text.match(/[\d.]+/g) || []).map(Number);
const over = (top, below) => [0, 1, 2].map(i => top[i] * (top[3] ?? 1) + below[i] * (1 - (top[3] ?? 1)));
const light = colour => {
  const [r, g, b] = colour.map(c => (c /= 255) <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const behind = element => {
  const layers = [];
  for (; element; element = element.parentElement) {
    layers.unshift(numbers(getComputedStyle(element).backgroundColor));
  }
  return layers.filter(layer => layer.length).reduce((below, layer) => over(layer, below), [255, 255, 255]);
};
const faint = new Set();
const texts = document.createTreeWalker(document.querySelector('article'), NodeFilter.SHOW_TEXT);
while (texts.nextNode()) {
  const element = texts.currentNode.parentElement, style = getComputedStyle(element);
  const box = element.getBoundingClientRect();
  if (!texts.currentNode.textContent.trim() || box.width < 2 || style.visibility === 'hidden') continue;
  if (element.classList.contains('headerlink')) continue;  // invisible until the mouse is there
  const ground = behind(element), both = [light(over(numbers(style.color), ground)), light(ground)];
  const contrast = (Math.max(...both) + 0.05) / (Math.min(...both) + 0.05);
  if (contrast < 4.5) faint.add(`${element.tagName} ${element.className} ${contrast.toFixed(2)}`);
}
const images = [...document.querySelectorAll('article img')];
return {
  faint: [...faint],
  wide: document.documentElement.scrollWidth > window.innerWidth,
  blank: images.filter(i => !i.naturalWidth || i.clientWidth < 100 || i.clientHeight < 60).map(i => i.src),
  silent: images.filter(i => !i.alt).map(i => i.src),
};
"""


@pytest.fixture(scope="module")
def browser():
    if not (CHROMIUM and DRIVER):
        pytest.skip("chromium or chromedriver is not installed")
    webdriver = pytest.importorskip("selenium.webdriver")
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for switch in SWITCHES:
        options.add_argument(switch)
    driver = webdriver.Chrome(service=Service(DRIVER), options=options)
    yield driver
    driver.quit()


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, env=os.environ | {"NO_MKDOCS_2_WARNING": "true"})
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("width", [390, 1280])
def test_every_page_can_be_read(browser, site, width):
    metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    pages = sorted(path for path in site.rglob("*.html") if path.name != "404.html")
    assert len(pages) > 60
    faults = []
    for page in pages:
        browser.get(page.as_uri())
        for scheme in ("default", "slate"):
            seen = browser.execute_script(LOOK, scheme)
            where = f"{page.relative_to(site)}, {scheme}"
            faults += [f"{where}: {kind}: {what}" for kind, what in seen.items() if what]
    assert not faults, "\n".join(faults)
