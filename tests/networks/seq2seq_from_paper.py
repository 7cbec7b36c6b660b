"""A decoder, and an encoder with it, from the equations: one text at a time, unpadded, row by row; no code of src."""

import math

import torch
from tupe_from_paper import layer_norm, position_term


def causal_bucket(i, j, buckets=32, furthest=128):
    """T5's, for a decoder: all buckets for what stands before (j <= i)."""
    n, exact = i - j, buckets // 2
    if n < exact:
        return n
    return min(exact + int(math.log(n / exact) / math.log(furthest / exact) * (buckets - exact) + 1e-9), buckets - 1)


def two_sided_bucket(i, j, buckets=32, furthest=128):
    return causal_bucket(abs(i - j), 0, buckets // 2, furthest) + buckets // 2 * (j > i)


def turned(x, position):
    """RoPE on (H, d): channel k and k + d/2 are one point of the plane."""
    half = x.shape[-1] // 2
    angle = position * 10000.0 ** (-torch.arange(half, dtype=x.dtype) / half)
    a, b = x[:, :half], x[:, half:]
    return torch.cat([a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos()], -1)


def sines(position, C):
    angle = [position / 10000.0 ** (2 * (c // 2) / C) for c in range(C)]
    return torch.tensor([math.cos(a) if c % 2 else math.sin(a) for c, a in enumerate(angle)], dtype=torch.float64)


def score_term(w, prefix, encoding, heads, N, causal):
    """(H, N, N) that is added to scores, and the factor on q.k."""
    zeros = torch.zeros(heads, N, N, dtype=torch.float64)
    d = w[f"{prefix}embedding.weight"].shape[1] // heads
    if encoding == "alibi":
        slope = torch.tensor([2 ** (-8 * (h + 1) / heads) for h in range(heads)], dtype=torch.float64)
        distance = torch.tensor([[abs(i - j) for j in range(N)] for i in range(N)], dtype=torch.float64)
        return -slope[:, None, None] * distance, d**-0.5
    bucket = (lambda i, j: causal_bucket(i, min(i, j))) if causal else two_sided_bucket
    which = torch.tensor([[bucket(i, j) for j in range(N)] for i in range(N)])
    if encoding == "t5":
        return d**0.5 * w[f"{prefix}encoding.parts.t5.table.weight"][which].permute(2, 0, 1), d**-0.5
    if encoding == "tupe-r" and not causal:
        return position_term(w, heads, range(N), reset="paper", prefix=f"{prefix}encoding.parts.tupe."), (2 * d) ** -0.5
    if encoding == "tupe-r":  # no [CLS] to untie in a decoder
        at = f"{prefix}encoding.parts.tupe."
        P = layer_norm(w[f"{at}table.weight"][:N], w[f"{at}norm.weight"], w[f"{at}norm.bias"])
        a, c = (
            (P @ w[f"{at}{name}.weight"].T + w[f"{at}{name}.bias"]).view(N, heads, d)
            for name in ("query_projection", "key_projection")
        )
        correlation = torch.einsum("ihd,jhd->hij", a, c) * (2 * d) ** -0.5
        return correlation + w[f"{at}relative.table.weight"][which].permute(2, 0, 1), (2 * d) ** -0.5
    return zeros, d**-0.5


def transform(w, tokens, *, prefix="", heads, layers, encoding, placement, causal, source=None):
    """Hidden states (N, C) of one text; ``source`` (S, C) is what cross-attention asks."""

    def linear(x, name):
        return x @ w[f"{prefix}{name}.weight"].T + w[f"{prefix}{name}.bias"]

    def normalise(x, name):
        return layer_norm(x, w[f"{prefix}{name}.weight"], w[f"{prefix}{name}.bias"])

    def add(x, name, f):
        if placement == "post":
            return normalise(x + f(x), f"{name}_norm")
        return x + f(normalise(x, f"{name}_norm"))

    def mix(q, k, v, term, scale, sees):
        rows = []
        for i in range(len(q)):
            keys = [j for j in range(len(k)) if sees(i, j)]
            score = scale * torch.einsum("hd,jhd->hj", q[i], k[keys]) + term[:, i, keys]
            weight = (score - score.max(-1, keepdim=True).values.detach()).exp()
            rows.append(torch.einsum("hj,jhd->hd", weight / weight.sum(-1, keepdim=True), v[keys]).flatten())
        return torch.stack(rows)

    def attend(x, layer):
        q, k, v = (part.unflatten(-1, (heads, -1)) for part in linear(x, f"layers.{layer}.attention.qkv").chunk(3, -1))
        if encoding == "rope":
            q, k = (torch.stack([turned(row, p) for p, row in enumerate(part)]) for part in (q, k))
        mixed = mix(q, k, v, term, scale, lambda i, j: j <= i or not causal)
        return linear(mixed, f"layers.{layer}.attention.out")

    def ask(x, layer):
        q = linear(x, f"layers.{layer}.cross_attention.q").unflatten(-1, (heads, -1))
        k, v = (
            part.unflatten(-1, (heads, -1))
            for part in linear(source, f"layers.{layer}.cross_attention.kv").chunk(2, -1)
        )
        nothing = torch.zeros(heads, len(q), len(k), dtype=torch.float64)
        mixed = mix(q, k, v, nothing, q.shape[-1] ** -0.5, lambda i, j: True)
        return linear(mixed, f"layers.{layer}.cross_attention.out")

    def feed(x, layer):
        up = linear(x, f"layers.{layer}.feedforward.up")
        return linear(up * 0.5 * (1 + torch.erf(up / math.sqrt(2))), f"layers.{layer}.feedforward.down")

    x = w[f"{prefix}embedding.weight"][tokens]
    if encoding == "sinusoidal":
        x = x.shape[1] ** 0.5 * x + torch.stack([sines(p, x.shape[1]) for p in range(len(tokens))])
    if placement == "post":
        x = normalise(x, "embedding_norm")
    term, scale = score_term(w, prefix, encoding, heads, len(tokens), causal)
    for layer in range(layers):
        x = add(x, f"layers.{layer}.attention", lambda y, layer=layer: attend(y, layer))
        if source is not None:
            x = add(x, f"layers.{layer}.cross_attention", lambda y, layer=layer: ask(y, layer))
        x = add(x, f"layers.{layer}.feedforward", lambda y, layer=layer: feed(y, layer))
    return x if placement == "post" else normalise(x, "final_norm")


def translate(w, source, target, **style):
    """Hidden states of the target, its embeddings being the source's where it has none of its own."""
    weights = {"decoder.embedding.weight": w["encoder.embedding.weight"], **w}
    encoded = transform(weights, source, prefix="encoder.", causal=False, **style)
    return transform(weights, target, prefix="decoder.", causal=True, source=encoded, **style)
