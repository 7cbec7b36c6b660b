"""Checks of the labels of a task: classes that can be learned, or numbers."""

import math
from collections.abc import Callable, Sequence

from wordorder.data.config import DataConfig
from wordorder.data.corpora.document import Document
from wordorder.errors import BadInput

_MOST_SHOWN = 5


def check_classes(documents: Sequence[Document], data: DataConfig) -> None:
    """Refuse labels that name no classes, or one class, or classes that training never shows.

    Raises:
        BadInput: names the column.
    """
    labels = {document.label for document in documents}
    column = f"data.label_column {data.label_column!r}"
    if len(labels) == 1:
        raise BadInput(f"{column} has one class only, {labels.pop()!r}; classification needs two{_of_folders(data)}")
    if len(labels) == len(documents):
        raise BadInput(
            f"{column} has a different value for each of the {len(documents)} documents; it names no classes"
            f"{'; numbers need task regression' if all(_is_number(str(label)) for label in labels) else ''}"
        )
    trained = {document.label for document in documents if document.split in (None, "train")}
    unseen = sorted(str(label) for label in labels - trained)
    if unseen:
        raise BadInput(f"{column}: no training document has {', '.join(unseen)}")


def _of_folders(data: DataConfig) -> str:
    if not data.source.endswith((".txt", ".tokens")):
        return ""
    return (
        "; the class of a text file is the name of its folder: give each class a folder, with a source such as "
        "'texts/*/*.txt', or take a table, which has a column for it"
    )


def check_numbers(documents: Sequence[Document], data: DataConfig) -> None:
    """Refuse labels that are no finite numbers, or all the same.

    Raises:
        BadInput: names the column, and the first few labels that are wrong.
    """
    labels = {str(document.label) for document in documents}
    column = f"data.label_column {data.label_column!r}"
    wrong = sorted(label for label in labels if not _is_number(label))
    if wrong:
        shown = ", ".join(repr(label) for label in wrong[:_MOST_SHOWN])
        more = f" and {len(wrong) - _MOST_SHOWN} more" if len(wrong) > _MOST_SHOWN else ""
        raise BadInput(f"{column}: regression needs numbers, got {shown}{more}; classes need task classification")
    if len({float(label) for label in labels}) == 1:
        raise BadInput(f"{column} is {labels.pop()} for every document; there is nothing to learn")


def _is_number(label: str) -> bool:
    try:
        return math.isfinite(float(label))
    except ValueError:
        return False


LABEL_CHECKS: dict[str, Callable[[Sequence[Document], DataConfig], None]] = {
    "classification": check_classes,
    "regression": check_numbers,
}
"""Task -> check of its labels; a task that is not here has none."""
