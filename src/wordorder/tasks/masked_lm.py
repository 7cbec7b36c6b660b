"""Masked language modelling: predict tokens that are masked, from those around them."""

from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from wordorder.data.names import LANES, PACKINGS
from wordorder.errors import BadInput
from wordorder.tasks.metrics import ACCURACY, PERPLEXITY
from wordorder.tasks.task import Corpus, Task, TaskOption

if TYPE_CHECKING:
    from wordorder.data.examples.segments import Segments
    from wordorder.data.prepared import PreparedData


class MaskedLM(Task):
    """Predict a share of the tokens, which the model does not see (Devlin et al. 2019)."""

    name = "masked-lm"
    summary = "fills masked tokens"
    pipeline = "fill-mask"
    head = "ForMaskedLM"
    metrics = (ACCURACY,)
    headline = replace(
        PERPLEXITY,
        name="masked-token perplexity",
        meaning="exp of the mean loss in nats over the masked tokens of the {split} split (lower is better)",
    )
    options: ClassVar[frozenset[TaskOption]] = frozenset({"mask_probability", "streaming"})
    ignored: ClassVar[frozenset[TaskOption]] = frozenset({"max_pieces"})
    packings = tuple(packing for packing in PACKINGS if packing != LANES)
    masks_tokens = True
    predicts_tokens = True

    def prepare(self, corpus: Corpus, seed: int) -> "PreparedData":
        """Return segments with masks: new ones in every epoch of training, the same ones for validation and test."""
        from wordorder.data.examples.collate import Collate
        from wordorder.data.examples.datasets import MaskedLanguageExamples
        from wordorder.data.examples.masking import Masking
        from wordorder.data.prepared import PreparedData

        segments = {name: _segments(corpus, name) for name in corpus.parts}
        masking = Masking(
            probability=corpus.data.mask_probability, mask_id=corpus.id_of("mask"), special=corpus.special
        )
        padding = corpus.id_of("pad")
        # Test masks are not validation's: the seeds differ, and both differ from a training seed of the same number.
        mask_seeds = {"train": 3 * seed, "validation": 3 * corpus.data.seed + 1, "test": 3 * corpus.data.seed + 2}
        examples = {
            name: MaskedLanguageExamples(
                segments[name], masking, seed=mask_seeds[name], padding=padding, fixed=name != "train"
            )
            for name in corpus.parts
        }
        return PreparedData(
            tokenizer=corpus.tokenizer,
            train=examples["train"] if corpus.stream is None else corpus.stream(masking, mask_seeds["train"]),
            validation=examples["validation"],
            test=examples.get("test"),
            collate=Collate(padding=padding, longest=corpus.length),
            statistics=corpus.statistics(segments),
        )


def _segments(corpus: Corpus, name: str) -> "Segments":
    from wordorder.data.examples.segments import SEGMENT_PACKERS, with_something_to_predict

    segments = SEGMENT_PACKERS[corpus.data.packing](corpus.encoded[name], length=corpus.length, **corpus.ends)
    segments = with_something_to_predict(corpus.special, segments)
    if not len(segments) or (name == "train" and len(corpus.encoded[name].ids) < corpus.length - 2):
        raise BadInput(
            f"data.source {corpus.data.source}: {name} has {len(corpus.encoded[name].ids)} tokens, "
            f"less than one segment of data.length {corpus.length}; give more text or a smaller length"
        )
    return segments
