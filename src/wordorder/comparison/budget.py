"""Equal budgets: give every arm the parameters or the arithmetic of the baseline, and the same history, or refuse."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from wordorder.comparison.pipeline import cost_of_config
from wordorder.comparison.results_file import ArmBudget, History, MatchedBudget, Results, Row
from wordorder.errors import BadInput, UnfairComparison
from wordorder.training.loop.batches import same_batches
from wordorder.training.recipe.files import split_key

if TYPE_CHECKING:
    from wordorder.comparison.arms import Arm
    from wordorder.comparison.pipeline import Pipeline
    from wordorder.training import CompareConfig, Recipe


TOLERANCE = 0.01
"""Largest relative difference between two arms that still counts as equal."""

UNITS = {"parameters": "parameters", "flops": "FLOP per token"}
"""compare.match -> unit of the budget."""

IN_ROW = {"parameters": "parameters", "flops": "flops_per_token"}
"""compare.match -> name in a row of the results."""

ConfigOf = Callable[["Recipe"], Any]
"""Function from a recipe to the configuration of its model."""

Count = Callable[[Mapping[str, int]], float]
"""Function from changed names of [model] to the cost of the network; rises with each of them."""

SIZES = frozenset(
    "hidden_size num_hidden_layers decoder_layers intermediate_size filters recurrent_size pretrained".split()
)
"""Names of [model] that decide the size of a network. An arm that sets one of them keeps its size."""

INNER = {"bag-of-words": None, "convolution": "filters", "recurrent": "recurrent_size"}
"""Architecture of a classifier -> its width between embeddings and output; that of all others is the feed-forward's."""

MOST = 4
"""Largest factor by which a width may grow or shrink: beyond it would be a network of another kind."""

_TIDY = 8
"""Widths that are multiples of this suit the hardware; taken where one agrees well enough."""

_STEPS = (1, 2, 4, 8)
"""Multiples of the number of heads by which model widths are tried: rotations want pairs of channels in each head."""


def fit_budget(
    arms: Sequence[Arm],
    recipe: Recipe,
    *,
    pipeline: Pipeline,
    config_of: ConfigOf | None = None,
) -> tuple[tuple[Arm, ...], MatchedBudget]:
    """Give every arm the budget of the baseline within 1%, by changing its widths.

    Counted are the configurations that training makes of recipe and data; under compare.history = "equal" a segment of
    the arm's own length after a full memory. An arm that sets a size itself keeps it, and is checked.

    Raises:
        UnfairComparison: arms cannot be made equal; every arm's count is named.
        BadInput: compare.history does not go with the recipe.
    """
    compare = recipe.compare
    assert compare is not None  # resolve_arms refused it
    adapted = equal_history(arms) if compare.history == "equal" else tuple(arms)
    entries: dict[str, ArmBudget] = {}
    if compare.match in IN_ROW:
        adapted, entries = _fit_sizes(adapted, recipe, compare, pipeline, config_of)
    looks_back = histories(adapted)
    sentences = [_sentence(compare, entries), history_sentence(looks_back, equal=compare.history == "equal")]
    return adapted, MatchedBudget(
        match=compare.match,
        tolerance=TOLERANCE,
        history=compare.history,
        reference=compare.reference,
        arms=entries,
        histories=looks_back,
        sentence=" ".join(sentence for sentence in sentences if sentence),
    )


