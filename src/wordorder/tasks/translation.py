"""Translation: write one text for another, token by token."""

import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar

from wordorder.data.settings import NONE, DataSettings
from wordorder.errors import BadInput
from wordorder.tasks.task import ACCURACY, ANSWERS, PERPLEXITY, Corpus, Metric, Task, TaskOption, unknown_fraction

if TYPE_CHECKING:
    import torch

    from wordorder.data.examples.datasets import PreparedData
    from wordorder.data.table import Texts
    from wordorder.tasks.scores import Tally

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


class Translation(Task):
    """Write the translation of a text; any task from a text to a text is one."""

    name = "translation"
    summary = "translates texts"
    pipeline = "translation"
    head = "ForConditionalGeneration"
    metrics = (ACCURACY, BLEU, EXACT_MATCH)
    answer_metrics = (EXACT_MATCH, ACCURACY, BLEU)
    headline = BLEU
    beside = (PERPLEXITY, BLEU)
    options: ClassVar[frozenset[TaskOption]] = frozenset(
        {
            "truncate",
            "target_source",
            "validation_target_source",
            "test_target_source",
            "target_column",
            "bleu_tokenizer",
        }
    )
    answers = "any"
    translates = True
    grouped_by_length = True
    predicts_tokens = True
    writes = True

    def data_faults(self, data: DataSettings) -> list[str]:
        """Return the faults of columns and files that do not go together."""
        faults: list[str] = []
        if data.text_column == data.target_column:
            faults.append(f"data.text_column and data.target_column are both {data.text_column!r}; name two columns")
        for split in ("", "validation_", "test_"):
            if getattr(data, f"{split}target_source") is not None and getattr(data, f"{split}source") in (None, NONE):
                faults.append(
                    f"data.{split}target_source needs the lines that it translates: give data.{split}source too"
                )
        return faults

    def notes(self, texts: "Texts", data: DataSettings) -> list[str]:
        """Say that BLEU takes a text without spaces for one word."""
        letters = "".join(islice(texts.strings("pair"), _LOOKED_AT))
        unspaced = sum(map(len, _UNSPACED.findall(letters)))
        if 3 * unspaced < len(letters) or data.bleu_tokenizer in ("zh", "char"):
            return []
        return [
            "translations are in a script without spaces between words, of which BLEU takes a whole sentence for a "
            'word; set data.bleu_tokenizer="zh" for Chinese, "char" for other languages'
        ]

    def prepare(self, corpus: Corpus, seed: int) -> "PreparedData":
        """Return pairs of token ids; training pairs that are too long are left out, or cut with data.truncate."""
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
            drop = name == "train" and not corpus.data.truncate
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
                f"data.length {corpus.length}; raise it, or set data.truncate=true"
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
        self, device: "torch.device", data: DataSettings, *, classes: Sequence[str] = (), examples: Sequence[Any] = ()
    ) -> "Tally":
        from wordorder.tasks.scores import TranslationTally

        return TranslationTally(device, tokenizer=data.bleu_tokenizer)

    def before_smoothing(self, batch: dict[str, Any], *, start: int, padding: int) -> dict[str, Any]:
        """Return the batch with the decoder's inputs, which a model makes from labels that it gets."""
        from wordorder.data.examples.masking import IGNORED

        shifted = batch["labels"].roll(1, dims=1)
        shifted[:, 0] = start
        return {**batch, "decoder_input_ids": shifted.masked_fill(shifted == IGNORED, padding)}
