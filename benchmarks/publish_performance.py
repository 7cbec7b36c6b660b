"""Write the figures and the overview of docs/performance.md from what the benchmarks measured.

    make bench                                   # writes benchmarks/results/*.json and the tables of the page
    python benchmarks/publish_performance.py     # the figures, the overview, and once more all tables

Nothing on that page is typed by hand; a test holds page and figures to the committed JSON.
"""

import json
import re
from typing import Any

from charts import lines, ratios
from publish_demo import RESULTS, ROOT, put
from speed_tables import speed_table

PAGE = ROOT / "docs" / "performance.md"
FIGURES = ROOT / "docs" / "figures"

OTHERS = re.compile(
    r"SDPA with|operations of|Hugging Face|x-transformers|^transformers|naive|nn\.Embedding|SparseAdam|^torch"
    r"|written out|complex64"
)
"""Candidates that are not this package: libraries, the papers' own code, and what one would write with torch alone."""

NETWORKS = (("an encoder", "encoder"), ("a decoder", "decoder"))

OVERVIEW = (
    # question, file, section, the limit, ours, what one would take instead
    ("attention with TUPE-R", "attention", "operation, 2 x 12 heads x 512, float32", "TUPE-R", ("TUPE-R, SDPA with",)),
    ("the same, long", "attention", "operation, 1 x 4 heads x 4096, float32", "TUPE-R", ("TUPE-R, SDPA with",)),
    (
        "a whole encoder with TUPE-R",
        "attention",
        "encoder, 4 layers of width 768, 12 heads, 2 x 512, float32",
        "TUPE-R",
        ("TUPE-R, SDPA with", "Hugging Face", "x-transformers, T5"),
    ),
    (
        "the same, narrow and long",
        "attention",
        "encoder, 4 layers of width 256, 4 heads, 2 x 1024, float32",
        "TUPE-R",
        ("TUPE-R, SDPA with", "Hugging Face", "x-transformers, T5"),
    ),
    ("attention by the wall clock", "wall", "operation, 8 x 12 heads x 512, float32", "TUPE-R", ("TUPE-R, SDPA with",)),
    (
        "complex-order embedding",
        "complex-embedding",
        "embedding, forward and backward, 8,192 tokens drawn evenly",
        "complex-order",
        ("naive", "two nn"),
    ),
    (
        "the same under torch.compile (nn.Embedding is not compiled)",
        "complex-embedding",
        "embedding, forward and backward, 8,192 tokens drawn evenly",
        "complex-order, compiled",
        (),
    ),
    (
        "complex encoder layer, shared real weights",
        "complex-layers",
        "encoder layer, 8 x 128 tokens, 512 channels, 8 heads",
        "complex, shared real weights",
        (),
    ),
    (
        "relative term of Transformer-XL",
        "memory",
        "relative term, 384 queries, 768 keys, 4 x 8 heads of 64, float32",
        "wordorder",
        ("SDPA, no relative",),
    ),
    (
        "look-ahead memory, a training step",
        "memory-step",
        "training step, 8 x 128 tokens, 128 slots",
        "look-ahead",
        ("no memory",),
    ),
    (
        "a T5 of transformers, a training step",
        "transformers",
        "T5 encoder, 2 layers of width 256, 4 heads, 2 x 1024 tokens",
        "wordorder, linear_t5_bias",
        ("transformers, eager", "SDPA, no bias"),
    ),
    (
        "the same, one text shorter",
        "transformers",
        "T5 encoder, 2 layers of width 256, 4 heads, texts of 1024 and 704 tokens",
        "wordorder, linear_t5_bias",
        ("transformers, eager", "SDPA, no bias"),
    ),
    ("output layer of a large vocabulary", "adaptive-softmax", "", "adaptive, divisor 4", ("torch, divisor 4",)),
)


def results_of(name: str) -> dict[str, Any]:
    """One committed file."""
    return json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))


