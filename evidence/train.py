"""Run the comparisons that the pages show, one after the other, and put their results on the pages.

    python benchmarks/evidence.py                 # those without committed results
    python benchmarks/evidence.py --list          # all, with the date of their results
    python benchmarks/evidence.py demo tupe-64x2  # these, with or without results

They take hours on two cores. Runs are in runs/NAME, where a killed comparison goes on. WORDORDER_DATA names the folder
of the text sets that are not part of the package. `make pages` then writes the tables that join several comparisons.
"""

import argparse
import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from publish_demo import RESULTS, ROOT

RUNS = ROOT / "runs"
WIDER = {"model.hidden_size": 128, "training.learning_rate": 2e-3}
TASKS = ("n_back", "even_pairs", "reverse", "questions", "masked_letters", "causal_letters")
"""Tasks of the decision table."""


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """A comparison and the name of its results."""

    name: str
    recipe: str
    settings: "dict[str, object] | None" = None
    """Key of the recipe -> value in its place."""
    options: tuple[str, ...] = ()
    """Options of publish_demo.py."""
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
            found.append([sys.executable, "benchmarks/wider.py", str(RESULTS / f"{self.wider}.json"), *options])
        changes = [word for key, value in (self.settings or {}).items() for word in ("--set", f"{key}={value}")]
        trained = self.folder / "runs" if self.wider else self.folder
        found.append([sys.executable, "-m", "wordorder", "compare", recipe, *changes, "--output-dir", str(trained)])
        found.append([sys.executable, "benchmarks/publish_demo.py", str(trained), "--name", self.name, *self.options])
        return found


SHORT = {"training.max_steps": 550, "training.eval_steps": 0.2, "training.save_steps": 0.2}
SST2 = {"data.source": "sst2-sentences", "training.num_train_epochs": 5}
PLAIN = (
    *("demo", "demo_long", "order_binding", "translation", "compare_mlm", "compare_clm", "compare_classification"),
    *("compare_translation", "compare_documents", "compare_memory", "memory_wikitext", "memory_brackets"),
    *("memory_instruction", "memory_letters", "parametrisation", "complex_order_rates"),
)
"""Recipes that are run as they are, and whose results have their names."""
ALL = (
    *(Evidence(name=recipe.replace("_", "-"), recipe=recipe) for recipe in PLAIN),
    Evidence(name="demo-early", recipe="demo_long", settings=SHORT),
    Evidence(name="rates", recipe="demo_rates", options=("--trials",)),
    Evidence(name="pretraining", recipe="pretraining", options=("--baseline", "bert-a")),
    *(Evidence(name=f"decision/{task}_64", recipe=f"decision/{task}") for task in TASKS),
    *(Evidence(name=f"decision/{task}_128", recipe=task, wider=f"decision/{task}_64") for task in TASKS),
    Evidence(name="tupe-64x2", recipe="tupe_scales"),
    Evidence(name="tupe-128x2", recipe="tupe_scales", settings=WIDER),
    Evidence(name="tupe-128x4", recipe="tupe_scales", settings={**WIDER, "model.num_hidden_layers": 4}),
    Evidence(name="complex-order-rates-sst2", recipe="complex_order_rates", settings=SST2),
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
