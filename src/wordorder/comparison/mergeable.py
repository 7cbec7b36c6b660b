"""Check whether earlier results can stand in one table: find what differs between them besides the arms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from wordorder.comparison.arms import FREE_FOR_EVERY_ARM, WRITTEN
from wordorder.comparison.earlier_results import Source
from wordorder.training.older_version import changed_options
from wordorder.training.run import differences
from wordorder.training.sources import SOURCES
from wordorder.training.toml_text import set_dotted

SAME = ("task", "metric", "split", "protocol", "statistic", "selection")
"""Names of results.json that all results must agree in."""

TUNED_ALIKE = ("tune", "grid", "tune_seed", "match", "history", "folds")
"""Names of [compare] that all results must agree in: an arm with more tries, or another budget, has an advantage."""


def differing(first: Source, other: Source) -> list[str]:
    """Return the reasons why two comparisons cannot stand in one table, a line for each difference."""
    one, two = first.results, other.results
    found = [
        f"{name} is {one[name]!r} in {first.name} and {two[name]!r} in {other.name}"
        for name in SAME
        if name in one and name in two and one[name] != two[name]
    ]
    if _fingerprints(one) != _fingerprints(two):
        found.append(f"the data differ: {first.name} and {other.name} were trained or tested on other texts or tokens")
    found += [
        f"{difference} ({first.name}, then {other.name})"
        for difference in differences(_shared(one["recipe"]), _shared(two["recipe"]))
    ]
    compare_one, compare_two = one["recipe"].get("compare", {}), two["recipe"].get("compare", {})
    for name in TUNED_ALIKE:
        values = [_or_default(name, compare.get(name)) for compare in (compare_one, compare_two)]
        # the seed of trials decides nothing where there are none
        if values[0] != values[1] and (name != "tune_seed" or compare_one.get("tune")):
            found.append(f"compare.{name} is {values[0]!r} in {first.name} and {values[1]!r} in {other.name}")
    found += _own_encoding_faults(first, other) + _budget_faults(first, other) + _version_faults(first, other)
    return [f"cannot be merged: {fault}" for fault in found]


_DEFAULTS: dict[str, Any] = {"match": "none", "history": "segment", "tune_seed": 0}


def _or_default(name: str, value: Any) -> Any:
    return value or _DEFAULTS.get(name, [])


def _fingerprints(results: Mapping[str, Any]) -> list[Any]:
    folds = [entry.get("fingerprint") for entry in results.get("folds", [])]
    return folds or [results["data"].get("fingerprint")]


def _shared(recipe: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of a resolved recipe that all arms must share; the data's texts are compared by fingerprint."""
    free = FREE_FOR_EVERY_ARM | {"seed"}
    tables = {"data": SOURCES, "tokenizer": ("path",), "training": free}
    return {
        section: {name: value for name, value in recipe.get(section, {}).items() if name not in without}
        for section, without in tables.items()
    }


def _own_encoding_faults(first: Source, other: Source) -> list[str]:
    """Refuse one name for two files, or for a file that was changed: two encodings would be one arm."""
    one, two = (source.results.get("own_encodings", {}) for source in (first, other))
    return [
        f"the encoding of your own {name!r} is {one[name]['class']} of {one[name]['file']} in {first.name}, and "
        f"another class, or a file of other content, in {other.name}; give one another name by --arm FILE.py:CLASS=name"
        for name in one.keys() & two.keys()
        if any(one[name].get(key) != two[name].get(key) for key in ("class", "sha256"))
    ]


def _version_faults(first: Source, other: Source) -> list[str]:
    """Refuse arms of one name that two versions trained with other defaults: they are two encodings."""
    versions = [_version(source.results) for source in (first, other)]
    has_cls = bool(first.results["recipe"].get("tokenizer", {}).get("add_special_tokens", True))
    named = {str(arm["name"]) for arm in other.results["arms"]}
    faults: list[str] = []
    for arm in first.results["arms"]:
        model = settings(first.results, arm)["model"]
        if arm["name"] not in named or "pretrained" in model:  # a saved model keeps its defaults
            continue
        options = changed_options(model, *versions, has_cls=has_cls)
        if options:
            faults.append(
                f"arm {arm['name']!r} was trained by wordorder {versions[0]} in {first.name}, with"
                f" {' and '.join(options)} by default, and by {versions[1]} in {other.name}, with another default"
            )
    return faults