def _fit_sizes(
    arms: tuple[Arm, ...], recipe: Recipe, compare: CompareConfig, pipeline: Pipeline, config_of: ConfigOf | None
) -> tuple[tuple[Arm, ...], dict[str, ArmBudget]]:
    keys = {arm.name: [split_key(key)[:2] for key in arm.overrides] for arm in compare.arms}
    fixed = {arm: [name for section, name in own if section == "model" and name in SIZES] for arm, own in keys.items()}
    if config_of is None:
        from wordorder.training.runs.fit import make_config

        of_fold = recipe.with_run(fold=compare.folds[0]) if compare.folds else recipe
        prepared = pipeline.prepare(of_fold, compare.seeds[0])
        config_of = partial(make_config, prepared=prepared)
    reference = next(arm for arm in arms if arm.name == compare.reference)
    target = _count(reference.recipe, config_of, compare.match, {})
    adapted: list[Arm] = []
    entries: dict[str, ArmBudget] = {}
    counts: dict[str, float] = {}
    reasons: dict[str, str] = {}
    for arm in arms:
        count = partial(_count, arm.recipe, config_of, compare.match)
        changes: Mapping[str, int] = {}
        if arm is reference:
            counts[arm.name] = target
        if fixed[arm.name] or arm.recipe.pretrained is not None:
            names = ", ".join(f"model.{name}" for name in fixed[arm.name]) or "model.pretrained"
            reasons[arm.name] = f"sets {names} itself and is not resized; leave that out"
        elif arm is not reference:
            try:
                changes, counts[arm.name] = fit_widths(arm.recipe, count, target, tolerance=TOLERANCE)
            except BadInput as error:
                reasons[arm.name] = f"cannot be resized: {error.faults[0]}"
        if arm.name not in counts:
            counts[arm.name] = count({})
        widths = {f"model.{name}": (_width(arm.recipe, name), width) for name, width in changes.items()}
        entries[arm.name] = ArmBudget(value=counts[arm.name], target=target, unit=UNITS[compare.match], changed=widths)
        adapted.append(_with(arm, {name: width for name, (_, width) in widths.items()}))
    check_equal(counts, compare, reasons)
    return tuple(adapted), entries


def _with(arm: Arm, changes: dict[str, Any]) -> Arm:
    return replace(arm, recipe=arm.recipe.with_overrides(changes)) if changes else arm


def _count(recipe: Recipe, config_of: ConfigOf, match: str, changes: Mapping[str, int]) -> float:
    changed = replace(recipe, model={**recipe.model, **changes}) if changes else recipe
    config = config_of(changed)
    if match == "parameters":
        return count_parameters(changed, config)
    return cost_of_config(changed, config)["flops_per_token"]


def _width(recipe: Recipe, name: str) -> int:
    given, hidden = recipe.model.get(name), int(recipe.model["hidden_size"])
    return int(given) if given is not None else 4 * hidden if name == "intermediate_size" else hidden


def check_equal(counts: Mapping[str, float], compare: CompareConfig, reasons: Mapping[str, str]) -> None:
    """Refuse arms of which any two differ by more than the tolerance."""
    if max(counts.values()) <= (1 + TOLERANCE) * min(counts.values()):
        return
    target, unit = counts[compare.reference], UNITS[compare.match]
    faults = [f'compare.match = "{compare.match}": arms must agree within {TOLERANCE:.0%}, and cannot be made to:']
    for name, value in counts.items():
        share = f" ({value / target - 1:+.1%})" if name != compare.reference else ", the baseline"
        why = f"; {reasons[name]}" if name in reasons and abs(value / target - 1) > TOLERANCE / 2 else ""
        faults.append(f"{name}: {value:,.0f} {unit}{share}{why}")
    faults.append('leave the arms out that differ, give the baseline other sizes, or set compare.match = "none"')
    raise UnfairComparison(faults)


def check_trained(results: Results) -> None:
    """Refuse results of runs with another size, number of steps or other batches than were matched."""
    rows = results.rows
    faults = _budget_faults(rows, results.budget) + _batch_faults(rows, results.baseline) + _step_faults(rows)
    if faults:
        raise UnfairComparison(faults)


