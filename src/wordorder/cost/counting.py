"""Count the parameters, arithmetic and memory of a model before anything is trained, or estimate them by a formula."""

from collections import Counter
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode
from transformers import PreTrainedConfig, PreTrainedModel

from wordorder.encodings import CATALOG, Composition, OnScoresByContent, encoding_parameters, pattern_of
from wordorder.encodings.places import check_positive
from wordorder.tasks import TASKS, model_class

KEPT_INSIDE = {"relu": 1, "gelu": 2, "silu": 2, "swiglu": 4}
"""Numbers that a feed-forward network keeps for each inner channel: inputs of the activation and of the second map."""
NORM_BYTES = 4
"""Bytes of a number between the layers: autocast leaves residuals and norms in float32."""


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
        (forward + backward; 2 per multiply-add; matrix products only, as torch.utils.flop_counter counts them).
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
        model = model_class(config.model_type.removeprefix("wordorder-"), task)(config)
    model.train()
    token_ids = torch.zeros(batch_size, length, dtype=torch.long, device="meta")
    sides: dict[str, Any] = {"input_ids": token_ids}
    if config.is_encoder_decoder:
        sides["decoder_input_ids"] = token_ids
    if getattr(config, "memory", "none") != "none":
        with torch.no_grad():
            while "memory" not in sides or sides["memory"].length < model.config.memory_length:
                sides["memory"] = model(**sides).memory
    kept = _KeptBytes(model)
    # deterministic counting: dropout keeps masks, which belong to the activations
    with FlopCounterMode(display=False) as forward, kept:
        output = model(**sides)
        logits: Tensor = output.logits if "logits" in output else output.start_logits + output.end_logits
    with FlopCounterMode(display=False) as backward:
        torch.autograd.backward(logits.sum())
    forward_flops, backward_flops = forward.get_total_flops(), backward.get_total_flops()
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


def activation_bytes(
    config: PreTrainedConfig,
    task: str,
    *,
    length: int,
    rows: int,
    half: bool = False,
    checkpointing: bool = False,
    labelled_share: float = 0.15,
) -> int | None:
    """Estimate the bytes that one forward pass keeps for the backward pass.

    Korthikanti et al. 2022, "Reducing Activation Recomputation in Large Transformer Models",
    https://arxiv.org/abs/2205.05198, Sec. 4.1 and 5, with all sizes left open. A layer keeps for each token so many
    bytes, where products take numbers of w bytes (4, or 2 under autocast), norms of 4, and masks of dropout of 1::

        attention        4 C + (3 C + 2 K) w + C    input of the norm; inputs of projections and output map, queries,
                                                    keys and values; mask
        scores           H S (2 w + 1)              only where an encoding reads content: other scores no kernel keeps
        cross-attention  4 C + (3 C + 2 K) w + C
        feed-forward     4 C + (C + m F) w + C      input of the norm; of the maps and the activation (m = 1 for relu,
                                                    2 for gelu and silu, 4 for swiglu); mask

    C model channels, K channels of all keys, F inner channels, H heads, S keys for each query; a complex network has
    two numbers for each of C, K and F. Keys and values are those of the memory's slots too. The output keeps C numbers
    for its norm (4) and C for its map (w), the head of masked LM 3 C (w) more, and the loss of a language model V
    numbers of 4 bytes for each token that it predicts; with an adaptive vocabulary only the first cluster is counted.
    With gradient checkpointing each layer keeps its input (4 C), and one layer everything.

    At C = K = F / 4, gelu and w = 2 a layer keeps 38 bytes for each token and channel; the paper, which holds norms
    in 16 bits too, has 34.

    Left out: what encodings keep for themselves (a bias is one matrix for all rows), and what is at work for a moment.

    Args:
        length: tokens of a row; for translation of each side.
        rows: of one forward pass.
        half: products are computed in 16 bits, by autocast.
        checkpointing: each layer is computed again in the backward pass.
        labelled_share: as in `cost`.

    Returns:
        Bytes; None for a network that is no stack of Transformer layers.
    """
    sizes: Any = config  # transformers declares none of the fields
    architecture, variant = getattr(sizes, "architecture", "transformer"), getattr(sizes, "variant", "paper")
    if (architecture, variant) != ("transformer", "paper"):
        return None
    numbers, width = (2 if sizes.complex_valued else 1), (2 if half else 4)
    heads: int = sizes.num_attention_heads
    channels = numbers * sizes.hidden_size
    inner = numbers * (sizes.intermediate_size or 4 * sizes.hidden_size)
    keys = channels * (sizes.num_key_value_heads or heads) // heads
    slots = 0 if sizes.memory == "none" else sizes.memory_length
    norm, mask = NORM_BYTES * channels, channels if sizes.hidden_dropout_prob else 0
    cross = norm + width * (3 * channels + 2 * keys) + mask
    attention = cross + width * (channels + 2 * keys) * slots / length  # slots are mapped to keys and values again
    scores = heads * (length + slots) * (2 * width + 1 if sizes.attention_probs_dropout_prob else width)
    pattern = [
        any(issubclass(CATALOG[name], OnScoresByContent) for name in names) for names in pattern_of(sizes.encoding)
    ]
    feed_forward = norm + width * (channels + KEPT_INSIDE[sizes.hidden_act] * inner) + mask

    def stack(count: int, layer: float) -> list[float]:
        return [layer + scores * pattern[number % len(pattern)] for number in range(count)]

    layers, sides = stack(sizes.num_hidden_layers, attention + feed_forward), 1
    if config.is_encoder_decoder:
        layers, sides = layers + stack(sizes.decoder_layers, attention + cross + feed_forward), 2
    kept = len(layers) * norm + max(layers) if checkpointing else sum(layers)
    kept += sides * (mask + norm + width * channels)  # embeddings, and the output's norm and map
    known = TASKS.get(task)  # heads without a recipe predict no tokens
    if known is not None and known.predicts_tokens:
        cutoffs = getattr(sizes, "adaptive_cutoffs", None)
        logits = 4 * (cutoffs[0] + len(cutoffs) if cutoffs else sizes.vocab_size)
        head = 3 * width * channels if known.masks_tokens else 0
        kept += (logits + head) * (labelled_share if getattr(sizes, "sparse_prediction", False) else 1.0)
    return round(rows * length * kept)
