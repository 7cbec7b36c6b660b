"""Translate by beam search, through transformers' `generate`."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from wordorder.errors import BadInput
from wordorder.files import MOST_BEAMS

if TYPE_CHECKING:
    from wordorder.data.examples.datasets import TranslationExamples


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """Settings of the search for the best translation."""

    num_beams: int
    """Number of beams, the translations that are followed at the same time; 1 is greedy search."""
    max_length: int
    """Maximum number of tokens of a translation, with [CLS] before it and [SEP] after it, as transformers counts."""


def check_beams(config: Any, beams: int) -> None:
    """Refuse more beams than a model has tokens, or than fit in a batch: each is a row with its own keys."""
    most = min(config.vocab_size, MOST_BEAMS)
    if not 1 <= beams <= most:
        raise BadInput(f"beams must lie between 1 and {most} for this model, got {beams}; 4 to 10 are usual")


@dataclass(frozen=True)
class Translator:
    """Turns source tokens into target text, which begins with the tokenizer's [CLS] and ends with its [SEP]."""

    model: Any
    tokenizer: Any
    search: Search

    def __call__(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> list[str]:
        """Translate a batch of source tokens (B, N), `[CLS] source [SEP]`, padded where attention_mask is 0."""
        tokens = self.tokenizer
        with torch.no_grad():
            found = self.model.generate(
                input_ids=input_ids,
                attention_mask=torch.ones_like(input_ids) if attention_mask is None else attention_mask,
                num_beams=self.search.num_beams,
                max_length=self.search.max_length,
                do_sample=False,
                decoder_start_token_id=tokens.cls_token_id,
                bos_token_id=tokens.cls_token_id,
                eos_token_id=tokens.sep_token_id,
                pad_token_id=tokens.pad_token_id,
            )
        return [text.strip() for text in tokens.batch_decode(found, skip_special_tokens=True)]


def translate_examples(
    translate: Callable[..., list[str]],
    examples: "TranslationExamples",
    mine: Sequence[int],
    *,
    collate: Callable[[list[Any]], Mapping[str, Tensor]],
    batch_size: int,
    device: torch.device,
) -> Iterator[tuple[list[str], list[str]]]:
    """Yield translations and references of the examples `mine`, in batches of about one length, shortest first."""
    order = np.asarray(mine, np.int64)
    order = order[np.argsort(examples.source_lengths[order], kind="stable")]
    for start in range(0, len(order), batch_size):
        numbers = order[start : start + batch_size].tolist()
        batch = {name: value.to(device) for name, value in collate(examples.__getitems__(numbers)).items()}
        translations = translate(batch["input_ids"], batch.get("attention_mask"))
        yield translations, [examples.references[int(number)] for number in numbers]