def _budget_faults(rows: Sequence[Row], budget: MatchedBudget | None) -> list[str]:
    if budget is None or budget.match not in IN_ROW:
        return []
    unit, faults = UNITS[budget.match], list[str]()
    sizes = [(row, row.score(IN_ROW[budget.match])) for row in rows]
    for row, trained in sizes:
        own = budget.arms.get(row.arm)
        # the words of a fold's training texts, and so the vocabulary, are its own; then arms are compared below
        if own is not None and trained is not None and trained != own.value and row.fold is None:
            faults.append(f"{_run(row)}: was matched with {own.value:,.0f} {unit}, and was trained with {trained:,.0f}")
    for fold in sorted({row.fold for row in rows if row.fold is not None}):
        counts = {row.arm: size for row, size in sizes if row.fold == fold and size is not None}
        if counts and max(counts.values()) > (1 + budget.tolerance) * min(counts.values()):
            named = ", ".join(f"{name} {value:,.0f}" for name, value in counts.items())
            faults.append(f"fold {fold}: arms differ by more than {budget.tolerance:.0%}: {named}")
    return faults


_CHANGED = "its folder was changed, or is of another version: remove it, and run the comparison again"


def _step_faults(rows: Sequence[Row]) -> list[str]:
    steps: dict[int | None, int] = {}
    # batch digests say nothing of longer runs
    return [
        f"{_run(row)}: was trained for {row.steps:,} steps, and others for {steps[row.fold]:,}; {_CHANGED}"
        for row in rows
        if row.steps is not None and row.steps != steps.setdefault(row.fold, row.steps)
    ]


def _batch_faults(rows: Sequence[Row], baseline: str | None) -> list[str]:
    faults: list[str] = []
    for place in dict.fromkeys((row.seed, row.fold) for row in rows if row.batches):
        fed = [(row, row.batches) for row in rows if (row.seed, row.fold) == place and row.batches]
        first, batches = next((pair for pair in fed if pair[0].arm == baseline), fed[0])
        faults += [
            f"{_run(row)}: was trained on other batches than {first.arm} of that seed; {_CHANGED}"
            for row, own in fed
            if not same_batches(batches, own)
        ]
    return faults


def _run(row: Row) -> str:
    return f"{row.arm}, seed {row.seed}" + ("" if row.fold is None else f", fold {row.fold}")


def _sentence(compare: CompareConfig, entries: Mapping[str, ArmBudget]) -> str:
    """Return the matched budget in one sentence, such as "Every arm has 1,181,184 parameters within 1% (...)."."""
    if compare.match == "none":
        return ""
    target, unit = entries[compare.reference].target, UNITS[compare.match]
    changed = {name for own in entries.values() for name in own.changed}
    words = {"model.intermediate_size": "feed-forward width", "model.hidden_size": "model width"}
    how: list[str] = []
    for name in sorted(changed, key=lambda name: name == "model.hidden_size"):
        values = [value for own in entries.values() for value in own.changed.get(name, ())]
        ends = " to ".join(f"{end:,}" for end in dict.fromkeys((min(values), max(values))))
        how.append(f"{words.get(name, name.removeprefix('model.').replace('_', ' '))} {ends}")
    beside = f"; {', '.join(how)}" if how else "; no width had to change"
    verb = "has" if compare.match == "parameters" else "takes"
    return f"Every arm {verb} {target:,.0f} {unit} within {TOLERANCE:.0%}{beside}."


