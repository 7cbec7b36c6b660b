"""Tiny models of transformers of every family, with drawn weights, and how their outputs are read."""

import copy
from functools import cache

import torch
import transformers as hf

from wordorder.models import FAMILIES, swap_encoding
from wordorder.models.pretrained import CACHE

DECODERS = ("llama", "qwen2", "qwen3", "mistral", "gemma2", "gemma3_text", "olmo2", "phi", "gpt_neox", "gpt2", "opt")
ENCODERS = ("bert", "roberta", "modernbert", "t5")
assert {*DECODERS, *ENCODERS, "mt5"} == {*FAMILIES}

SIZES = {
    "vocab_size": 60,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
GROUPED = {"num_key_value_heads": 2}
CAPPED = {"head_dim": 8, "sliding_window": 6, "query_pre_attn_scalar": 10, "layer_types": None}
T5_SIZES = {"vocab_size": 60, "d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 3, "num_heads": 4, "pad_token_id": 0}
T5_SIZES |= {"decoder_start_token_id": 0, "eos_token_id": 2}
FIELDS = {
    "llama": GROUPED,
    "qwen2": GROUPED,
    "qwen3": {**GROUPED, "head_dim": 16},
    "mistral": {**GROUPED, "sliding_window": 5},
    "gemma2": {**GROUPED, **CAPPED, "attn_logit_softcapping": 2.0},  # low enough to matter
    "gemma3_text": {**GROUPED, **CAPPED, "sliding_window_pattern": 2},
    "olmo2": GROUPED,
    "phi": {"partial_rotary_factor": 0.5},
    "opt": {"ffn_dim": 48, "word_embed_proj_dim": 32},
    "roberta": {"pad_token_id": 1, "bos_token_id": 0, "max_position_embeddings": 66},
    "modernbert": {"local_attention": 6, "cls_token_id": 1, "sep_token_id": 2},
}
GPT2_NAMES = {"hidden_size": "n_embd", "num_hidden_layers": "n_layer", "num_attention_heads": "n_head"}
GPT2_NAMES |= {"max_position_embeddings": "n_positions", "intermediate_size": "n_inner"}


def config_of(kind, **fields):
    if kind in ("t5", "mt5"):
        return hf.AutoConfig.for_model(kind, **{**T5_SIZES, **fields})
    fields = {**SIZES, **FIELDS.get(kind, {}), **fields}
    if kind == "gpt2":
        fields = {GPT2_NAMES.get(name, name): value for name, value in fields.items()}
    return hf.AutoConfig.for_model(kind, **fields)


def drawn(model, std=0.2, only=""):
    """Draw every weight whose name has ``only`` in it, so that nothing hides behind a 0 or a 1."""
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = std * torch.randn(parameter.shape, generator=generator)
            if only in name:
                parameter.copy_(noise if parameter.dim() > 1 else parameter + noise / 2)
    return model


def how_of(kind):
    """How the plain model computes what its configuration says."""
    return (
        {"attn_implementation": "eager"} if kind == "gemma2" else {}
    )  # "sdpa" of transformers 5.17 leaves its cap out


@cache
def _built(kind, cls, fields):
    known = {"t5": hf.T5EncoderModel, "mt5": hf.AutoModelForSeq2SeqLM}
    cls = cls or known.get(kind) or (hf.AutoModelForCausalLM if kind in DECODERS else hf.AutoModel)
    config = config_of(kind, **{**how_of(kind), **dict(fields)})
    return drawn(cls.from_config(config) if hasattr(cls, "from_config") else cls(config)).eval()


def model_of(kind, cls=None, **fields):
    """A model with drawn weights: with a language model's head for decoders, else without a head."""
    return copy.deepcopy(_built(kind, cls, tuple(fields.items())))


def swapped(kind, encoding, cls=None, *, draw=True, fields=(), **how):
    """A model whose encoding is swapped, and drawn as all its weights are."""
    model = swap_encoding(model_of(kind, cls, **dict(fields)), encoding, **how)
    return drawn(model, 0.3, only="wordorder.") if draw else model


def body_of(model):
    """The (first) module of a swapped model that runs its layers."""
    return next(module for module in model.modules() if "wordorder" in module._modules)


def ids_of(*shape, seed=1):
    return torch.randint(3, SIZES["vocab_size"], shape, generator=torch.Generator().manual_seed(seed))


def output_of(model, *args, cache=None, **kwargs):
    """Logits, or the last layer's output of a model without a head."""
    output = model(*args, **({} if cache is None else {CACHE: cache}), **kwargs)
    return output.logits if hasattr(output, "logits") else output.last_hidden_state


def padded(texts, starts, kind):
    """Put each text into a row, from its column on, with padding on both sides; return the row and the mask."""
    longest = max(start + len(text) for start, text in zip(starts, texts, strict=True))
    ids = torch.full((len(texts), longest), config_of(kind).pad_token_id)
    mask = torch.zeros_like(ids)
    for row, (start, text) in enumerate(zip(starts, texts, strict=True)):
        ids[row, start : start + len(text)], mask[row, start : start + len(text)] = text, 1
    return ids, mask


def positions_of(mask):
    """Position ids as `generate` counts them, from each row's first token."""
    return (mask.cumsum(1) - 1).clamp(min=0)


def apart(a, b):
    return float((a - b).abs().max())
