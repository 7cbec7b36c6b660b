"""Compute what the arms of a recipe cost before anything is trained, and the Pareto front of cost and quality after."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wordorder.comparison.arms import resolve_arms
from wordorder.comparison.budget import fit_budget
from wordorder.comparison.pipeline import Pipeline, cost_of_config
from wordorder.comparison.report.differences import listed
from wordorder.comparison.report.table import lines
from wordorder.comparison.results_file import ArmResult, Results, Summary
from wordorder.comparison.statistics.summary import centre, middle, quality_of
from wordorder.errors import BadInput, MissingExtra
from wordorder.training.recipe.pretrained import is_host

if TYPE_CHECKING:
    from wordorder.comparison.results_file import MatchedBudget
    from wordorder.data import DataSettings, TokenizerConfig
    from wordorder.tasks import TaskOptions
    from wordorder.training import Recipe


def costs_of(recipe: Recipe) -> tuple[list[dict[str, Any]], MatchedBudget | None]:
    """Count every arm of a recipe, or its one model, with the sizes that compare.match and compare.history give it.

    The vocabulary is that of training where it is cheap to know (`_vocab_size`). Beside the arms' names and what
    `cost_of` counts it returns what was changed so that arms agree, None without arms.
    """
    size_of, budget = cache(_vocab_size), None
    if recipe.compare is None:
        recipes = {recipe.name: _with_vocabulary(recipe, size_of)}
    else:
        # Sized recipes are read anew from the file, so each is given the vocabulary again.
        arms, budget = fit_budget(
            resolve_arms(recipe),
            recipe,
            pipeline=Pipeline(),
            config_of=lambda own: _counted_config(_with_vocabulary(own, size_of))[0],
        )
        recipes = {arm.name: _with_vocabulary(arm.recipe, size_of) for arm in arms}
    return [{"arm": name, **cost_of(sized)} for name, sized in recipes.items()], budget


def cost_of(recipe: Recipe) -> dict[str, Any]:
    """Return the cost of the recipe's model at the recipe's length and batch size, as `wordorder.cost.cost` does.

    Beside it `vocab_size`, that is counted with, and `vocab_size_is_upper_bound`.
    """
    config, known = _counted_config(recipe)
    return {"vocab_size": config.vocab_size, "vocab_size_is_upper_bound": not known, **cost_of_config(recipe, config)}


def _vocab_size(data: DataSettings, task: TaskOptions, tokenizer: TokenizerConfig) -> int | None:
    from wordorder.data import fixed_vocab_size
    from wordorder.tasks import small_vocabulary

    fixed = fixed_vocab_size(tokenizer)
    if fixed is not None or (data.generated is None and tokenizer.kind != "character"):
        return fixed  # tokenizers of other kinds nearly always fill their vocabulary
    try:
        return small_vocabulary(data, task, tokenizer)
    except (BadInput, MissingExtra):  # a model can be counted before its texts are there
        return None


def _with_vocabulary(recipe: Recipe, size_of: Callable[..., int | None]) -> Recipe:
    has_size = is_host(recipe.network) or recipe.model.get("vocab_size") is not None
    size = None if has_size else size_of(recipe.data, recipe.task, recipe.tokenizer)
    return recipe if size is None else replace(recipe, model={**recipe.model, "vocab_size": size})


def _counted_config(recipe: Recipe) -> tuple[Any, bool]:
    """Return the configuration of the recipe's model, and whether its vocabulary is known, or is the largest one."""
    from wordorder.data import fixed_vocab_size
    from wordorder.models import build_config, host_config
    from wordorder.tasks import model_class
    from wordorder.training.recipe.sections import declared_cls

    if is_host(recipe.network):
        kind = model_class(recipe.network, recipe.task.name)
        config = host_config(Path(str(recipe.pretrained)), kind, recipe.model, {})
        config.pad_token_id = config.pad_token_id or 0  # a classifier of more than one text wants one
        return config, True
    given = recipe.model.get("vocab_size")
    known = given if given is not None else fixed_vocab_size(recipe.tokenizer)
    size = known if known is not None else recipe.tokenizer.vocab_size
    known_before = declared_cls(recipe.tokenizer) if recipe.pretrained is None else {}
    return build_config(recipe.network, **{**known_before, **recipe.model, "vocab_size": size}), known is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One arm with its cost and its quality; None for an unknown number."""

    name: str
    cost: float | None
    quality: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Front:
    """The arms that no other arm beats in both cost and quality, and for each other arm one that beats it."""

    on: tuple[str, ...]
    """Names of the arms on the front, the cheapest first."""
    behind: tuple[tuple[str, str], ...]
    """(arm, the best arm that is no worse in both and better in one), in the order given."""
    unknown: tuple[str, ...] = ()

    @property
    def words(self) -> str:
        """The front as sentences."""
        if not self.on:
            return "No arm has both numbers."
        text = f"On the Pareto front: {listed(self.on)}."
        if self.behind:
            text += f" Behind it: {', '.join(f'{arm} (beaten by {by})' for arm, by in self.behind)}."
        return text + (f" Not known: {listed(self.unknown)}." if self.unknown else "")


def pareto_front(points: Sequence[Point], *, more_is_better: bool, more_cost_is_better: bool = False) -> Front:
    """Return the Pareto front of some arms.

    An arm is on it unless another is at least as good and at most as dear, and better in one of the two; arms equal in
    both stand together. Whether a difference is more than chance is not asked.
    """
    signs = (-1 if more_cost_is_better else 1, -1 if more_is_better else 1)
    places = {
        point.name: (signs[0] * point.cost, signs[1] * point.quality)
        for point in points
        if point.cost is not None and point.quality is not None
    }
    beaten = {
        name: [other for other, (x, y) in places.items() if (x, y) != here and x <= here[0] and y <= here[1]]
        for name, here in places.items()
    }
    on = sorted((name for name, by in beaten.items() if not by), key=places.__getitem__)
    best_of = {name: min({*on} & {*by}, key=lambda arm: places[arm][::-1]) for name, by in beaten.items() if by}
    unknown = tuple(point.name for point in points if point.name not in places)
    return Front(on=tuple(on), behind=tuple(best_of.items()), unknown=unknown)


@dataclass(frozen=True, slots=True)
class Cost:
    """One cost of an arm."""

    key: str
    title: str
    """Label of an axis, with the unit."""
    short: str
    """Short name, for the button that chooses the cost and for a sentence."""
    measured: Callable[[Summary, ArmResult], float | None]
    """Function from an arm's summary and its entry in "arms" to the cost."""
    unit: float = 1.0
    """Number of the results file that is 1 in the title's unit."""
    more_is_better: bool = False

    def value(self, entry: Summary, arm: ArmResult) -> float | None:
        """Return the cost of an arm in the title's unit."""
        amount = self.measured(entry, arm)
        return None if amount is None else amount / self.unit


