"""Causal language modelling: predict each token from those before it."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

from annotated_types import Ge, Le

from wordorder.data.generated import GENERATED
from wordorder.data.settings import Columns, DataSettings
from wordorder.errors import BadInput
from wordorder.files import MOST_COUNT
from wordorder.tasks.task import ACCURACY, ANSWERS, PERPLEXITY, Corpus, Metric, Task, TaskOptions

if TYPE_CHECKING:
    import numpy as np
    import torch

    from wordorder.data.examples.datasets import PreparedData
    from wordorder.data.examples.lanes import RunningText
    from wordorder.data.tokens import Tokens
    from wordorder.tasks.scores import Tally


LANES = "lanes"


class CausalLMOptions(TaskOptions):
    """Options of `causal-lm`."""

    name: str = "causal-lm"
    packing: Literal["segments", "lanes"] = "segments"
    """segments: they begin with [CLS] and come in random order. lanes, which a memory needs: each row of a batch is one
    stream of running text."""
    reset_memory: Literal["never", "documents"] = "never"
    """For lanes. never: the text is one stream with [SEP] between documents. documents: the memory is reset at the
    beginning of each document, which begins a new segment; lanes get whole documents."""
    roll: bool = True
    """For lanes: rotate the training text by a random number of tokens in each epoch (from training.seed and epoch), so
    segments are cut elsewhere; with reset_memory = documents shuffle the documents instead."""
    eval_lanes: Annotated[int, Ge(1), Le(MOST_COUNT)] = 16
    """For lanes: streams that validation and test are divided into, fewer where the text is short. Each begins without
    memory, so more lanes are faster and a little worse; 1 is exact."""

    @property
    def in_lanes(self) -> bool:
        return self.packing == LANES

    def faults(self) -> list[str]:
        names = () if self.in_lanes else self.given("reset_memory", "roll", "eval_lanes")
        return [f"task.{name} is only for task.packing lanes; set it too, or leave {name} out" for name in names]

    def faults_with(self, data: DataSettings) -> list[str]:
        """Refuse lanes of generated texts whose answers are long."""
        task = GENERATED.get(data.generated or "")
        if not self.in_lanes or task is None or task.answers:
            return []
        short = ", ".join(name for name, other in GENERATED.items() if other.answers)
        return [f"task.packing lanes is for tasks whose answer is one word ({short}), not for {data.source}"]


class CausalLM(Task[CausalLMOptions]):
    """Predict each token of running text from those before it, in segments or in lanes.

    Of a generated task the answers alone are predicted: an example is `[CLS] text [SEP] answer [SEP]`, or such texts
    are read one after another in lanes. The last [SEP] is predicted too, unless every answer is one token.
    """

    name = "causal-lm"
    Options = CausalLMOptions
    summary = "goes on with a text"
    pipeline = "text-generation"
    head = "ForCausalLM"
    metrics = (ACCURACY,)
    answer_metrics = (ANSWERS, ACCURACY)
    headline = PERPLEXITY
    beside = (
        Metric(
            key="bits_per_character",
            name="bits per character",
            meaning="mean loss in bits over all characters of the {split} split, whatever the tokens (lower is better)",
        ),
    )
    answers = "any"
    predicts_tokens = True
    writes = True
    running_text = True

    def fits(self, config: Mapping[str, Any]) -> bool:
        """Tell whether a saved model goes on with a text; GPT-2's of transformers has a name of its own."""
        return str(config["architectures"][0]).endswith((self.head, "LMHeadModel"))

    def columns(self, data: DataSettings, options: CausalLMOptions) -> Columns:
        """Return the column of the text, and of generated tasks that of the answer."""
        answered = data.generated is not None
        return Columns(text=data.text_column, pair="target" if answered else None, answered=answered)

    def prepare(self, corpus: Corpus, options: CausalLMOptions, seed: int) -> "PreparedData":
        """Return segments that begin with [CLS] each, or the running text that is read in lanes."""
        from wordorder.data.examples.collate import Collate, CollateLanes
        from wordorder.data.examples.datasets import CausalLanguageExamples
        from wordorder.data.packing import Spans, running

        data = corpus.data
        if data.generated is not None:
            return _answers(corpus, options)
        count = int(corpus.tokens["train"].sizes.sum()) if "train" in corpus.tokens else None
        if count is not None and count < corpus.length - 1:
            raise BadInput(
                f"data.source {data.source}: train has {count} tokens, less than one "
                f"segment of data.length {corpus.length}; give more text or a smaller length"
            )
        in_lanes, padding = options.in_lanes, corpus.id_of("pad")
        # a segment that begins with [CLS] has room for one token less
        room = corpus.length if in_lanes else corpus.length - 1
        texts = {name: _running_text(corpus, options, name, tokens, room) for name, tokens in corpus.tokens.items()}
        examples: dict[str, Any] = {**texts}
        collate = CollateLanes(padding=padding)
        if not in_lanes:
            for name, text in texts.items():
                side = running(corpus.tokens[name], room=room, keep_last=True)
                examples[name] = CausalLanguageExamples(Spans(sides=(side,), before=(corpus.cls_id,)), text)
            collate = Collate(padding=padding, longest=corpus.length)
        return corpus.prepared(examples, collate, statistics=corpus.statistics(examples))

    def tally(
        self,
        device: "torch.device",
        options: CausalLMOptions,
        *,
        classes: Sequence[str] = (),
        examples: Sequence[Any] = (),
    ) -> "Tally":
        """Return a tally of answers, or one that knows the characters and words of the texts that are scored."""
        from wordorder.tasks.scores import AnswerTally, CausalTally

        if any(part.predicted is not None for part in examples):
            return AnswerTally(device)

        sizes = {name: sum(getattr(part, name) for part in examples) for name in ("characters", "words")}
        return CausalTally(device, **sizes)

    def before_smoothing(self, batch: dict[str, Any], *, start: int, padding: int) -> dict[str, Any]:
        import torch

        from wordorder.data.examples.masking import IGNORED

        labels = batch["labels"]
        return {**batch, "labels": torch.cat((labels[:, 1:], torch.full_like(labels[:, :1], IGNORED)), dim=1)}


