"""Estimate the activations that a training step of a Transformer keeps for its backward pass, by a formula."""

from typing import Any

from transformers import PreTrainedConfig

from wordorder.encodings import CATALOG, OnScoresByContent, names_of
from wordorder.tasks import TASKS

KEPT_INSIDE = {"relu": 1, "gelu": 2, "silu": 2, "swiglu": 4}
"""Numbers that a feed-forward network keeps for each inner channel: inputs of the activation and of the second map."""
NORM_BYTES = 4
"""Bytes of a number between the layers: autocast leaves residuals and norms in float32."""


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
        config: of the model.
        task: "masked-lm", "classification", ...
        length: tokens of a row; for translation of each side.
        rows: of one forward pass.
        half: products are computed in 16 bits, by autocast.
        checkpointing: each layer is computed again in the backward pass.
        labelled_share: share of tokens that masked LM predicts; read where the configuration has sparse_prediction.

    Returns:
        Bytes; None for a network that is no stack of Transformer layers.
    """
    sizes: Any = config  # transformers declares none of the fields
    if (
        getattr(sizes, "architecture", "transformer") != "transformer"
        or getattr(sizes, "variant", "") == "reference-code"
    ):
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
    if any(issubclass(CATALOG[name], OnScoresByContent) for name in names_of(sizes.encoding)):
        attention += heads * (length + slots) * (2 * width + 1 if sizes.attention_probs_dropout_prob else width)
    feed_forward = norm + width * (channels + KEPT_INSIDE[sizes.hidden_act] * inner) + mask
    layers, sides = [attention + feed_forward] * sizes.num_hidden_layers, 1
    if config.is_encoder_decoder:
        layers, sides = layers + [attention + cross + feed_forward] * sizes.decoder_layers, 2
    kept = len(layers) * norm + max(layers) if checkpointing else sum(layers)
    kept += sides * (mask + norm + width * channels)  # embeddings, and the output's norm and map
    known = TASKS.get(task)  # heads without a recipe predict no tokens
    if known is not None and known.predicts_tokens:
        cutoffs = getattr(sizes, "adaptive_cutoffs", None)
        logits = 4 * (cutoffs[0] + len(cutoffs) if cutoffs else sizes.vocab_size)
        head = 3 * width * channels if known.masks_tokens else 0
        kept += (logits + head) * (labelled_share if getattr(sizes, "sparse_prediction", False) else 1.0)
    return round(rows * length * kept)
