"""Translation: write one text for another, token by token."""

import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, Literal

from annotated_types import Ge, Le

from wordorder.data.settings import NONE, Columns, DataSettings
from wordorder.errors import BadInput
from wordorder.files import MOST_BEAMS, MOST_COUNT
from wordorder.section import Text
from wordorder.tasks.task import (
    ACCURACY,
    ANSWERS,
    PERPLEXITY,
    Corpus,
    Metric,
    Task,
    TaskOptions,
    unknown_fraction,
    unread,
)

if TYPE_CHECKING:
    import torch

    from wordorder.data.examples.datasets import PreparedData
    from wordorder.data.table import Texts
    from wordorder.tasks.scores import Tally

TARGETS = ("target_source", "validation_target_source", "test_target_source")
"""Options that name a file."""
_LOOKED_AT = 200
"""Translations that are looked at for their script."""
# Thai, Lao, Myanmar, Khmer; kana, Chinese characters and their punctuation
_UNSPACED = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3000-\u30ff\u3400-\u9fff\uff00-\uff65]+")

BLEU = Metric(
    key="bleu",
    name="BLEU",
    meaning="corpus BLEU of the translations of the {split} split, 0 to 100 (higher is better)",
    higher_is_better=True,
    perfect=100.0,
    of_translations=True,
)
EXACT_MATCH = replace(
    ANSWERS,
    meaning="share of the {split} split's outputs that are right from beginning to end (higher is better)",
    of_translations=True,
)


class TranslationOptions(TaskOptions):
    """Options of `translation`."""

    name: str = "translation"
    target_column: Text = "target"
    """Column that holds the translation of the text, where no target_source does."""
    target_source: Text | None = None
    """File whose n-th line translates the n-th line of the file `data.source`. None: `data.source` has rows with both,
    see target_column."""
    validation_target_source: Text | None = None
    """File of the translations of data.validation_source, as target_source is for data.source."""
    test_target_source: Text | None = None
    """File of the translations of data.test_source, as target_source is for data.source."""
    truncate: bool = False
    """Cut training pairs that are longer than `data.length` instead of leaving them out; validation and test pairs are
    always cut."""
    beams: Annotated[int, Ge(1), Le(MOST_BEAMS)] = 4
    """Beams of the search; 1 is greedy search."""
    max_target_length: Annotated[int, Ge(2), Le(MOST_COUNT)] | None = None
    """Most tokens of a translation, start and end included; None: data.length + 1."""
    translate_while_training: bool = False
    """Translate all of validation at each evaluation and give its BLEU, which is slow. The reported split is translated
    at the end of every run."""
    bleu_tokenizer: Literal["13a", "intl", "zh", "char", "none"] = "13a"
    """How sacrebleu finds the words of BLEU: 13a where spaces stand between them; zh for Chinese, char for other
    languages without spaces; none for texts that are words set apart already."""

    @property
    def second_files(self) -> dict[str, str]:
        """The file of translations of each source that has one; see `Columns.second_files`."""
        files = {
            "": self.target_source,
            "validation": self.validation_target_source,
            "test": self.test_target_source,
        }
        return {split: path for split, path in files.items() if path is not None}

    def faults_with(self, data: DataSettings) -> list[str]:
        """Return the faults of columns and files that do not go together."""
        faults = unread(self, data, "target_column", *TARGETS)
        if data.text_column == self.target_column:
            faults.append(f"data.text_column and task.target_column are both {data.text_column!r}; name two columns")
        for split in self.second_files:
            source = f"{split}_source" if split else "source"
            if getattr(data, source) in (None, NONE):
                target = f"{split}_target_source" if split else "target_source"
                faults.append(f"task.{target} needs the lines that it translates: give data.{source} too")
        return faults


