"""Write what the catalogue, the schema of recipes and the committed results say of the encodings into the pages.

    python evidence/publish/publish_encodings.py

What stands between a mark and its closing mark (`<!-- /facts -->`) is made anew:

    <!-- facts: NAME NAME ... -->        tables: place, parameters, cost, where defined; options
    <!-- measured: NAME ... -->          every comparison that has a model with one of these encodings
    <!-- scores: NAME -->                the scores of one comparison
    <!-- against: NAME NAME ... -->      the first encoding beside others on every tuned task, and what is significant
    <!-- catalogue: table -->            all encodings, each with its page: the one that has its facts
    <!-- catalogue: kinds -->            all encodings and memories by what they are for, with year and paper
    <!-- catalogue: costs -->            all encodings, with what they cost
    <!-- catalogue: tasks -->            all generated tasks, data.source = "task:NAME"
    <!-- recipe: SECTION -->             the names of a section of recipes
"""

import inspect
import json
import math
import re
import sys
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

from blocks import put_each

from wordorder.cli.list import entries as catalogue
from wordorder.comparison.report.differences import grouped, in_parts, outcome_in_words, unit_of, with_spread
from wordorder.comparison.report.verdict import ranked
from wordorder.comparison.results_file import ArmResult, Comparison, Results, read_results
from wordorder.comparison.statistics.seeds import compare_seeds
from wordorder.comparison.statistics.significance import compare_arms
from wordorder.comparison.statistics.summary import quality_of
from wordorder.data.generated import GENERATED
from wordorder.encodings import CATALOG, names_of, options_of
from wordorder.encodings.build import WORDS
from wordorder.tasks.catalog import TASKS, forms_of, known_metrics
from wordorder.training.recipe.schema import recipe_schema

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
RESULTS = ROOT / "evidence" / "results"
SPEED = ROOT / "benchmarks" / "results"
NO_BREAK = "\N{NO-BREAK SPACE}"
USES = {
    "encoder": "encoders",
    "decoder": "decoders",
    "cross-attention": "cross-attention",
    "memory": "memory",
    "right": "look-ahead memory",
}
"""Uses that an encoding may be defined for, and the words for them."""
ONLY_HERE = ("Ke et al. 2021", "Wang et al. 2020")
"""Papers whose encodings no other maintained library has."""
COMPARISONS = {
    "decision/masked_letters_64": ("masked letters, tuned", "comparisons.md#several-tasks-tuned-for-every-model"),
    "decision/causal_letters_64": ("causal letters, tuned", "comparisons.md#several-tasks-tuned-for-every-model"),
    "compare-mlm": ("masked letters, equal parameters", "comparisons.md#masked-letters-equal-parameters"),
    "compare-clm": (
        "causal letters, equal FLOPs, rate not searched for",
        "comparisons.md#causal-letters-equal-flops",
    ),
    "decision/questions_64": ("questions by kind, tuned", "comparisons.md#several-tasks-tuned-for-every-model"),
    "memory-brackets": ("brackets opened in an earlier segment", "comparisons.md#memories"),
    "memory-instruction": ("an instruction that follows its data", "comparisons.md#memories"),
    "memory-letters": ("letters in short segments", "comparisons.md#memories"),
}
"""Results file -> what it compares, and where docs/comparisons.md discusses it."""


def facts(names: list[str], prefix: str = "") -> str:
    """Return what encodings cost, where they are defined, why not elsewhere, and their options."""
    entries = {entry["name"]: entry for entry in catalogue()["encodings"]}
    lines = [
        "| encoding | acts on | parameters | training time, encoder | training time, decoder | longest text |",
        "| :--- | :--- | ---: | ---: | ---: | :--- |",
    ]
    for name in names:
        entry = entries[name]
        cells = [f"`{name}`", entry["place"], grouped(sum(entry["parameters"].values()))]
        for network, steps in steps_of_training()["networks"].items():
            ratio = f"{steps[name]['ratio']:.2f}×" if name in steps else "not measured"
            cells.append("not defined" if network in entry["refused_in"] else ratio)
        cells.append("its position table" if entry["bounded"] else "any")
        lines.append(f"| {' | '.join(cells)} |")
    legend = (
        "Parameters at the sizes of BERT-Base (12 layers, width 768, 12 heads, 512 positions). Time of a training step"
        f" relative to no encoding, on one CPU thread ([how it is measured]({prefix}performance.md))."
    )
    where = defined_in([entries[name] for name in names], prefix)
    return "\n\n".join(["\n".join(lines), legend, where, options(names, prefix)])


