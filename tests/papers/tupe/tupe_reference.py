"""A checkpoint as TUPE's reference code writes it, with random weights, and its forward pass from the equations.

Shares no code with src. Names as in the reference's state dict, without "decoder.".
"""

import argparse
import collections
import contextlib
import math
import sys
import types

import torch
from tupe_from_paper import bucket, layer_norm

D, H, L, FF, V, MAXLEN = 32, 4, 2, 64, 50, 160
BOS, PAD = 0, 1


def weights(*, relative=True, pre=False, embedding_norm=True, lm_head=True, heads=(), dense=True, dtype=torch.float64):
    """Random numbers in every tensor, those of the norms and biases included."""
    shapes = {
        "embed_tokens.weight": (V, D),
        "pos.weight": (MAXLEN + 1, D),
        "pos_q_linear.weight": (D, D),
        "pos_q_linear.bias": (D,),
        "pos_k_linear.weight": (D, D),
        "pos_k_linear.bias": (D,),
        "pos_ln.weight": (D,),
        "pos_ln.bias": (D,),
    }
    for layer in range(L):
        shapes |= {
            f"layers.{layer}.{name}": shape
            for name, shape in {
                "self_attn.in_proj_weight": (3 * D, D),
                "self_attn.in_proj_bias": (3 * D,),
                "self_attn.out_proj.weight": (D, D),
                "self_attn.out_proj.bias": (D,),
                "self_attn_layer_norm.weight": (D,),
                "self_attn_layer_norm.bias": (D,),
                "fc1.weight": (FF, D),
                "fc1.bias": (FF,),
                "fc2.weight": (D, FF),
                "fc2.bias": (D,),
                "final_layer_norm.weight": (D,),
                "final_layer_norm.bias": (D,),
            }.items()
        }
    if embedding_norm:
        shapes |= {"emb_layer_norm.weight": (D,), "emb_layer_norm.bias": (D,)}
    if pre:
        shapes |= {"emb_out_layer_norm.weight": (D,), "emb_out_layer_norm.bias": (D,)}
    if relative:
        shapes["relative_attention_bias.weight"] = (33, H)
    shapes = {f"sentence_encoder.{name}": shape for name, shape in shapes.items()}
    if lm_head:
        shapes |= {"lm_head.bias": (V,), "lm_head.dense.weight": (D, D), "lm_head.dense.bias": (D,)}
        shapes |= {"lm_head.layer_norm.weight": (D,), "lm_head.layer_norm.bias": (D,)}
    for name, classes in heads:
        inner = {"dense.weight": (D, D), "dense.bias": (D,)} if dense else {}
        inner |= {"out_proj.weight": (classes, D), "out_proj.bias": (classes,)}
        shapes |= {f"classification_heads.{name}.{end}": shape for end, shape in inner.items()}
    found = collections.OrderedDict()
    for name, shape in shapes.items():
        spread = 0.5 if len(shape) == 1 or "relative" in name or "embed" in name else 0.3
        found[name] = (torch.randn(shape, dtype=torch.float64) * spread + ("norm.weight" in name)).to(dtype)
    if lm_head:
        found["lm_head.weight"] = found["sentence_encoder.embed_tokens.weight"]
    return found


def arguments(w, **changes):
    """The arguments of the training run that would have made these weights, and some that say nothing here."""
    given = {
        "arch": "bert_base",
        "encoder_layers": L,
        "encoder_embed_dim": D,
        "encoder_ffn_embed_dim": FF,
        "encoder_attention_heads": H,
        "max_positions": MAXLEN,
        "activation_fn": "gelu",
        "pooler_activation_fn": "tanh",
        "dropout": 0.2,
        "attention_dropout": 0.15,
        "activation_dropout": 0.0,
        "pooler_dropout": 0.05,
        "rel_pos": "sentence_encoder.relative_attention_bias.weight" in w,
        "embedding_normalize": "sentence_encoder.emb_layer_norm.weight" in w,
        "encoder_normalize_before": "sentence_encoder.emb_out_layer_norm.weight" in w,
        "adam_betas": "(0.9, 0.999)",
        "lr": [1e-4],
        "save_dir": None,
    }
    return argparse.Namespace(**{key: value for key, value in {**given, **changes}.items() if value is not ...})


def prefixed(w, prefix="decoder."):
    """The names as fairseq's wrapper has them; heads are outside of it."""
    renamed = ((k if k.startswith("classification_heads") else prefix + k, v) for k, v in w.items())
    return collections.OrderedDict(renamed)


def save(path, w, args=..., *, stream=False, history=(), **more):
    """Write the file with torch, in the zip format or in the stream of before 1.6."""
    content = {
        "args": arguments(w) if args is ... else args,
        "model": w if any(name.startswith("decoder.") for name in w) else prefixed(w),
        "optimizer_history": [{"criterion_name": "MaskedLmLoss", "num_updates": 7}, *history],
        "extra_state": {"train_iterator": {"epoch": 3, "iterations_in_epoch": 0}, "val_loss": 2.5, **more},
        "last_optimizer_state": {"state": {0: {"step": 7, "exp_avg": torch.ones(5)}}, "param_groups": [{"lr": 1e-4}]},
    }
    content = {key: value for key, value in content.items() if value is not None}
    torch.save(content, path, _use_new_zipfile_serialization=not stream)
    return path


