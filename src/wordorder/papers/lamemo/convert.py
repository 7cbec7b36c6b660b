"""Convert checkpoints of Transformer-XL's code, and of LaMemo's, which was made from it, to Hugging Face folders.

The codes are github.com/kimiyoung/transformer-xl (pytorch/mem_transformer.py) and github.com/thu-coai/LaMemo.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from wordorder.errors import BadInput
from wordorder.papers.folder import ConversionReport, Model, Names, open_checkpoint, weights_and_biases, write_folder
from wordorder.papers.vocabulary import END, UNKNOWN, read_words, word_tokenizer
from wordorder.papers.weights import Checkpoint, Code, Settings

CODE = Code(
    name="Transformer-XL's or LaMemo's code",
    state="model_state",
    args="model_config",
    prefix="module.",  # torch's wrapper for several processes
    table="word_emb.emb_layers.0.weight",
    output="crit.out_layers.0.weight",
    example='{"mem_len": 150, "tgt_len": 150}',
)

KINDS = {0: "Transformer-XL", 3: "disentangled", 31: "signed", 32: "two-vectors", 33: "disentangled"}
"""``attn_type`` -> the attention; LaMemo's by the option ``sides`` of the encoding."""

NO_UNKNOWN = f"the words have none of {', '.join(UNKNOWN)}, so the tokeniser refuses a text with other words"

IGNORED = re.compile(r"pos_emb\.inv_freq|layers\.\d+\.dec_attn\.(train|eval)_logits_constant")
"""Buffers: the sines' frequencies, which the encoding computes, and zeros that LaMemo's code never reads."""

ZEROS = ("attention.qkv.bias", "attention.out.bias")
"""Ends of our names of the biases of projections, which their code does not have."""

_XL = "model.decoder.encoding.parts.transformer_xl."
_MODEL = (
    (CODE.table, "model.decoder.embedding.weight"),
    (CODE.output, "lm_head.weight"),
    ("crit.out_layers.0.bias", "lm_head.bias"),
    ("r_w_bias", f"{_XL}content_bias"),
    ("r_r_bias", f"{_XL}position_bias"),
)
_RIGHT_POSITION = ("r_r_bias_future", f"{_XL}position_bias_right")
_RIGHT_CONTENT = ("r_w_bias_future", f"{_XL}content_bias_right")
_LAYER = (
    ("dec_attn.o_net.weight", "attention.out.weight"),
    *weights_and_biases(
        ("dec_attn.layer_norm.", "attention_norm."),
        ("pos_ff.CoreNet.0.", "feedforward.up."),
        ("pos_ff.CoreNet.3.", "feedforward.down."),
        ("pos_ff.layer_norm.", "feedforward_norm."),
    ),
)


def convert_lamemo(
    checkpoint: str | Path,
    out_dir: str | Path,
    *,
    config: str | Path | Mapping[str, object] | None = None,
    vocab: str | Path | None = None,
    overwrite: bool = False,
) -> ConversionReport:
    """Convert a checkpoint of LaMemo's or Transformer-XL's code to a folder for transformers' `AutoModelForCausalLM`.

    The folder computes what the code computes; LaMemo's epsilon of 1e-6 is included (``memory_options``), and segments
    must be of one length. ``attn_type`` 0 (Transformer-XL), 3 (the LaMemo paper's), 31, 32, 33.

    ``out_dir``, ``overwrite``, returns and errors are those of `convert_tupe`; nothing in the file is run either.

    Args:
        checkpoint: a torch file {"model_config": ..., "model_state": ...}, or a state dict as torch file or
            .safetensors.
        config: settings of the model, or a JSON file of them, in place of those in the file; a bare state dict has none
            and needs at least mem_len and tgt_len.
        vocab: the words, one a line, from which a tokeniser is written. A vocabulary inside a checkpoint is a pickled
            object, which is not read.
    """
    file, settings = open_checkpoint(checkpoint, out_dir, CODE, config, overwrite=overwrite)
    if settings.fields.get("cutoffs") or "crit.cluster_weight" in file.weights:
        raise BadInput(
            f"checkpoint {file.path}: its words are in clusters (cutoffs, an adaptive softmax), which this package does"
            " not have; only models with one table of words are converted"
        )
    kind = _kind(file, settings)
    fields = _fields(file, settings, kind)
    words = None if vocab is None else read_words(Path(vocab).expanduser(), fields["vocab_size"])
    end = None if words is None else next((words.index(word) for word in END if word in words), None)
    model = Model(
        architectures=("WordOrderDecoderForCausalLM",),
        config_class="WordOrderDecoderConfig",
        fields={**fields, "eos_token_id": end},
        names=_names(kind, fields["num_hidden_layers"]),
        ignored=IGNORED,
        zeros=ZEROS,
        tokenizer=None if words is None else word_tokenizer(words),
        notes=(NO_UNKNOWN,) if words is not None and not {*UNKNOWN} & {*words} else (),
    )
    return write_folder(file, CODE, model, out_dir)