def defined_in(entries: list[dict[str, Any]], prefix: str = "") -> str:
    """Return where all of these encodings are defined, and once each reason why some are not there."""
    refused: dict[tuple[str, str], list[str]] = {}
    for entry in entries:
        for use, reason in entry["refused_in"].items():
            refused.setdefault((use, reason), []).append(entry["name"])
    everywhere = [words for use, words in USES.items() if use not in {use for use, _ in refused}]
    listed = [words for words in (", ".join(everywhere[:-1]), *everywhere[-1:]) if words]
    lines = [f"Defined for {' and '.join(listed)}."] if listed else []
    if refused:
        lines += ["", "Not defined for:", ""]
    uses: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for (use, reason), names in refused.items():
        uses.setdefault((reason, tuple(names)), []).append((WORDS | USES)[use])
    for (reason, names), words in uses.items():
        which = "" if len(names) == len(entries) else f" ({', '.join(f'`{name}`' for name in names)})"
        lines.append(f"- {', '.join(words)}{which}: {reason}.")
    return "\n".join(lines)


def options(names: list[str], prefix: str) -> str:
    """Return a table of the options of these encodings, with the meanings of the classes' docstrings."""
    rows: dict[str, dict[str, str]] = {}
    meanings: dict[str, str] = {}
    for name in names:
        meanings = arguments_of(CATALOG[name]) | meanings
        for key, value in options_of(CATALOG[name]).items():
            rows.setdefault(key, {})[name] = "not set" if value is None else f"`{_plain(value)}`"
    if not rows:
        return "No options."
    lines = ["| option | default | meaning |", "| :--- | :--- | :--- |"]
    for key, defaults in rows.items():
        which = "" if len(defaults) == len(names) else f" ({', '.join(f'`{name}`' for name in defaults)})"
        values = list(dict.fromkeys(defaults.values()))
        shown = values[0] if len(values) == 1 else ", ".join(f"{value} ({name})" for name, value in defaults.items())
        meaning = meanings.get(key, "").replace("|", "\\|")
        lines.append(f"| `{key}`{which} | {shown} | {meaning} |")
    where = f"the [reference]({prefix}reference/encodings.md) has every argument"
    how = f"Set options with `encoding_options`, in `Positional` with `options`; {where}."
    return "\n".join([*lines, "", how])


def arguments_of(kind: type) -> dict[str, str]:
    """Return the meanings of a class's arguments, by name, also those in docstrings of its bases and its module."""
    beside = [found for found in vars(sys.modules[kind.__module__]).values() if inspect.isclass(found)]
    found: dict[str, str] = {}
    for source in [*kind.__mro__, *(other for other in beside if other.__module__ == kind.__module__)]:
        text = f"{inspect.getdoc(source)}\n".partition("\nArgs:\n")[2]
        section = re.match(r"(?: +.*\n|\n)*", text)
        arguments = re.findall(r"^    (\w+): (.*(?:\n {8}.*)*)", section[0] if section else "", flags=re.MULTILINE)
        for name, meaning in arguments:
            words = re.sub(r"\s+", " ", meaning).replace("``", "`")
            found.setdefault(name, words[:1].upper() + words[1:])
    return found


def measured(names: list[str], prefix: str) -> str:
    """Return one row for every model of a comparison that has one of these encodings."""
    lines = ["| comparison | model | score | against the baseline | best |", "| :--- | :--- | ---: | :--- | :--- |"]
    for file, (title, address) in COMPARISONS.items():
        results = read_results(RESULTS / f"{file}.json")
        metric = quality_of(results).key
        summary = {entry.arm: entry.columns[metric] for entry in results.summary}
        sign = -1 if quality_of(results).higher_is_better else 1
        best = min(summary, key=lambda arm: sign * (summary[arm].mean or 0.0))
        found = {entry.arm: entry for entry in compare_arms(results).comparisons if entry.against == results.baseline}
        for arm in results.arms:
            if _wanted(file, arm, names):
                said = "the baseline" if arm.name == results.baseline else _said(found[arm.name], results)
                ends = with_spread(summary[best]).replace(" ", NO_BREAK)
                score = f"{metric} {with_spread(summary[arm.name]).replace(' ', NO_BREAK)}"
                last = "this one" if arm.name == best else f"{best}, {ends}"
                lines.append(f"| [{title}]({prefix}{address}) | {arm.name} | {score} | {said} | {last} |")
    if len(lines) == 2:
        return "Not compared in this repository yet."
    limits = (
        "Mean ± standard deviation over the seeds; small networks, one kind of text:"
        f" [what this does not show]({prefix}comparisons.md)."
    )
    return "\n".join([*lines, "", limits, *longer_texts(names, prefix)])


