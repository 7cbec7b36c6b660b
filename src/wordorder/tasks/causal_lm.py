"""Causal language modelling: predict each token from those before it."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from wordorder.data.names import LANES
from wordorder.errors import BadInput
from wordorder.tasks.metrics import ACCURACY, PERPLEXITY, Metric
from wordorder.tasks.task import Corpus, Task, TaskOption

if TYPE_CHECKING:
    import torch

    from wordorder.data.prepared import PreparedData
    from wordorder.tasks.scores import Tally


class CausalLM(Task):
    """Predict each token of running text from those before it, in segments or in lanes."""

    name = "causal-lm"
    summary = "goes on with a text"
    pipeline = "text-generation"
    head = "ForCausalLM"
    metrics = (ACCURACY,)
    headline = PERPLEXITY
    beside = (
        Metric(
            key="bits_per_character",
            name="bits per character",
            meaning="mean loss in bits over all characters of the {split} split, whatever the tokens (lower is better)",
        ),
    )
    options: ClassVar[frozenset[TaskOption]] = frozenset({"streaming"})
    packings = ("full-sentences", LANES)
    predicts_tokens = True
    writes = True
    running_text = True
    card_warnings = ("Whether what it writes is true, or copied from its training texts.",)

    def prepare(self, corpus: Corpus, seed: int) -> "PreparedData":
        """Return segments that begin with [CLS] each, or the running text that is read in lanes."""
        from wordorder.data.examples.collate import Collate, CollateLanes
        from wordorder.data.examples.datasets import CausalLanguageExamples
        from wordorder.data.examples.lanes import RunningText
        from wordorder.data.examples.segments import CausalSegments

        data = corpus.data
        if corpus.stream is None and len(corpus.encoded["train"].ids) < corpus.length - 1:
            raise BadInput(
                f"data.source {data.source}: train has {len(corpus.encoded['train'].ids)} tokens, less than one "
                f"segment of data.length {corpus.length}; give more text or a smaller length"
            )
        in_lanes, padding = data.packing == LANES, corpus.id_of("pad")
        texts = {
            name: RunningText(
                corpus.encoded[name],
                sep_id=corpus.ends["sep_id"],
                # a segment that begins with [CLS] has room for one token less
                length=corpus.length if in_lanes else corpus.length - 1,
                characters=sum(len(document.text) for document in part),
                words=sum(len(document.text.split()) for document in part),
                by_document=data.reset_memory == "documents",
                eval_lanes=data.eval_lanes,
                roll=data.roll,
            )
            for name, part in corpus.parts.items()
        }
        examples: dict[str, Any] = {**texts}
        collate = CollateLanes(padding=padding)
        if not in_lanes:
            packer = CausalSegments(length=corpus.length, **corpus.ends)
            examples = {
                name: CausalLanguageExamples(packer.pack(corpus.encoded[name]), text) for name, text in texts.items()
            }
            collate = Collate(padding=padding, longest=corpus.length)
        statistics = corpus.statistics(examples)
        if corpus.stream is not None:
            examples["train"] = corpus.stream(masking=None, mask_seed=0)
        return corpus.prepared(examples, collate, statistics=statistics)

    def tally(self, device: "torch.device", *, classes: int | None = None, examples: Sequence[Any] = ()) -> "Tally":
        """Return a tally that knows the characters and words of the texts that are scored."""
        from wordorder.tasks.scores import CausalTally

        sizes = {name: sum(getattr(part, name) for part in examples) for name in ("characters", "words")}
        return CausalTally(device, **sizes)

    def before_smoothing(self, batch: dict[str, Any], *, start: int, padding: int) -> dict[str, Any]:
        """Return the batch with the labels moved to the logits that predict them."""
        import torch

        from wordorder.data.examples.masking import IGNORED

        labels = batch["labels"]
        return {**batch, "labels": torch.cat((labels[:, 1:], torch.full_like(labels[:, :1], IGNORED)), dim=1)}