def _version(results: Mapping[str, Any]) -> str | None:
    packages = results.get("environment", {}).get("packages", {})
    return packages.get("wordorder")


def _budget_faults(first: Source, other: Source) -> list[str]:
    """Refuse widths or steps that were sized after different targets."""
    budgets = [_budget(source.results) for source in (first, other)]
    targets = [own["target"] for budget in budgets for own in list(_sized(budget).values())[:1]]
    if len(targets) < 2 or max(targets) <= (1 + float(budgets[0].get("tolerance", 0.01))) * min(targets):
        return []
    return [
        f"the budgets differ: arms have {targets[0]:,.4g} in {first.name} and {targets[1]:,.4g} in {other.name} "
        f"({budgets[0]['match']})"
    ]


def _budget(results: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] | None = results.get("budget")
    return found or dict[str, Any]()


def _sized(budget: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return each arm's matched number and the changes made for it."""
    return budget.get("arms", {}) if budget.get("match", "none") != "none" else {}


def settings(results: Mapping[str, Any], arm: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the tables that define an arm: its model, and how its weights are updated.

    Args:
        results: of a comparison.
        arm: with name and overrides; and with the learning rate, where tuning chose it.
    """
    recipe = results["recipe"]
    tables = {
        "model": dict(recipe["model"]),
        "training": {name: value for name, value in recipe["training"].items() if name in FREE_FOR_EVERY_ARM},
    }
    changed: dict[str, list[Any]] = _sized(_budget(results)).get(arm["name"], {}).get("changed", {})
    for key, value in {**arm.get("overrides", {}), **{key: now for key, (_, now) in changed.items()}}.items():
        set_dotted(tables, key, value)
    if "learning_rate" in arm:
        tables["training"]["learning_rate"] = arm["learning_rate"]
    return tables


def ambiguous(sources: Sequence[Source]) -> list[str]:
    """Refuse one name for two different arms."""
    known: dict[str, tuple[Source, dict[str, dict[str, Any]]]] = {}
    faults: list[str] = []
    for source in sources:
        for arm in source.results["arms"]:
            name, own = str(arm["name"]), settings(source.results, arm)
            before, there = known.setdefault(name, (source, own))
            found = _differences(there, own)
            if None in (own["training"]["learning_rate"], there["training"]["learning_rate"]):
                # an arm of which nothing has finished may have no rate yet
                found = [line for line in found if not line.startswith("training.learning_rate ")]
            if found:
                faults.append(
                    f"cannot be merged: arm {name!r} is not the same in {before.name} and {source.name}: "
                    f"{'; '.join(found)}; tell them apart by --from {source.folder}:NAME, which calls it NAME-{name}"
                )
    folded = [name.casefold() for name in known]
    faults += [
        f"cannot be merged: the name of arm {name!r} differs from another one by case only, or is that of a file; give "
        "a prefix by --from FOLDER:NAME"
        for name in known
        if folded.count(name.casefold()) > 1 or name.casefold() in WRITTEN
    ]
    return faults


def _differences(one: dict[str, dict[str, Any]], other: dict[str, dict[str, Any]]) -> list[str]:
    try:
        return differences(one, other)
    except ValueError:  # an encoding of one's own, of which only its file knows the defaults
        keys = [(section, name) for section in one for name in sorted(one[section].keys() | other[section].keys())]
        return [
            f"{section}.{name} was {one[section].get(name)!r}, now {other[section].get(name)!r}"
            for section, name in keys
            if one[section].get(name) != other[section].get(name)
        ]
