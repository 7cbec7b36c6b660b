"""Put what `wordorder cost` counts for the schemes of complex-order into docs/cost.md: no number there is typed.

    python evidence/publish/publish_cost.py

counts the arms of evidence/recipes/complex_order_cost.toml, writes `evidence/results/cost.json` and the table between
its markers. A test holds the page to the committed JSON.
"""

import json
from typing import Any

from blocks import put
from publish_demo import RESULTS, ROOT

PAGE = ROOT / "docs" / "cost.md"
RECIPE = "complex_order_cost"


def counted() -> dict[str, Any]:
    """Return the cost of every arm, as the command prints it with --json."""
    import torch

    from wordorder.comparison.arms import resolve_arms
    from wordorder.comparison.costs import cost_of
    from wordorder.training import read_recipe

    recipe = read_recipe(ROOT / "evidence" / "recipes" / f"{RECIPE}.toml")
    arms = [{"arm": arm.name, **cost_of(arm.recipe)} for arm in resolve_arms(recipe)]
    settings = {"length": recipe.data.length, "batch": recipe.training.batch_size}
    return {"recipe": RECIPE, "arms": arms, **settings, "torch": torch.__version__}


def table_of(results: dict[str, Any]) -> str:
    """Return a row for each group of models with the same numbers; ratios are to the first model."""
    columns = ["Model", "Million parameters", "Ratio", "FLOPs per token, ratio"]
    lines = ["| " + " | ".join(columns) + " |", "| :--- |" + " ---: |" * (len(columns) - 1)]
    first, models = results["arms"][0], dict[tuple[str, ...], list[str]]()
    for arm in results["arms"]:
        total = arm["parameters"]["total"]
        cells = (
            f"{total / 1e6:.1f}",
            f"{total / first['parameters']['total']:.2f}",
            f"{arm['flops_per_token'] / first['flops_per_token']:.2f}",
        )
        models.setdefault(cells, []).append(f"`{arm['arm']}`")
    lines += [f"| {', '.join(names)} | {' | '.join(cells)} |" for cells, names in models.items()]
    return "\n".join(lines) + (
        f"\n\n1.00 is {first['flops_per_token'] / 1e6:.1f} MFLOP per token, forward and backward, at"
        f" {results['length']} tokens (`evidence/results/cost.json`)."
    )


def main() -> None:
    """Count, and write the JSON and the page."""
    results = counted()
    (RESULTS / "cost.json").write_text(json.dumps(results, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    PAGE.write_text(put(PAGE.read_text(encoding="utf-8"), "cost", table_of(results)), encoding="utf-8")


if __name__ == "__main__":
    main()
