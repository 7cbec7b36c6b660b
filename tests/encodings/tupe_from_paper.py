"""TUPE's position term entry by entry, from the paper's equations and the reference code; shares no code with src."""

import bisect
import math

import torch

FIRST_DISTANCE = [0, 1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 23, 32, 46, 64, 91]


def bucket(i, j):
    return bisect.bisect_right(FIRST_DISTANCE, abs(i - j)) - 1 + 16 * (j > i)


def layer_norm(x, weight, bias, eps=1e-5):
    centred = x - x.mean(-1, keepdim=True)
    return centred / (centred.pow(2).mean(-1, keepdim=True) + eps).sqrt() * weight + bias


def position_term(weights, heads, positions, *, reset=None, prefix=""):
    """List of lists of (H,) vectors; ``positions`` is one example's positions, reset None = TUPE-A."""
    w = {name.removeprefix(prefix): value for name, value in weights.items() if name.startswith(prefix)}
    P = layer_norm(w["table.weight"], w["norm.weight"], w["norm.bias"])
    D = P.shape[1]
    d = D // heads
    s = 1 / math.sqrt(2 * d)
    a = ((P @ w["query_projection.weight"].T + w["query_projection.bias"]) * s).view(-1, heads, d)
    c = (P @ w["key_projection.weight"].T + w["key_projection.bias"]).view(-1, heads, d)
    A = torch.einsum("rhd,thd->rth", a, c)
    theta1, theta2 = A[0, 0], A[1, 1]
    term = []
    for i in positions:
        row = []
        for j in positions:
            entry = theta1 if i == 0 else theta2 if j == 0 else A[i + 1, j + 1]
            if reset == "paper" and i != 0 and j != 0:
                entry = entry + w["relative.table.weight"][bucket(i, j)]
            if reset == "reference-code":
                table33 = torch.cat([w["relative.table.weight"], w["others_to_cls"]])
                entry = entry + table33[16 if i == 0 else 32 if j == 0 else bucket(i, j)]
            row.append(entry)
        term.append(torch.stack(row))
    return torch.stack(term).permute(2, 0, 1)
