"""Classification: tell which of several classes a text belongs to."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from wordorder.data.settings import DataSettings
from wordorder.errors import BadInput
from wordorder.tasks.regression import PEARSON
from wordorder.tasks.task import ACCURACY, Corpus, LabelledTask, is_number

if TYPE_CHECKING:
    import torch

    from wordorder.data.corpora.document import Document
    from wordorder.data.examples.datasets import PreparedData
    from wordorder.tasks.scores import Tally


_MOST_SHOWN = 8


class Classification(LabelledTask):
    """Tell which class a text, or a pair of texts, belongs to."""

    name = "classification"
    summary = "classifies texts"
    pipeline = "text-classification"
    head = "ForSequenceClassification"
    metrics = (
        ACCURACY,
        replace(
            ACCURACY,
            key="macro_f1",
            name="macro-F1",
            meaning="mean over the classes of F1 on the {split} split, 0 to 1 (higher is better)",
        ),
        replace(
            ACCURACY,
            key="f1",
            name="F1",
            meaning="F1 of the second class on the {split} split, 0 to 1 (higher is better)",
        ),
        replace(PEARSON, key="matthews_correlation", name="Matthews correlation"),
    )
    headline = ACCURACY
    unit_measure = "accuracy"
    labels = "class"
    answers = "one word"

    def check_labels(self, documents: "Sequence[Document]", data: DataSettings) -> None:
        """Refuse labels that name no classes, or one class, or classes that training never shows."""
        labels = {document.label for document in documents}
        column = f"data.label_column {data.label_column!r}"
        if len(labels) == 1:
            raise BadInput(
                f"{column} has one class only, {labels.pop()!r}; classification needs two{_of_folders(data)}"
            )
        if len(labels) == len(documents):
            raise BadInput(
                f"{column} has a different value for each of the {len(documents)} documents; it names no classes"
                f"{'; numbers need task regression' if all(is_number(str(label)) for label in labels) else ''}"
            )
        trained = {document.label for document in documents if document.split in (None, "train")}
        unseen = sorted(str(label) for label in labels - trained)
        if unseen:
            shown, more = sorted(map(str, trained))[:_MOST_SHOWN], ", ..." * (len(trained) > _MOST_SHOWN)
            classes = f"those of training have {', '.join(shown)}{more}"
            raise BadInput(f"{column}: no training document has {', '.join(unseen)}; {classes}")

    def label_notes(self, documents: "Sequence[Document]", data: DataSettings) -> list[str]:
        counts, alike = Counter(str(document.label) for document in documents), defaultdict[object, list[str]](list)
        for label in sorted(counts):
            alike[float(label) if is_number(label) else label.casefold()].append(label)
        groups = [" and ".join(f"{label!r} ({counts[label]:,})" for label in few) for few in alike.values() if few[1:]]
        if not groups:
            return []
        return [
            f"data.label_column {data.label_column!r} has classes that may be meant as one: {'; '.join(groups[:5])}"
        ]

    def prepare(self, corpus: Corpus, seed: int) -> "PreparedData":
        import numpy as np

        names = label_names({str(document.label) for part in corpus.parts.values() for document in part})
        return self.prepare_labelled(corpus, names.index, np.int64, names)

    def fits(self, config: Mapping[str, Any]) -> bool:
        return super().fits(config) and config.get("problem_type") != "regression"

    def tally(self, device: "torch.device", *, classes: int | None = None, examples: Sequence[Any] = ()) -> "Tally":
        from wordorder.tasks.scores import ClassTally

        assert classes is not None, "scoring classification needs the number of classes"
        return ClassTally(device, classes)


def label_names(labels: set[str]) -> tuple[str, ...]:
    """Return the classes in the order of their ids: numbers by value, otherwise by the alphabet."""
    numbers = all(label.removeprefix("-").isdecimal() for label in labels)
    return tuple(sorted(labels, key=int if numbers else None))


def _of_folders(data: DataSettings) -> str:
    if not data.source.lower().endswith((".txt", ".tokens")):
        return ""
    return (
        "; the class of a text file is the name of its folder: give each class a folder, with a source such as "
        "'texts/*/*.txt', or take a table, which has a column for it"
    )