def _running_text(
    corpus: Corpus,
    options: CausalLMOptions,
    name: str,
    tokens: "Tokens",
    length: int,
    predicted: "np.ndarray[Any, np.dtype[np.bool_]] | None" = None,
) -> "RunningText":
    from wordorder.data.examples.lanes import RunningText

    rows = corpus.parts[name]
    return RunningText(
        tokens,
        length=length,
        characters=int(corpus.texts.numbers("characters")[rows].sum()),
        words=int(corpus.texts.numbers("word_count")[rows].sum()),
        by_document=options.reset_memory == "documents",
        eval_lanes=options.eval_lanes,
        roll=options.roll,
        predicted=predicted,
    )


def _answers(corpus: Corpus, options: CausalLMOptions) -> "PreparedData":
    import numpy as np

    from wordorder.data.examples.collate import Collate, CollateLanes
    from wordorder.data.examples.datasets import AnswerExamples
    from wordorder.data.packing import Spans, join_answers, whole_texts

    sizes = np.unique(np.concatenate([answers.sizes for answers in corpus.pair_tokens.values()]))
    in_lanes, padding = options.in_lanes, corpus.id_of("pad")
    one_token = sizes.tolist() == [1]  # else the [SEP] after an answer says where it ends
    if in_lanes and not one_token:
        raise BadInput(
            f"task.packing lanes needs answers of one token each, and the tokenizer makes up to {sizes.max()} of one; "
            "set tokenizer.kind=whitespace"
        )
    examples: dict[str, Any] = {}
    for name, texts in corpus.tokens.items():
        answers = corpus.pair_tokens[name]
        if in_lanes:
            joined, predicted = join_answers(texts, answers, sep_id=corpus.sep_id)
            examples[name] = _running_text(corpus, options, name, joined, corpus.length, predicted)
            continue
        sides = whole_texts(texts, room=corpus.length), whole_texts(answers, room=corpus.length)
        sep = (corpus.sep_id,)
        spans = Spans(sides=sides, before=(corpus.cls_id,), between=sep, after=sep)
        examples[name] = AnswerExamples(spans, ends=not one_token)
    collate = CollateLanes(padding=padding) if in_lanes else Collate(padding=padding, longest=corpus.length)
    return corpus.prepared(examples, collate, statistics=corpus.statistics(examples))
