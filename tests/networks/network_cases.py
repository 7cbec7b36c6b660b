"""Small networks, texts and padding that the tests of decoders and of encoder-decoders share."""

import torch
from torch.testing import assert_close

from wordorder import Decoder, Encoder, Seq2Seq
from wordorder.encodings import CATALOG
from wordorder.networks import initialise
from wordorder.ops import Contiguous

NAMES = [*(name for name, kind in CATALOG.items() if "decoder" not in kind.refused_in), "learned+t5", "rope+tupe-a"]
IN_ENCODERS = [name for name in NAMES if name not in CATALOG or "encoder" not in CATALOG[name].refused_in]
FROM_PAPER = ["none", "sinusoidal", "rope", "t5", "tupe-r", "alibi"]
SIZES = {"width": 24, "layers": 2, "heads": 4, "max_positions": 80, "dropout": 0.0, "attention_dropout": 0.0}


def shaken(network, *, std=0.2):
    """Weights with every bias and norm moved off 0 and 1, the same in every run."""
    initialise(network, seed=5, std=std)
    for parameter in network.parameters():
        parameter.data += 0.05 * torch.randn(
            parameter.shape, generator=torch.Generator().manual_seed(parameter.numel())
        )
    return network


def decoder(encoding, *, dtype=torch.float64, std=0.2, **options):
    return shaken(Decoder(40, encoding=encoding, **{**SIZES, **options}), std=std).to(dtype)


def seq2seq(encoding, *, dtype=torch.float64, std=0.2, share_embeddings=True, decoder_layers=2, **options):
    untied = {"encoding_options": {"cls": "position-0"}} if encoding in ("tupe-a", "tupe-r") else {}
    halves = (
        Encoder(40, encoding=encoding, **{**SIZES, **untied, **options}),
        Decoder(40, encoding=encoding, cross_attention=True, **{**SIZES, **options, "layers": decoder_layers}),
    )
    return shaken(Seq2Seq(*halves, share_embeddings=share_embeddings), std=std).to(dtype)


def texts(*lengths):
    return [torch.randint(1, 40, (length,)) for length in lengths]


def padded(texts, side, pad=0):
    longest = max(len(text) for text in texts)
    ids, valid = torch.full((len(texts), longest), pad), torch.zeros(len(texts), longest, dtype=torch.bool)
    for b, text in enumerate(texts):
        where = slice(0, len(text)) if side == "right" else slice(longest - len(text), longest)
        ids[b, where], valid[b, where] = text, True
    return ids, valid, (Contiguous(longest) if side == "right" else Contiguous(longest, -valid.int().argmax(1)))


def assert_gradients_close(network, ours, reference, tolerance):
    """Gradients of two outputs against one random upstream, every parameter within ``tolerance`` of its largest."""
    upstream = torch.randn_like(reference)
    weights = dict(network.named_parameters())
    grads = [
        torch.autograd.grad(y, weights.values(), upstream, allow_unused=True, retain_graph=True)
        for y in (ours, reference)
    ]
    for name, first, second in zip(weights, *grads, strict=True):
        pair = [torch.zeros_like(weights[name]) if grad is None else grad for grad in (first, second)]
        largest = max(1.0, pair[1].abs().max().item())
        assert_close(*pair, rtol=0, atol=tolerance * largest, msg=lambda text, name=name: f"{name}: {text}")
