"""The report of a conversion, for its caller and for those who find the folder later."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from wordorder.conversion.dictionary import Dictionary
from wordorder.conversion.reference_args import ReferenceArgs
from wordorder.conversion.reference_file import ReferenceFile
from wordorder.conversion.reference_names import Form, heads_of, listed


@dataclass(frozen=True, kw_only=True)
class ConversionReport:
    """The report of a conversion.

    Args:
        layout: its format: "torch zip", "torch stream" (before torch 1.6) or "safetensors".
        architectures: classes that the folder's weights serve; the first one is what the model was trained for last.
        config: the fields of the model's configuration that the conversion chose.
        parameters: numbers in the written weights.
        dtype: of the written weights.
        mapped: the reference's name -> our names; several where one tensor holds the rows of several.
        ignored: names in the checkpoint that were not converted.
        placeholders: globals that the file names outside the closed list, with how often; none was imported or called.
        notes: what a user should know, a sentence each.
    """

    checkpoint: str
    layout: str
    architectures: tuple[str, ...]
    config: dict[str, Any]
    parameters: int
    dtype: str
    mapped: dict[str, tuple[str, ...]]
    ignored: tuple[str, ...]
    placeholders: dict[str, int]
    tokenizer: bool
    notes: tuple[str, ...]


def notes_of(
    file: ReferenceFile,
    form: Form,
    settings: ReferenceArgs,
    vocabulary: Dictionary | None,
    *,
    given: Mapping[str, object] | None,
    tied: bool,
) -> list[str]:
    """Return the notes that a user should know of a conversion, a sentence each.

    Args:
        given: arguments that the caller gave in place of the file's.
    """
    notes: list[str] = []
    if file.args is None and given is None:
        notes.append(
            "the checkpoint has no args that can be read: dropouts and activation are the reference code's defaults"
        )
    if settings.activation_dropout > 0:
        notes.append(
            f"args.activation_dropout={settings.activation_dropout} has no counterpart here: outputs are the same, but"
            " further training does not drop activations inside the feed-forward networks"
        )
    if not tied:
        notes.append("lm_head.weight differs from the token embeddings, so the output layer is not tied to them")
    if any(kind in ("float16", "bfloat16") for kind in file.kinds.values()):
        notes.append("weights in half precision were widened to float32, which changes none of them")
    others = [name for name in heads_of(file.shapes) if name != form.head]
    if others:
        notes.append(f"classification heads that were left out: {listed(others)}")
    if vocabulary is None:
        notes.append(
            "no tokeniser was written (no dictionary was given); special ids are fairseq's: <s> 0, <pad> 1, </s> 2,"
            " <unk> 3, and <mask> the last one"
        )
    else:
        notes.append(
            "the tokeniser looks up pieces apart by spaces; it does not make them: prepare text as for the checkpoint"
            " (lower case, Moses tokeniser, fastBPE) first"
        )
        if vocabulary.repeated:
            notes.append(f"tokens that the dictionary has more than once: {listed(list(vocabulary.repeated), 10)}")
    return notes