class Translation(Task[TranslationOptions]):
    """Write the translation of a text; any task from a text to a text is one."""

    name = "translation"
    Options = TranslationOptions
    summary = "translates texts"
    pipeline = "translation"
    head = "ForConditionalGeneration"
    metrics = (ACCURACY, BLEU, EXACT_MATCH)
    answer_metrics = (EXACT_MATCH, ACCURACY, BLEU)
    headline = BLEU
    beside = (PERPLEXITY, BLEU)
    answers = "any"
    translates = True
    grouped_by_length = True
    predicts_tokens = True
    writes = True

    def columns(self, data: DataSettings, options: TranslationOptions) -> Columns:
        """Return the columns of text and translation, or the files of translations."""
        return Columns(
            text=data.text_column,
            pair=options.target_column,
            pair_option="target_column",
            answered=True,
            translated=True,
            second_files=options.second_files,
        )

    def notes(self, texts: "Texts", options: TranslationOptions) -> list[str]:
        """Say that BLEU takes a text without spaces for one word."""
        letters = "".join(islice(texts.strings("pair"), _LOOKED_AT))
        unspaced = sum(map(len, _UNSPACED.findall(letters)))
        if 3 * unspaced < len(letters) or options.bleu_tokenizer in ("zh", "char"):
            return []
        return [
            "translations are in a script without spaces between words, of which BLEU takes a whole sentence for a "
            'word; set task.bleu_tokenizer="zh" for Chinese, "char" for other languages'
        ]

    def prepare(self, corpus: Corpus, options: TranslationOptions, seed: int) -> "PreparedData":
        """Return pairs of token ids; training pairs that are too long are left out, or cut with task.truncate."""
        import numpy as np

        from wordorder.data.examples.collate import Collate
        from wordorder.data.examples.datasets import TranslationExamples
        from wordorder.data.packing import Spans, whole_texts

        examples: dict[str, TranslationExamples] = {}
        cut: dict[str, int] = {}
        for name, rows in corpus.parts.items():
            # [CLS] source [SEP], and target [SEP], of which the decoder reads [CLS] target
            texts = (corpus.tokens[name], corpus.length - 2), (corpus.pair_tokens[name], corpus.length - 1)
            sides = [whole_texts(tokens, room=room) for tokens, room in texts]
            long = np.any([tokens.sizes > room for tokens, room in texts], axis=0)
            # what is scored is the same whatever the length; training gains nothing from halves of sentences
            drop = name == "train" and not options.truncate
            chosen = np.flatnonzero(~long) if drop else np.arange(len(long))
            sources, targets = (side.only(chosen) for side in sides)
            after = (corpus.sep_id,)
            examples[name] = TranslationExamples(
                Spans(sides=(sources,), before=(corpus.cls_id,), after=after),
                Spans(sides=(targets,), after=after),
                corpus.texts.column("pair", rows[chosen]),
            )
            cut[name] = 0 if drop else int(long.sum())
        if "train" in examples and not len(examples["train"]):
            raise BadInput(
                f"data.source {corpus.data.source}: all {len(corpus.parts['train'])} training pairs are longer than "
                f"data.length {corpus.length}; raise it, or set task.truncate=true"
            )
        statistics = corpus.statistics(examples)
        for name, rows in corpus.parts.items():
            characters = words = 0
            for text in corpus.texts.strings("pair", rows):
                characters += len(text)
                words += len(text.split())
            tokens = corpus.pair_tokens[name]
            statistics[name] |= {
                "target_characters": characters,
                "target_words": words,
                "target_tokens": int(tokens.sizes.sum()),
                "target_unknown_fraction": unknown_fraction(tokens),
                "dropped_long": len(rows) - len(examples[name]),
                "cut": cut[name],
            }
        collate = Collate(padding=corpus.id_of("pad"), longest=corpus.length)
        return corpus.prepared(examples, collate, statistics=statistics)

    def tally(
        self,
        device: "torch.device",
        options: TranslationOptions,
        *,
        classes: Sequence[str] = (),
        examples: Sequence[Any] = (),
    ) -> "Tally":
        from wordorder.tasks.scores import TranslationTally

        return TranslationTally(device, tokenizer=options.bleu_tokenizer)

    def before_smoothing(self, batch: dict[str, Any], *, start: int, padding: int) -> dict[str, Any]:
        """Return the batch with the decoder's inputs, which a model makes from labels that it gets."""
        from wordorder.data.examples.masking import IGNORED

        shifted = batch["labels"].roll(1, dims=1)
        shifted[:, 0] = start
        return {**batch, "decoder_input_ids": shifted.masked_fill(shifted == IGNORED, padding)}