def fit_widths(recipe: Recipe, count: Count, target: float, *, tolerance: float) -> tuple[dict[str, int], float]:
    """Return widths with which a network has the target cost, and its cost, which may be too far from it still.

    First the width inside the layers (`INNER`), from a quarter to four times what it is; where that is not enough the
    width of the whole model, the inner one in proportion, and then again the inner one. Nothing changes where the
    network agrees already within half the tolerance.
    """
    known: dict[tuple[tuple[str, int], ...], float] = {}
    hidden = int(recipe.model["hidden_size"])
    architecture = recipe.model.get("architecture") if recipe.network == "classifier" else None
    inner = INNER.get(str(architecture), "intermediate_size")

    def counted(changes: Mapping[str, int]) -> float:
        key = tuple(sorted(changes.items()))
        if key not in known:  # building a network takes up to half a second
            known[key] = count(changes)
        return known[key]

    def in_proportion(width: int) -> dict[str, int]:
        """Return a width of the model, and the inner width in its proportion to it."""
        own = {} if inner is None else {inner: max(1, round(_width(recipe, inner) * width / hidden))}
        return {"hidden_size": width, **own}

    def fitted(width: int) -> tuple[dict[str, int], float]:
        """Fit the inner width at a given width of the model."""
        changes = in_proportion(width)
        if inner is not None:
            name, usual = inner, changes[inner]
            if width == hidden:
                del changes["hidden_size"]

            def at(inside: int) -> float:
                return counted({**changes, name: inside})

            changes[name] = nearest(at, max(1, usual // MOST), MOST * usual, target, enough=tolerance / 10)
            tidy = max(_TIDY, round(changes[name] / _TIDY) * _TIDY)
            if _off(at(tidy), target) <= tolerance / 4:
                changes[name] = tidy
        return changes, counted(changes)

    now = counted({})
    if _off(now, target) <= tolerance / 2:
        return {}, now
    if inner is not None:
        changes, value = fitted(hidden)
        if _off(value, target) <= tolerance / 2:
            return changes, value
    heads = int(recipe.model.get("num_attention_heads") or 1)
    width = _fit_hidden(lambda width: counted(in_proportion(width)), hidden, heads, target, larger=now < target)
    return fitted(width)


def _fit_hidden(count: Callable[[int], float], hidden: int, heads: int, target: float, *, larger: bool) -> int:
    step = _step(count, hidden, heads, larger=larger)
    if larger:
        return hidden + step * nearest(lambda n: count(hidden + step * n), 0, (MOST - 1) * hidden // step, target)
    fewest = max(1, (hidden // MOST) // step)
    # counted from the remainder, so that the present width is one of those that are tried
    rest = hidden % step
    return rest + step * nearest(lambda n: count(rest + step * n), fewest, hidden // step, target)


def _step(count: Callable[[int], float], hidden: int, heads: int, *, larger: bool) -> int:
    fault = BadInput(f"model.hidden_size {hidden} cannot become smaller")
    for step in (times * heads for times in _STEPS):
        width = hidden + step if larger else hidden - step
        if width <= 0:
            break
        try:
            count(width)
        except BadInput as error:
            fault = error
        else:
            return step
    raise fault


def nearest(at: Callable[[int], float], low: int, high: int, target: float, *, enough: float = 0.0) -> int:
    """Return the integer at which a rising function is nearest to a target.

    By false position, which hits at once where the function is a line, as counts nearly are, and halving in turns. A
    relative difference of `enough` is near enough.
    """
    at_low, at_high = at(low), at(high)
    if target <= at_low or high <= low:
        return low
    if target >= at_high:
        return high
    halve = False
    while high - low > 1:
        guess = (low + high) // 2 if halve else low + round((high - low) * (target - at_low) / (at_high - at_low))
        guess, halve = min(max(guess, low + 1), high - 1), not halve
        value = at(guess)
        if _off(value, target) <= enough:
            return guess
        if value <= target:
            low, at_low = guess, value
        else:
            high, at_high = guess, value
    return low if target - at_low <= at_high - target else high


def _off(value: float, target: float) -> float:
    return abs(value / target - 1)


def count_parameters(recipe: Recipe, config: Any) -> int:
    """Count a network's parameters, each once, without making weights."""
    import torch

    from wordorder.models import built
    from wordorder.tasks import model_class

    with torch.device("meta"):
        model: Any = built(config, model_class(recipe.network, recipe.task.name))
    return sum(parameter.numel() for parameter in model.parameters())


def equal_history(arms: Sequence[Arm]) -> tuple[Arm, ...]:
    """Give arms with a memory shorter segments, so that memory and segment together are as long as the others' segment.

    As in kimiyoung/transformer-xl#95: 512 tokens at once, or 256 beside a memory of 256. With data.length H, an arm
    whose memory holds M reads segments of H - M. Everything else stays equal:

    - A step reads the same H tokens of the same lanes, in H / (H - M) segments one after another, and learns from all
      of them together (`training.segments_per_step`).
    - Arms without a memory are scored in windows of H tokens that advance by H - M (`training.eval_stride`), so that
      they, too, predict every token from at least M + 1 tokens and at most H, once there are so many.

    Raises:
        BadInput: the texts are not read in lanes, or a memory's length leaves no such segments.
    """
    first = arms[0].recipe
    if not first.task.in_lanes:
        raise BadInput(
            'compare.history = "equal" is for running text that goes on from segment to segment: task.name causal-lm '
            f'with task.packing "lanes", got {first.task.name} without them; leave compare.history out'
        )
    pieces: dict[str, int] = {}
    faults: list[str] = []
    for arm in arms:
        try:
            pieces |= {arm.name: _pieces(arm)} if _remembers(arm.recipe) else {}
        except BadInput as error:
            faults += error.faults
    if faults:
        raise BadInput(faults)
    return tuple(_adapted(arm, pieces.get(arm.name), max(pieces.values(), default=1)) for arm in arms)


def _remembers(recipe: Recipe) -> bool:
    return recipe.model.get("memory", "none") != "none"


def _pieces(arm: Arm) -> int:
    length, memory = int(arm.recipe.data.length or 0), arm.recipe.model.get("memory_length")
    if memory is None:
        if length % 2:
            raise BadInput(f"data.length must be even for a memory of half of it, got {length}")
        return 2
    if memory < length and length % (length - memory) == 0:
        return length // (length - memory)
    fits = [length - length // n for n in (2, 3, 4, 8, 16) if length % n == 0 and length > n]
    raise BadInput(
        f'compare.arms {arm.name!r}: model.memory_length {memory} under compare.history = "equal": what is left of '
        f"data.length {length} must be a segment that goes into it without a rest; take "
        f"{' or '.join(map(str, fits)) or 'another data.length'}"
    )


def _adapted(arm: Arm, pieces: int | None, most: int) -> Arm:
    length = int(arm.recipe.data.length or 0)
    changes: dict[str, Any] = {}
    if pieces is not None:
        changes = {"training.segments_per_step": pieces, "model.memory_length": length - length // pieces}
    elif most > 1:
        changes = {"training.eval_stride": length // most}
    try:
        return _with(arm, changes)
    except BadInput as error:
        raise BadInput([f"compare.arms {arm.name!r}: {fault}" for fault in error.faults]) from None


def histories(arms: Sequence[Arm]) -> dict[str, History]:
    """Return the tokens that each arm can look back on: its segment, its memory, and both; {} for other tasks.

    Per layer: through L layers of a memory, information reaches L times further (Transformer-XL, Sec. 3.2).
    """
    if not arms[0].recipe.task.in_lanes:
        return {}
    found: dict[str, History] = {}
    for arm in arms:
        segment, memory = arm.recipe.segment_length, 0
        if _remembers(arm.recipe):
            half = max(int(arm.recipe.model["max_position_embeddings"]) // 2, 1)  # the configurations' default
            memory = int(arm.recipe.model.get("memory_length") or half)
        found[arm.name] = History(segment=segment, memory=memory, history=segment + memory)
    return found


def history_sentence(found: Mapping[str, History], *, equal: bool) -> str:
    """Return one sentence about the history that the arms had; "" if none of them has a memory."""
    lengths = [own.history for own in found.values()]
    if not any(own.memory for own in found.values()):
        return ""
    if equal or len({*lengths}) == 1:
        return f"Segment and memory together are {lengths[0]:,} tokens for every arm."
    return (
        f"History is not equal: segment and memory together are {min(lengths):,} to {max(lengths):,} tokens; "
        'compare.history = "equal" makes them the same.'
    )
