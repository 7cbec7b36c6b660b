"""Add TUPE to a trained BERT without changing its output.

Shows: `wordorder.models.swap_encoding`. The BERT here has random weights and needs no download; take yours by
`AutoModelForMaskedLM.from_pretrained(folder)`. Llama, Qwen, Gemma, T5 and others work too: docs/swap.md.
Prints: the largest difference of the logits before training, the added parameters, the loss of both models after
training on a repeated pattern of tokens, and whether the saved folder loads again.

python examples/tupe_on_bert.py
"""

import argparse
import copy
import tempfile

import torch
from transformers import AutoModelForMaskedLM, BertConfig, BertForMaskedLM

import wordorder.models

VOCABULARY, LENGTH, BATCH = 50, 24, 16
MASK = 4


def batch(generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Draw texts in which every token occurs twice, three positions apart, and mask some of the second ones."""
    first = torch.randint(5, VOCABULARY, (BATCH, LENGTH // 6, 1, 3), generator=generator)
    tokens = first.expand(-1, -1, 2, -1).reshape(BATCH, LENGTH)
    masked = (torch.rand(tokens.shape, generator=generator) < 0.3) & (torch.arange(LENGTH) % 6 > 2)
    return tokens.masked_fill(masked, MASK), tokens.masked_fill(~masked, -100)


def train(model: torch.nn.Module, steps: int) -> float:
    """Train, and return the mean loss in nats over the last tenth of the steps."""
    generator = torch.Generator().manual_seed(1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    losses: list[float] = []
    for _ in range(steps):
        tokens, labels = batch(generator)
        loss = model(input_ids=tokens, labels=labels).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    last = losses[-max(1, steps // 10) :]
    return sum(last) / len(last)


def main() -> None:
    """Swap, compare, train both, save and load."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=150, help="training steps of each model")
    parser.add_argument("--encoding", default="model+tupe-r", help="such as model+t5 or rope")
    arguments = parser.parse_args()
    torch.manual_seed(0)
    sizes = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128}
    dropouts = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    plain = BertForMaskedLM(
        BertConfig(vocab_size=VOCABULARY, max_position_embeddings=LENGTH, **sizes, **dropouts)
    ).eval()
    swapped = wordorder.models.swap_encoding(copy.deepcopy(plain), arguments.encoding)

    tokens, _ = batch(torch.Generator().manual_seed(2))
    with torch.no_grad():
        apart = (plain(tokens).logits - swapped(tokens).logits).abs().max().item()
    added = sum(p.numel() for p in swapped.parameters()) - sum(p.numel() for p in plain.parameters())
    print(f"{type(swapped).__name__}: {added:,} parameters more, logits at most {apart:.1e} apart")
    for name, model in (("plain", plain), ("swapped", swapped)):
        print(f"{name:8} loss {train(model.train(), arguments.steps):.3f}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        swapped.save_pretrained(folder)
        again = AutoModelForMaskedLM.from_pretrained(folder)
        same = torch.equal(again.eval()(tokens).logits, swapped.eval()(tokens).logits)
    print(f"saved and loaded: {'the same' if same else 'different'} logits")


if __name__ == "__main__":
    main()
