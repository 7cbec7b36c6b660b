import pytest
import torch
from text_cases import assert_same_with_gradients, texts_of
from torch.testing import assert_close

from wordorder.ops import Contiguous
from wordorder.papers.complex_order import (
    ReferenceOrderEmbedding,
    ReferenceTextNetwork,
    ReferenceTransformer,
    ReferenceWords,
)

L, C, H, FF, PAD = 9, 6, 2, 5, 1


def build():
    words = ReferenceWords(ReferenceOrderEmbedding(30, C))
    body = ReferenceTransformer(C, heads=H, feedforward=FF, dropout=0.0)
    network = ReferenceTextNetwork(words, body, length=L, padding_idx=PAD).double()
    for name, parameter in network.named_parameters():
        if "bias" in name:
            torch.nn.init.normal_(parameter, 0, 0.3)
    return network


def published(network, text):
    """The published code's forward pass for one text, from token ids to features, in complex128."""
    weights = dict(network.named_parameters())
    ids = torch.cat([text, torch.full((L - len(text),), PAD)])
    angle = weights["words.embedding.waves.frequency"][ids] * torch.arange(L - 1, -1, -1)[:, None]
    z = weights["words.embedding.waves.amplitude"][ids] * torch.exp(1j * angle)

    def linear(z, name):
        weight, bias = weights[f"body.{name}.weight"], weights[f"body.{name}.bias"]
        return torch.complex(z.real @ weight.T + bias, z.imag @ weight.T + bias)

    def norm(t, name):
        std = t.std(-1, keepdim=True)  # unbiased
        return (
            weights[f"body.{name}.weight"] * (t - t.mean(-1, keepdim=True)) / (std + 1e-6)
            + weights[f"body.{name}.bias"]
        )

    def feedforward(t, layer):
        up, down = (f"body.layers.{layer}.{name}" for name in ("up", "down"))
        inner = (t @ weights[f"{up}.weight"].T + weights[f"{up}.bias"]).clamp(min=0)
        return inner @ weights[f"{down}.weight"].T + weights[f"{down}.bias"]

    for layer in range(2):
        at = f"layers.{layer}.attention"
        q, k, v = (linear(z, f"{at}.{name}") for name in ("query", "key", "value"))
        mixed = torch.zeros_like(z)
        for head in range(H):
            own = slice(head * C // H, (head + 1) * C // H)
            scores = (q[:, own] @ k[:, own].T).abs() / (C // H) ** 0.5  # no conjugate
            mixed[:, own] = scores.softmax(-1).to(z.dtype) @ v[:, own]
        mixed = linear(mixed, f"{at}.out")
        x, y = mixed.real, mixed.imag  # no residual
        x, y = x + norm(x, f"layers.{layer}.norms.0"), y + y
        x, y = (t + feedforward(norm(t, f"layers.{layer}.norms.1"), layer) for t in (x, y))
        z = torch.complex(y, x) if layer == 0 else torch.complex(x, y)  # the second layer gets the streams swapped
    return torch.cat([norm(z.real, "final_norm")[-1], norm(z.imag, "final_norm")[-1]])


def test_features_and_every_gradient_match_the_published_code():
    network, texts = build(), texts_of(7, 1, 9)
    rows = torch.nn.utils.rnn.pad_sequence(texts, batch_first=True, padding_value=0)
    valid = torch.nn.utils.rnn.pad_sequence([torch.ones(len(t)) for t in texts], batch_first=True).bool()
    ours = network(rows, Contiguous(9), key_padding_mask=~valid).features
    assert ours.shape == (3, network.features)
    paper = torch.stack([published(network, text) for text in texts])
    assert_same_with_gradients(ours, paper, dict(network.named_parameters()), tolerance=1e-11)


def test_padding_beyond_the_fixed_length_changes_nothing():
    network, text = build(), texts_of(4)[0][None]
    longer = torch.nn.functional.pad(text, (0, 3))
    mask = torch.tensor([[0, 0, 0, 0, 1, 1, 1]]).bool()
    assert_close(network(longer, key_padding_mask=mask).features, network(text).features, rtol=0, atol=0)


@pytest.mark.parametrize(
    ("call", "word"),
    [
        (lambda n: n(torch.zeros(1, L + 1).long()), f"pads texts to length {L}, got {L + 1} tokens; shorten"),
        (lambda n: n(inputs_embeds=torch.zeros(1, 3, 2 * C)), "reads token ids alone"),
        (lambda n: n(torch.zeros(1, 3).long(), torch.tensor([[2, 1, 0]])), "numbers positions itself"),
        (lambda n: n(torch.zeros(1, 3).long(), Contiguous(3, 1)), "numbers positions itself"),
        (lambda n: n(torch.zeros(2, 3).long(), Contiguous(3, torch.tensor([0, -1]))), "numbers positions itself"),
    ],
)
def test_what_the_published_code_cannot_do_is_refused(call, word):
    with pytest.raises(ValueError, match=word):
        call(build())
