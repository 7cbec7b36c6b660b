"""The Trainer for translation: besides the losses it scores the translations that the model writes."""

# transformers.Trainer is untyped for the most part, and so is whatever super() gives of it.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from typing import Any, cast

from wordorder.tasks.scores import Tally
from wordorder.tasks.translation_scores import TranslationTally, bleu_signature
from wordorder.training.loop.beam_search import Search, Translator, translate_examples
from wordorder.training.loop.trainer import WordOrderTrainer


class TranslationTrainer(WordOrderTrainer):
    """A `WordOrderTrainer` whose evaluations may also translate and compute BLEU.

    Args:
        *args: see `WordOrderTrainer`.
        search: how translations are looked for.
        always: translate in every evaluation; else only `reported`, and that once training is over.
        reported: the data set on whose scores the run reports.
        **kwargs: see `WordOrderTrainer`.

    Raises:
        MissingExtra: sacrebleu is not installed.
    """

    def __init__(self, *args: Any, search: Search, always: bool, reported: Any, **kwargs: Any) -> None:
        self.signature = bleu_signature()  # first: without sacrebleu nothing must be trained
        super().__init__(*args, **kwargs)
        self.search, self._always, self._reported = search, always, reported

    def _tally(self, model: Any, dataset: Any) -> Tally:
        tally = cast(TranslationTally, super()._tally(model, dataset))
        if not (self._always or (dataset is self._reported and not self.is_in_train)):
            return tally
        # without what compiles or distributes it: generation calls the model with shapes that change at every token
        plain: Any = self.accelerator.unwrap_model(self.model, keep_torch_compile=False)
        share = self._share(dataset)
        batches = translate_examples(
            Translator(plain, self.processing_class, self.search),
            dataset,
            share,
            collate=self._collate,
            batch_size=self.args.per_device_eval_batch_size,
            device=self.args.device,
        )
        done = 0
        for translations, references in batches:
            tally.add_translations(translations, references)
            done += len(translations)
            self._progress.meanwhile(f"translating: {done:,} of {len(share):,} sentences")
        return tally
