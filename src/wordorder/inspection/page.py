"""Show findings as tables for people, and as one HTML page that needs nothing else."""

import math
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files

from wordorder.errors import MissingExtra
from wordorder.inspection.figures import Drawing
from wordorder.inspection.findings import Inspection, floats
from wordorder.inspection.language_model import LanguageModelInspection
from wordorder.tasks.task import perplexity_of

MISSING = "–"


@dataclass(frozen=True)
class Table:
    """A table of text, the first column of which names its rows."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def tables(inspection: Inspection) -> list[Table]:
    if not inspection.maps:
        return []
    chance = next(iter(inspection.maps.values())).toeplitz.chance
    title = f"How much depends on distance alone (random numbers: {_share(chance)})"
    return [_from_columns(title, _share_columns(inspection))]


def _share_columns(inspection: Inspection) -> list[tuple[str, ...]]:
    heads = len(next(iter(inspection.maps.values())).toeplitz.share_H)
    columns: list[tuple[str, ...]] = [("head", *(str(head + 1) for head in range(heads)), "all")]
    for name, found in inspection.maps.items():
        share_H, share, rms_H = found.toeplitz.share_H, found.toeplitz.share, found.toeplitz.rms_H
        overall = float(rms_H.square().mean().sqrt())
        columns.append((f"{name}: rms", *map(_number, floats(rms_H)), _number(overall)))
        if not found.by_distance_alone:
            columns.append((f"{name}: Toeplitz", *map(_share, floats(share_H)), _share(share)))
            columns.append((f"{name}: rest", *map(_share, floats(1 - share_H)), _share(1 - share)))
    return columns


def _from_columns(title: str, columns: Sequence[tuple[str, ...]]) -> Table:
    headings, *rows = zip(*columns, strict=True)
    return Table(title, headings, tuple(rows))


def reading_tables(inspection: LanguageModelInspection) -> list[Table]:
    context, habits = inspection.context, inspection.habits
    last = context.losses[-1]
    losses = [
        (str(before), f"{loss:.4f}", f"{perplexity_of(loss):.4g}", _signed(loss - last), f"{error:.4f}")
        for before, loss, error in zip(context.contexts, context.losses, context.errors, strict=True)
    ]
    columns = [
        ("layer", *(str(layer + 1) for layer in range(len(habits.half_L)))),
        ("half of the attention within", *(str(int(distance)) for distance in habits.half_L)),
    ]
    if habits.on_memory_LH is not None:
        columns.append(("share on memory", *map(_share, floats(habits.on_memory_LH.mean(1)))))
    if habits.alpha_LHA is not None:
        youngest, oldest = (floats(habits.alpha_LHA.mean(1)[:, age]) for age in (0, -1))
        columns.append(("alpha of the youngest slot", *map(_share, youngest), MISSING))
        columns.append(("alpha of the oldest slot", *map(_share, oldest), MISSING))
    return [
        Table(
            f"Loss on the same {context.tokens} tokens by what was read before",
            ("tokens before", "loss", "perplexity", "to the last", "standard error"),
            tuple(losses),
        ),
        _from_columns("What each layer attends to", columns),
    ]


def page(
    inspection: Inspection | LanguageModelInspection,
    drawings: Mapping[str, Drawing],
    shown_tables: Sequence[Table],
    *,
    name: str,
    encoding: str,
    facts: Sequence[tuple[str, str]],
) -> str:
    try:
        from jinja2 import Environment, StrictUndefined
    except ImportError as error:
        raise MissingExtra("jinja2", "train") from error
    source = (files("wordorder.inspection") / "page.html.j2").read_text("utf-8")
    template = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    shown = [
        {"title": d.title, "alt": d.alt, "caption": d.caption, "data": b64encode(d.png).decode("ascii")}
        for d in drawings.values()
    ]
    return template.from_string(source).render(
        name=name,
        encoding=encoding,
        answers=inspection.answers(),
        notes=inspection.notes,
        tables=shown_tables,
        drawings=shown,
        facts=facts,
    )


def _number(value: object, form: str = ".3g") -> str:
    return f"{value:{form}}" if isinstance(value, float) and math.isfinite(value) else MISSING


def _signed(value: float) -> str:
    """Format a difference; one that is none at four digits has no minus."""
    return f"{round(value, 4) + 0.0:+.4f}"


def _share(value: float) -> str:
    return _number(value, ".3f")
