"""Text networks written from their equations, one text and one number at a time; no code of the package."""

import math

import torch

ACTS = {
    "relu": lambda t: t.clamp(min=0),
    "silu": lambda t: t / (1 + (-t).exp()),
    "gelu": lambda t: t * (1 + torch.erf(t / math.sqrt(2))) / 2,
}


def bag(rows):
    """Mean of the rows of one text."""
    total = 0
    for row in rows:
        total = total + row
    return total / len(rows)


def convolution(rows, banks, act="relu"):
    """`banks`: pairs of weights (F, C, k) and biases (F,)."""
    features = []
    for weight, bias in banks:
        size = weight.shape[2]
        padded = list(rows) + [torch.zeros_like(rows[0])] * (size - len(rows))
        for f in range(weight.shape[0]):
            responses = []
            for s in range(len(padded) - size + 1):
                total = bias[f]
                for j in range(size):
                    for c in range(weight.shape[1]):
                        total = total + weight[f, c, j] * padded[s + j][c]
                responses.append(ACTS[act](total))
            features.append(torch.stack(responses).max())
    return torch.stack(features)


def lstm(rows, weights):
    """States of one direction; `weights`: w_ih, w_hh, b_ih, b_hh with the gates input, forget, cell, output."""
    w_ih, w_hh, b_ih, b_hh = weights
    size = w_hh.shape[1]
    h = c = torch.zeros(size, dtype=w_hh.dtype)
    states = []
    for row in rows:
        gates = w_ih @ row + b_ih + w_hh @ h + b_hh
        i, f, g, o = (gates[k * size : (k + 1) * size] for k in range(4))
        sigmoid = [1 / (1 + (-t).exp()) for t in (i, f, o)]
        c = sigmoid[1] * c + sigmoid[0] * torch.tanh(g)
        h = sigmoid[2] * torch.tanh(c)
        states.append(h)
    return states


def recurrent(rows, forwards, backwards=()):
    """Last state of each direction after all layers; `forwards` and `backwards`: weights per layer."""
    for index, weights in enumerate(forwards):
        ahead = lstm(rows, weights)
        if backwards:
            behind = lstm(rows[::-1], backwards[index])[::-1]
            rows = [torch.cat(pair) for pair in zip(ahead, behind, strict=True)]
        else:
            rows = ahead
    size = len(forwards[0][3]) // 4
    return torch.cat([rows[-1][:size], rows[0][size:]]), rows
