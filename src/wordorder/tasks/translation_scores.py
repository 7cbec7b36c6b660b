"""Scores of a translation model: of its predicted tokens, and of whole translations against human references."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from wordorder.errors import MissingExtra
from wordorder.tasks.scores import TokenTally

_ORDERS = 4  # n-grams of up to this many words, as BLEU is commonly computed


class TranslationTally(TokenTally):
    """Tally of translations: loss in nats per target token (also the final [SEP]), accuracy, perplexity, tokens; bleu.

    Loss, accuracy and perplexity are those of the human translation's tokens, each predicted from those before it,
    without label smoothing. bleu, from 0 to 100, and exact_match are there once translations were counted, with their
    number, sentences. exact_match, from 0 to 1, is the share of the translations that are their reference character by
    character, white space aside: the measure where one answer alone is right, as of SCAN's commands.
    bleu is sacrebleu's: corpus BLEU of text as it is read (detokenised, with its capitals) against one reference. Its
    counts of n-grams are added up, so batches and processes do not change it.

    Papineni et al. 2002, https://aclanthology.org/P02-1040; Post 2018, https://aclanthology.org/W18-6319.

    Args:
        device: see `TokenTally`.
    """

    def __init__(self, device: torch.device) -> None:
        super().__init__(device)
        # per order the n-grams that are right, and all; words of the translations, of the references; sentences, and
        # those of them that are exactly right
        self._counts = torch.zeros(2 * _ORDERS + 4, dtype=torch.int64, device=device)

    def add_translations(self, translations: Sequence[str], references: Sequence[str]) -> None:
        """Count the translations of a batch against their references.

        Args:
            translations: the model's.
            references: people's, as many.

        Raises:
            MissingExtra: sacrebleu is not installed.
        """
        found = _bleu().corpus_score(list(translations), [list(references)])
        exact = sum(one.split() == other.split() for one, other in zip(translations, references, strict=True))
        sizes = [found.sys_len, found.ref_len, len(translations), exact]
        self._counts += torch.tensor([*found.counts, *found.totals, *sizes], device=self._counts.device)

    def reduce(self, add_over_processes: Callable[[Tensor], Tensor], join: Callable[[Tensor], Tensor]) -> None:
        """Combine the counts of all processes; see `Tally`."""
        super().reduce(add_over_processes, join)
        self._counts = add_over_processes(self._counts)

    def scores(self) -> dict[str, float]:
        """Return the scores that the class lists."""
        scores = super().scores()
        counts = [int(count) for count in self._counts]
        right, all_, sizes = counts[:_ORDERS], counts[_ORDERS:-4], counts[-4:]
        words, reference_words, sentences, exact = sizes
        if not sentences:
            return scores
        bleu = _bleu()
        found = bleu.compute_bleu(
            right, all_, words, reference_words, smooth_method=bleu.smooth_method, smooth_value=bleu.smooth_value
        )
        return {**scores, "bleu": float(found.score), "exact_match": exact / sentences, "sentences": sentences}


def bleu_signature() -> str:
    """Return sacrebleu's signature: ``nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:...``.

    Raises:
        MissingExtra: sacrebleu is not installed.
    """
    bleu = _bleu()
    bleu.corpus_score(["a"], [["a"]])  # it must have seen how many references there are
    return str(bleu.get_signature().format())


def _bleu() -> Any:
    try:
        from sacrebleu.metrics.bleu import BLEU
    except ImportError as error:
        raise MissingExtra("sacrebleu", "train") from error
    return BLEU(force=True)  # without it a text whose full stops stand apart gives a warning; it changes no score
