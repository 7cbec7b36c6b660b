"""Build a decoder like Gemma 3, in plain torch and as a Hugging Face model.

Five layers see a window of 512 tokens, with RoPE of base 10,000; the sixth sees the whole text, with base 1,000,000.
Queries and keys have a norm for each head. (Gemma 3 also has a norm after each sublayer, and GELU for SiLU.)

Shows: `wordorder.Positional` with a pattern over the layers, and its cache; `wordorder.models` with the same pattern;
`from_rope_parameters`, which reads the pattern from a configuration of transformers.
Prints: the loss before and after training, how far the logits with the cache are from those without, and the number of
tokens of which each layer's cache holds keys: in a layer with a window of w tokens w - 1, however long the text.

    python examples/gemma_like_decoder.py
    python examples/gemma_like_decoder.py --window 512 --steps 1000 --text mine.txt
"""

import argparse
import tempfile
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import AutoModelForCausalLM, Gemma3TextConfig

import wordorder
from wordorder.encodings import from_rope_parameters
from wordorder.models import build_config, build_model
from wordorder.networks import KeyValueCache, Prepared

BYTES, WIDTH, HEADS, KEY_HEADS, LAYERS = 256, 64, 4, 2, 6
HEAD, INNER = WIDTH // HEADS, 2 * WIDTH
PATTERN = "rope:near@{window}*5,rope:far"
OPTIONS = {"rope:near": {"base": 10_000.0}, "rope:far": {"base": 1_000_000.0}}


class Block(nn.Module):
    """A layer: RMS norms, also of each head's queries and keys, fewer heads of keys than of queries, SwiGLU."""

    def __init__(self) -> None:
        super().__init__()
        self.attention_norm, self.feed_forward_norm = nn.RMSNorm(WIDTH), nn.RMSNorm(WIDTH)
        self.q_norm, self.k_norm = nn.RMSNorm(HEAD), nn.RMSNorm(HEAD)
        self.qkv = nn.Linear(WIDTH, (HEADS + 2 * KEY_HEADS) * HEAD, bias=False)
        self.out = nn.Linear(WIDTH, WIDTH, bias=False)
        self.up, self.down = nn.Linear(WIDTH, 2 * INNER, bias=False), nn.Linear(INNER, WIDTH, bias=False)

    def forward(self, x: Tensor, order: Prepared, layer: int) -> Tensor:
        """Return the layer's output, (batch, tokens, WIDTH)."""
        normed = order.input(layer, self.attention_norm(x))
        heads = self.qkv(normed).unflatten(-1, (-1, HEAD)).transpose(1, 2)
        q, k, v = heads.split((HEADS, KEY_HEADS, KEY_HEADS), dim=1)
        mixed = order.attend(layer, self.q_norm(q), self.k_norm(k), v, x=normed)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        gate, value = self.up(self.feed_forward_norm(x)).chunk(2, dim=-1)
        return x + self.down(F.silu(gate) * value)


class Decoder(nn.Module):
    """A language model of bytes."""

    def __init__(self, window: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(BYTES, WIDTH)
        self.positional = wordorder.Positional(
            PATTERN.format(window=window), width=WIDTH, heads=HEADS, layers=LAYERS, causal=True, options=OPTIONS
        )
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm = nn.RMSNorm(WIDTH)
        nn.init.normal_(self.embedding.weight, std=0.02)  # it is the output layer too

    def forward(self, ids: Tensor, cache: KeyValueCache | None = None) -> Tensor:
        """Return logits (batch, tokens, BYTES); with a cache ids are the tokens after those that it holds."""
        x = self.positional.embed(self.embedding(ids), cache=cache)
        order = self.positional.prepare(x, cache=cache)
        for layer, block in enumerate(self.blocks):
            x = block(x, order, layer)
        return F.linear(self.norm(x), self.embedding.weight)


def train(logits_of: Callable[[Tensor], Tensor], model: nn.Module, texts: Tensor, steps: int) -> str:
    """Train a model, and say its loss in nats per byte at first and in the end."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    generator, losses = torch.Generator().manual_seed(1), list[float]()
    for _ in range(steps):
        ids = texts[torch.randint(len(texts), (16,), generator=generator)]
        loss = F.cross_entropy(logits_of(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return f"loss {losses[0]:.2f}, after {steps} steps {losses[-1]:.2f}"


def in_plain_torch(texts: Tensor, window: int, steps: int) -> None:
    """Train the decoder, and write token by token with a cache."""
    model = Decoder(window)
    print(f"plain torch: {train(model, model, texts, steps)}")
    cache, written = model.positional.cache(), texts[:1, :8]
    with torch.no_grad():
        logits = model(written, cache)  # the prompt at once
        for _ in range(3 * window):
            token = logits[:, -1:].argmax(-1)
            written = torch.cat((written, token), dim=1)
            logits = torch.cat((logits, model(token, cache)), dim=1)
        apart = (logits - model(written)).abs().max()
    print(f"{written.shape[1]} tokens, with the cache and without: logits at most {apart:.1e} apart")
    print("tokens in the cache, by layer:", *(cache.key_count(layer) for layer in range(LAYERS)))


def as_hugging_face_model(texts: Tensor, window: int, steps: int) -> None:
    """Train a model of `wordorder.models`, generate, save and load."""
    pattern, options = from_rope_parameters(Gemma3TextConfig(num_hidden_layers=LAYERS, sliding_window=window))
    print(f"read from Gemma 3: {pattern} {options}")
    sizes = {"vocab_size": BYTES, "hidden_size": WIDTH, "intermediate_size": INNER, "num_hidden_layers": LAYERS}
    sizes |= {"num_attention_heads": HEADS, "num_key_value_heads": KEY_HEADS, "max_position_embeddings": 4 * window}
    # "modern": RMS norms, also of queries and keys (qk_norm="rms" alone in a "classic" block), SwiGLU, no biases
    config = build_config("decoder", **sizes, block="modern", encoding=pattern, encoding_options=options)
    model = build_model(config, "causal-lm", seed=0)
    print(f"Hugging Face: {train(lambda ids: model(ids).logits, model, texts, steps)}")
    model.eval()
    prompt = texts[:1, :8]
    written = model.generate(prompt, max_new_tokens=3 * window, do_sample=False)
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        again = AutoModelForCausalLM.from_pretrained(folder)
    same = written.equal(again.generate(prompt, max_new_tokens=3 * window, do_sample=False, use_cache=False))
    print(f"saved, loaded, and without a cache: {'the same' if same else 'another'} text")


def main() -> None:
    """Train and write with both models."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", type=Path, default=Path(__file__), help="a file to train on, read as bytes")
    parser.add_argument("--window", type=int, default=16, help="tokens that the local layers see; 512 in Gemma 3")
    parser.add_argument("--steps", type=int, default=60, help="training steps of each model")
    arguments = parser.parse_args()
    text = torch.tensor([*arguments.text.read_bytes()])
    if len(text) <= 4 * arguments.window:
        parser.error(f"--text must be longer than 4 windows, {4 * arguments.window} bytes, got {len(text)}")
    torch.manual_seed(0)
    texts = text.unfold(0, 4 * arguments.window + 1, 1)  # a text begins at every byte
    in_plain_torch(texts, arguments.window, arguments.steps)
    as_hugging_face_model(texts, arguments.window, arguments.steps)


if __name__ == "__main__":
    main()
