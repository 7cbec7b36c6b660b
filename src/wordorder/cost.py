"""Count the parameters, arithmetic and memory of a model before anything is trained."""

from collections import Counter
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode
from transformers import PreTrainedConfig, PreTrainedModel

from wordorder.encodings import Composition, encoding_parameters
from wordorder.encodings.places import check_positive
from wordorder.models import built
from wordorder.models.swap.families import FAMILIES
from wordorder.tasks import TASKS, model_class

__all__ = ["cost"]


def cost(
    config: PreTrainedConfig, task: str, *, length: int, batch_size: int = 1, labelled_share: float = 0.15
) -> dict[str, Any]:
    """Count what one training step of a model costs, on shapes alone (meta tensors: no weights, no arithmetic).

    Args:
        task: "masked-lm", "classification", ...
        length: tokens per example; for translation of each side, and a token is one of either side; for a model with a
            memory of each segment, and what is counted is a segment before which the memory is full.
        batch_size: examples per step; for the activations.
        labelled_share: share of tokens that masked LM predicts; read where the configuration has sparse_prediction.

    Returns:
        ``parameters``: total, embedding (token table), encoding (word order), body, head (a tied output layer counts
        once, as embedding). ``encoding_parameters``: by part. ``forward_flops_per_token`` and ``flops_per_token``
        (forward + backward; 2 per multiply-add; matrix products only, as torch.utils.flop_counter counts them: a causal
        mask hides nothing there, so a window of w tokens counts 2 w - 1 keys, in encoders and decoders).
        ``parameter_bytes``, ``gradient_bytes`` and ``optimizer_bytes`` (AdamW: two moments) in float32; weights that
        are not trained have neither gradients nor moments. ``activation_bytes``: what autograd keeps for the backward
        of one step in float32, on the path that writes the attention matrix out.

    Raises:
        BadInput: the network does not do the task.
        ValueError: a size is not positive, the share is not between 0 and 1, or length is beyond a learned table.
    """
    check_positive(length=length, batch_size=batch_size)
    if not 0 <= labelled_share <= 1:
        raise ValueError(f"labelled_share must lie between 0 and 1, got {labelled_share}")
    with torch.device("meta"):
        model = built(config, model_class(config.model_type.removeprefix("wordorder-"), task))
    model.train()
    token_ids = torch.zeros(batch_size, length, dtype=torch.long, device="meta")
    sides: dict[str, Any] = {"input_ids": token_ids}
    if config.is_encoder_decoder:
        sides["decoder_input_ids"] = token_ids
    if config.model_type in FAMILIES:  # transformers must not look for packed texts and padding, by values
        cast("Any", model.base_model).warn_if_padding_and_no_attention_mask = _ask_nothing
        sides |= {"use_cache": True} if FAMILIES[config.model_type].causal else {}
    if getattr(config, "memory", "none") != "none":
        with torch.no_grad():
            for _ in range(-(-model.config.memory_kept().reach // length)):
                sides["memory"] = model(**sides).memory
    kept = _KeptBytes(model)
    # deterministic counting: dropout keeps masks, which belong to the activations
    with FlopCounterMode(display=False) as forward, kept:
        output = model(**sides)
        logits: Tensor = output.logits if "logits" in output else output.start_logits + output.end_logits
    with FlopCounterMode(display=False) as backward:
        torch.autograd.backward(logits.sum())
    unseen = _unseen_flops(model, batch_size, length)
    forward_flops, backward_flops = forward.get_total_flops() - unseen, backward.get_total_flops() - 2 * unseen
    if task in TASKS and TASKS[task].masks_tokens and getattr(config, "sparse_prediction", False):
        hidden = torch.zeros(batch_size, length, config.hidden_size, device="meta")
        with FlopCounterMode(display=False) as counter, torch.no_grad():
            model.get_submodule("head")(hidden)
        head = counter.get_total_flops()
        forward_flops -= round(head * (1 - labelled_share))
        backward_flops -= round(2 * head * (1 - labelled_share))
    tokens = (2 if config.is_encoder_decoder else 1) * batch_size * length
    parameters = _parameters(model)
    trained = sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
    return {
        "parameters": parameters,
        "encoding_parameters": _encoding_parameters(model),
        "forward_flops_per_token": round(forward_flops / tokens),
        "flops_per_token": round((forward_flops + backward_flops) / tokens),
        "parameter_bytes": 4 * parameters["total"],
        "gradient_bytes": 4 * trained,
        "optimizer_bytes": 8 * trained,
        "activation_bytes": kept.total,
    }


def _ask_nothing(*inputs: object) -> None:
    """Stand for a check that asks tensors for their values, which those on the meta device have not."""


def _unseen_flops(model: PreTrainedModel, batch_size: int, length: int) -> int:
    """Return what the products of queries, keys and values take forward for keys of the same text beyond windows."""
    keys_of_heads = 0
    for module in model.modules():
        if isinstance(module, Composition):
            kinds = module.kind_of_layer or (0,) * model.config.num_hidden_layers
            windows = [module.kinds[kind].window for kind in kinds]
            keys = sum(max(0, length - (2 * window - 1)) for window in windows if window)
            keys_of_heads += keys * model.config.num_attention_heads * module.head_dim
    return 4 * batch_size * length * keys_of_heads


def _parameters(model: PreTrainedModel) -> dict[str, int]:
    total = sum(parameter.numel() for parameter in model.parameters())
    order = list(encoding_parameters(model).values())
    encoding = sum(parameter.numel() for parameter in order)
    known = set(map(id, order))
    embedding = sum(p.numel() for p in model.get_input_embeddings().parameters() if id(p) not in known)
    base = sum(parameter.numel() for parameter in model.base_model.parameters())
    body = base - embedding - encoding
    return {"total": total, "embedding": embedding, "encoding": encoding, "body": body, "head": total - base}


def _encoding_parameters(model: nn.Module) -> dict[str, int]:
    counts: Counter[str] = Counter()  # encoder and decoder have encodings of their own, whose parts have the same names
    for module in model.modules():
        if isinstance(module, Composition):
            counts.update(module.cost_parts())
    return dict(counts)


class _KeptBytes(torch.autograd.graph.saved_tensors_hooks):
    """Counts the bytes of distinct tensors that autograd keeps, parameters aside."""

    def __init__(self, model: nn.Module) -> None:
        self.total = 0
        self._seen = {_identity(parameter) for parameter in model.parameters()}
        self._alive: list[Tensor] = []
        super().__init__(self._pack, lambda kept: kept)

    def _pack(self, kept: Tensor) -> Tensor:
        if _identity(kept) not in self._seen:
            self._seen.add(_identity(kept))
            self._alive.append(kept)  # so that the storage's address is not used again
            self.total += kept.untyped_storage().nbytes()
        return kept


def _identity(tensor: Tensor) -> int:
    """Return a number that tells storages apart; meta tensors have no data pointer."""
    return tensor.untyped_storage()._cdata  # pyright: ignore[reportPrivateUsage]