def scores(file: str) -> str:
    """Return the scores of one comparison, best first, each with its difference from the baseline."""
    results = read_results(RESULTS / f"{file}.json")
    quality = quality_of(results)
    costs = {arm.name: grouped(sum(arm.encoding_parameters.values())) for arm in results.arms}
    found = {entry.arm: entry for entry in compare_arms(results).comparisons if entry.against == results.baseline}
    lines = [
        f"| encoding | {results.split} {quality.name} | against {results.baseline} | parameters of the encoding |",
        "| :--- | ---: | :--- | ---: |",
    ]
    for entry in ranked(results):
        said = " ".join(in_parts(found[entry.arm], unit_of(results))) if entry.arm in found else "the baseline"
        lines.append(f"| `{entry.arm}` | {with_spread(entry.columns[quality.key])} | {said} | {costs[entry.arm]} |")
    return "\n".join(lines)


def against(name: str, *others: str) -> str:
    """Return the scores of an encoding beside those of others on the tuned tasks, with tests of the pairs."""
    shown = [name, *others]
    lines = [f"| task | {' | '.join(f'`{arm}`' for arm in shown)} |", f"| :--- |{' ---: |' * len(shown)}"]
    for file, (title, address) in COMPARISONS.items():
        if not file.startswith("decision/"):
            continue
        results = read_results(RESULTS / f"{file}.json")
        quality = quality_of(results)
        runs: dict[str, list[float]] = {}
        for row in results.rows:
            value = float(getattr(row, quality.key))
            runs.setdefault(row.arm, []).append(math.log(value) if quality.key == "perplexity" else value)
        tests = compare_seeds(runs, [(name, other) for other in others], level=0.05, margin=0.0)
        marks = {other: "\\*" * (tests[name, other].p_adjusted <= 0.05) for other in others}
        columns = {entry.arm: entry.columns[quality.key] for entry in results.summary}
        cells = [f"{with_spread(columns[arm])}{marks.get(arm, '')}" for arm in shown]
        lines.append(f"| [{title.removesuffix(', tuned')}: {quality.name}]({address}) | {' | '.join(cells)} |")
    seeds = len({row.seed for row in results.rows})
    note = f"Mean ± standard deviation of {seeds} seeds. \\* Significantly different from `{name}`, corrected for the"
    return "\n".join([*lines, "", f"{note} {len(others)} pairs of a line (Welch's test with a common floor)."])


def longer_texts(names: list[str], prefix: str) -> list[str]:
    """Return lines of a table of perplexities on texts longer than in training, mean over the seeds; or none."""
    rows: list[str] = []
    lengths: list[int] = []
    with_table = False
    for file in ("compare-mlm", "compare-clm"):
        results = json.loads((RESULTS / f"{file}.json").read_text(encoding="utf-8"))
        encodings = {arm["name"]: arm["encoding"] for arm in results["arms"]}
        arms = [arm for arm, encoding in encodings.items() if set(names_of(encoding)) & set(names)]
        found = [row for row in results["probes"]["extrapolation"]["rows"] if row["group"] == "all tokens"]
        lengths = lengths or sorted({row["x"] for row in found})
        title, address = COMPARISONS[file]
        for arm in arms:
            values = [[r["value"] for r in found if r["arm"] == arm and r["x"] == x and r["value"]] for x in lengths]
            cells = [f"{sum(of) / len(of):.2f}" if of else "not measured" for of in values]
            if not any(values) and any(CATALOG[name].bounded for name in names_of(encodings[arm])):
                # the probe leaves out arms that cannot read longer texts, the training length included
                summary = next(entry[results["metric"]] for entry in results["summary"] if entry["arm"] == arm)
                cells = [f"{summary['mean']:.2f}", *["longer than its position table"] * (len(lengths) - 1)]
                with_table = True
            rows.append(f"| [{title.split(',')[0]}]({prefix}{address}) | {arm} | {' | '.join(cells)} |")
    if not rows:
        return []
    head = f"| perplexity by text length | model | {lengths[0]} (training) | "
    head += " | ".join(f"{length:,}" for length in lengths[1:]) + " |"
    note = "A model with a position table: the number at the training length is its score above."
    return ["", head, "| --- | --- |" + " ---: |" * len(lengths), *rows, *(["", note] if with_table else [])]


