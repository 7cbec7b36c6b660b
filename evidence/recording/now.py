"""The public calls that a recording makes, as they are named today; `then.py` makes the same ones of 8e4fa2c."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

ROOT = Path(__file__).resolve()
"""Replaced by the recorder: the checkout whose package is recorded."""

BACKENDS = ("reference", "sdpa", "kept-tiles", "recomputed-tiles")
RESULTS = ("evidence/results",)
"""Folders of committed results of comparisons."""


PACKAGED = {
    "masked_lm": "compare_mlm",
    "causal_lm": "compare_clm",
    "classification": "compare_classification",
    "memory": "compare_memory",
}
"""Recipes of the package that had another name at 8e4fa2c."""


def recipes() -> dict[str, Path]:
    """Return the recipes of the repository by the names that they had at 8e4fa2c."""
    packaged, evidence = ROOT / "src" / "wordorder" / "recipes", ROOT / "evidence" / "recipes"
    names = {PACKAGED.get(path.stem, path.stem): path for path in sorted(packaged.glob("*.toml"))}
    return names | {
        path.relative_to(evidence).with_suffix("").as_posix(): path for path in sorted(evidence.rglob("*.toml"))
    }


# --- networks -----------------------------------------------------------------------------------------------------


def names() -> list[str]:
    """Return the names of the catalogue."""
    from wordorder import CATALOG

    return list(CATALOG)


def network(kind: str, vocabulary: int, **keywords: Any) -> nn.Module:
    """Return an encoder, a decoder, or one of them with complex numbers; a memory is "kind:length"."""
    import wordorder

    memories = {"look-ahead": wordorder.LookAheadMemory, "segment-recurrence": wordorder.SegmentRecurrence}
    if memory := keywords.pop("memory", None):
        name, length = memory.split(":")
        keywords["memory"] = memories[name](int(length))
    return getattr(wordorder, kind)(vocabulary, **keywords)


def pair(encoder: nn.Module, decoder: nn.Module) -> nn.Module:
    """Return a translator of two halves."""
    import wordorder

    return wordorder.Seq2Seq(encoder, decoder)  # type: ignore[arg-type]


def start(module: nn.Module, seed: int) -> None:
    """Draw the first values of all parameters."""
    from wordorder.networks import initialise

    initialise(module, seed=seed, std=0.2)


def shifted(length: int, offsets: Sequence[int]) -> Any:
    """Return positions of rows that are padded on the left by `-offset` tokens."""
    from wordorder.ops import Contiguous

    return Contiguous(length, torch.tensor(offsets))


def packed(positions: Sequence[Sequence[int]], texts: Sequence[Sequence[int]]) -> Any:
    """Return positions of several texts in one row."""
    from wordorder.ops import Packed

    return Packed(torch.tensor(positions), torch.tensor(texts))


def key_cache() -> Any:
    """Return an empty cache of keys and values."""
    from wordorder.networks import KeyValueCache

    return KeyValueCache()


def slots(memory: Any) -> Mapping[str, Tensor]:
    """Return what a memory holds, by name."""
    # heads came before slots once
    axis = {"read_outs": 2, "normalisers": 2}
    return {name: t.movedim(1, axis.get(name.partition(".")[0], 1)) for name, t in memory.slots.items()}


# --- text, recipes, costs -----------------------------------------------------------------------------------------


def tokens(folder: Path, kind: str, cache: Path) -> Mapping[str, Any]:
    """Return the ids of the reported texts, where their sentences and documents begin, and what was counted."""
    from wordorder.data import DataSettings, TokenizerConfig
    from wordorder.tasks import MaskedLMOptions, prepare

    data = DataSettings(source=f"{folder}/*.txt", length=32, validation_fraction=0.2, test_fraction=0.2)
    prepared = prepare(data, MaskedLMOptions(), TokenizerConfig(kind=kind, vocab_size=300), seed=0, cache_dir=cache)
    reported = prepared.reported
    # the earlier side has no [SEP] after each text, and says in which sentence each text begins
    before = np.searchsorted(reported.starts[1:], reported.sentence_ends, side="left")
    return {
        "ids": np.concatenate([reported.document(number) for number in range(len(reported))]),
        "sentences": np.append(0, reported.sentence_ends - before),
        "documents": np.append(0, np.searchsorted(reported.sentence_ends, reported.ends, side="right")),
        "statistics": dict(prepared.statistics),
    }


def resolved(path: Path, overrides: Sequence[str]) -> Mapping[str, Any]:
    """Return all values of a recipe, defaults included, as nested tables."""
    import tomllib

    from wordorder.training import read_recipe

    return tomllib.loads(read_recipe(path, list(overrides)).to_toml())


# --- statistics and search ----------------------------------------------------------------------------------------


def conclusions(path: Path) -> Mapping[str, Any]:
    """Return what the tests say of a file of results, and its table in Markdown."""
    from wordorder.comparison import markdown_table, read_results
    from wordorder.comparison.statistics.significance import compare_arms

    results = read_results(path)
    tests = compare_arms(results)
    comparisons = [one.as_json() for one in tests.comparisons]
    return {"comparisons": comparisons, "table": markdown_table(results)}


def trials(
    rates: Sequence[float], factors: Sequence[float | None], seeds: Sequence[int], extend: int, score: Any
) -> Any:
    """Yield the trials that a search asks for, round by round; `score(rate, factor, seed)` may be None."""
    from wordorder.comparison.runs import Score, Search

    search = Search(rates=tuple(rates), factors=tuple(factors), seeds=tuple(seeds), extend=extend)
    scores: dict[Any, dict[int, Any]] = {}
    while next_trials := search.next_trials(scores):
        yield [[one.rate, one.factor, seed] for one, seed in next_trials]
        for one, seed in next_trials:
            value = score(one.rate, one.factor, seed)
            scores.setdefault(one, {})[seed] = None if value is None else Score(value)


# --- what commands leave ------------------------------------------------------------------------------------------


def run_values(folder: Path) -> Iterator[tuple[str, Any]]:
    """Yield what a training left that no clock decides."""
    metrics = json.loads((folder / "metrics.json").read_text())
    yield from ((name, metrics[name]) for name in ("batches", "parameters", "steps", "best_step"))
    yield from ((split, metrics[split]) for split in ("validation", "test") if split in metrics)
    yield "data", json.loads((folder / "data.json").read_text())
    lines = (folder / "curve.jsonl").read_text().splitlines()
    clocks = {"seconds", "train_seconds", "tokens_per_second", "peak_memory_bytes"}
    yield "curve", [{k: v for k, v in json.loads(line).items() if k not in clocks} for line in lines]


def recipe_text(text: str) -> str:
    """Return a frozen recipe as this commit writes recipes."""
    import tomllib

    from recording.keys import today
    from wordorder.training.recipe.files import to_toml

    return to_toml(today(tomllib.loads(text)))


def counted(costs: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what `cost --json` counts: parameters and FLOPs of each arm, and widths that a budget changed."""
    names = ("parameters", "encoding_parameters", "forward_flops_per_token", "flops_per_token", "vocab_size")
    arms = {arm["arm"]: {name: arm[name] for name in names} for arm in costs["arms"]}
    return {"arms": arms, "budget": costs.get("budget", {})}


