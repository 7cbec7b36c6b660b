"""Names of the scores of each task, as recipes and results use them: those of transformers' GLUE examples."""

METRICS: dict[str, tuple[str, ...]] = {
    "masked-lm": ("loss", "accuracy"),
    "causal-lm": ("loss", "accuracy"),
    "classification": ("loss", "accuracy", "macro_f1", "f1", "matthews_correlation"),
    "regression": ("loss", "pearson", "spearmanr"),
    "translation": ("loss", "accuracy", "bleu", "exact_match"),
}
"""Task -> the metrics by which its best checkpoint can be chosen (`training.metric_for_best_model`)."""

HEADLINE: dict[str, str] = {
    "masked-lm": "accuracy",
    "causal-lm": "accuracy",
    "classification": "accuracy",
    "regression": "pearson",
    "translation": "bleu",
}
"""Task -> the score that is shown beside the loss, where the recipe names no metric; accuracy where it was not
measured."""

NAMES = tuple(dict.fromkeys(name for names in METRICS.values() for name in names))
"""Names of all metrics of `METRICS`, each once."""


def metric_fault(metric: str, task: str) -> str | None:
    """Return the reason why a run cannot choose its best checkpoint by a metric, or None where it can.

    Args:
        metric: as the recipe names it.
        task: one of the keys of `METRICS`.
    """
    if metric not in NAMES or metric in METRICS[task]:
        return None  # an unknown name is reported with the other names of [training]
    others = ", ".join(name for name, given in METRICS.items() if metric in given)
    return (
        f"training.metric_for_best_model: task {task} has no {metric} (task {others} has); "
        f"valid: {', '.join(METRICS[task])}"
    )
