"""The whole encoder with TUPE from the equations, one example at a time, unpadded; shares no code with src."""

import math

import torch
from tupe_from_paper import layer_norm, position_term


def rms_norm(x, weight, eps=1e-5):
    return x / (x.pow(2).mean(-1, keepdim=True) + eps).sqrt() * weight


def encode(w, tokens, *, heads, layers, norm, placement, reset):
    """Hidden states (N, C) of one text of N token ids."""

    def normalise(x, name):
        if norm == "rms":
            return rms_norm(x, w[f"{name}.weight"])
        return layer_norm(x, w[f"{name}.weight"], w[f"{name}.bias"])

    x = w["embedding.weight"][tokens]
    N, C = x.shape
    d = C // heads
    s = 1 / math.sqrt(2 * d)
    bias = position_term(w, heads, range(N), reset=reset, prefix="encoding.parts.tupe.")
    if placement == "post":
        x = normalise(x, "embedding_norm")

    def attend(x, layer):
        qkv = x @ w[f"layers.{layer}.attention.qkv.weight"].T + w[f"layers.{layer}.attention.qkv.bias"]
        q, k, v = (part.view(N, heads, d) for part in qkv.split(C, -1))
        mixed = []
        for h in range(heads):
            scores = s * q[:, h] @ k[:, h].T + bias[h]
            weight = (scores - scores.max(-1, keepdim=True).values.detach()).exp()
            mixed.append(weight / weight.sum(-1, keepdim=True) @ v[:, h])
        return (
            torch.cat(mixed, -1) @ w[f"layers.{layer}.attention.out.weight"].T + w[f"layers.{layer}.attention.out.bias"]
        )

    def feed(x, layer):
        up = x @ w[f"layers.{layer}.feedforward.up.weight"].T + w[f"layers.{layer}.feedforward.up.bias"]
        gelu = up * 0.5 * (1 + torch.erf(up / math.sqrt(2)))
        return gelu @ w[f"layers.{layer}.feedforward.down.weight"].T + w[f"layers.{layer}.feedforward.down.bias"]

    for layer in range(layers):
        first, second = f"layers.{layer}.attention_norm", f"layers.{layer}.feedforward_norm"
        if placement == "post":
            x = normalise(x + attend(x, layer), first)
            x = normalise(x + feed(x, layer), second)
        else:
            x = x + attend(normalise(x, first), layer)
            x = x + feed(normalise(x, second), layer)
    return x if placement == "post" else normalise(x, "final_norm")
