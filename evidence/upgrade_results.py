"""Write published results of comparisons in the form that `wordorder compare` writes now.

    python evidence/upgrade_results.py evidence/results      # a folder, or JSON files

Differences between arms are tested anew from the rows, by the test that the package has now; claims about new texts,
whose scores are not in the file, stay. No other number changes, and other JSON files of a folder stay as they are. What
the first files did not name, since there was nothing else, is written out, and recipes have the keys of today. What was
never recorded stays out: digests of the batches, the recipe as its author wrote it (`written`), medians of a summary,
claims about new texts. Keys that nothing reads go: `sha256` (of a file that is not here), `merged_from` and the rows'
`from` (the one folder that the rows came from), `pairing`, and `pace`, whose baseline is the file's `baseline`.
"""

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from recording.keys import arm_today, today

from wordorder.comparison.results_file import parse_results
from wordorder.comparison.statistics.claims import BOTH, NEW_TEXTS
from wordorder.comparison.statistics.significance import compare_arms

FIRST_METRIC = {"masked-lm": "perplexity"}
"""Task -> metric that ranked its models in files that name none."""
ALWAYS: dict[str, Any] = {
    "folds": [],
    "grid": [],
    "looks": [],
    "optimistic": False,
    "probes": {},
    "protocol": "test-once",
    "selection": "loss",
    "split": "test",
    "statistic": "mean",
}
UNREAD = ("merged_from", "pace", "sha256")


def upgraded(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return a results file in the present form; one that has it already stays as it is."""
    results = {key: value for key, value in content.items() if key not in UNREAD}
    if "pace" in content:
        results.setdefault("baseline", content["pace"]["baseline"])
    results.setdefault("metric", FIRST_METRIC.get(content["task"]))
    if "waiting" not in content:
        if not content["complete"]:
            raise SystemExit(f"{content['name']} is not complete, and does not say how many runs have not ended")
        results["waiting"] = 0
    if "rows" in content:
        results["rows"] = [{key: value for key, value in row.items() if key != "from"} for row in content["rows"]]
    if "task" in content.get("recipe", {}).get("data", {}):
        results["recipe"] = today(content["recipe"])
        results["arms"] = [{**arm, "overrides": arm_today(arm.get("overrides", {}))} for arm in content["arms"]]
        if content.get("written"):
            results["written"] = today(content["written"])
    if content.get("looks"):
        table = content["recipe"]["compare"]
        looks = [{"equivalence": table.get("equivalence", 0.01), **look} for look in content["looks"]]
        results["looks"] = [{key: value for key, value in look.items() if key != "pairing"} for look in looks]
    return {**results, **tested(results)} if content.get("comparisons") else results


def tested(results: Mapping[str, Any]) -> dict[str, Any]:
    """Return the tests of the arms' differences, with the file's own claims about new texts."""
    claims = {
        (entry["arm"], entry["against"]): {kind: entry[kind] for kind in (NEW_TEXTS, BOTH) if kind in entry}
        for entry in results["comparisons"]
    }
    conclusions = compare_arms(parse_results({**results, "comparisons": [], "significance": {}}))
    comparisons = [entry.as_json() | claims[entry.arm, entry.against] for entry in conclusions.comparisons]
    return {"comparisons": comparisons, "significance": conclusions.significance.as_json()}


def is_results(content: object) -> bool:
    """Tell whether a JSON value is the results of a comparison."""
    return isinstance(content, dict) and {"schema", "planned", "arms"} <= content.keys()


def main() -> None:
    """Write each file anew that holds the results of a comparison, or several by name."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", type=Path, nargs="+", help="JSON files, or folders that hold some")
    for path in parser.parse_args().paths:
        for file in sorted(path.rglob("*.json")) if path.is_dir() else [path]:
            content: Any = json.loads(file.read_text(encoding="utf-8"))
            if is_results(content):
                content = {**ALWAYS, **upgraded(content)}
            elif isinstance(content, dict) and content and all(map(is_results, content.values())):
                content = {name: upgraded(results) for name, results in content.items()}  # each a part of its file
            else:
                continue
            # as the scripts that publish a comparison write it
            file.write_text(json.dumps(content, indent=1, sort_keys=True) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
