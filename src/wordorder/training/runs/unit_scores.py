"""The scores of each unit of the texts that a run was scored on, a file of the run folder.

`KeyedExamples.unit_documents` says what a unit is. Units come in the order of the texts, so that those of two runs on
the same data can be compared one by one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from wordorder.errors import RunFailed
from wordorder.files import check_plain, one_line, write_files

if TYPE_CHECKING:
    from wordorder.tasks.scores import UnitSums

UNIT_SCORES = "unit_scores.safetensors"
"""File with the scores of each unit of the reported split."""

_WHOLE = (np.uint8, np.uint16, np.int32, np.int64)

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitScores:
    """The scores of the units of a data set, in its order; arrays of shape (units,)."""

    losses: Floats
    """Sum of the losses of the unit's predictions, in nats; of regression the squared error."""
    counts: Integers
    """Number of predictions; 0 where nothing of a unit was predicted."""
    right: Integers | None
    """Number of predictions that are right; None for regression."""
    documents: Integers
    """Index of the document that the unit is a piece of, or begins in."""
    data: str
    """Fingerprint of the data; units of other data are other texts."""

    def by_document(self) -> UnitScores:
        _, place = np.unique(self.documents, return_inverse=True)

        def total(values: Any) -> Any:
            return np.bincount(place, weights=values)

        return UnitScores(
            losses=total(self.losses),
            counts=total(self.counts).astype(np.int64),
            right=None if self.right is None else total(self.right).astype(np.int64),
            documents=np.unique(self.documents),
            data=self.data,
        )


def write_unit_scores(folder: Path, sums: UnitSums, documents: Integers, *, data: str) -> None:
    """Write the scores of all units: 4 bytes for a loss, and whole numbers in as few bytes as they take.

    The documents are left out of the file where each unit is a document of its own; `data` is the data's fingerprint.
    """
    from safetensors.numpy import save

    tensors: dict[str, npt.NDArray[Any]] = {
        "losses": sums.losses.cpu().numpy().astype(np.float32),
        "counts": _small(sums.counts.cpu().numpy()),
    }
    if sums.right is not None:
        tensors["right"] = _small(sums.right.cpu().numpy())
    if not np.array_equal(documents, np.arange(len(documents))):
        tensors["documents"] = _small(documents)
    write_files(folder, {UNIT_SCORES: save(tensors, metadata={"data": data})})


def read_unit_scores(folder: Path) -> UnitScores | None:
    """Read the scores of the units of a run; None if there is no such file, RunFailed if they are damaged."""
    path = folder / UNIT_SCORES
    if not path.exists():
        return None
    try:
        return _read(path)
    except (OSError, ValueError) as error:
        raise RunFailed(
            f"{path}: cannot be read: {one_line(error)}; remove it, and nothing is said about new texts"
        ) from None


def _read(path: Path) -> UnitScores:
    import safetensors
    from safetensors.numpy import load_file  # pyright: ignore[reportUnknownVariableType]  # bare dicts

    library: Any = safetensors  # it has types in part
    check_plain(path)
    try:
        with library.safe_open(path, "numpy") as file:
            told: Mapping[str, str] = file.metadata() or {}
        tensors: Mapping[str, npt.NDArray[Any]] = load_file(path)
    except library.SafetensorError as error:
        raise ValueError(one_line(error)) from None
    if not {"losses", "counts"} <= tensors.keys() or len({values.shape for values in tensors.values()}) != 1:
        raise ValueError("it does not hold a loss and a count for each unit")
    whole = {name: values.astype(np.int64) for name, values in tensors.items() if name != "losses"}
    losses, counts, right = tensors["losses"].astype(np.float64), whole["counts"], whole.get("right")
    if not np.isfinite(losses).all():
        raise ValueError("a loss is not a number")
    documents = whole.get("documents", np.arange(len(losses), dtype=np.int64))
    return UnitScores(losses=losses, counts=counts, right=right, documents=documents, data=told.get("data", ""))


def _small(values: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
    most = int(values.max(initial=0))
    return values.astype(next(kind for kind in _WHOLE if most <= np.iinfo(kind).max))
