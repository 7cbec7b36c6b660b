"""Write the figures, headlines and tables of docs/performance.md from what the benchmarks measured.

    make bench                                   # writes benchmarks/results/*.json and the tables of the page
    python evidence/publish/publish_performance.py     # the figures, the headlines, and once more all tables

Nothing on that page is typed by hand; a test holds page and figures to the committed JSON.
"""

import json
import re
from typing import Any

from blocks import put
from charts import Chart, lines, picture, ratios
from publish_demo import ROOT, SPEED
from speed_tables import speed_table

PAGE = ROOT / "docs" / "performance.md"
FIGURES = ROOT / "docs" / "figures"

OTHERS = re.compile(
    r"SDPA with|operations of|Hugging Face|x-transformers|^transformers|naive|nn\.Embedding|SparseAdam|^torch"
    r"|written out|complex64"
)
"""Candidates that are not this package: libraries, the papers' own code, and what one would write with torch alone."""

TIMED = (
    "long-texts",
    "attention",
    "wall",
    "complex-embedding",
    "complex-layers",
    "memory",
    "memory-step",
    "transformers",
    "swapped",
)
"""Files whose sections are a figure each."""

NETWORKS = (("an encoder", "encoder"), ("a decoder", "decoder"))

MIB = "extra_bytes"
T5_HERE = "wordorder, swap_encoding"
HEADLINES = (
    # a sentence, its file, and where its numbers are: section, candidate, and the key where it is not the ratio
    (
        "**Encodings.** A training step of a small encoder takes {} times as long with `tupe-r` as without positions,"
        " {} with `rope`, {} with `transformer-xl`, {} with `deberta`.",
        "encodings",
        (("encoder", "tupe-r"), ("encoder", "rope"), ("encoder", "transformer-xl"), ("encoder", "deberta")),
    ),
    (
        "**Attention with TUPE-R** takes {} times as long as SDPA without positions at 512 tokens and {} at 4,096."
        " With the bias as SDPA's mask it takes {} and {}.",
        "attention",
        (
            ("operation, 2 x 12 heads x 512, float32", "TUPE-R"),
            ("operation, 1 x 4 heads x 4096, float32", "TUPE-R"),
            ("operation, 2 x 12 heads x 512, float32", "TUPE-R, SDPA with the bias as mask"),
            ("operation, 1 x 4 heads x 4096, float32", "TUPE-R, SDPA with the bias as mask"),
        ),
    ),
    (
        "**Memory.** At 4,096 tokens that attention needs {} MiB beyond its inputs with TUPE-R here, {} with the bias"
        " as SDPA's mask, {} without positions.",
        "attention",
        (
            ("operation, 1 x 4 heads x 4096, float32", "TUPE-R", MIB),
            ("operation, 1 x 4 heads x 4096, float32", "TUPE-R, SDPA with the bias as mask", MIB),
            ("operation, 1 x 4 heads x 4096, float32", "SDPA, no position", MIB),
        ),
    ),
    (
        "**A swapped Llama** at 2,048 tokens trains in {} of its time with `rope`, {} with `t5`, {} with `rope+fox`;"
        " with the biases written out in {} and {}.",
        "swapped",
        tuple(
            ("Llama, 4 layers of width 256, 4 heads, 1 x 2048 tokens", name)
            for name in ("rope", "t5", "rope+fox", "t5, written out", "rope+fox, written out")
        ),
    ),
    (
        "**T5 of transformers** trains in {} of its time with `swap_encoding` at 1,024 tokens. At 2,048 it needs {}"
        " MiB instead of {}.",
        "transformers",
        (
            ("T5 encoder, 2 layers of width 256, 4 heads, 2 x 1024 tokens", T5_HERE),
            ("T5 encoder, 2 layers of width 256, 4 heads, 2 x 2048 tokens", T5_HERE, MIB),
            ("T5 encoder, 2 layers of width 256, 4 heads, 2 x 2048 tokens", "transformers, sdpa", MIB),
        ),
    ),
    (
        "**A complex-order embedding** takes {} times as long as `nn.Embedding`, and {} times under `torch.compile`.",
        "complex-embedding",
        (
            ("embedding, forward and backward, 8,192 tokens drawn evenly", "complex-order"),
            ("embedding, forward and backward, 8,192 tokens drawn evenly", "complex-order, compiled"),
        ),
    ),
    (
        "**Look-ahead memory.** A training step takes {} times as long as Transformer-XL's, for {} times the FLOPs.",
        "memory-step",
        (
            ("training step, 8 x 128 tokens, 128 slots", "look-ahead"),
            ("training step, 8 x 128 tokens, 128 slots", "look-ahead", "flops_ratio"),
        ),
    ),
    (
        "**Generation.** With look-ahead memory a late token takes {} of the time of an early one, without memory {}.",
        "streaming",
        (("", "look-ahead", "old_to_young"), ("", "none", "old_to_young")),
    ),
)


