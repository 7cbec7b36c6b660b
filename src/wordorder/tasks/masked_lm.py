"""Masked language modelling: predict tokens that are masked, from those around them."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal

from annotated_types import Gt, Lt

from wordorder.errors import BadInput
from wordorder.tasks.task import ACCURACY, PERPLEXITY, Corpus, Task, TaskOptions

if TYPE_CHECKING:
    from wordorder.data.examples.datasets import PreparedData
    from wordorder.data.packing import Side
    from wordorder.data.tokens import Tokens


CONTIGUOUS = "contiguous"


class MaskedLMOptions(TaskOptions):
    """Options of `masked-lm`."""

    name: str = "masked-lm"
    mask_probability: Annotated[float, Gt(0), Lt(1)] = 0.15
    """Share of the tokens that are predicted."""
    packing: Literal["full-sentences", "full-sentences-across-documents", "contiguous"] = "full-sentences"
    """full-sentences: of one document, padded. full-sentences-across-documents: [SEP] between documents, as RoBERTa and
    TUPE. contiguous: running text cut into segments of exactly `data.length` tokens, with [SEP] between documents."""


class MaskedLM(Task[MaskedLMOptions]):
    """Predict a share of the tokens, which the model does not see (Devlin et al. 2019)."""

    name = "masked-lm"
    Options = MaskedLMOptions
    summary = "fills masked tokens"
    pipeline = "fill-mask"
    head = "ForMaskedLM"
    metrics = (ACCURACY,)
    headline = replace(
        PERPLEXITY,
        name="masked-token perplexity",
        meaning="exp of the mean loss in nats over the masked tokens of the {split} split (lower is better)",
    )
    masks_tokens = True
    cuts_at_sentences = True
    predicts_tokens = True

    def prepare(self, corpus: Corpus, options: MaskedLMOptions, seed: int) -> "PreparedData":
        """Return segments with masks: new ones in every epoch of training, the same ones for validation and test."""
        from wordorder.data.examples.collate import Collate
        from wordorder.data.examples.datasets import MaskedLanguageExamples
        from wordorder.data.examples.masking import Masking
        from wordorder.data.packing import (
            Spans,
            across_documents,
            containing,
            documents_of,
            running,
            whole_sentences,
        )

        data, room = corpus.data, corpus.length - 2  # [CLS] and [SEP]
        pack: Callable[[Tokens], Side] = {
            "full-sentences": partial(whole_sentences, room=room),
            "full-sentences-across-documents": partial(across_documents, room=room),
            CONTIGUOUS: partial(running, room=room + 1, keep_last=False),
        }[options.packing]
        masking = Masking(probability=options.mask_probability, mask_id=corpus.id_of("mask"), special=corpus.special)
        padding = corpus.id_of("pad")
        # Test masks are not validation's: the seeds differ, and both differ from a training seed of the same number.
        mask_seeds = {"train": 3 * seed, "validation": 3 * data.seed + 1, "test": 3 * data.seed + 2}
        examples: dict[str, Any] = {}
        for name, tokens in corpus.tokens.items():
            side, count = pack(tokens), int(tokens.sizes.sum())
            # a span of [UNK] alone has nothing to predict
            side = side.only(containing(side, ~corpus.special))
            if not len(side.first) or (name == "train" and count < corpus.length - 2):
                raise BadInput(
                    f"data.source {data.source}: {name} has {count} tokens, "
                    f"less than one segment of data.length {corpus.length}; give more text or a smaller length"
                )
            # running text has a [SEP] after each document, and none after an example
            after = () if options.packing == CONTIGUOUS else (corpus.sep_id,)
            examples[name] = MaskedLanguageExamples(
                Spans(sides=(side,), before=(corpus.cls_id,), after=after),
                masking,
                seed=mask_seeds[name],
                padding=padding,
                fixed=name != "train",
                documents=None if name == "train" else documents_of(side),
            )
        collate = Collate(padding=padding, longest=corpus.length)
        return corpus.prepared(examples, collate, statistics=corpus.statistics(examples))

    def with_seed(self, prepared: "PreparedData", seed: int) -> "PreparedData":
        from wordorder.data.examples.datasets import MaskedLanguageExamples

        assert isinstance(prepared.train, MaskedLanguageExamples)
        return replace(prepared, train=prepared.train.with_seed(3 * seed))
