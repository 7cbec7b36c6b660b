"""A results file with all that a comparison can hold: eight arms, five seeds, probes, a budget, comparisons."""

import random
from typing import Any

from comparison_example import compared, example_results, read, summarised

from wordorder.comparison.statistics.curves import steps_to_loss

FINALS = {
    "none": 96.0,
    "learned": 61.5,
    "rope": 40.6,
    "alibi": 41.0,
    "t5": 44.8,
    "fire": 41.3,
    "tupe-a": 39.0,
    "tupe-r": 37.9,
}
LENGTHS = (64, 128, 256, 512, 1024)
GROWTH = {"none": 1.0, "learned": 1.5, "rope": 1.22, "alibi": 1.02, "t5": 1.05, "fire": 1.03, "tupe-a": 1.4}
PHENOMENA = ("agreement", "anaphora", "negative polarity items", "filler-gap", "island effects")


def full_results(finals: dict[str, float] | None = None, *, seeds: int = 5, baseline: str = "rope") -> dict[str, Any]:
    """Results in which every block of the report has something to show; made up, but computed where it can be."""
    finals = finals or FINALS
    results = example_results(finals, seeds=seeds)
    chance = random.Random(1)
    for row in results["rows"]:
        row["train_seconds"] = 90.0 + 3 * len(row["arm"]) + 12 * row["arm"].startswith("tupe") + chance.gauss(0, 1)
        row["peak_memory_bytes"] = 480_000_000 + 9_000_000 * len(row["arm"]) + 1e6 * chance.random()
    results["metric"], results["baseline"] = "perplexity", baseline
    results["summary"] = _summarised(results)
    results |= compared(results)
    results["steps_to_loss"] = [entry.as_json() for entry in steps_to_loss(read(results))]
    results["budget"] = _budget(finals, baseline)
    results["probes"] = {
        "extrapolation": _extrapolation(results),
        "words": _words(results),
        "layers": _layers(results),
    }
    return results


def _summarised(results: dict[str, Any]) -> list[dict[str, Any]]:

    return summarised(results["rows"])


def _budget(finals: dict[str, float], baseline: str) -> dict[str, Any]:
    target = 1_020_000
    return {
        "match": "parameters",
        "tolerance": 0.01,
        "history": "equal",
        "reference": baseline,
        "arms": {
            arm: {
                "value": target + 137 * index,
                "target": target,
                "unit": "parameters",
                "changed": {"model.intermediate_size": [512, 512 - 11 * index]} if arm.startswith("tupe") else {},
            }
            for index, arm in enumerate(finals)
        },
        "histories": {arm: {"segment": 64, "memory": 64 * (arm == "rope"), "history": 64} for arm in finals},
        "sentence": f"All arms have the parameters of {baseline} (1,020,000) to within 1%.",
    }


def _extrapolation(results: dict[str, Any]) -> dict[str, Any]:
    chance = random.Random(2)
    rows = [
        {
            "arm": row["arm"],
            "seed": row["seed"],
            "x": length,
            "value": row["perplexity"] * GROWTH.get(row["arm"], 1.3) ** step * (1 + 0.02 * step * chance.random()),
        }
        for row in results["rows"]
        for step, length in enumerate(LENGTHS)
        if row["arm"] != "learned"
    ]
    return {
        "title": "Longer texts than in training",
        "x": "Length of the text (tokens)",
        "x_kind": "number",
        "value": "Perplexity",
        "higher_is_better": False,
        "log": True,
        "meaning": "Perplexity on windows of the test split that are longer than the 64 tokens of training.",
        "rows": rows,
        "skipped": [{"arm": "learned", "reason": "its table ends at 64 positions"}],
    }


def _words(results: dict[str, Any]) -> dict[str, Any]:
    chance = random.Random(3)
    return {
        "title": "Words",
        "x": "Phenomenon",
        "x_kind": "label",
        "value": "Right sentence preferred (%)",
        "higher_is_better": True,
        "log": False,
        "meaning": "How often the grammatical sentence is more likely than its ungrammatical twin; 50% is chance.",
        "rows": [
            {
                "arm": row["arm"],
                "seed": row["seed"],
                "x": phenomenon,
                "value": min(99.0, 56 + 6 * place + 300 / row["perplexity"] + chance.gauss(0, 1.5)),
            }
            for row in results["rows"]
            for place, phenomenon in enumerate(PHENOMENA)
        ],
        "skipped": [],
    }


def _layers(results: dict[str, Any]) -> dict[str, Any]:
    chance = random.Random(4)
    return {
        "title": "Layers",
        "x": "layer (0 = the embeddings)",
        "x_kind": "number",
        "value": "R\u00b2 of a linear probe on other texts",
        "higher_is_better": None,
        "log": False,
        "meaning": "How much of a token's position a linear function of the hidden states says.",
        "rows": [
            {
                "arm": row["arm"],
                "seed": row["seed"],
                "x": layer,
                "group": group,
                "value": (0.9 if row["arm"] == "learned" else 0.2 * layer) * gain + chance.gauss(0, 0.02),
            }
            for row in results["rows"]
            for group, gain in (("position", 1.0), ("distance", 0.6))
            for layer in range(4)
        ],
        "notes": ["128 windows of 64 tokens."],
        "skipped": [],
    }