def results_of(name: str) -> dict[str, Any]:
    """Return one committed file, with the names that candidates have now."""
    results = json.loads((SPEED / f"{name}.json").read_text(encoding="utf-8"))
    if name == "transformers":  # measured when the same computation had another name, and one more way was possible
        for section, rows in results["sections"].items():
            renamed = {re.sub(r"^wordorder, \w+$", T5_HERE, candidate): row for candidate, row in rows.items()}
            results["sections"][section] = {key: row for key, row in renamed.items() if key != "wordorder"}
    return results


def headlines() -> str:
    """Return a sentence with its ratios for each measurement."""
    return "\n".join(
        f"- {sentence.format(*(number_of(name, *where) for where in numbers))}" for sentence, name, numbers in HEADLINES
    )


def number_of(name: str, section: str, candidate: str, key: str = "ratio") -> str:
    """Return a number of a file as a headline shows it."""
    results = results_of(name)
    if "streaming" in results:
        rows = {row["memory"]: row for row in results["streaming"]}
    else:
        rows = results["rows"] if "rows" in results else results.get("sections", results.get("networks"))[section]
    value = rows[candidate][key]
    return f"{value / 2**20:,.0f}" if key == MIB else f"{value:.2f}"


def machines() -> str:
    """Return where and with what everything was measured, the number of cores of most files first."""
    files: dict[str, list[str]] = {}
    packages: dict[str, str] = {}
    for name in names_of(PAGE.read_text(encoding="utf-8")):
        machine = results_of(name)["machine"]
        cores = "one core" if machine["threads"] == 1 else f"{machine['threads']} cores"
        files.setdefault(f"{cores} of a CPU ({machine['processor']})", []).append(name)
        packages |= {package: version for package, version in machine["packages"].items() if version}
    most, *others = sorted(files, key=lambda where: -len(files[where]))
    measured = most + "".join(f"; `{', '.join(files[where])}`: {where}" for where in others)
    return f"Measured on {measured}; {', '.join(f'{package} {version}' for package, version in packages.items())}."


def figures() -> dict[str, str]:
    """Return each figure's SVG by the name of its file."""
    networks = results_of("encodings")["networks"]
    charts = [
        ratio_chart(f"A training step of {article}", networks[kind]) for article, kind in NETWORKS if kind in networks
    ]
    made = {"performance_encodings.svg": picture(*charts)}
    for name in TIMED:
        sections = {s: rows for s, rows in results_of(name)["sections"].items() if "ratio" in next(iter(rows.values()))}
        charts = [ratio_chart(f"{section[0].upper()}{section[1:]}", rows) for section, rows in sections.items()]
        made[f"performance_{name}.svg"] = picture(*charts)
    curve = next(rows for section, rows in results_of("attention")["sections"].items() if "TUPE-R" in section)
    points = [(int(tokens), row["bytes"] / 2**20) for tokens, row in curve.items()]
    made["performance_length.svg"] = picture(
        lines(
            "Memory of a training step with TUPE-R",
            {
                "measured": points,
                "if it grew with the square": [(n, points[0][1] * (n / points[0][0]) ** 2) for n, _ in points],
            },
            across="tokens",
            up="extra memory (MiB)",
            logarithmic=True,
        )
    )
    series = {
        f"{row['memory']} ({row['tokens']:,})": list(enumerate(row["milliseconds_per_token"], start=1))
        for row in results_of("streaming")["streaming"]
    }
    made["performance_streaming.svg"] = picture(
        lines(
            "Writing token by token, by memory (tokens)",
            series,
            across="tenth of the stream",
            up="ms per token",
            logarithmic=False,
        )
    )
    return made


def ratio_chart(title: str, rows: dict[str, Any]) -> Chart:
    """Return the chart of one section."""
    return ratios(
        title, [(name, kind_of(name, row), row["ratio"], *row["ratio_quartiles"]) for name, row in rows.items()]
    )


def kind_of(name: str, row: dict[str, Any]) -> str:
    """Return whether a candidate is the limit, this package or something else."""
    if row["ratio"] == 1 and row["ratio_quartiles"] == [1, 1]:
        return "limit"
    return "other" if OTHERS.search(name) or name.startswith(("real", "SDPA", "no memory")) else "ours"


def names_of(page: str) -> list[str]:
    """Return the names of the files of which the page has a table or a figure."""
    found = re.findall(r"<!-- ([a-z-]+)-table -->|performance_([a-z-]+)\.svg", page)
    names = dict.fromkeys(table or figure for table, figure in found)
    return [name for name in names if name not in ("headlines", "machines", "length")]


def page_of(text: str) -> str:
    """Return the page with the headlines, the machines and every table as the files have them."""
    for name in names_of(text):
        text = put(text, name, speed_table(results_of(name)))
    return put(put(text, "headlines", headlines()), "machines", machines())


if __name__ == "__main__":
    for file, chart in figures().items():
        (FIGURES / file).write_text(f"{chart}\n", encoding="utf-8")
    PAGE.write_text(page_of(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
