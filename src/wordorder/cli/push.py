"""`wordorder push MODEL_DIR REPO`: upload a saved model to a hub."""

from pathlib import Path
from typing import Annotated

import typer

from wordorder.cli.output import print_json
from wordorder.streams import printable


def push(
    model_dir: Annotated[
        Path, typer.Argument(metavar="MODEL_DIR", help="A folder with a model, its tokenizer and its card.")
    ],
    repository: Annotated[str, typer.Argument(metavar="REPO", help="owner/name on the hub; made where it is missing.")],
    private: Annotated[
        bool | None, typer.Option("--private/--public", help="Of a new repository. Default: the owner's setting.")
    ] = None,
    message: Annotated[str | None, typer.Option(metavar="TEXT", help="Of the commit.")] = None,
    revision: Annotated[str | None, typer.Option(metavar="BRANCH", help="Commit to this branch.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print what was uploaded as JSON.")] = False,
) -> None:
    """Upload a model to the Hugging Face hub.

    Its tokenizer and its card go with it. The environment variable HF_ENDPOINT names another hub.

    Example: **wordorder push runs/demo/model me/my-model --private**
    """
    from wordorder.inference.push import push_model

    done = push_model(model_dir, repository, private=private, message=message, revision=revision)
    if json:
        print_json(done)
        return
    print(printable(f"{len(done['files'])} files are in {done['repository']}: {done['url']}"))
