"""`wordorder list` and `wordorder recipe-schema`: show what a recipe may say."""

from typing import Annotated, Any

import typer

from wordorder.cli.output import print_json, print_table


def list_names(json: Annotated[bool, typer.Option("--json", help="Print JSON for machines.")] = False) -> None:
    """List the encodings, tasks, generated tasks, corpora and tokenisers that a recipe may name.

    Example: **wordorder list**
    """
    listing = catalogue()
    if json:
        print_json(listing)
        return
    columns = ("encoding", "acts on", "parameters", "encoding_options", "paper")
    rows = [
        (e["name"], e["place"], sum(e["parameters"].values()), ", ".join(e["options"]), arxiv(e["paper"]))
        for e in listing["encodings"]
    ]
    print_table("Encodings, with their learned parameters at the sizes of BERT-Base", columns, rows)
    print("Encodings that act at different places go together by name: rope+tupe-a, learned+t5.")
    print("A pattern gives each layer its own, and is repeated over the layers: rope,rope,rope,none or rope*3,none.\n")
    questions = [(own["name"], own["question"], arxiv(own["paper"])) for own in listing["generated"]]
    print_table("Generated tasks, data.source = task:NAME", ("task", "question", "paper"), questions)
    for title in ("tasks", "corpora", "tokenizers"):
        print(f"{title}: {', '.join(listing[title])}")


def recipe_schema() -> None:
    """Print the JSON Schema of recipes, by which editors complete them and mark what is wrong.

    A recipe names it in its first line, `#:schema recipe.schema.json`.

    Example: **wordorder recipe-schema > recipe.schema.json**
    """
    from wordorder.training.recipe.schema import recipe_schema

    print_json(recipe_schema())


def arxiv(paper: str) -> str:
    """Shorten the address of a paper, so that a row fits a terminal."""
    return paper.replace("https://arxiv.org/abs/", "arXiv:")


def catalogue() -> dict[str, Any]:
    """Collect the names that recipes know."""
    import torch

    from wordorder.data import TOKENIZER_KINDS
    from wordorder.data.corpora import FILE_ENDINGS
    from wordorder.data.generated.catalog import GENERATED
    from wordorder.encodings import CATALOG, build_encoding, options_of
    from wordorder.tasks import TASKS
    from wordorder.tasks.catalog import forms_of

    encodings: list[dict[str, object]] = []
    for name, encoding in CATALOG.items():
        with torch.device("meta"):  # the sizes of BERT-Base: counted, never filled
            use = "decoder" if "encoder" in encoding.refused_in else "encoder"
            built = build_encoding(name, width=768, heads=12, layers=12, max_positions=512, vocabulary=30522, use=use)
        encodings.append(
            {
                "name": name,
                "summary": (encoding.__doc__ or "").strip().partition("\n")[0],
                "place": encoding.place,
                "paper": encoding.paper,
                "parameters": built.cost_parts(),
                "options": options_of(encoding),
                "bounded": encoding.bounded,
                "refused_in": dict(encoding.refused_in),
            }
        )
    return {
        "encodings": encodings,
        "tasks": list(TASKS),
        "corpora": ["sotu", f"a path, folder or glob of {' '.join(FILE_ENDINGS)}", "hub:NAME", "task:NAME"],
        "generated": [
            {key: getattr(task, key) for key in ("name", "question", "paper", "length")} | {"forms": forms_of(task)}
            for task in GENERATED.values()
        ],
        "tokenizers": list(TOKENIZER_KINDS),
    }
