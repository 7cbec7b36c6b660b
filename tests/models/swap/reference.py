"""Slow references of Llama and BERT: one text at a time, loops over heads, queries and keys, from the papers.

Touvron et al. 2023, https://arxiv.org/abs/2302.13971 (RMSNorm, SwiGLU), with grouped heads as in Ainslie et al. 2023,
https://arxiv.org/abs/2305.13245; Devlin et al. 2019, https://arxiv.org/abs/1810.04805. Each encoding is written from
its own paper. All numbers are as wide as the weights, and every weight has its gradient.
"""

import math
from dataclasses import dataclass

import torch

SQUARE_ROOT_OF_HALF = 0.5**0.5


@dataclass(frozen=True)
class Layer:
    """The encodings of a layer, "model" among them, and its window in tokens."""

    names: tuple[str, ...]
    window: int | None = None


class Order:
    """What the encodings add, of one text that begins at position 0."""

    def __init__(self, weights, layers, *, heads, head_dim, causal, rotary, from_zero=False):
        self.weights = {name.split("wordorder.encoding.parts.")[-1]: tensor for name, tensor in weights.items()}
        self.layers, self.heads, self.head_dim, self.causal, self.rotary = layers, heads, head_dim, causal, rotary
        self.from_zero = from_zero
        self.tupe = {}

    def embed(self, x, position):
        names = self.layers[0].names
        if "learned" in names:
            x = x + self.weights["learned.table.weight"][position]
        if "model" in names and not self.rotary:
            x = x + self.weights["embeddings.position_embeddings.weight"][position]
        return x

    def shifted(self, layer, x):
        """Allen-Zhu 2025, place A: h_t + sum of w_m h_(t - m), m = 1 .. 3; two-sided m = 1, -1."""
        if "shift" not in self.layers[layer].names:
            return x
        weights = self.weights["shift.weight"][sum("shift" in other.names for other in self.layers[:layer])]
        rows = []
        for t in range(len(x)):
            row = x[t]
            for weight, m in zip(weights, (1, 2, 3) if self.causal else (1, -1), strict=True):
                if 0 <= t - m < len(x):
                    row = row + weight * x[t - m]
            rows.append(row)
        return torch.stack(rows)

    def scale(self, layer):
        """1/sqrt(d), and 1/sqrt(2 d) with TUPE: two terms of equal variance (Ke et al. 2021, Eq. 7)."""
        names = self.layers[layer].names
        return (2 * self.head_dim if "tupe-a" in names and "model" not in names else self.head_dim) ** -0.5

    def turned(self, vector, position, layer):
        """Su et al. 2021, Eq. 34: pair i turns by position * base ** (-2 i / d); pairs are half a head apart."""
        names = self.layers[layer].names
        if not ("rope" in names or ("model" in names and self.rotary)):
            return vector
        half = self.head_dim // 2
        rows = []
        for i in range(half):
            angle = torch.tensor(position * 10_000.0 ** (-2 * i / self.head_dim), dtype=torch.float64)
            rows.append((vector[i], vector[i + half], angle))
        first = [a * angle.cos() - b * angle.sin() for a, b, angle in rows]
        second = [b * angle.cos() + a * angle.sin() for a, b, angle in rows]
        return torch.stack(first + second)

    def polar(self, layer, head, distance, q, k):
        """Gopalakrishnan et al. 2025, Eq. 6: channel d has frequency base ** (-d / D), and delta of its own."""
        number, total = sum("pope" in other.names for other in self.layers[:layer]), 0.0
        for d in range(self.head_dim):
            delta = self.weights["pope.delta"][number, head, d]
            delta = delta if -2 * math.pi <= delta <= 0 else 0 * delta + min(max(delta.item(), -2 * math.pi), 0)
            magnitude = torch.log(1 + q[d].exp()) * torch.log(1 + k[d].exp())
            total = total + magnitude * torch.cos(distance * 10_000.0 ** (-d / self.head_dim) + delta)
        return total

    def adapted(self, layer, head, query, key, q, k):
        """Zheng et al. 2024, with KERPLE: the bias and what a network makes of the products and biases of all heads."""
        if "dape" not in self.layers[layer].names:
            return 0.0
        number = sum("dape" in other.names for other in self.layers[:layer])
        r1, r2 = (torch.log(1 + self.weights[f"dape.base.raw_{r}"].exp()) for r in ("r1", "r2"))
        bias = -r1 * torch.log(1 + r2 * abs(key - query))
        groups = [k[h * len(k) // self.heads] for h in range(self.heads)]
        products = [self.scale(layer) * (one @ other) for one, other in zip(q, groups, strict=True)]
        names = ("inner_weight", "inner_bias", "outer_weight")
        inner, inner_bias, outer = (self.weights[f"dape.{name}"][number] for name in names)
        hidden = inner @ torch.cat((torch.stack(products), bias)) + inner_bias
        return bias[head] + outer[head] @ torch.where(hidden > 0, hidden, 0.01 * hidden)

    def sees(self, layer, query, key):
        window = self.layers[layer].window
        if self.causal and key > query:
            return False
        return window is None or abs(query - key) < window

    def score(self, layer, head, query, key, q, k, log_gates, reflections):
        """The score of one pair; q and k are not turned yet."""
        names, distance, scale = self.layers[layer].names, key - query, self.scale(layer)
        score = scale * (self.turned(q, query, layer) @ self.turned(k, key, layer))
        if "pope" in names:
            score = scale * self.polar(layer, head, distance, q, k)
        if "alibi" in names:  # Press et al. 2022, Sec. 3
            score = score - 2.0 ** (-8 * (head + 1) / self.heads) * abs(distance)
        if "t5" in names:  # Raffel et al. 2020; the table is sqrt(d) times as strong where q.k is divided by it
            score = score + self.head_dim**0.5 * self.weights["t5.table.weight"][self.bucket(distance), head]
        if "kerple" in names:  # Chi et al. 2022, the logarithmic kernel
            r1, r2 = (torch.log(1 + self.weights[f"kerple.raw_{r}"][head].exp()) for r in ("r1", "r2"))
            score = score - r1 * torch.log(1 + r2 * abs(distance))
        if "shaw" in names:  # Shaw et al. 2018, Eq. 4
            number = sum("shaw" in other.names for other in self.layers[:layer])
            table = self.weights[f"shaw.tables.{number}.weight"]
            furthest = len(table) // 2
            score = score + scale * (q @ table[furthest + max(-furthest, min(furthest, distance))])
        if "tupe-a" in names:
            score = score + self.untied(head, query, key)
        if "fox" in names:
            score = score + self.forgotten(head, query, key, log_gates)
        if "path" in names:
            score = score + scale * (q @ self.reflected(layer, head, query, key, k, reflections))
        return score

    def bucket(self, distance, buckets=32, furthest=128):
        """Raffel et al. 2020: half of the buckets exact, half logarithmic up to ``furthest``; a half for each side."""
        first = 0
        if not self.causal:
            buckets //= 2
            first = buckets if distance > 0 else 0
        distance, exact = abs(distance), buckets // 2
        if distance < exact:
            return first + distance
        step = math.floor(math.log(distance / exact) / math.log(furthest / exact) * (buckets - exact))
        return first + min(exact + step, buckets - 1)

    def untied(self, head, query, key):
        """Ke et al. 2021, Eq. 7 and 9; with [CLS] the table has a row before that of position 0, see `thetas`."""
        rows = 0 if self.causal else 1
        if rows and query == 0:
            return self.row_product(head, 0, 0)
        if rows and key == 0:
            return self.row_product(head, 1, 1)
        return self.row_product(head, query + rows, key + rows)

    def row_product(self, head, first, second):
        def projected(row, which):
            if (row, which) not in self.tupe:
                x = self.weights["tupe.table.weight"][row]
                x = (x - x.mean()) / (x.var(correction=0) + 1e-5).sqrt()
                x = x * self.weights["tupe.norm.weight"] + self.weights["tupe.norm.bias"]
                matrix, bias = (self.weights[f"tupe.{which}_projection.{part}"] for part in ("weight", "bias"))
                self.tupe[row, which] = matrix @ x + bias
            return self.tupe[row, which][head * self.head_dim : (head + 1) * self.head_dim]

        return (2 * self.head_dim) ** -0.5 * (projected(first, "query") @ projected(second, "key"))

    def log_gates(self, layer, x):
        """Lin et al. 2025, Eq. 5: log f of each token and head, for keys on the left, then on the right."""
        if "fox" not in self.layers[layer].names:
            return None
        number = sum("fox" in other.names for other in self.layers[:layer])
        matrix, bias = (self.weights[f"fox.gates.{number}.{part}"] for part in ("weight", "bias"))
        logs = [-torch.log(1 + torch.exp(-(matrix @ token + bias + 5.0))) for token in x]
        if self.from_zero:
            logs = [self.weights["fox.strength"][number] * log for log in logs]
        return logs

    def forgotten(self, head, query, key, log_gates):
        """Eq. 6: the gates of all tokens after the key up to the query; mirrored, with gates of their own."""
        if key <= query:
            between = [log_gates[token][head] for token in range(key + 1, query + 1)]
        else:
            between = [log_gates[token][self.heads + head] for token in range(query, key)]
        return sum(between, torch.zeros((), dtype=torch.float64))

    def reflections(self, layer, x):
        """Yang et al. 2025: w of length 1 and beta of each token and head, w (H, d) and beta (H,)."""
        if "path" not in self.layers[layer].names:
            return None
        number = sum("path" in other.names for other in self.layers[:layer])
        names = (f"directions.{number}.0.weight", f"directions.{number}.1.weight")
        first, second, u, b = (
            self.weights[f"path.{name}"] for name in (*names, f"betas.{number}.weight", f"betas.{number}.bias")
        )
        vectors = [(second @ (first @ token)).view(self.heads, self.head_dim) for token in x]
        lengths = [vector.square().sum(-1, keepdim=True).sqrt() for vector in vectors]
        betas = [2 / (1 + torch.exp(-(u @ token + b))) for token in x]
        return [(w / length, beta) for w, length, beta in zip(vectors, lengths, betas, strict=True)]

    def reflected(self, layer, head, query, key, k, reflections):
        """What I - beta w w^T of all tokens after the key, up to the query, change in it, the nearest token first."""
        changed = k
        for token in range(key + 1, query + 1):
            w, beta = reflections[token][0][head], reflections[token][1][head]
            changed = changed - beta * w * (w @ changed)
        number = sum("path" in other.names for other in self.layers[:layer])
        return (changed - k) * (self.weights["path.strength"][number, head] if self.from_zero else 1)

    def attention(self, layer, x, q, k, v):
        """The outputs of all heads, (T, H d); q (T, H, d), k and v (T, groups, d)."""
        log_gates, reflections, outputs = self.log_gates(layer, x), self.reflections(layer, x), []
        for query in range(len(x)):
            by_head = []
            for head in range(self.heads):
                group = head * k.shape[1] // self.heads
                keys = [key for key in range(len(x)) if self.sees(layer, query, key)]
                scores = [
                    self.score(layer, head, query, key, q[query, head], k[key, group], log_gates, reflections)
                    + self.adapted(layer, head, query, key, q[query], k[key])
                    for key in keys
                ]
                exponentials = torch.stack(scores).exp()
                total = exponentials.sum()
                if "softmax-sink" in self.layers[layer].names:  # OpenAI 2025, Sec. 2.2
                    number = sum("softmax-sink" in other.names for other in self.layers[:layer])
                    total = total + self.weights["softmax_sink.logits"][number, head].exp()
                parts = exponentials / total
                by_head.append(sum(part * v[key, group] for part, key in zip(parts, keys, strict=True)))
            outputs.append(torch.cat(by_head))
        return torch.stack(outputs)


def llama(weights, config, order, ids):
    """Return the logits of one text, (T, V)."""
    rms = config.rms_norm_eps

    def norm(x, name):
        return weights[name] * x / (x.square().mean(-1, keepdim=True) + rms).sqrt()

    x = torch.stack([order.embed(weights["model.embed_tokens.weight"][i], at) for at, i in enumerate(ids.tolist())])
    for layer in range(config.num_hidden_layers):
        names = f"model.layers.{layer}."
        normed = order.shifted(layer, norm(x, names + "input_layernorm.weight"))
        q, k, v = (
            (normed @ weights[f"{names}self_attn.{which}_proj.weight"].T).unflatten(-1, (-1, order.head_dim))
            for which in "qkv"
        )
        x = x + order.attention(layer, normed, q, k, v) @ weights[names + "self_attn.o_proj.weight"].T
        normed = norm(x, names + "post_attention_layernorm.weight")
        gate, up = (normed @ weights[f"{names}mlp.{which}_proj.weight"].T for which in ("gate", "up"))
        x = x + (gate / (1 + torch.exp(-gate)) * up) @ weights[names + "mlp.down_proj.weight"].T
    return norm(x, "model.norm.weight") @ weights["lm_head.weight"].T


def bert(weights, config, order, ids):
    """Return the last layer's output of one text, (T, C)."""

    def linear(x, name):
        return x @ weights[name + ".weight"].T + weights[name + ".bias"]

    def norm(x, name):
        centred = x - x.mean(-1, keepdim=True)
        x = centred / (centred.square().mean(-1, keepdim=True) + config.layer_norm_eps).sqrt()
        return x * weights[name + ".weight"] + weights[name + ".bias"]

    words, types = (weights[f"embeddings.{which}_embeddings.weight"] for which in ("word", "token_type"))
    x = torch.stack([order.embed(words[i] + types[0], at) for at, i in enumerate(ids.tolist())])
    x = norm(x, "embeddings.LayerNorm")
    for layer in range(config.num_hidden_layers):
        names = f"encoder.layer.{layer}."
        h = order.shifted(layer, x)
        q, k, v = (
            linear(h, f"{names}attention.self.{which}").unflatten(-1, (-1, order.head_dim))
            for which in ("query", "key", "value")
        )
        attended = linear(order.attention(layer, h, q, k, v), names + "attention.output.dense")
        x = norm(x + attended, names + "attention.output.LayerNorm")
        inner = linear(x, names + "intermediate.dense")
        inner = inner * 0.5 * (1 + torch.erf(inner * SQUARE_ROOT_OF_HALF))
        x = norm(x + linear(inner, names + "output.dense"), names + "output.LayerNorm")
    return x
