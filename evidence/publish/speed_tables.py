"""Short tables of the speed benchmarks; the figures beside them show every candidate, the JSON files every number."""

from itertools import groupby
from typing import Any

NOTICED = 1.05
"""Ratio of a training step above which an encoding has a row."""
IN_FIGURES_ONLY = {"x-transformers, no position (flash)"}
"""Candidates that tables leave out."""
ENCODERS = "encoder, "
"""How the sections that tables leave out begin: the figure shows them, and the encodings' own table is of encoders."""


def speed_table(results: dict[str, Any]) -> str:
    """Return the tables of one file of `benchmarks/results`."""
    if "streaming" in results:
        return streaming_of(results)
    if "sections" in results:
        return sections_of(results)
    return encodings_of(results)


def table(heads: list[str], rows: list[list[str]]) -> str:
    """Return a table in Markdown whose first column is text and whose others are numbers."""
    lines = [heads, [":---", *["---:"] * (len(heads) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def encodings_of(results: dict[str, Any]) -> str:
    """Return the encodings with which a training step takes noticeably longer."""
    networks: dict[str, Any] = results["networks"]
    names = dict.fromkeys(name for rows in networks.values() for name in rows)
    ratios = {name: [rows[name]["ratio"] if name in rows else None for rows in networks.values()] for name in names}
    slow = {name: row for name, row in ratios.items() if max(filter(None, row)) > NOTICED}
    rows = [
        [name, *("not defined" if ratio is None else f"{ratio:.2f}" for ratio in row)] for name, row in slow.items()
    ]
    others = {name: row for name, row in ratios.items() if name not in slow and name != results["limit"]}
    quick = [ratio for row in others.values() for ratio in row if ratio]
    return table(["Encoding", *(network.capitalize() for network in networks)], rows) + (
        f"\n\nThe other {len(others)} take {min(quick):.2f} to {max(quick):.2f} times as long as `{results['limit']}`."
    )


def sections_of(results: dict[str, Any]) -> str:
    """Return a table for neighbouring sections that time the same candidates."""
    tables: list[str] = []
    shown = [(title, rows) for title, rows in results["sections"].items() if not title.startswith(ENCODERS)]
    for names, group in groupby(shown, key=lambda section: tuple(section[1])):
        sections: dict[str, dict[str, Any]] = dict(group)
        if all("seconds" in row for rows in sections.values() for row in rows.values()):
            tables += [lengths_of(title, rows) for title, rows in sections.items()]
            continue
        if len(sections) == 1 and all("extra_bytes" in row for rows in sections.values() for row in rows.values()):
            tables += [with_memory(title, rows) for title, rows in sections.items()]
            continue
        shared, titles = without_shared_parts(list(sections))
        cells = zip(*([f"{row['ratio']:.2f}" for row in rows.values()] for rows in sections.values()), strict=True)
        rows = [[name, *row] for name, row in zip(names, cells, strict=True) if name not in IN_FIGURES_ONLY]
        tables.append(table([shared, *titles], rows))
    return "\n\n".join(tables)


def with_memory(title: str, rows: dict[str, Any]) -> str:
    """Return ratios with their quartiles, and memory, of a section that stands alone."""
    cells = [
        [
            name,
            "{:.2f} ({:.2f} to {:.2f})".format(row["ratio"], *row["ratio_quartiles"]),
            f"{row['extra_bytes'] / 2**20:,.0f}",
        ]
        for name, row in rows.items()
    ]
    return table([f"{title[0].upper()}{title[1:]}", "Ratio (quartiles)", "Extra MiB"], cells)


def without_shared_parts(titles: list[str]) -> tuple[str, list[str]]:
    """Return the parts that all titles share, and the other parts of each title."""
    parts = [title.split(", ") for title in titles]
    shared = ", ".join(part for part in parts[0] if all(part in others for others in parts))
    own = [", ".join(part for part in those if not all(part in others for others in parts)) for those in parts]
    return shared[0].upper() + shared[1:], own


def lengths_of(title: str, rows: dict[str, Any]) -> str:
    """Return memory and time by the number of tokens, the longest and every second shorter one."""
    shown = list(rows.items())[::-2][::-1]
    cells = [[f"{int(tokens):,}", f"{row['bytes'] / 2**20:,.0f}", f"{row['seconds']:.1f}"] for tokens, row in shown]
    return table([f"{title[0].upper()}{title[1:]}: tokens", "Extra MiB", "Seconds"], cells)


def streaming_of(results: dict[str, Any]) -> str:
    """Return time per token and bytes held along a stream."""
    rows: list[list[str]] = []
    for row in results["streaming"]:
        pace, held = row["milliseconds_per_token"], dict.fromkeys(row["cache_bytes"])
        rows.append([row["memory"], f"{row['tokens']:,}", f"{pace[0]:.1f}", f"{pace[-1]:.1f}"])
        rows[-1] += [f"{row['old_to_young']:.2f}", " to ".join(f"{size / 2**20:.1f}" for size in held)]
    return table(["Memory", "Tokens", "ms per token, first tenth", "last tenth", "Late over early", "MiB held"], rows)
