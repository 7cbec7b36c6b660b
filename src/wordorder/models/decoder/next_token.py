"""The loss of next-token prediction, and the columns and labels that it is computed from."""

import torch
from torch import Tensor
from torch.nn import functional as F

from wordorder.networks import AdaptiveSoftmax


def next_token_loss(
    logits_BTV: Tensor,
    labels_BT: Tensor,
    *,
    smoothing: float = 0.0,
    num_items_in_batch: Tensor | int | None = None,
) -> Tensor:
    """Return the mean over labelled tokens of the negative log-likelihood, in nats and at least float32.

    With smoothing e (Szegedy et al. 2016, https://arxiv.org/abs/1512.00567, Sec. 7) and V tokens::

        loss = (1 - e) * -log p[label] + e / V * sum_v -log p[v]

    which is what transformers' Trainer makes of its argument ``label_smoothing_factor``.

    Args:
        labels_BT: long (B, T), the token that each position should give, -100 where none is.
        smoothing: e, in [0, 1).
        num_items_in_batch: labelled tokens over which the loss is a mean, if more than this batch's (gradient
            accumulation, several processes).

    Raises:
        ValueError: there is not one label for each row of logits.
    """
    if logits_BTV.shape[:-1] != labels_BT.shape:
        raise ValueError(
            "labels must be one for each row of logits (with labels leave logits_to_keep out), got"
            f" {tuple(labels_BT.shape)} for {tuple(logits_BTV.shape[:-1])}"
        )
    wide = logits_BTV.to(torch.promote_types(logits_BTV.dtype, torch.float32))
    reduction = "mean" if num_items_in_batch is None else "sum"
    loss = F.cross_entropy(
        wide.flatten(0, -2), labels_BT.flatten(), ignore_index=-100, reduction=reduction, label_smoothing=smoothing
    )
    if num_items_in_batch is None:
        return loss
    count = num_items_in_batch.to(loss.device) if isinstance(num_items_in_batch, Tensor) else num_items_in_batch
    return loss / count


def adaptive_token_loss(
    head: AdaptiveSoftmax,
    hidden_BTC: Tensor,
    labels_BT: Tensor,
    *,
    num_items_in_batch: Tensor | int | None = None,
) -> Tensor:
    """Return the same loss by an adaptive softmax, which computes rare words' probabilities only where they are labels.

    Args:
        num_items_in_batch: labelled tokens over which the loss is a mean, if more than this batch's.

    Raises:
        ValueError: there is not one label for each hidden state.
    """
    if hidden_BTC.shape[:-1] != labels_BT.shape:
        raise ValueError(
            "labels must be one for each hidden state (with labels leave logits_to_keep out), got"
            f" {tuple(labels_BT.shape)} for {tuple(hidden_BTC.shape[:-1])}"
        )
    unlabelled_N = (labels_BT == -100).flatten()
    # tokens without a label take part as a common word, at no cost of waiting for the device to count them
    found_N = head.negative_log_likelihood(hidden_BTC.flatten(0, -2), labels_BT.flatten().masked_fill(unlabelled_N, 0))
    count = (~unlabelled_N).sum() if num_items_in_batch is None else num_items_in_batch
    return found_N.masked_fill(unlabelled_N, 0.0).sum() / (
        count.to(found_N.device) if isinstance(count, Tensor) else count
    )


def kept_columns(logits_to_keep: int | Tensor) -> slice | Tensor:
    """Return the columns of which logits are computed.

    Args:
        logits_to_keep: the last so many, 0 = all; or the columns themselves.
    """
    return slice(-logits_to_keep, None) if isinstance(logits_to_keep, int) else logits_to_keep


def shifted_right(labels_BT: Tensor, start: int, pad: int | None) -> Tensor:
    """Return what a decoder reads in order to give the labels: the start token, then all labels but the last.

    Args:
        labels_BT: long (B, T), -100 where there is none.
        start: the token that every target begins with.
        pad: stands in for -100; None = 0 (nothing that has a label sees it, where targets are padded on the right).
    """
    read_BT = torch.cat((torch.full_like(labels_BT[:, :1], start), labels_BT[:, :-1]), dim=1)
    return read_BT.masked_fill(read_BT == -100, 0 if pad is None else pad)
