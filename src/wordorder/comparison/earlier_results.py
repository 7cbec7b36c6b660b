"""Read the results of an earlier comparison, as `wordorder compare --from` names them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from wordorder.comparison.results import DIGEST, SCHEMA, digest_of
from wordorder.errors import BadInput
from wordorder.limits import read_json

OF_ARMS = ("arms", "histories")
"""Names of results.json's "budget" whose tables have an entry for each arm."""

_PREFIX = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """The results of an earlier comparison, with its arms renamed if that was asked for."""

    folder: Path
    results: dict[str, Any]

    @property
    def name(self) -> str:
        """Name of the comparison in faults: its folder."""
        return str(self.folder)


def is_as_written(text: str) -> bool:
    """Tell whether the results that `read_source` reads are unchanged, by the digest that they hold.

    Args:
        text: see `read_source`.
    """
    try:
        found: Any = read_json(_place(text)[0] / "results.json")
        return found[DIGEST] == digest_of(found)
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return False


def _place(text: str) -> tuple[Path, str]:
    """Return the folder, and the prefix of the arms' names."""
    folder = Path(text)
    if not folder.exists() and ":" in text:
        before, _, after = text.rpartition(":")
        if _PREFIX.fullmatch(after):
            return Path(before), f"{after}-"
    return folder, ""


def read_source(text: str) -> Source:
    """Read the results of a folder, or of `folder:prefix`, which calls every arm prefix-arm.

    Raises:
        BadInput: there is no results.json that can be read, or the prefix is no name.
    """
    folder, prefix = _place(text)
    path = folder / "results.json"
    try:
        found: Any = read_json(path)
    except OSError:
        raise BadInput(f"--from {text}: there is no {path}; name the folder of a comparison that was run") from None
    except ValueError:
        found = None
    if not isinstance(found, dict) or cast("dict[str, Any]", found).get("schema") != SCHEMA:
        raise BadInput(f"--from {text}: {path} is not a results file of this version (schema {SCHEMA})")
    results = cast("dict[str, Any]", found)
    if not results.get("rows"):
        raise BadInput(f"--from {text}: {path} holds no finished run")
    lacking = _lacking(results)
    if lacking:
        raise BadInput(f"--from {text}: {path} is cut or was changed: it lacks {lacking}; run the comparison again")
    return Source(folder=folder, results=_renamed(results, prefix) if prefix else results)


def _lacking(results: Mapping[str, Any]) -> str:
    """Return the first required part that a results file lacks; "" if it has all."""
    for name, kind in (("recipe", dict), ("data", dict), ("planned", dict), ("environment", dict), ("arms", list)):
        if not isinstance(results.get(name), kind):
            return name
    if not isinstance(results["recipe"].get("compare"), dict) or not {"model", "training"} <= results["recipe"].keys():
        return "parts of the recipe"
    rows, arms = (cast("list[dict[str, Any]]", results[name]) for name in ("rows", "arms"))
    known = all(isinstance(entry, dict) for entry in (*rows, *arms))  # pyright: ignore[reportUnnecessaryIsInstance]
    whole = known and all({"arm", "seed", "loss", "model"} <= row.keys() for row in rows)
    names = {arm.get("name") for arm in arms} if known else set[Any]()
    return "" if whole and names >= {row["arm"] for row in rows} else "parts of its rows"


def _renamed(results: dict[str, Any], prefix: str) -> dict[str, Any]:
    """Return the results with every arm called prefix + arm."""
    renamed = {str(arm["name"]): f"{prefix}{arm['name']}" for arm in results["arms"]}
    changed = {**results, "arms": [{**arm, "name": renamed[arm["name"]]} for arm in results["arms"]]}
    for key in ("rows", "failed", "tuning", "grid"):
        changed[key] = [{**entry, "arm": renamed[entry["arm"]]} for entry in results.get(key, [])]
    maps: Mapping[str, Any] = results.get("correlations", {})
    changed["correlations"] = {renamed[arm]: own for arm, own in maps.items()}
    probes: Mapping[str, Any] = results.get("probes", {})
    changed["probes"] = {
        name: {
            **probe,
            **{key: [{**e, "arm": renamed[e["arm"]]} for e in probe.get(key, [])] for key in ("rows", "skipped")},
        }
        for name, probe in probes.items()
    }
    budget = results.get("budget")
    if budget:
        by_arm = {
            key: {renamed[arm]: own for arm, own in budget.get(key, {}).items() if arm in renamed} for key in OF_ARMS
        }
        reference = renamed.get(budget.get("reference"), budget.get("reference"))
        changed["budget"] = {**budget, **by_arm, "reference": reference}
    compare = results["recipe"]["compare"]
    arms = [{**arm, "name": renamed[arm["name"]]} for arm in compare["arms"] if arm["name"] in renamed]
    baseline = {"baseline": f"{prefix}{compare['baseline']}"} if compare.get("baseline") else {}
    changed["recipe"] = {**results["recipe"], "compare": {**compare, **baseline, "arms": arms}}
    if results.get("baseline"):
        changed["baseline"] = f"{prefix}{results['baseline']}"
    if "looks" in results:
        changed["looks"] = [_look_renamed(look, prefix) for look in results["looks"]]
    return changed


def _look_renamed(look: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    baseline = f"{prefix}{look['baseline']}" if look["baseline"] else None
    of_arms = {
        name: {f"{prefix}{arm}": n for arm, n in look[name].items()} for name in ("runs", "seeds") if name in look
    }
    return {**look, **of_arms, "baseline": baseline}