def table(prefix: str) -> str:
    """Return all encodings by purpose: where they act, what they do by their docstrings, and where to read on."""
    lines = ["| name | acts on | what it does | paper |", "| --- | --- | --- | --- |"]
    at = pages()
    for purpose, entries in by_purpose():
        lines.append(f"| **{purpose}** | | | |")
        for entry in entries:
            authors, _, address = entry["paper"].rpartition(", ")
            cells = [
                f"[`{entry['name']}`]({prefix}{at[entry['name']]})",
                entry["place"],
                entry["summary"].rstrip(".").replace("|", "\\|"),
            ]
            lines.append(f"| {' | '.join(cells)} | [{authors}]({address}) |")
    return "\n".join(lines)


def by_purpose() -> Iterator[tuple[str, Iterator[dict[str, Any]]]]:
    """Yield each purpose with the entries of its encodings."""
    return groupby(catalogue()["encodings"], key=lambda entry: entry["purpose"])


def kinds() -> str:
    """Return the README's table: encodings and memories by what they are for, with authors and year."""
    at = pages()
    lines = ["| purpose | by name |", "| :--- | :--- |"]
    for purpose, entries in by_purpose():
        by_paper: dict[str, list[str]] = {}
        for entry in entries:
            authors = re.match(r".*? \d{4}", entry["paper"])
            assert authors is not None, entry["paper"]
            by_paper.setdefault(authors[0], []).append(f"[`{entry['name']}`](docs/{at[entry['name']]})")
        cells = [
            f"{', '.join(names)} ({authors}){' ★' if authors in ONLY_HERE else ''}"
            for authors, names in by_paper.items()
        ]
        lines.append(f"| {purpose} | {'; '.join(cells)} |")
    memories = (
        "[`segment-recurrence`](docs/memory.md#segment-recurrence) (Dai et al. 2019);"
        " [`compressive`](docs/memory.md#segment-recurrence) (Rae et al. 2020);"
        " [`first-tokens`](docs/memory.md#segment-recurrence) (Xiao et al. 2024);"
        " [`look-ahead`](docs/memory.md#look-ahead-memory), LaMemo (Ji et al. 2022) ★"
    )
    last = "★ We know of no other maintained library with this paper's method."
    return "\n".join([*lines, f"| memory of earlier segments | {memories} |", "", last])


def costs(prefix: str) -> str:
    """Return what each encoding costs and where it is defined, whatever the task."""
    lines = [
        "| Encoding | acts on | parameters at the sizes of BERT-Base | encoder's step | decoder's | length | not in |",
        "| :--- | :--- | ---: | ---: | ---: | :--- | :--- |",
    ]
    measured = steps_of_training()
    for purpose, entries in by_purpose():
        lines.append(f"| **{purpose}** | | | | | | |")
        for entry in entries:
            cells = [entry["name"], entry["place"], grouped(sum(entry["parameters"].values()))]
            for network in ("encoder", "decoder"):
                row = measured["networks"][network].get(entry["name"])
                low, high = row["ratio_quartiles"] if row else (0, 0)
                cells.append(f"{row['ratio']:.2f} ({low:.2f} to {high:.2f})" if row else "")
            cells += [
                "up to its table" if entry["bounded"] else "any",
                ", ".join(WORDS.get(use, use) for use in entry["refused_in"]),
            ]
            lines.append("| " + " | ".join(cells) + " |")
    s = measured["settings"]
    return "\n".join(lines) + (
        f"\n\nTime: median and quartiles of the ratio to no positions; {s['layers']} layers of width {s['width']}, "
        f"{s['batch']} x {s['length']} tokens, one CPU thread ([how]({prefix}performance.md));"
        f" [GPUs]({prefix}backends.md) differ. Empty: not measured."
    )


