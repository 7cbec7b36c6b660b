"""Prepare batches so that transformers' label smoothing is right for models that predict the next token.

Szegedy et al. 2016, https://arxiv.org/abs/1512.00567, Sec. 7. The Trainer takes the labels away from the model and
compares them with its logits itself. It knows from a list of its own models which of them compare an output with the
next label, and leaves it to the data to give a decoder its inputs; a model of this package is on no list.
"""

from collections.abc import Callable
from typing import Any

import torch

from wordorder.data.masking import IGNORED

Inputs = dict[str, Any]


def smoothed_inputs_for(task: str, *, start: int, padding: int) -> Callable[[Inputs], Inputs] | None:
    """Return the function that changes a batch before the Trainer smooths its labels; None where none is needed.

    Args:
        task: of the recipe's [data].
        start: the token that a translation begins with.
        padding: what stands in the decoder's inputs where nothing is predicted.
    """

    def decoder_inputs(inputs: Inputs) -> Inputs:
        shifted = inputs["labels"].roll(1, dims=1)
        shifted[:, 0] = start
        return {**inputs, "decoder_input_ids": shifted.masked_fill(shifted == IGNORED, padding)}

    def next_tokens(inputs: Inputs) -> Inputs:
        labels = inputs["labels"]
        return {**inputs, "labels": torch.cat((labels[:, 1:], torch.full_like(labels[:, :1], IGNORED)), dim=1)}

    return {"translation": decoder_inputs, "causal-lm": next_tokens}.get(task)
