"""Convert LaMemo's reference checkpoints to Hugging Face folders."""

from collections.abc import Mapping
from pathlib import Path

from wordorder.conversion.report import ConversionReport
from wordorder.conversion.transformer_xl import convert
from wordorder.conversion.transformer_xl_settings import KINDS


def convert_lamemo(
    checkpoint: str | Path,
    out_dir: str | Path,
    *,
    config: str | Path | Mapping[str, object] | None = None,
    vocab: str | Path | None = None,
    overwrite: bool = False,
) -> ConversionReport:
    """Convert a checkpoint of LaMemo's reference code to a folder for transformers' `AutoModelForCausalLM`.

    The folder computes what the reference code computes, its epsilon of 1e-6 included (``memory_options``), for
    segments of one length. ``attn_type`` 3 (the paper's), 31, 32, 33, and 0, Transformer-XL's attention in that code.

    Arguments, returns and errors are those of `convert_transformer_xl`; ``checkpoint`` is no folder.
    """
    return convert(checkpoint, out_dir, tuple(KINDS), config=config, vocab=vocab, overwrite=overwrite)
