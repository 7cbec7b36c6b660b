"""Decoders with a memory, written from the equations: one token, one head and one key at a time, in float64.

Dai et al. 2019, Sec. 3.2 and 3.3; Rae et al. 2020, Sec. 3; Ji et al. 2022, Sec. 3. Nothing of the package is used but
the weights' names.
"""

import math
from dataclasses import dataclass, field

import torch


@dataclass
class Kept:
    """What one text remembers: the place of each slot, and per layer what the slots are made of."""

    places: list = field(default_factory=list)
    previous_first: int = 0
    next_place: int = 0
    hidden: list = field(default_factory=list)  # segment recurrence: per layer, per slot
    compressed: int = 0  # compressive: of these the first ones stand for several tokens
    loss: object = 0.0
    embeddings: list = field(default_factory=list)  # look-ahead: per slot
    read_outs: list = field(default_factory=list)  # look-ahead: per layer, per slot, (H, D)
    normalisers: list = field(default_factory=list)


class SlowDecoder:
    """Pre- or post-norm decoder of layer norms, gelu feed-forward networks, with none, rope or transformer-xl."""

    def __init__(self, decoder, *, layers, heads, pre, encoding, sides="disentangled", clamp=None, windows=None):
        self.p = dict(decoder.named_parameters())
        self.layers, self.heads, self.pre, self.encoding = layers, heads, pre, encoding
        self.sides, self.clamp = sides, clamp
        self.windows = windows or [math.inf] * layers
        self.width = self.p["embedding.weight"].shape[1]
        self.dim = self.width // heads

    def norm(self, x, name):
        mean = x.mean()
        return (x - mean) / ((x - mean) ** 2).mean().add(1e-5).sqrt() * self.p[f"{name}.weight"] + self.p[
            f"{name}.bias"
        ]

    def embed(self, token):
        x = self.p["embedding.weight"][token]
        return x if self.pre else self.norm(x, "embedding_norm")

    def projected(self, layer, x):
        """Queries, keys, values of one token, each (H, D)."""
        if self.pre:
            x = self.norm(x, f"layers.{layer}.attention_norm")
        name = f"layers.{layer}.attention.qkv"
        q, k, v = (self.p[f"{name}.weight"] @ x + self.p[f"{name}.bias"]).split(self.width)
        return q.view(self.heads, -1), k.view(self.heads, -1), v.view(self.heads, -1)

    def turned(self, x, place):
        half = self.dim // 2
        parts = [None] * self.dim
        for i in range(half):
            angle = place * 10_000.0 ** (-2 * i / self.dim)
            parts[i] = x[i] * math.cos(angle) - x[i + half] * math.sin(angle)
            parts[i + half] = x[i + half] * math.cos(angle) + x[i] * math.sin(angle)
        return torch.stack(parts)

    def score(self, layer, head, q, k, i, j, all_right=False):
        """Of the query at place i and the key at place j; all_right: every key counts as one to the right."""
        if self.encoding == "rope":
            q, k = self.turned(q, i), self.turned(k, j)
        if self.encoding != "transformer-xl":
            return (q * k).sum() / math.sqrt(self.dim)
        name = "encoding.parts.transformer_xl"
        right = (j > i or all_right) and self.sides != "signed"
        u = self.p[f"{name}.content_bias_right" if right and self.sides == "two-vectors" else f"{name}.content_bias"]
        v = self.p[f"{name}.position_bias_right" if right else f"{name}.position_bias"]
        back = i - j if self.sides == "signed" else abs(i - j)
        if self.clamp is not None:
            back = max(-self.clamp, min(back, self.clamp))
        w = [10_000.0 ** (-2 * m / self.width) for m in range(self.width // 2)]
        sines = torch.tensor([math.sin(back * f) for f in w] + [math.cos(back * f) for f in w], dtype=torch.float64)
        r = (self.p[f"{name}.projections.{layer}.weight"] @ sines).view(self.heads, -1)[head]
        return (((q + u[head]) * k).sum() + ((q + v[head]) * r).sum()) / math.sqrt(self.dim)

    def attention(self, layer, q, i, keys, all_right=False, sinks=False):
        """Read-out (H, D) and normaliser (H,) over keys, a list of (place, k, v), and with sinks one of value 0."""
        logits = self.p.get("encoding.parts.softmax_sink.logits") if sinks else None
        if not keys:
            return torch.zeros_like(q), q.new_full((self.heads,), -math.inf)
        reads, sums = [], []
        for head in range(self.heads):
            s = torch.stack([self.score(layer, head, q[head], k[head], i, j, all_right) for j, k, _ in keys])
            more = [] if logits is None else [logits[layer, head][None]]
            lse = torch.logsumexp(torch.cat([s, *more]), 0)
            weights = [(s[n] - lse).exp() * v[head] for n, (_, _, v) in enumerate(keys)]
            reads.append(torch.stack(weights).sum(0))
            sums.append(lse)
        return torch.stack(reads), torch.stack(sums)

    def rest(self, layer, x, read):
        """The residual connections and the feed-forward network of one token."""
        name = f"layers.{layer}"
        x = x + self.p[f"{name}.attention.out.weight"] @ read.reshape(-1) + self.p[f"{name}.attention.out.bias"]
        if not self.pre:
            x = self.norm(x, f"{name}.attention_norm")
        inner = self.norm(x, f"{name}.feedforward_norm") if self.pre else x
        up = self.p[f"{name}.feedforward.up.weight"] @ inner + self.p[f"{name}.feedforward.up.bias"]
        up = up * 0.5 * (1 + torch.erf(up / math.sqrt(2)))
        x = x + self.p[f"{name}.feedforward.down.weight"] @ up + self.p[f"{name}.feedforward.down.bias"]
        return x if self.pre else self.norm(x, f"{name}.feedforward_norm")

    def finish(self, x):
        return self.norm(x, "final_norm") if self.pre else x

    def mean_or_convolution(self, layer, group):
        if f"memory_weights.{layer}.weight" not in self.p:
            return torch.stack(group).mean(0)
        weight, bias = (self.p[f"memory_weights.{layer}.{name}"] for name in ("weight", "bias"))
        return bias + sum(part @ x for part, x in zip(weight.split(self.width, dim=1), group, strict=True))

    def compress(self, layer, slots, compressed, rate, recent, most):
        """The slots after as many compressions as it takes to leave at most ``recent`` tokens as they are."""
        while len(slots) - compressed > recent:
            new = self.mean_or_convolution(layer, slots[compressed : compressed + rate]).detach()
            slots = [*slots[:compressed], new, *slots[compressed + rate :]]
            compressed += 1
        gone = max(compressed - most, 0)
        return slots[gone:], compressed - gone

    def reconstruction(self, layer, queries, old, rate):
        """The loss of one layer: old slots, in whole groups, and what they are compressed to."""
        if not old:
            return 0.0

        def read(q, rows):
            found = []
            for head in range(self.heads):
                keys = [self.projected(layer, x)[1][head] for x in rows]
                values = [self.projected(layer, x)[2][head] for x in rows]
                weights = torch.softmax(torch.stack([(q[head] * k).sum() / math.sqrt(self.dim) for k in keys]), 0)
                found.append(sum(w * v for w, v in zip(weights, values, strict=True)))
            return torch.stack(found)

        new = [self.mean_or_convolution(layer, old[n : n + rate]) for n in range(0, len(old), rate)]
        return torch.stack([(read(q, old) - read(q, new)) ** 2 for q in queries]).mean()

    def recurrent(self, tokens, kept, length, *, same_length=False, same_layer=False, first_tokens=0, compress=None):
        """One segment of segment recurrence: states (T, C), and what is kept after it.

        same_layer: a layer keeps what it gives (LaMemo's switch ``enhance_recurrence``), not what it reads.
        first_tokens: so many of the oldest slots are never dropped; the others move up to them.
        compress: tokens that become one slot, most tokens that stay, most slots of compressed ones.
        """

        def newest(slots):
            over = max(len(slots) - length, 0)
            return slots[:first_tokens] + slots[first_tokens + over :] if over else slots

        first = kept.next_place
        places = list(range(first, first + len(tokens)))
        xs, after = [self.embed(token) for token in tokens], Kept(next_place=first + len(tokens))
        for layer in range(self.layers):
            old = kept.hidden[layer] if kept.hidden else []
            rows = [(j, *self.projected(layer, x)) for j, x in zip([*kept.places, *places], [*old, *xs], strict=True)]
            new = []
            for x, (i, q, _, _) in zip(xs, rows[len(old) :], strict=True):
                seen = [
                    (j, k, v)
                    for j, _, k, v in rows
                    if 0 <= i - j < self.windows[layer] and not (same_length and i - j >= length)
                ]
                new.append(self.rest(layer, x, self.attention(layer, q, i, seen, sinks=True)[0]))
            together = [*old, *(x.detach() for x in (new if same_layer else xs))]
            if compress is None:
                after.hidden.append(newest(together))
            else:
                rate, recent, _ = compress
                groups = max(-((recent + kept.compressed - len(together)) // rate), 0)
                groups = min(groups, (len(old) - kept.compressed) // rate)
                leaving = old[kept.compressed : kept.compressed + groups * rate]
                after.loss = after.loss + self.reconstruction(
                    layer, [q for _, q, _, _ in rows[len(old) :]], leaving, rate
                )
                slots, after.compressed = self.compress(layer, together, kept.compressed, *compress)
                after.hidden.append(slots)
            xs = new
        after.places = list(range(after.next_place - len(after.hidden[0]), after.next_place))
        return torch.stack([self.finish(x) for x in xs]), after

    def look_ahead(self, tokens, kept, length, *, full=False, epsilon=0.0, fixed=None):
        """One segment of look-ahead memory: states (T, C), and what is kept after it."""
        first = kept.next_place
        places = list(range(first, first + len(tokens)))
        slots, xs = list(kept.embeddings), [self.embed(token) for token in tokens]
        after = Kept(previous_first=first, next_place=first + len(tokens))
        after.embeddings = [*kept.embeddings, *(x.detach() for x in xs)][-length:]
        after.places = [*kept.places, *places][-length:]
        # what came after the last look, up to the one token that no later one can be told of
        window = range(kept.previous_first + 1, first + 1)
        for layer in range(self.layers):
            rows = [(j, *self.projected(layer, x)) for j, x in zip([*kept.places, *places], [*slots, *xs], strict=True)]
            new_xs, reads, sums = [], [], []
            for x, (i, q, _, _) in zip(xs, rows[len(slots) :], strict=True):
                read, lse = self.attention(
                    layer, q, i, [(j, k, v) for j, _, k, v in rows if 0 <= i - j < self.windows[layer]], sinks=True
                )
                new_xs.append(self.rest(layer, x, read))
                reads.append(read)
                sums.append(lse)
            if layer < self.layers - 1:
                new_slots, old_reads, old_sums = [], [], []
                for n, (slot, (i, q, _, _)) in enumerate(zip(slots, rows[: len(slots)], strict=True)):
                    # the oldest slot is nobody's key in the reference code: nothing stands to the left of it
                    seen = [
                        (j, k, v)
                        for m, (j, _, k, v) in enumerate(rows)
                        if j in window and (m > 0 or not slots) and (full or j > i) and abs(i - j) < self.windows[layer]
                    ]
                    new, new_lse = self.attention(layer, q, i, seen, all_right=full)
                    old, old_lse = kept.read_outs[layer][n], kept.normalisers[layer][n]
                    larger = torch.maximum(old_lse, new_lse)
                    a, b = (old_lse - larger).exp(), (new_lse - larger).exp()
                    alpha = a / (a + b + epsilon)
                    if fixed is not None and seen:
                        alpha = torch.full_like(alpha, fixed)
                    read = alpha[:, None] * old + (1 - alpha)[:, None] * new
                    old_reads.append(read)
                    old_sums.append(torch.logaddexp(old_lse, new_lse))
                    new_slots.append(self.rest(layer, slot, read))
                slots = new_slots
                after.read_outs.append([read.detach() for read in [*old_reads, *reads]][-length:])
                after.normalisers.append([lse.detach() for lse in [*old_sums, *sums]][-length:])
            xs = new_xs
        return torch.stack([self.finish(x) for x in xs]), after
