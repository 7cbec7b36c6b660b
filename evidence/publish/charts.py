"""Two charts as SVG for the documentation: ratios with their quartiles, and lines.

One file is read on a light page and on a dark one: it has its own background, and both follow the reader's system. The
same numbers give the same bytes with every version of every library, so a test can hold a figure to its data.
"""

import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import NamedTuple

WIDTH, LABELS, RIGHT, ROW, MARGIN = 760, 290, 70, 24, 12
MARKS = {"limit": ("currentColor", "the limit, 1.00"), "ours": ("#3b8ed0", "wordorder"), "other": ("#dd8530", "others")}
THEME = (
    "<style>svg{color:#1f2328;background:#fff}"
    "@media(prefers-color-scheme:dark){svg{color:#e6edf3;background:#1e2129}}</style>"
)
"""Colours of text, as `currentColor`, and of the background, for a light and a dark page."""
LINES = ("#3b8ed0", "#dd8530", "#5aa469", "#b26fc9", "#d0504a", "#8c7a5b", "#7f8c8d")


class Chart(NamedTuple):
    """A drawing of `WIDTH`, which `picture` puts into a file."""

    title: str
    height: float
    parts: Sequence[str]
    """Elements of SVG."""


def ratios(title: str, rows: Sequence[tuple[str, str, float, float, float]]) -> Chart:
    """A row for each candidate: its ratio on a logarithmic axis, a bar between the quartiles.

    Args:
        title: what was timed.
        rows: name, kind (of `MARKS`), ratio, lower and upper quartile.
    """
    least = min(0.9, *(low for _, _, _, low, _ in rows)) / 1.08
    most = max(1.2, *(high for _, _, _, _, high in rows)) * 1.08
    plot = WIDTH - LABELS - RIGHT

    def place(value: float) -> float:
        return LABELS + plot * math.log(value / least) / math.log(most / least)

    height = 60 + ROW * len(rows)
    parts = [_text(0, 16, title, bold=True), *_legend(dict.fromkeys(kind for _, kind, *_ in rows))]
    for tick in _ticks(least, most):
        strong = 0.8 if tick == 1 else 0.2
        parts.append(_line(place(tick), 44, place(tick), height - 16, opacity=strong))
        parts.append(_text(place(tick), height - 2, f"{tick:g}", anchor="middle"))
    for number, (name, kind, ratio, low, high) in enumerate(rows):
        y, colour = 58 + ROW * number, MARKS[kind][0]
        parts.append(_text(LABELS - 12, y + 4, name, anchor="end"))
        parts.append(_line(place(low), y, place(high), y, colour=colour, width=7, opacity=0.45))
        parts.append(_mark(kind, place(ratio), y))
        parts.append(_text(WIDTH, y + 4, f"{ratio:.2f}", anchor="end"))
    return Chart(title, height, parts)


def lines(
    title: str,
    series: Mapping[str, Sequence[tuple[float, float]]],
    *,
    across: str,
    up: str,
    logarithmic: bool,
    ticks: Sequence[float] = (),
) -> Chart:
    """A line for each series of points (x, y), named at its end; the y axis begins at 0 where it is not logarithmic.

    Every x of a point is written below the axis, or `ticks`.
    """
    height, left, right, top, bottom = 300, 60, WIDTH - 200, 50, 250
    points = [point for line in series.values() for point in line]
    xs, ys = [x for x, _ in points], [y for _, y in points]
    scale = math.log if logarithmic else float
    y_least, y_most = (min(ys) / 1.2, max(ys) * 1.2) if logarithmic else (0.0, max(ys) * 1.1)

    def across_at(x: float) -> float:
        return left + (right - left) * (scale(x) - scale(min(xs))) / (scale(max(xs)) - scale(min(xs)))

    def up_at(y: float) -> float:
        return bottom - (bottom - top) * (scale(y) - scale(y_least)) / (scale(y_most) - scale(y_least))

    parts = [_text(0, 16, title, bold=True), _text(0, 40, up)]
    parts.append(_text((left + right) / 2, height - 4, across, anchor="middle"))
    for x in ticks or sorted(set(xs)):
        parts.append(_text(across_at(x), bottom + 20, f"{x:,.0f}", anchor="middle"))
    for tick in _ticks(y_least, y_most) if logarithmic else _even(y_most):
        parts.append(_line(left, up_at(tick), right, up_at(tick), opacity=0.2))
        parts.append(_text(left - 8, up_at(tick) + 4, f"{tick:g}", anchor="end"))
    ends = _apart([up_at(line[-1][1]) for line in series.values()], most=bottom)
    for (name, line), colour, end in zip(series.items(), LINES, ends, strict=False):
        path = " ".join(f"{across_at(x):.1f},{up_at(y):.1f}" for x, y in line)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2.5"/>')
        parts += [f'<circle cx="{across_at(x):.1f}" cy="{up_at(y):.1f}" r="3.5" fill="{colour}"/>' for x, y in line]
        parts.append(_line(right + 8, end, right + 22, end, colour=colour, width=3))
        parts.append(_text(right + 28, end + 4, name))
    return Chart(title, height, parts)