def _measured(key: str, title: str, short: str, unit: float = 1.0, *, more_is_better: bool = False) -> Cost:
    return Cost(key, title, short, lambda entry, _: middle(entry.columns.get(key)), unit, more_is_better)


COSTS = (
    Cost("parameters", "Parameters (millions)", "Parameters", lambda _, arm: arm.total_parameters, 1e6),
    Cost("flops_per_token", "MFLOP per token (forward + backward)", "FLOPs", lambda _, arm: arm.flops_per_token, 1e6),
    _measured("train_seconds", "Training time (seconds per run, median)", "Training time"),
    _measured("tokens_per_second", "Tokens per second in training (median)", "Speed", more_is_better=True),
    _measured("peak_memory_bytes", "Peak memory (MiB, median)", "Memory", 2**20),
)


def costs_known(results: Results) -> list[Cost]:
    """Return the costs that at least one arm with a result has."""
    return [cost for cost in COSTS if front_of(results, cost).on]


def points_of(results: Results, cost: Cost) -> list[Point]:
    """Return every arm's cost and headline metric, best first."""
    metric, statistic = quality_of(results).key, results.statistic
    return [
        Point(name=arm.name, cost=cost.value(entry, arm), quality=centre(entry.columns.get(metric), statistic))
        for entry, arm in lines(results)
    ]


def front_of(results: Results, cost: Cost) -> Front:
    """Return the Pareto front of the headline metric against one cost."""
    return pareto_front(
        points_of(results, cost),
        more_is_better=quality_of(results).higher_is_better,
        more_cost_is_better=cost.more_is_better,
    )
