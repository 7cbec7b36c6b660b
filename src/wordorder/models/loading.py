"""Load a checkpoint as transformers does, but say where the positions that it learned are dropped."""

# transformers' base classes are typed in part only
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

import warnings
from typing import Any, cast

from transformers import PreTrainedConfig, PreTrainedModel

_SOURCE = ("cache_dir", "local_files_only", "proxies", "revision", "subfolder", "token")
"""Arguments of `from_pretrained` that say where a checkpoint is."""
_PLACES = {"encoding", "embedding"}
"""Modules that an encoding makes: its own, and the token embeddings where it replaces them."""


class LoadsEncoding(PreTrainedModel):
    """A model with an encoding. A checkpoint of another encoding loads with a warning."""

    @classmethod
    def from_pretrained(  # pyright: ignore[reportIncompatibleMethodOverride]  # transformers names some of them
        cls, pretrained_model_name_or_path: Any, *args: Any, **kwargs: Any
    ) -> Any:
        """Load a model as transformers' ``from_pretrained`` does; warn where the checkpoint's positions are dropped.

        Args:
            pretrained_model_name_or_path: a folder, or a name on the Hub.
            *args: of transformers' ``from_pretrained``.
            **kwargs: of transformers' ``from_pretrained``.
        """
        with_report = kwargs.pop("output_loading_info", False)
        loader = cast("Any", super())
        model, report = loader.from_pretrained(pretrained_model_name_or_path, *args, output_loading_info=True, **kwargs)
        unused = [*report["unexpected_keys"], *(name for name, *_ in report["mismatched_keys"])]
        dropped = sorted(name for name in unused if _PLACES & set(name.split(".")))
        if dropped and pretrained_model_name_or_path is not None:
            place = {name: kwargs[name] for name in _SOURCE if name in kwargs}
            saved, _ = PreTrainedConfig.get_config_dict(pretrained_model_name_or_path, **place)
            before, now = saved.get("encoding"), model.config.encoding
            if before is not None and before != now:
                warnings.warn(
                    f"the positions of {pretrained_model_name_or_path} are dropped: it was trained with encoding"
                    f" {before!r}, and this model has encoding {now!r}, which has no place for {len(dropped)} of its"
                    f" weights ({', '.join(dropped[:3])}{', ...' if dropped[3:] else ''}); train the model again, or"
                    f" load it with encoding={before!r}",
                    stacklevel=2,
                )
        return (model, report) if with_report else model
