"""Upload a saved model to a hub: the files that `from_pretrained` reads and the card, and nothing else."""

# huggingface_hub is typed in part only
# pyright: reportUnknownMemberType=false

from pathlib import Path
from typing import Any, cast

from wordorder.errors import BadInput, RunFailed

UPLOADED = (
    "README.md",
    "config.json",
    "generation_config.json",
    "conversion.json",
    "model*.safetensors",
    "model.safetensors.index.json",
    "adapter_config.json",
    "adapter_model.safetensors",
    "tokenizer*",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.*",
    "merges.txt",
)
"""Names of the files that are uploaded. A checkpoint's optimizer, random state and arguments stay here."""


def push_model(
    model_dir: str | Path,
    repository: str,
    *,
    private: bool | None = None,
    message: str | None = None,
    revision: str | None = None,
) -> dict[str, Any]:
    """Upload a saved model, its tokeniser and its card to a repository of the hub; make the repository if needed.

    The token is that of ``hf auth login`` or of the variable HF_TOKEN; HF_ENDPOINT names another hub.

    Args:
        model_dir: model/ or checkpoint-N/ of a run, or another folder of `save_pretrained`.
        repository: "owner/name", or "name" for the owner of the token.
        private: whether a new repository is private; None = the owner's default. It changes none that exists.
        message: of the commit.
        revision: branch to commit to; None = main.

    Returns:
        repository (its full name), url (of the commit), files (that were uploaded).

    Raises:
        BadInput: the folder holds no model, no weights as safetensors, or weights that are damaged, not all there or
            not finite; or the name is no repository's.
        RunFailed: the hub refused it, or could not be reached.
    """
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError
    from huggingface_hub.utils import filter_repo_objects, validate_repo_id

    from wordorder.models.hub.saved_folder import no_model  # loads transformers
    from wordorder.training.loop.progress import quiet_libraries

    folder = Path(model_dir)
    if not (folder / "config.json").is_file():
        raise BadInput(no_model(folder))
    names = [path.name for path in sorted(folder.iterdir()) if path.is_file()]
    files = list(filter_repo_objects(names, allow_patterns=list(UPLOADED)))
    if not any(name.endswith(".safetensors") for name in files):
        raise BadInput(f"{folder}: holds no weights (no model.safetensors); only safetensors are uploaded")
    try:
        validate_repo_id(repository)
    except HFValidationError as error:
        raise BadInput(f"REPO: {str(error).splitlines()[0]}") from None
    with quiet_libraries():
        _check_weights(folder)
    api = HfApi()
    # the base of the first is that of the HTTP library, whichever one huggingface_hub has
    faults = (cast("type[Exception]", HfHubHTTPError.__bases__[0]), OSError, RuntimeError)
    try:
        full = api.create_repo(repository, private=private, exist_ok=True).repo_id
        done = api.upload_folder(
            repo_id=full,
            folder_path=folder,
            allow_patterns=files,
            commit_message=message or "Upload a wordorder model",
            revision=revision,
        )
    except faults as error:
        reason = " ".join(str(error).split())[:300]
        raise RunFailed(
            f"{repository} could not be uploaded: {reason}; log in by hf auth login, or check HF_TOKEN and HF_ENDPOINT"
        ) from error
    return {"repository": full, "url": str(getattr(done, "commit_url", done)), "files": files}


def _check_weights(folder: Path) -> None:
    """Refuse a model of this package whose weights are incomplete or not finite; other models are not checked."""
    import wordorder.models as models
    from wordorder.models import grafts
    from wordorder.models.hub.saved_folder import load_model_of, read_model

    name = read_model(folder)[1]
    kind: object = getattr(models, name, None) or getattr(grafts, name, None)
    if kind is not None and not (folder / "adapter_config.json").exists():
        load_model_of(kind, folder)
