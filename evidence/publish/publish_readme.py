"""Write the table, the picture and the badges of README.md from committed results and pyproject.toml.

    python evidence/publish/publish_readme.py

The picture is drawn twice, for light and dark pages. A test holds the README and the files to what this makes.
"""

import math
import tomllib
from html import escape
from statistics import fmean

from blocks import put
from charts import as_image, lines
from choice_rules import lengths, refusing
from publish_choice import time_of
from publish_demo import RESULTS, ROOT, score_with_marks

from wordorder.comparison.report.differences import significant
from wordorder.comparison.report.verdict import ranked, verdict
from wordorder.comparison.results_file import Results, read_results
from wordorder.comparison.statistics.summary import quality_of

README = ROOT / "README.md"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
RAW = PROJECT["urls"]["Repository"].replace("github.com", "raw.githubusercontent.com") + "/main/docs"
THEMES = {"light": "#1f2328", "dark": "#e6edf3"}
"""Colour of the text on a light and on a dark page."""
ALT = "Perplexity on validation data while training, seven encodings"


def headline() -> str:
    """The picture, the verdict and the table, as the README holds them."""
    early, longer = (read_results(RESULTS / f"{name}.json") for name in ("demo-early", "compare-mlm"))
    dark = f'<source media="(prefers-color-scheme: dark)" srcset="{RAW}/figures/headline-dark.svg">'
    light = f'<img alt="{ALT}" src="{RAW}/figures/headline-light.svg" width="760">'
    decision = verdict(early)
    sentence = f"After {early.rows[0].steps:,} steps {decision.sentence} {decision.status}"
    return "\n\n".join((f"<picture>{dark}{light}</picture>", sentence, table(early, longer)))


def table(early: Results, longer: Results) -> str:
    """The encodings, best first."""
    quality = quality_of(early)
    xs, means = lengths(longer)
    name = quality.name.capitalize()
    rows = [f"| {name} | after {early.rows[0].steps:,} steps | {xs[-1] / xs[0]:.0f}× longer texts | training time |"]
    rows.append("| :--- | ---: | ---: | ---: |")
    for entry in ranked(early):
        score = score_with_marks(early, entry.arm)
        far = means.get(entry.arm, [None])[-1]
        beyond = "cannot read" if entry.arm in refusing(longer) else significant(far, 3) if far else "not measured"
        time = f"{time_of(entry.arm) or 0:.2f}"
        rows.append(f"| `{entry.arm}` | {score} | {beyond} | {time}× |")
    seeds = len({row.seed for row in early.rows})
    note = (
        f"Masked letters of State of the Union addresses, mean ± standard deviation of {seeds} seeds, lower is better. "
        "† Has learned little more than letter frequencies (loss at most 5% below `none`). ‡ Unfinished. "
        f"Longer texts: after {longer.rows[0].steps:,} steps, {len({row.seed for row in longer.rows})} seeds; "
        "TUPE's position table ends at the training length. "
        "Learning rates: best of five. "
        "Training time: one step on a CPU, relative to `none`."
    )
    return "\n".join([*rows, "", note])


def picture(early: Results) -> str:
    """Curves of validation perplexity, the mean over seeds, both axes logarithmic."""
    curves = {}
    for entry in ranked(early):
        runs = [row.curve for row in early.rows if row.arm == entry.arm]
        points = zip(*runs, strict=True)
        curves[entry.arm] = [(float(own[0][0]), math.exp(fmean(loss for _, loss in own))) for own in points]
    return lines(
        "Masked letters: validation perplexity while training",
        curves,
        across="training steps",
        up="perplexity",
        logarithmic=True,
    )


def badge(name: str, value: str) -> str:
    """A badge as a file, so that no server has to draw it."""
    left, right = (7 * len(text) + 12 for text in (name, value))
    box = f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + right}" height="20" role="img">'
    back = f'<rect width="{left + right}" height="20" rx="3" fill="#555"/>'
    front = f'<path d="M{left} 0h{right - 3}a3 3 0 0 1 3 3v14a3 3 0 0 1-3 3H{left}z" fill="#33658a"/>'
    style = 'fill="#fff" font-family="Verdana,sans-serif" font-size="11" text-anchor="middle"'
    texts = "".join(
        f'<text x="{x}" y="14" textLength="{7 * len(text)}" {style}>{escape(text)}</text>'
        for x, text in ((left / 2, name), (left + right / 2, value))
    )
    return f"{box}<title>{escape(name)}: {escape(value)}</title>{back}{front}{texts}</svg>\n"


def files() -> dict[str, str]:
    """Path under docs/ -> text of every picture and badge."""
    chart = picture(read_results(RESULTS / "demo-early.json"))
    made = {f"figures/headline-{name}.svg": as_image(chart, colour) for name, colour in THEMES.items()}
    torch = PROJECT["dependencies"][0].removeprefix("torch>=")
    status = next(c for c in PROJECT["classifiers"] if c.startswith("Development Status")).split(" - ")[1]
    badges = {
        "python": ("python", PROJECT["requires-python"].removeprefix(">=") + "+"),
        "torch": ("pytorch", f"{torch}+"),
        "licence": ("licence", PROJECT["license"]),
        "status": ("status", status.lower()),
    }
    return made | {f"assets/badge-{name}.svg": badge(*texts) for name, texts in badges.items()}


def page_of(text: str) -> str:
    """The README with its table as the files have it."""
    return put(text, "headline", headline())


if __name__ == "__main__":
    README.write_text(page_of(README.read_text(encoding="utf-8")), encoding="utf-8")
    for name, text in files().items():
        (ROOT / "docs" / name).write_text(text, encoding="utf-8")
