"""Put what `wordorder inspect` found in the models of `memory_letters` into docs/memory.md: a table and a figure.

    wordorder compare evidence/recipes/memory_letters.toml
    python evidence/publish/publish_attention_by_distance.py runs/memory_letters

watches the models with a memory read the beginning of the test part, writes
`evidence/results/attention-by-distance.json`, the table between its markers and `docs/figures/memory_attention.svg`.
A test holds page and figure to the committed JSON.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from blocks import put
from charts import lines, picture
from publish_demo import RESULTS, ROOT

from wordorder.tasks import prepare
from wordorder.training import read_recipe

PAGE = ROOT / "docs" / "memory.md"
FIGURE = ROOT / "docs" / "figures" / "memory_attention.svg"
MODELS = ("transformer-xl", "look-ahead")
CHARACTERS = 20_000
"""Length of the text, from the test part; `wordorder inspect` reads its first 8,192 tokens."""


def inspect(run: Path, text: Path) -> dict[str, Any]:
    """Watch the model of one run read, and return what the table and the figure show."""
    folder = run / "inspect"
    command = [sys.executable, "-m", "wordorder", "inspect", str(run / "model"), "--text", str(text)]
    subprocess.run([*command, "--output-dir", str(folder)], check=True, stdout=subprocess.DEVNULL)
    numbers = json.loads((folder / "numbers.json").read_text(encoding="utf-8"))
    attention, alphas = numbers["attention"], numbers["alpha_by_layer_and_age"]
    return {
        "model": run.parent.name,
        "seed": int(run.name.removeprefix("seed-")),
        "tokens": attention["tokens"],
        "weight_by_distance": attention["mean_by_distance"],
        "share_on_memory": mean(share for layer in attention["share_on_memory_by_layer_and_head"] for share in layer),
        "alpha_of_the_oldest_slot": None if alphas is None else mean(layer[-1] for layer in alphas),
        "versions": numbers["versions"],
    }


def table_of(results: dict[str, Any]) -> str:
    """One row a memory: mean and sample standard deviation over its seeds."""
    rows = ["| Memory | Attention on the memory | Old content that the oldest slot keeps |", "| :--- | ---: | ---: |"]
    for model in MODELS:
        found = [run for run in results["runs"] if run["model"] == model]
        cells = [_mean([run[key] for run in found]) for key in ("share_on_memory", "alpha_of_the_oldest_slot")]
        rows.append(f"| {model} | {cells[0]} | {cells[1]} |")
    seeds = len({run["seed"] for run in results["runs"]})
    return "\n".join(rows) + f"\n\nLetters in segments of 32, {seeds} seeds."


def _mean(values: list[float | None]) -> str:
    known = [value for value in values if value is not None]
    return f"{mean(known):.1%} ± {stdev(known):.1%}" if known else "all"


def chart_of(results: dict[str, Any]) -> str:
    """Mean weight by distance, averaged from each power of two to the next."""
    series = {}
    for model in MODELS:
        weights = [run["weight_by_distance"] for run in results["runs"] if run["model"] == model]
        starts = [2**k for k in range(len(weights[0])) if 2**k < len(weights[0])]
        means = [mean(value for run in weights for value in run[start : 2 * start]) for start in starts]
        series[model] = list(zip(starts, means, strict=True))
    title, across = "Attention by distance", "distance to the left, from here to twice as far (letters)"
    return picture(lines(title, series, across=across, up="mean weight of a letter", logarithmic=True))


def main() -> None:
    """Inspect the runs of a comparison, write the JSON, the page and the figure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="of the finished comparison memory_letters")
    folder = parser.parse_args().folder
    runs = sorted(run for model in MODELS for run in (folder / model).glob("seed-*"))
    recipe = read_recipe(runs[0] / "recipe.toml")
    prepared = prepare(recipe.data, recipe.tokenizer, seed=0)
    with tempfile.TemporaryDirectory() as beside:
        text = Path(beside) / "text.txt"
        text.write_text(prepared.tokenizer.decode(list(prepared.test.ids[:CHARACTERS])), encoding="utf-8")
        results = {"runs": [inspect(run, text) for run in runs]}
    written = json.dumps(results, indent=1, sort_keys=True)
    (RESULTS / "attention-by-distance.json").write_text(f"{written}\n", encoding="utf-8")
    PAGE.write_text(put(PAGE.read_text(encoding="utf-8"), "attention-by-distance", table_of(results)), encoding="utf-8")
    FIGURE.write_text(f"{chart_of(results)}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
