"""Put what `wordorder cost` counts for the schemes of complex-order into docs/cost.md: no number there is typed.

    python benchmarks/publish_cost.py

counts the arms of the recipe complex_order_cost, writes `benchmarks/results/cost.json` and the table between its
markers. A test holds the page to the committed JSON.
"""

import json
from typing import Any

from publish_demo import RESULTS, ROOT, put

PAGE = ROOT / "docs" / "cost.md"
RECIPE = "complex_order_cost"
MIB = 2**20


def counted() -> dict[str, Any]:
    """The cost of every arm, as the command prints it with --json."""
    import torch

    from wordorder.comparison.costs import cost_of
    from wordorder.comparison.fairness.arms import resolve_arms
    from wordorder.training import read_recipe
    from wordorder.training.recipe.packaged import find_recipe

    recipe = read_recipe(find_recipe(RECIPE))
    arms = [{"arm": arm.name, **cost_of(arm.recipe)} for arm in resolve_arms(recipe)]
    settings = {"length": recipe.data.length, "batch": recipe.training["per_device_train_batch_size"]}
    return {"recipe": RECIPE, "arms": arms, **settings, "torch": torch.__version__}


def table_of(results: dict[str, Any]) -> str:
    """One row an arm; ratios are to the first."""
    columns = ["Arm", "Embedding", "Encoding", "Body", "Total, ratio", "MFLOP per token", "Ratio", "Optimiser (MiB)"]
    lines = ["| " + " | ".join(columns) + " |", "| :--- |" + " ---: |" * (len(columns) - 1)]
    first = results["arms"][0]
    for arm in results["arms"]:
        parameters = arm["parameters"]
        cells = [
            arm["arm"],
            *(f"{parameters[part]:,}" for part in ("embedding", "encoding", "body")),
            f"{parameters['total'] / first['parameters']['total']:.3f}",
            f"{arm['flops_per_token'] / 1e6:.1f}",
            f"{arm['flops_per_token'] / first['flops_per_token']:.2f}",
            f"{arm['optimizer_bytes'] / MIB:,.0f}",
        ]
        lines.append("| " + " | ".join(cells) + " |")
    tokens = results["batch"] * results["length"]
    return "\n".join(lines) + (
        f"\n\nCounted on shapes by `wordorder cost {results['recipe']}` (torch {results['torch']}), steps of {tokens:,}"
        " tokens; FLOPs forward and backward."
    )


def main() -> None:
    """Count, and write the JSON and the page."""
    results = counted()
    (RESULTS / "cost.json").write_text(json.dumps(results, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    PAGE.write_text(put(PAGE.read_text(encoding="utf-8"), "cost", table_of(results)), encoding="utf-8")


if __name__ == "__main__":
    main()