@contextlib.contextmanager
def foreign(module, name):
    """An object of a class whose module exists while the file is written, and not when it is read."""
    made = type(name, (), {"__module__": module})
    parts = module.split(".")
    names = [".".join(parts[: end + 1]) for end in range(len(parts))]
    sys.modules.update({each: types.ModuleType(each) for each in names})
    setattr(sys.modules[module], name, made)
    thing = made()
    thing.sum = 3
    try:
        yield thing
    finally:
        for each in names:
            del sys.modules[each]


def hidden(w, ids_BT, *, heads=H, activation="gelu"):
    """The encoder's output (B, T, D), in the order in which the reference computes it (spec: section 1.3)."""
    w = {name.removeprefix("sentence_encoder."): value for name, value in w.items()}

    def norm(x, name):
        return layer_norm(x, w[f"{name}.weight"], w[f"{name}.bias"])

    pad_BT = ids_BT == PAD
    x = w["embed_tokens.weight"][ids_BT]
    if "emb_layer_norm.weight" in w:
        x = norm(x, "emb_layer_norm")
    x = x * (~pad_BT)[..., None]
    bias_HTT = position_bias(w, ids_BT.shape[1], heads)
    pre = "emb_out_layer_norm.weight" in w
    for layer in range(1 + max(int(name.split(".")[1]) for name in w if name.startswith("layers."))):
        one = {name.removeprefix(f"layers.{layer}."): value for name, value in w.items()}
        first, second = f"layers.{layer}.self_attn_layer_norm", f"layers.{layer}.final_layer_norm"
        if pre:
            x = x + attend(one, norm(x, first), bias_HTT, pad_BT, heads)
            x = x + feed(one, norm(x, second), activation)
        else:
            x = norm(x + attend(one, x, bias_HTT, pad_BT, heads), first)
            x = norm(x + feed(one, x, activation), second)
    return norm(x, "emb_out_layer_norm") if pre else x


def position_bias(w, N, heads):
    """theta1 from row 0, theta2 from row 1, token i from row i + 1; rows 16 and 32 of the relative table for [CLS]."""
    d = w["pos.weight"].shape[1] // heads
    rows = layer_norm(w["pos.weight"][: N + 1], w["pos_ln.weight"], w["pos_ln.bias"])
    a = (rows @ w["pos_q_linear.weight"].T + w["pos_q_linear.bias"]) / math.sqrt(2 * d)
    c = rows @ w["pos_k_linear.weight"].T + w["pos_k_linear.bias"]
    A = torch.stack([a[:, h * d : (h + 1) * d] @ c[:, h * d : (h + 1) * d].T for h in range(heads)])
    bias = torch.empty(heads, N, N, dtype=A.dtype)
    for i in range(N):
        for j in range(N):
            bias[:, i, j] = A[:, 0, 0] if i == 0 else A[:, 1, 1] if j == 0 else A[:, i + 1, j + 1]
            if "relative_attention_bias.weight" in w:
                bias[:, i, j] += w["relative_attention_bias.weight"][16 if i == 0 else 32 if j == 0 else bucket(i, j)]
    return bias


def attend(one, x, bias_HTT, pad_BT, heads):
    d = x.shape[-1] // heads
    q, k, v = (x @ one["self_attn.in_proj_weight"].T + one["self_attn.in_proj_bias"]).chunk(3, -1)
    mixed = []
    for h in range(heads):
        part = slice(h * d, (h + 1) * d)
        scores = (q[..., part] / math.sqrt(2 * d)) @ k[..., part].transpose(1, 2) + bias_HTT[h]
        scores = scores.masked_fill(pad_BT[:, None, :], -math.inf)
        mixed.append(scores.softmax(-1) @ v[..., part])
    return torch.cat(mixed, -1) @ one["self_attn.out_proj.weight"].T + one["self_attn.out_proj.bias"]


def feed(one, x, activation):
    return act(x @ one["fc1.weight"].T + one["fc1.bias"], activation) @ one["fc2.weight"].T + one["fc2.bias"]


def act(x, name):
    return x * 0.5 * (1 + torch.erf(x / math.sqrt(2))) if name == "gelu" else x.clamp(min=0)


def lm_logits(w, ids_BT, **options):
    """Of the masked language modelling head, (B, T, V)."""
    x = hidden(w, ids_BT, **options) @ w["lm_head.dense.weight"].T + w["lm_head.dense.bias"]
    x = layer_norm(
        act(x, options.get("activation", "gelu")), w["lm_head.layer_norm.weight"], w["lm_head.layer_norm.bias"]
    )
    return x @ w["lm_head.weight"].T + w["lm_head.bias"]


def class_logits(w, ids_BT, name):
    """Of a classification head, (B, K)."""
    at = f"classification_heads.{name}."
    x = hidden(w, ids_BT)[:, 0]
    if f"{at}dense.weight" in w:
        x = torch.tanh(x @ w[f"{at}dense.weight"].T + w[f"{at}dense.bias"])
    return x @ w[f"{at}out_proj.weight"].T + w[f"{at}out_proj.bias"]


def batch(lengths=(13, 9, 1), longest=None):
    """Token ids (B, T) with padding on the right, and the mask that says so."""
    T = longest or max(lengths)
    ids = torch.randint(2, V, (len(lengths), T))
    ids[:, 0] = BOS
    for row, length in zip(ids, lengths, strict=True):
        row[length:] = PAD
    return ids, (ids != PAD).long()
