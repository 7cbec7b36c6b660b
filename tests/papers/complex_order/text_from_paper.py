"""Text networks written from their equations, one text and one number at a time; no code of the package."""

import torch


def bag(rows):
    """Mean of the rows of one text."""
    total = 0
    for row in rows:
        total = total + row
    return total / len(rows)


def convolution(rows, banks):
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
                responses.append(total.clamp(min=0))
            features.append(torch.stack(responses).max())
    return torch.stack(features)


def lstm(rows, weights):
    """States of one layer; `weights`: w_ih, w_hh, b_ih, b_hh with the gates input, forget, cell, output."""
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
