"""Classification: tell which of several classes a text belongs to."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from wordorder.data.settings import DataSettings
from wordorder.errors import BadInput
from wordorder.section import Text
from wordorder.tasks.regression import PEARSON
from wordorder.tasks.task import ACCURACY, Corpus, LabelledOptions, LabelledTask, is_number

if TYPE_CHECKING:
    import numpy as np
    import torch

    from wordorder.data.examples.datasets import PreparedData
    from wordorder.data.table import Texts
    from wordorder.tasks.scores import Tally


_MOST_SHOWN = 8


class ClassificationOptions(LabelledOptions):
    """Options of `classification`."""

    name: str = "classification"
    positive_class: Text | None = None
    """The class, of two, that F1 is of. None: the second by the alphabet, or the larger number."""


class Classification(LabelledTask[ClassificationOptions]):
    """Tell which class a text, or a pair of texts, belongs to."""

    name = "classification"
    Options = ClassificationOptions
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
            meaning="F1 of task.positive_class, else of the second class, on the {split} split (higher is better)",
        ),
        replace(PEARSON, key="matthews_correlation", name="Matthews correlation"),
    )
    headline = ACCURACY
    unit_measure = "accuracy"
    labels = "class"
    answers = "one word"

    def label_faults(
        self,
        labels: Sequence[str],
        trained: "np.ndarray[Any, np.dtype[np.bool_]]",
        data: DataSettings,
        options: ClassificationOptions,
    ) -> list[str]:
        """Refuse labels that name no classes, or one class, or classes that training never shows."""
        classes, column = set(labels), f"task.label_column {options.label_column!r}"
        if len(classes) == 1:
            return [f"{column} has one class only, {classes.pop()!r}; classification needs two{_of_folders(data)}"]
        if len(classes) == len(labels):
            return [
                f"{column} has a different value for each of the {len(labels)} documents; it names no classes"
                f"{'; numbers need task regression' if all(map(is_number, classes)) else ''}"
            ]
        learned = {label for label, of_training in zip(labels, trained, strict=True) if of_training}
        unseen = sorted(classes - learned)
        if unseen:
            shown, more = sorted(learned)[:_MOST_SHOWN], ", ..." * (len(learned) > _MOST_SHOWN)
            those = f"those of training have {', '.join(shown)}{more}"
            return [f"{column}: no training document has {', '.join(unseen)}; {those}"]
        if options.positive_class is not None and (options.positive_class not in classes or len(classes) != 2):
            return [_no_such_class(options, sorted(classes))]
        return []

    def notes(self, texts: "Texts", options: ClassificationOptions) -> list[str]:
        """Say which classes may be meant as one."""
        counts, alike = Counter(texts.strings("label")), defaultdict[object, list[str]](list)
        for label in sorted(counts):
            alike[float(label) if is_number(label) else label.casefold()].append(label)
        groups = [" and ".join(f"{label!r} ({counts[label]:,})" for label in few) for few in alike.values() if few[1:]]
        if not groups:
            return []
        return [
            f"task.label_column {options.label_column!r} has classes that may be meant as one: {'; '.join(groups[:5])}"
        ]

    def prepare(self, corpus: Corpus, options: ClassificationOptions, seed: int) -> "PreparedData":
        import numpy as np

        names = label_names({label for name in corpus.parts for label in corpus.labels(name)})
        ids = {name: number for number, name in enumerate(names)}
        return self.prepare_labelled(corpus, options, ids.__getitem__, np.int64, names)

    def fits(self, config: Mapping[str, Any]) -> bool:
        return super().fits(config) and config.get("problem_type") != "regression"

    def tally(
        self,
        device: "torch.device",
        options: ClassificationOptions,
        *,
        classes: Sequence[str] = (),
        examples: Sequence[Any] = (),
    ) -> "Tally":
        from wordorder.tasks.scores import ClassTally, tally_of_texts

        width, positive = len(classes), 1
        if options.positive_class is not None:
            if options.positive_class not in classes:
                raise BadInput(_no_such_class(options, classes))
            positive = list(classes).index(options.positive_class)
        return tally_of_texts(lambda: ClassTally(device, width, positive=positive), device, examples, width=width)


def label_names(labels: set[str]) -> tuple[str, ...]:
    """Return the classes in the order of their ids: numbers by value, otherwise by the alphabet."""
    numbers = all(label.removeprefix("-").isdecimal() for label in labels)
    # "1" and "01" are two classes
    return tuple(sorted(sorted(labels), key=int if numbers else None))


def _no_such_class(options: ClassificationOptions, classes: Sequence[str]) -> str:
    shown, more = ", ".join(classes[:_MOST_SHOWN]), ", ..." * (len(classes) > _MOST_SHOWN)
    return f"task.positive_class {options.positive_class!r}: must be one of two classes; the data has {shown}{more}"


def _of_folders(data: DataSettings) -> str:
    if not data.source.lower().endswith((".txt", ".tokens")):
        return ""
    return (
        "; the class of a text file is the name of its folder: give each class a folder, with a source such as "
        "'texts/*/*.txt', or take a table, which has a column for it"
    )
