"""Run the comparisons that pages and recipes quote, one after the other, and put their results on the pages.

    python evidence/train.py                 # those without committed results
    python evidence/train.py --list          # all, with the date of their results
    python evidence/train.py demo tupe-64x2  # these, with or without results

They take hours on two cores. Runs are in runs/NAME, where a killed comparison goes on. WORDORDER_DATA names the folder
of the text sets that are not part of the package. `make pages` then writes the tables that join several comparisons.
"""

import argparse
import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "evidence" / "results"
RECIPES = "evidence/recipes"
RUNS = ROOT / "runs"
WIDER = {"model.hidden_size": 128, "compare.tune": [1e-3, 2e-3, 4e-3]}
TASKS = ("n_back", "even_pairs", "reverse", "questions", "masked_letters", "causal_letters")
"""Tasks of the decision table."""


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """A comparison and the name of its results."""

    name: str
    recipe: str
    """A packaged recipe's name, or a file below the root of the repository."""
    settings: "dict[str, object] | None" = None
    """Key of the recipe -> value in its place."""
    wider: str | None = None
    """Results whose recipe is trained at width 128; `recipe` is a name for it then."""

    @property
    def results(self) -> Path:
        """File of the committed results."""
        return RESULTS / f"{self.name}.json"

    @property
    def folder(self) -> Path:
        """Folder in which it is trained."""
        return RUNS / self.name

    def begun(self) -> str:
        """Return the date of the committed results, or "missing"."""
        if not self.results.is_file():
            return "missing"
        return json.loads(self.results.read_text("utf-8")).get("environment", {}).get("started", "?")[:10]

    def commands(self) -> list[list[str]]:
        """Return the commands that train it and publish it."""
        recipe, found = self.recipe, list[list[str]]()
        if self.wider is not None:
            recipe = f"{self.folder}/{self.recipe}.toml"  # the recipe's name is that of the comparison
            options = ["--width", "128", "--seeds", "3", "--out", recipe]
            found.append([sys.executable, "evidence/wider.py", str(RESULTS / f"{self.wider}.json"), *options])
        changes = [word for key, value in (self.settings or {}).items() for word in ("--set", f"{key}={value}")]
        trained = self.folder / "runs" if self.wider else self.folder
        found.append([sys.executable, "-m", "wordorder", "compare", recipe, *changes, "--output-dir", str(trained)])
        publish = [sys.executable, "evidence/publish/publish_demo.py", str(trained)]
        found.append([*publish, "--name", self.name])
        return found


TUPE = f"{RECIPES}/tupe_scales.toml"
SHORT = {"training.max_steps": 550, "training.evaluate_every": 0.2, "training.save_every": 0.2}
SST2 = {"data.source": "sst2-sentences", "training.epochs": 5}
PACKAGED = {
    "demo": "demo",
    "demo-long": "demo_long",
    "translation": "translation",
    "compare-mlm": "masked_lm",
    "compare-clm": "causal_lm",
    "compare-classification": "classification",
    "compare-memory": "memory",
}
"""Results -> recipe of the package that is run as it is."""
PLAIN = (
    *("order_binding", "compare_translation", "compare_documents", "memory_wikitext", "memory_brackets"),
    *("memory_instruction", "memory_letters", "parametrisation", "complex_order_rates"),
)
"""Recipes of evidence/ that are run as they are, and whose results have their names."""
ALL = (
    *(Evidence(name=name, recipe=recipe) for name, recipe in PACKAGED.items()),
    *(Evidence(name=recipe.replace("_", "-"), recipe=f"{RECIPES}/{recipe}.toml") for recipe in PLAIN),
    Evidence(name="demo-early", recipe="demo_long", settings=SHORT),
    Evidence(name="pretraining", recipe="pretraining"),
    *(Evidence(name=f"decision/{task}_64", recipe=f"{RECIPES}/decision/{task}.toml") for task in TASKS),
    *(Evidence(name=f"decision/{task}_128", recipe=task, wider=f"decision/{task}_64") for task in TASKS),
    Evidence(name="tupe-64x2", recipe=TUPE),
    Evidence(name="tupe-128x2", recipe=TUPE, settings=WIDER),
    Evidence(name="tupe-128x4", recipe=TUPE, settings={**WIDER, "model.num_hidden_layers": 4}),
    Evidence(name="complex-order-rates-sst2", recipe=f"{RECIPES}/complex_order_rates.toml", settings=SST2),
)


def main() -> None:
    """List the comparisons, or run some."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--list", action="store_true", help="say what there is, and stop")
    arguments = parser.parse_args()
    if unknown := set(arguments.names) - {entry.name for entry in ALL}:
        parser.error(f"unknown: {', '.join(sorted(unknown))}; --list shows the names")
    if arguments.list:
        print("\n".join(f"{entry.begun():10}  {entry.name}" for entry in ALL))
        return
    chosen = [
        entry for entry in ALL if entry.name in arguments.names or (not arguments.names and not entry.results.is_file())
    ]
    there = {entry.name for entry in ALL if entry.results.is_file()} | {entry.name for entry in chosen}
    for entry in chosen:
        if entry.wider is not None and entry.wider not in there:
            raise SystemExit(f"{entry.name} takes its learning rates from {entry.wider}, which is missing: name it too")
    for entry in chosen:
        print(entry.name, flush=True)
        entry.folder.mkdir(parents=True, exist_ok=True)
        for command in entry.commands():
            subprocess.run(command, cwd=ROOT, check=True)


if __name__ == "__main__":
    main()