def overview() -> str:
    """A line for each question: the limit, ours and the others, each a ratio with its quartiles."""
    table = ["| What | 1.00 is | wordorder | beside it |", "| :--- | :--- | ---: | :--- |"]
    for question, name, section, ours, others in OVERVIEW:
        results = results_of(name)
        rows: dict[str, Any] = results["sections"][section] if section else results["rows"]
        limit = next(name for name, row in rows.items() if row["ratio"] == 1)
        beside = [f"{peer} {with_quartiles(row)}" for peer, row in rows.items() if peer.startswith(others or "-")]
        what = f"{question}<br><small>{section or 'full softmax, 50,000 words'}</small>"
        table.append(f"| {what} | {limit} | {with_quartiles(rows[ours])} | {'<br>'.join(beside)} |")
    return "\n".join(table)


def with_quartiles(row: dict[str, Any]) -> str:
    """A ratio as the overview shows it."""
    low, high = row["ratio_quartiles"]
    return f"{row['ratio']:.2f} ({low:.2f} to {high:.2f})"


def machines() -> str:
    """Where everything was measured: one sentence for each machine that the files name."""
    found: dict[str, list[str]] = {}
    for name in names_of(PAGE.read_text(encoding="utf-8")):
        machine = results_of(name)["machine"]
        packages = ", ".join(f"{package} {version}" for package, version in machine["packages"].items() if version)
        threads = f"{machine['threads']} thread{'s' * (machine['threads'] > 1)}"
        found.setdefault(
            f"a CPU ({machine['processor']}), {threads}, Python {machine['python']}, {packages}", []
        ).append(f"`{name}`")
    return "\n".join(f"- {', '.join(files)}: {where}." for where, files in found.items())


def figures() -> dict[str, str]:
    """Name of a file -> SVG."""
    networks = results_of("encodings")["networks"]
    charts = [
        ratio_chart(f"A training step of {article}", networks[kind]) for article, kind in NETWORKS if kind in networks
    ]
    made = {"performance_encodings.svg": "\n".join(charts)}
    for name in ("attention", "wall", "complex-embedding", "complex-layers", "memory", "memory-step", "transformers"):
        sections = {s: rows for s, rows in results_of(name)["sections"].items() if "ratio" in next(iter(rows.values()))}
        charts = [ratio_chart(f"{section[0].upper()}{section[1:]}", rows) for section, rows in sections.items()]
        made[f"performance_{name}.svg"] = "\n".join(charts)
    curve = next(rows for section, rows in results_of("attention")["sections"].items() if "TUPE-R" in section)
    points = [(int(tokens), row["bytes"] / 2**20) for tokens, row in curve.items()]
    made["performance_length.svg"] = lines(
        "Memory of a training step with TUPE-R",
        {
            "measured": points,
            "if it grew with the square": [(n, points[0][1] * (n / points[0][0]) ** 2) for n, _ in points],
        },
        across="tokens",
        up="extra memory (MiB)",
        logarithmic=True,
    )
    series = {
        f"{row['memory']} ({row['tokens']:,})": list(enumerate(row["milliseconds_per_token"], start=1))
        for row in results_of("streaming")["streaming"]
    }
    made["performance_streaming.svg"] = lines(
        "Writing token by token, by memory (tokens)",
        series,
        across="tenth of the stream",
        up="ms per token",
        logarithmic=False,
    )
    return made


def ratio_chart(title: str, rows: dict[str, Any]) -> str:
    """The chart of one section."""
    return ratios(
        title, [(name, kind_of(name, row), row["ratio"], *row["ratio_quartiles"]) for name, row in rows.items()]
    )


def kind_of(name: str, row: dict[str, Any]) -> str:
    """Whose a candidate is."""
    if row["ratio"] == 1 and row["ratio_quartiles"] == [1, 1]:
        return "limit"
    return "other" if OTHERS.search(name) or name.startswith(("real", "SDPA", "no memory")) else "ours"


def names_of(page: str) -> list[str]:
    """The files whose tables the page holds."""
    return [name for name in re.findall(r"<!-- ([a-z-]+)-table -->", page) if name not in ("overview", "machines")]


def page_of(text: str) -> str:
    """The page with every table, the overview and the machines as the files have them."""
    for name in names_of(text):
        text = put(text, name, speed_table(results_of(name)))
    return put(put(text, "overview", overview()), "machines", machines())


if __name__ == "__main__":
    for file, chart in figures().items():
        (FIGURES / file).write_text(f"{chart}\n", encoding="utf-8")
    PAGE.write_text(page_of(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