def generated_tasks() -> str:
    """Return the generated tasks: their questions, as which tasks they can be put, and what their lengths count."""
    lines = [
        "| name | question | put as | length counts | train, test | paper |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for task in GENERATED.values():
        spans = [f"{low} to {high}" for low, high in (task.train_lengths, task.test_lengths)]
        paper = re.sub(r"https://arxiv\.org/abs/(\d+\.\d+)", r"[arXiv:\1](https://arxiv.org/abs/\1)", task.paper)
        lanes = " (lanes too)" if task.answers else ""
        cells = [
            f"`{task.name}`",
            task.question,
            ", ".join(forms_of(task)) + lanes,
            task.length,
            ", ".join(spans),
            paper,
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def metrics() -> str:
    """Return the metrics that choose a checkpoint: of which tasks, of which of them the headline, what they say."""
    lines = ["| metric | tasks | default headline of | meaning |", "| --- | --- | --- | --- |"]
    for metric in known_metrics().values():
        tasks, headlines = [], []
        for name, task in TASKS.items():
            for generated, where in ((False, name), (True, f"{name} (generated tasks)")):
                if any(one.key == metric.key for one in task.metrics_of(generated)) and name not in tasks:
                    tasks.append(where)
                if task.headline_of(generated).key == metric.key and name not in headlines:
                    headlines.append(where)
        if metric.key == "perplexity":
            tasks = ["ranks models; `loss` chooses their checkpoints"]
        if any(one.key == metric.key and one.of_translations for task in TASKS.values() for one in task.metrics):
            tasks = [name.replace("translation", "translation with `translate_while_training`") for name in tasks]
        meaning = metric.meaning.format(split="test")
        lines.append(f"| `{metric.key}` | {', '.join(tasks)} | {', '.join(headlines)} | {meaning} |")
    return "\n".join(lines)


def settings(section: str) -> str:
    """Return a table of the names of a section of recipes: what each takes, its default and its meaning."""
    rows = ["| name | takes | default | meaning |", "| --- | --- | --- | --- |"]
    for name, schema in recipe_schema()["properties"][section]["properties"].items():
        default = f"`{json.dumps(schema['default'])}`" if "default" in schema else ""
        meaning = schema.get("description", "").replace("``", "`").replace("|", "\\|")
        rows.append(f"| `{name}` | {_taken(schema)} | {default} | {meaning} |")
    return "\n".join(rows)


def _taken(schema: dict[str, Any]) -> str:
    if "enum" in schema:
        return ", ".join(f"`{choice}`" for choice in schema["enum"])
    if "anyOf" in schema:
        return " or ".join(_taken(inner) for inner in schema["anyOf"])
    names = {"string": "text", "boolean": "true, false", "object": "table", "array": "list"}
    words = {"minimum": "from", "exclusiveMinimum": "above", "maximum": "to", "exclusiveMaximum": "below"}
    bounds = [f"{word} {schema[bound]:,}" for bound, word in words.items() if bound in schema]
    return " ".join([names.get(schema.get("type", ""), schema.get("type", "any")), *bounds])


def page_of(text: str, name: str) -> str:
    """Return a page with its tables as the code and the results give them now.

    Args:
        text: of the page.
        name: its path in docs/, for links that lead from there.
    """
    prefix = "docs/" if name == "README.md" else "../" * name.count("/")

    def content_of(block: str) -> str | None:
        match block.split(": "):
            case "facts", names:
                return facts(names.split(), prefix)
            case "measured", names:
                return measured(names.split(), prefix)
            case "scores", file:
                return scores(file)
            case "against", names:
                return against(*names.split())
            case "catalogue", "table":
                return table(prefix)
            case "catalogue", "kinds":
                return kinds()
            case "catalogue", "costs":
                return costs(prefix)
            case "catalogue", "tasks":
                return generated_tasks()
            case "catalogue", "metrics":
                return metrics()
            case "recipe", section:
                return settings(section)
            case _, _:
                raise ValueError(f"{name}: there is no table {block!r}")
            case _:  # of another script
                return None

    return put_each(text, content_of)


def pages() -> dict[str, str]:
    """Return the page of each encoding, the one that has its facts, as a path in docs/, in the catalogue's order."""
    found: dict[str, str] = {}
    for page in sorted(DOCS.rglob("*.md")):
        for names in re.findall(r"^<!-- facts: (.*) -->$", page.read_text(encoding="utf-8"), flags=re.MULTILINE):
            found |= dict.fromkeys(names.split(), page.relative_to(DOCS).as_posix())
    for name in CATALOG:
        if name not in found:
            raise ValueError(f"no page has the facts of {name!r}; write docs/mechanisms/{name}.md")
    return {name: found[name] for name in CATALOG}


def steps_of_training() -> dict[str, Any]:
    """Read the committed times of a training step, by network and encoding."""
    return json.loads((SPEED / "encodings.json").read_text(encoding="utf-8"))


def _wanted(file: str, arm: ArmResult, names: list[str]) -> bool:
    """Return whether a page shows this arm: all where memories are compared, else those with one of the encodings."""
    if file.startswith("memory-"):
        return names == ["memories"]
    return bool(set(names_of(str(arm.encoding))) & set(names))


def _plain(value: Any) -> str:
    return str(value).lower() if value is None or isinstance(value, bool) else f"{value}"


def _said(entry: Comparison, results: Results) -> str:
    """Return a difference from the baseline, and whether it is significant."""
    size = unit_of(results).text(entry.difference or 0.0)
    return f"{size} against {results.baseline}; {results.significance.seeds} seeds, {outcome_in_words(entry)}"


if __name__ == "__main__":
    for path in [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]:
        page, name = path.read_text(encoding="utf-8"), path.relative_to(path.parent if path.parent == ROOT else DOCS)
        path.write_text(page_of(page, name.as_posix()), encoding="utf-8")