def _names(kind: int, layers: int) -> Names:
    rows = [*_MODEL]
    if kind in (3, 32, 33):
        rows.append(_RIGHT_POSITION)
    if kind == 32:
        rows.append(_RIGHT_CONTENT)
    projections = ("qkv_net",) if kind == 0 else ("q_net", "kv_net")
    for layer in range(layers):
        theirs, ours = f"layers.{layer}.", f"model.decoder.layers.{layer}."
        fused = " ".join(f"{theirs}dec_attn.{name}.weight" for name in projections)
        rows.append((fused, f"{ours}attention.qkv.weight"))
        rows += [(theirs + their_end, ours + our_end) for their_end, our_end in _LAYER]
        rows.append((f"{theirs}dec_attn.r_net.weight", f"{_XL}projections.{layer}.weight"))
    return rows


def _kind(file: Checkpoint, settings: Settings) -> int:
    if "attn_type" in settings.fields:
        kind = settings.number("attn_type", 0)
    elif any(name.endswith("dec_attn.qkv_net.weight") for name in file.weights):
        kind = 0
    elif "r_w_bias_future" in file.weights:
        kind = 32
    elif "r_r_bias_future" in file.weights:
        kind = 3
        settings.faults.append(
            "attn_type is missing, and the weights of 3 and 33 have the same names; give it with --config, a JSON file"
        )
    else:
        kind = 31
    if kind in KINDS:
        return kind
    settings.faults.append(f"attn_type={kind} has no counterpart here; attn_type={' or '.join(map(str, KINDS))} has")
    return 0


def _fields(file: Checkpoint, settings: Settings, kind: int) -> dict[str, Any]:
    """Return the configuration with everything that the code fixes: our defaults may change."""
    layers = file.layers("layers.")
    (words, embedded), (heads, head_dim) = file.size(CODE.table), file.size("r_w_bias")
    channels = file.size("layers.0.dec_attn.o_net.weight")[0]
    inner = file.size("layers.0.pos_ff.CoreNet.0.weight")[0]
    missing = [name for name in ("mem_len", "tgt_len") if name not in settings.fields]
    if missing:
        settings.faults.append(
            f"{' and '.join(missing)} must be known, and weights do not show it; give it with --config, a JSON file"
            f" such as {CODE.example}"
        )
    memory_length, segment = settings.number("mem_len", 0), settings.number("tgt_len", 1)
    same_length, clamp = settings.switch("same_length", False), settings.number("clamp_len", -1)
    dropout = settings.rate("dropout", 0.1)
    options: dict[str, Any] = {"base": 10_000.0, "vectors_per_layer": False}
    if clamp > 0:
        options["clamp"] = clamp
    if kind != 0:
        options["sides"] = KINDS[kind]
    fields: dict[str, Any] = {
        "vocab_size": words,
        "hidden_size": channels,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "intermediate_size": inner,
        "max_position_embeddings": memory_length + segment,
        "hidden_act": "relu",
        "hidden_dropout_prob": dropout,
        "attention_probs_dropout_prob": settings.rate("dropatt", 0.0),
        "output_dropout": dropout,
        "layer_norm_eps": 1e-5,
        "encoding": "transformer-xl",
        "encoding_options": options,
        "norm": "layer",
        "norm_placement": "pre" if settings.switch("pre_lnorm", False) else "post",
        "embedding_norm": False,
        "final_norm": False,
        "embedding_scale": channels**0.5,
        "head_bias": True,
    }
    if memory_length:
        fields |= {
            "memory": "look-ahead" if kind else "segment-recurrence",
            "memory_length": memory_length,
            "segment_length": segment,
            "memory_options": {"epsilon": 1e-6, "full": kind == 33} if kind else {"same_length": same_length},
        }
    for name, values in (("enhance_recurrence", (False,)), ("sample_softmax", (-1, 0)), ("attn_norm_type", (0,))):
        if settings.fields.get(name, values[0]) not in values:
            settings.faults.append(f"{name}={settings.fields[name]!r} has no counterpart here; {name}={values[0]} has")
    for has_none, reason in (
        (heads * head_dim != channels, f"n_head * d_head = {heads * head_dim} is not d_model = {channels}"),
        (embedded != channels, f"d_embed={embedded} is not d_model={channels}: projected embeddings"),
        (kind != 0 and memory_length == 0, "mem_len=0 with LaMemo's attention, whose weights differ without memory"),
        (kind != 0 and same_length, "same_length=true with look-ahead memory"),
        (kind == 31 and clamp > 0, f"clamp_len={clamp} with attn_type=31, where that code clamps one side alone"),
    ):
        if has_none:
            settings.faults.append(f"{reason}; this has no counterpart here")
    if settings.faults:
        raise BadInput([f"checkpoint {file.path}: {fault}" for fault in settings.faults])
    return fields