def picture(*charts: Chart) -> str:
    """Return one SVG of the charts, one below the other."""
    parts, y = list[str](), 0.0
    for chart in charts:
        parts += [f'<g transform="translate(0 {y:g})">', *chart.parts, "</g>"]
        y += chart.height + 2 * MARGIN
    height = y - 2 * MARGIN
    box = f'viewBox="{-MARGIN} {-MARGIN} {WIDTH + 2 * MARGIN} {height + 2 * MARGIN:g}" width="{WIDTH + 2 * MARGIN}"'
    style = "max-width:100%;height:auto;font-family:system-ui,sans-serif;font-size:13px"
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {box} role="img" fill="currentColor" style="{style}">'
    title = escape("; ".join(chart.title for chart in charts))
    return "\n".join([head, f"<title>{title}</title>{THEME}", *parts, "</svg>"])


def _legend(kinds: Mapping[str, object]) -> list[str]:
    parts, x = list[str](), LABELS
    for kind in (kind for kind in MARKS if kind in kinds):
        parts += [_mark(kind, x, 32), _text(x + 10, 36, MARKS[kind][1])]
        x += 40 + 7 * len(MARKS[kind][1])
    return parts


def _mark(kind: str, x: float, y: float) -> str:
    """A shape of its own for each kind, for readers who cannot tell the colours apart."""
    colour = MARKS[kind][0]
    if kind == "ours":
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5.5" fill="{colour}"/>'
    if kind == "limit":
        return f'<path d="M{x:.1f} {y - 7:.1f}v14" stroke="{colour}" stroke-width="3"/>'
    return f'<rect x="{x - 4.5:.1f}" y="{y - 4.5:.1f}" width="9" height="9" fill="{colour}"/>'


def _ticks(least: float, most: float) -> list[float]:
    """1, 2 and 5 times powers of ten, or powers of ten alone where there would be too many; finer where too few."""
    tens = range(math.floor(math.log10(least)), math.ceil(math.log10(most)) + 1)
    for digits in ((1,), (1, 2, 5), (1, 1.2, 1.5, 2, 3, 5, 7), (1, 1.05, 1.1, 1.2, 1.3, 1.5, 2, 5, 9, 9.5)):
        found = [round(digit * 10.0**ten, 12) for ten in tens for digit in digits]
        found = sorted({tick for tick in found if least <= tick <= most})
        if len(found) >= 3:
            return found
    return found


def _even(most: float) -> list[float]:
    step = next(s for s in (10.0**k * d for k in range(-3, 6) for d in (1, 2, 5)) if most / s <= 6)
    return [step * number for number in range(int(most / step) + 1)]


def _apart(places: Sequence[float], gap: float = 16, most: float = math.inf) -> list[float]:
    """The same heights, moved down where two names would overlap, and up again where that leads below `most`."""
    moved = dict[int, float]()
    order, last = sorted(range(len(places)), key=lambda index: places[index]), -math.inf
    for index in order:
        last = moved[index] = max(places[index], last + gap)
    for index in reversed(order):
        most = moved[index] = min(moved[index], most)
        most -= gap
    return [moved[index] for index in range(len(places))]


def _text(x: float, y: float, text: str, *, anchor: str = "start", bold: bool = False) -> str:
    weight = ' font-weight="600"' if bold else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{weight}>{escape(text)}</text>'


def _line(
    x: float, y: float, to_x: float, to_y: float, *, colour: str = "currentColor", width: float = 1, opacity: float = 1
) -> str:
    at = f'x1="{x:.1f}" y1="{y:.1f}" x2="{to_x:.1f}" y2="{to_y:.1f}"'
    return f'<line {at} stroke="{colour}" stroke-width="{width:g}" stroke-opacity="{opacity:g}"/>'
