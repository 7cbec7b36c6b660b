"""Stand-ins for data, training and cost: no model, the same files. Worker processes import them by name."""

import json
import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wordorder.comparison.pipeline import Pipeline
from wordorder.errors import RunFailed

LOSS = {"none": 4.0, "rope": 2.0, "tupe-a": 1.9, "tupe-r": 1.8, "alibi": 2.5}


@dataclass
class Prepared:
    statistics: dict[str, Any]


def prepare(recipe: Any, seed: int) -> Prepared:
    _log("prepare")
    fingerprint = os.environ.get("STAND_IN_FINGERPRINT", "same")
    splits = ("train", "validation") if recipe.data.test_source == "none" else ("train", "validation", "test")
    counts = {name: {"tokens": 1000, "documents": 9} for name in splits} | {"vocab_size": 99}
    if recipe.data.folds is not None:
        fingerprint += f" {recipe.data.fold}"
    return Prepared({**counts, "fingerprint": fingerprint})


def train(recipe: Any, folder: Path, seed: int, *, test: bool = True) -> None:
    """Behave as a training would; what goes wrong is said by environment variables that hold an arm's name."""
    arm = next(p.name for p in folder.parents if not p.name.startswith(("rate-", "fold-")))
    rate = recipe.training.learning_rate
    _log(f"start {arm} {folder.name} {rate:g}{' resumed' if (folder / 'checkpoint-1').exists() else ''}")
    if os.environ.get("STAND_IN_FAIL", "none of them") in (arm, f"{arm}/{folder.name}", "/".join(folder.parts[-3:])):
        raise RunFailed("the loss is NaN at step 3")
    if os.environ.get("STAND_IN_KILL") in (arm, f"{arm}/{folder.name}"):
        os.kill(os.getpid(), signal.SIGKILL)
    (folder / "checkpoint-1").mkdir(exist_ok=True)
    if os.environ.get("STAND_IN_SIGNAL") == arm:
        os.kill(os.getpid(), signal.SIGTERM)
    try:
        if os.environ.get("STAND_IN_QUICK") != arm:
            time.sleep(float(os.environ.get("STAND_IN_SECONDS", "0")))
    except KeyboardInterrupt:
        _log(f"saved {arm} {folder.name}")
        raise
    final = LOSS.get(recipe.model["encoding"], 3.0) + 0.01 * seed + 0.1 * recipe.data.fold + 10 * abs(rate - 0.002)
    if recipe.training.encoding_learning_rate is not None and encoding_parameters(recipe, seed):
        final += 0.001 * abs(recipe.training.encoding_learning_rate - 20.0)
    curve = [{"step": step, "validation_loss": final + 3 / step} for step in (2, 4, 6)]
    (folder / "curve.jsonl").write_text("".join(json.dumps(point) + "\n" for point in curve))
    (folder / "model").mkdir(exist_ok=True)
    (folder / "model" / "encoding").write_text(recipe.model["encoding"])
    (folder / "environment.json").write_text(json.dumps({"device": "cpu: made up", "threads": 1}))
    split = {"loss": final, "perplexity": 2.718281828**final, "accuracy": 1 - final / 10}
    of_task = {"causal-lm": {"bits_per_character": final / 3}, "translation": {"bleu": 50 - 10 * final}}
    split |= of_task.get(recipe.task.name, {})
    splits = {"validation": split} | ({"test": split} if test and recipe.data.test_source != "none" else {})
    metrics = {**splits, "tokens_per_second": 1e4, "peak_memory_bytes": 2**28, "steps": 6}
    metrics |= {"bleu_signature": "nrefs:1|made up"} if recipe.task.name == "translation" else {}
    # at once, as a training does: the comparison reads it while other workers write theirs
    (folder / "metrics.part").write_text(json.dumps({**metrics, "train_seconds": 1.0, "best_step": 6}))
    (folder / "metrics.part").replace(folder / "metrics.json")


def cost(recipe: Any, model_dir: Path) -> dict[str, Any]:
    _log(f"cost {model_dir.parent}")
    extra = {"projections": 50} if (model_dir / "encoding").read_text().startswith("tupe") else {}
    return {"parameters": {"total": 1000 + sum(extra.values())}, "encoding_parameters": extra, "flops_per_token": 5e6}


def encoding_parameters(recipe: Any, seed: int) -> int:
    return 50 if recipe.model["encoding"].startswith("tupe") else 0


def _log(line: str) -> None:
    with Path(os.environ["STAND_IN_LOG"]).open("a") as file:
        file.write(line + "\n")


STAND_IN = Pipeline(prepare=prepare, train=train, encoding_parameters=encoding_parameters, cost=cost)
