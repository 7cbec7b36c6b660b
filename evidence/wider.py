"""Write the recipe of a finished comparison at another width, with the learning rates that its tuning chose.

    python evidence/wider.py evidence/results/decision/n_back_64.json --width 128 --seeds 3 --out n_back_128.toml
    wordorder compare n_back_128.toml

Rates are scaled by the inverse of the width (as in muP's rule for hidden weights, https://arxiv.org/abs/2203.03466), so
that nothing is tuned a second time. Multiples for the encodings' own parameters stay.
"""

import argparse
from pathlib import Path
from typing import Any

from wordorder.comparison.results_file import Results, read_results
from wordorder.training.recipe.files import to_toml


def wider(results: Results, width: int, seeds: int) -> dict[str, dict[str, Any]]:
    """Return the sections of the recipe."""
    known = results.recipe
    sections = known.as_json()
    model, training = sections["model"], sections["training"]
    share = model["hidden_size"] / width
    model |= {"hidden_size": width, "intermediate_size": 4 * width}
    training |= {"evaluate_every": 0.1}  # ten looks at the validation texts are enough for a curve
    arms = [
        {
            "name": arm.name,
            **arm.overrides,
            "training.learning_rate": float(f"{arm.learning_rate * share:.6g}"),
            **(
                {}
                if arm.encoding_learning_rate is None
                else {"training.encoding_learning_rate": arm.encoding_learning_rate}
            ),
        }
        for arm in results.arms
    ]
    compare = {"seeds": list(range(seeds)), "workers": 2, "baseline": results.baseline, "arms": arms}
    return {
        "data": sections["data"],
        "task": sections["task"],
        "tokenizer": dict(known.tokenizer),
        "model": model,
        "training": training,
        "compare": compare,
    }


def main() -> None:
    """Read a results file, write a recipe."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    sections = wider(read_results(arguments.results), arguments.width, arguments.seeds)
    sections["training"].pop("output_dir", None)
    arguments.out.write_text(to_toml(sections), encoding="utf-8")


if __name__ == "__main__":
    main()
