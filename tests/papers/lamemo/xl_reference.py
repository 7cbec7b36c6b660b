"""Checkpoints as Transformer-XL's and LaMemo's code write them, and their forward pass from the equations.

Shares no code with src. Names as in the reference's state dict, without "module.". attn_type: 0 is Transformer-XL, 3 is
LaMemo, 31 with signed distances, 32 with two right vectors, 33 without a mask.
"""

import argparse
import collections
import math
from itertools import pairwise

import torch

V, D, H, L, FF = 23, 12, 3, 3, 20
DH = D // H
N, M = 5, 7
EPS = 1e-6


def weights(kind=0, *, cutoffs=(), divisor=1, width=D, tied=True):
    """Random numbers in every tensor, those of norms and biases included."""
    ends = (0, *cutoffs, V)
    sizes = [(b - a, width // divisor**i) for i, (a, b) in enumerate(pairwise(ends))]
    tables = sizes if divisor > 1 else [(V, width)]
    projected = divisor > 1 or width != D
    shapes = {f"word_emb.emb_layers.{i}.weight": size for i, size in enumerate(tables)}
    if projected:
        shapes |= {f"word_emb.emb_projs.{i}": (D, size[1]) for i, size in enumerate(tables)}
        shapes |= {f"crit.out_projs.{i}": (D, size[1]) for i, size in enumerate(sizes)}
    for i, size in enumerate(tables):
        shapes |= {f"crit.out_layers.{i}.weight": size, f"crit.out_layers.{i}.bias": size[:1]}
    if cutoffs:
        shapes |= {"crit.cluster_weight": (len(cutoffs), width), "crit.cluster_bias": (len(cutoffs),)}
    shapes |= {"r_w_bias": (H, DH), "r_r_bias": (H, DH)}
    if kind in (3, 32, 33):
        shapes["r_r_bias_future"] = (H, DH)
    if kind == 32:
        shapes["r_w_bias_future"] = (H, DH)
    for layer in range(L):
        at = f"layers.{layer}."
        projections = {"qkv_net": (3 * D, D)} if kind == 0 else {"q_net": (D, D), "kv_net": (2 * D, D)}
        for name, shape in {**projections, "r_net": (D, D), "o_net": (D, D)}.items():
            shapes[f"{at}dec_attn.{name}.weight"] = shape
        for norm in ("dec_attn.layer_norm", "pos_ff.layer_norm"):
            shapes |= {f"{at}{norm}.weight": (D,), f"{at}{norm}.bias": (D,)}
        shapes |= {f"{at}pos_ff.CoreNet.0.weight": (FF, D), f"{at}pos_ff.CoreNet.0.bias": (FF,)}
        shapes |= {f"{at}pos_ff.CoreNet.3.weight": (D, FF), f"{at}pos_ff.CoreNet.3.bias": (D,)}
    found = collections.OrderedDict()
    for name, shape in shapes.items():
        found[name] = 0.4 * torch.randn(shape, dtype=torch.float64) + ("layer_norm.weight" in name)
    if tied:
        for i in range(len(tables)):
            found[f"crit.out_layers.{i}.weight"] = found[f"word_emb.emb_layers.{i}.weight"]
    found["pos_emb.inv_freq"] = torch.tensor([10000 ** (-2 * k / D) for k in range(D // 2)], dtype=torch.float64)
    if kind != 0:
        for layer in range(L):
            for use in ("train", "eval"):
                found[f"layers.{layer}.dec_attn.{use}_logits_constant"] = torch.zeros(1, 1, 1, 1)
    return found


def settings(kind=0, **changes):
    """The model_config of the run that would have made these weights, and some that says nothing here."""
    given = {
        "n_token": V,
        "n_layer": L,
        "n_head": H,
        "d_model": D,
        "d_head": DH,
        "d_inner": FF,
        "dropout": 0.2,
        "dropatt": 0.1,
        "tie_weight": True,
        "d_embed": D,
        "div_val": 1,
        "tie_projs": [False],
        "pre_lnorm": False,
        "tgt_len": N,
        "ext_len": 0,
        "mem_len": M,
        "cutoffs": [],
        "same_length": False,
        "attn_type": kind,
        "clamp_len": -1,
        "sample_softmax": -1,
    }
    return {key: value for key, value in {**given, **changes}.items() if value is not ...}


def save(path, w, config, *, prefix="", vocab=None, stream=False):
    """Write the file as the training scripts do."""
    content = {
        "args": argparse.Namespace(data="wikitext-103", lr=2.5e-4),
        "model_config": config,
        "model_state": collections.OrderedDict((prefix + name, tensor) for name, tensor in w.items()),
        "optimizer_state": {"state": {0: {"exp_avg": torch.ones(3)}}, "param_groups": [{"lr": 2.5e-4}]},
        "vocab": vocab,
        "amp_state": None,
        "train_step": 7,
        "best_val_loss": 4.5,
    }
    torch.save(content, path, _use_new_zipfile_serialization=not stream)
    return path


def norm(x, w, name):
    mean, variance = x.mean(-1, keepdim=True), x.var(-1, unbiased=False, keepdim=True)
    return (x - mean) / (variance + 1e-5).sqrt() * w[f"{name}.weight"] + w[f"{name}.bias"]


def sines(distance):
    angles = [distance * 10000 ** (-2 * k / D) for k in range(D // 2)]
    return torch.tensor([math.sin(a) for a in angles] + [math.cos(a) for a in angles], dtype=torch.float64)


def attend(one, q, k, v, u, bias, rows, columns, distance, visible):
    """Read-outs (B, rows, H, DH) and normalisers (B, rows, H) of rows over columns, pair by pair."""
    heads = (*q.shape[:2], H, DH)
    q, k, v = q.reshape(heads), k.reshape(*k.shape[:2], H, DH), v.reshape(*v.shape[:2], H, DH)
    out, lse = [], []
    for i in rows:
        seen = [j for j in columns if visible(i, j)]
        scores = []
        for j in seen:
            r = (one["dec_attn.r_net.weight"] @ sines(distance(i, j))).view(H, DH)
            scores.append((((q[:, i] + u) * k[:, j]).sum(-1) + ((q[:, i] + bias) * r).sum(-1)) / math.sqrt(DH))
        stacked = torch.stack(scores, -1)  # (B, H, seen)
        lse.append(stacked.logsumexp(-1))
        out.append(torch.einsum("bhj,bjhd->bhd", stacked.softmax(-1), v[:, seen]))
    return torch.stack(out, 1), torch.stack(lse, 1)


def rest(one, x, read, pre):
    """Everything of a layer after attention."""
    mixed = x + read.flatten(2) @ one["dec_attn.o_net.weight"].T
    mixed = mixed if pre else norm(mixed, one, "dec_attn.layer_norm")

    def feed(h):
        inner = (h @ one["pos_ff.CoreNet.0.weight"].T + one["pos_ff.CoreNet.0.bias"]).clamp(min=0)
        return inner @ one["pos_ff.CoreNet.3.weight"].T + one["pos_ff.CoreNet.3.bias"]

    if pre:
        return mixed + feed(norm(mixed, one, "pos_ff.layer_norm"))
    return norm(mixed + feed(mixed), one, "pos_ff.layer_norm")


def of_layer(w, layer):
    return {name.removeprefix(f"layers.{layer}."): value for name, value in w.items()}


def embed(w, ids):
    return w["word_emb.emb_layers.0.weight"][ids] * math.sqrt(D)


def output(w, h):
    return h @ w["crit.out_layers.0.weight"].T + w["crit.out_layers.0.bias"]


def logits(w, segments, *, kind=0, memory=M, pre=False, same_length=False, clamp=None):
    """Of every segment in turn, by section 2 of the papers' equations as the codes have them."""
    state, found = None, []
    for ids in segments:
        h = embed(w, ids)
        read = transformer_xl if kind == 0 else lamemo
        h, state = read(w, h, state, kind, memory, pre, same_length, clamp)
        found.append(output(w, h))
    return found


def clamped(distance, clamp):
    return distance if clamp is None else min(distance, clamp)


def transformer_xl(w, h, state, kind, memory, pre, same_length, clamp):
    state = [h[:, :0]] * L if state is None else state
    kept = []
    for layer in range(L):
        one = of_layer(w, layer)
        kept.append(torch.cat((state[layer], h), 1)[:, -memory:])
        slots = state[layer].shape[1]
        whole = torch.cat((state[layer], h), 1)
        x = norm(whole, one, "dec_attn.layer_norm") if pre else whole
        q, k, v = (x @ one["dec_attn.qkv_net.weight"].T).chunk(3, -1)
        read, _ = attend(
            one, q, k, v, w["r_w_bias"], w["r_r_bias"],
            range(slots, whole.shape[1]), range(whole.shape[1]), lambda i, j: clamped(i - j, clamp),
            lambda i, j: j <= i and (not same_length or i - j < memory),
        )  # fmt: skip
        h = rest(one, h, read, pre)
    return h, kept


def lamemo(w, h, state, kind, memory, pre, same_length, clamp):
    assert not same_length
    n, slots = h.shape[1], 0 if state is None else state["embeddings"].shape[1]
    mem = h[:, :0] if state is None else state["embeddings"]
    new = {"embeddings": torch.cat((mem, h), 1)[:, -memory:], "read": [], "lse": []}
    for layer in range(L):
        one = of_layer(w, layer)
        whole = torch.cat((mem, h), 1)
        x = norm(whole, one, "dec_attn.layer_norm") if pre else whole
        q = x @ one["dec_attn.q_net.weight"].T
        k, v = (x @ one["dec_attn.kv_net.weight"].T).chunk(2, -1)
        u, bias = w["r_w_bias"], w["r_r_bias"]
        read, lse = attend(
            one, q, k, v, u, bias, range(slots, slots + n), range(slots + n),
            lambda i, j: clamped(i - j, clamp), lambda i, j: j <= i,
        )  # fmt: skip
        h_next = rest(one, h, read, pre)
        if slots:
            right_u = w["r_w_bias_future"] if kind == 32 else u
            right_v = bias if kind == 31 else w["r_r_bias_future"]
            ahead, ahead_lse = attend(
                one, q, k, v, right_u, right_v, range(slots), range(max(slots - n + 1, 1), slots + 1),
                lambda i, j: i - j if kind == 31 else clamped(abs(i - j), clamp),
                lambda i, j: kind == 33 or j > i,
            )  # fmt: skip
            old, old_lse = state["read"][layer], state["lse"][layer]
            top = torch.maximum(old_lse, ahead_lse)
            a, b = (old_lse - top).exp(), (ahead_lse - top).exp()
            alpha = (a / (a + b + EPS))[..., None]
            mixed = alpha * old + (1 - alpha) * ahead
            mem = rest(one, mem, mixed, pre)
            read = torch.cat((mixed, read), 1)
            lse = torch.cat((torch.logaddexp(old_lse, ahead_lse), lse), 1)
        new["read"].append(read[:, -memory:])
        new["lse"].append(lse[:, -memory:])
        h = h_next
    return h, new