def scores(answer: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the scores that `evaluate --json` prints."""
    return {name: value for name, value in answer.items() if name not in ("model", "data", "split", "seconds")}


def inspected(answer: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the numbers that `inspect --json` prints, without its paths and sentences."""
    words = ("folder", "files", "model", "notes", "text")
    return {name: value for name, value in answer.items() if name not in words}


def results() -> list[Path]:
    """Return the committed results of comparisons."""
    from wordorder.comparison import read_results

    comparisons = []
    for folder in RESULTS:
        for path in sorted((ROOT / folder).rglob("*.json")):
            try:
                read_results(path)
            except ValueError:  # measurements of speed, tables of other scripts
                continue
            comparisons.append(path)
    return comparisons


def compared(answer: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what `compare --json` prints that no clock decides."""
    clocks = {"seconds", "train_seconds", "tokens_per_second", "peak_memory_bytes", "cpu_seconds"}
    rows = {
        f"{row['arm']}/seed-{row['seed']}": {name: value for name, value in row.items() if name not in clocks}
        for row in answer["rows"]
    }
    trials = [{name: value for name, value in trial.items() if name not in clocks} for trial in answer["tuning"]]
    return {
        "rows": rows,
        "trials": trials,
        "budget": answer["budget"],
        "comparisons": answer["comparisons"],
        "probes": {name: probe["rows"] for name, probe in answer["probes"].items()},
    }
