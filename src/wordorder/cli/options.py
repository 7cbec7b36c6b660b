"""Arguments and options that several commands have."""

from pathlib import Path
from typing import Annotated

import typer

RecipeFile = Annotated[Path, typer.Argument(metavar="RECIPE", help="A recipe in TOML.")]
Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="SECTION.KEY=VALUE", help="Override one value of the recipe; may be repeated."),
]
ModelDir = Annotated[Path, typer.Argument(metavar="MODEL_DIR", help="A folder with a model and its tokenizer.")]
Beams = Annotated[
    int | None, typer.Option(min=1, help="Translation: beams of the search; 1 is greedy. Default: as in its run.")
]
