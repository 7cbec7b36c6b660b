"""Regression: give a number for a text."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

from annotated_types import Gt

from wordorder.data.settings import DataSettings
from wordorder.errors import BadInput
from wordorder.tasks.task import Corpus, LabelledOptions, LabelledTask, Metric, is_number

if TYPE_CHECKING:
    import numpy as np
    import torch

    from wordorder.data.examples.datasets import PreparedData
    from wordorder.tasks.scores import Tally

PEARSON = Metric(
    key="pearson",
    name="Pearson correlation",
    meaning="of labels and predictions on the {split} split, -1 to 1, 0 for guessing (higher is better)",
    higher_is_better=True,
    perfect=1.0,
    lowest=-1.0,
)
SPEARMAN = replace(
    PEARSON,
    key="spearmanr",
    name="Spearman correlation",
    meaning="of the ranks of labels and predictions on the {split} split, -1 to 1 (higher is better)",
)

_MOST_SHOWN = 5
MOST_LABEL = 1e18
"""Largest label that a loss of squares in float32 can be taken of."""


class RegressionOptions(LabelledOptions):
    """Options of `regression`."""

    name: str = "regression"
    label_scale: Annotated[int | float, Gt(0)] = 1.0
    """The label is divided by this: 5 for STS-B, whose similarities go from 0 to 5."""


class Regression(LabelledTask[RegressionOptions]):
    """Give a number for a text, or a pair of texts, such as how similar they are."""

    name = "regression"
    Options = RegressionOptions
    summary = "gives a number for a text"
    pipeline = "text-regression"
    head = "ForSequenceClassification"
    metrics = (PEARSON, SPEARMAN)
    headline = PEARSON
    loss_unit = "squared error"
    unit_measure = "squared error"
    labels = "number"

    def label_faults(
        self,
        labels: Sequence[str],
        trained: "np.ndarray[Any, np.dtype[np.bool_]]",
        data: DataSettings,
        options: RegressionOptions,
    ) -> list[str]:
        """Refuse labels that are no finite numbers, or all the same."""
        if faults := _not_numbers(labels, options):
            return faults
        values, column = set(labels), f"task.label_column {options.label_column!r}"
        largest = max(values, key=lambda label: abs(float(label)), default="0")
        if abs(float(largest)) / options.label_scale > MOST_LABEL:
            return [
                f"{column} has {largest}, whose square is beyond float32; set task.label_scale, which divides labels"
            ]
        if len({float(label) for label in values}) == 1:
            return [f"{column} is {values.pop()} for every document; there is nothing to learn"]
        return []

    def prepare(self, corpus: Corpus, options: RegressionOptions, seed: int) -> "PreparedData":
        """Return pieces of texts with their numbers, divided by task.label_scale."""
        import numpy as np

        if faults := _not_numbers([label for name in corpus.parts for label in corpus.labels(name)], options):
            raise BadInput(faults)
        # float32 as the model's output: transformers' loss takes no other pair of types
        return self.prepare_labelled(corpus, options, lambda label: float(label) / options.label_scale, np.float32)

    def fits(self, config: Mapping[str, Any]) -> bool:
        return super().fits(config) and config.get("problem_type") == "regression"

    def tally(
        self,
        device: "torch.device",
        options: RegressionOptions,
        *,
        classes: Sequence[str] = (),
        examples: Sequence[Any] = (),
    ) -> "Tally":
        from wordorder.tasks.scores import NumberTally, tally_of_texts

        return tally_of_texts(lambda: NumberTally(device), device, examples, width=1)

    def model_fields(self, prepared: "PreparedData") -> dict[str, Any]:
        return {"num_labels": 1, "problem_type": "regression"}


def _not_numbers(labels: Sequence[str], options: RegressionOptions) -> list[str]:
    wrong = sorted({label for label in labels if not is_number(label)})
    if not wrong:
        return []
    shown = ", ".join(repr(label) for label in wrong[:_MOST_SHOWN])
    more = f" and {len(wrong) - _MOST_SHOWN} more" if len(wrong) > _MOST_SHOWN else ""
    return [
        f"task.label_column {options.label_column!r}: regression needs numbers, got {shown}{more}; classes need task "
        "classification"
    ]
