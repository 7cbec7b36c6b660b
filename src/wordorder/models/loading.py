"""Load a checkpoint as transformers does, but warn where the positions that it learned are dropped."""

# transformers' base classes are typed in part only
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

import warnings
from typing import Any

from transformers import PreTrainedConfig, PreTrainedModel

_MODULES = {"encoding", "embedding"}
"""The modules that an encoding makes: its own, and the token embeddings where it replaces them."""


class LoadsEncoding(PreTrainedModel):
    """A model with an encoding, whose ``from_pretrained`` warns where the checkpoint's positions are dropped."""

    @staticmethod
    def _finalize_model_loading(model: Any, load_config: Any, loading_info: Any) -> Any:
        """Finish loading as transformers does, then warn if the weights of another encoding found no place."""
        report = PreTrainedModel._finalize_model_loading(model, load_config, loading_info)
        unused = [*report.unexpected_keys, *(name for name, *_ in report.mismatched_keys)]
        dropped = sorted(name for name in unused if _MODULES & set(name.split(".")))
        before = _saved_encoding(load_config) if dropped else None
        if before not in (None, model.config.encoding):
            warnings.warn(
                f"the positions of {load_config.pretrained_model_name_or_path} are dropped: it was trained with"
                f" encoding {before!r}, and this model has encoding {model.config.encoding!r}, which has no place for"
                f" {len(dropped)} of its weights ({', '.join(dropped[:3])}{', ...' if dropped[3:] else ''}); train the"
                f" model again, or load it with encoding={before!r}",
                stacklevel=3,  # where from_pretrained was called
            )
        return report


def _saved_encoding(load_config: Any) -> str | None:
    """Return the encoding in a checkpoint's config.json, which is here already; None if there is none."""
    if load_config.pretrained_model_name_or_path is None:  # weights without a folder
        return None
    source = {**load_config.download_kwargs, "local_files_only": True, "force_download": False}
    try:
        settings, _ = PreTrainedConfig.get_config_dict(load_config.pretrained_model_name_or_path, **source)
    except OSError:
        return None
    return settings.get("encoding")
