"""Classify by word order with a bag of words and complex-order embeddings.

Shows: `wordorder-classifier`, the Hugging Face model of the complex-order paper. Each text is twelve random words; its
class is 1 if the word "before" comes ahead of the word "after". A bag of words sums its vectors, so ordinary embeddings
can only guess. Complex-order embeddings rotate with the position, which the sum preserves.
Prints: accuracy on new texts, by encoding.

python examples/complex_order_classifier.py
python examples/complex_order_classifier.py --steps 1000 --encodings none sinusoidal complex-order complex-vanilla
"""

import argparse

import torch

from wordorder.models import build_config, build_model

WORDS, LENGTH, BATCH = 40, 12, 64
BEFORE, AFTER = 2, 3


def batch(generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Draw texts and their classes."""
    tokens = torch.randint(4, WORDS, (BATCH, LENGTH), generator=generator)
    places = torch.rand(BATCH, LENGTH, generator=generator).argsort(dim=1)[:, :2]
    tokens.scatter_(1, places[:, :1], BEFORE).scatter_(1, places[:, 1:], AFTER)
    return tokens, (places[:, 0] < places[:, 1]).long()


def accuracy(encoding: str, architecture: str, steps: int) -> float:
    """Train a new classifier and return its accuracy on new texts."""
    sizes = {"vocab_size": WORDS, "hidden_size": 32, "num_labels": 2, "max_position_embeddings": LENGTH}
    options = {} if architecture != "convolution" else {"filters": 32}
    config = build_config("classifier", architecture=architecture, encoding=encoding, **sizes, **options)
    model = build_model(config, "classification", seed=0).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    generator = torch.Generator().manual_seed(1)  # every encoding sees the same batches
    for _ in range(steps):
        tokens, classes = batch(generator)
        loss = model(input_ids=tokens, labels=classes).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        tests = [batch(generator) for _ in range(16)]
        right = [(model(input_ids=tokens).logits.argmax(-1) == classes).float().mean() for tokens, classes in tests]
    return torch.stack(right).mean().item()


def main() -> None:
    """Print the accuracy of every encoding."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=300, help="training steps of each encoding")
    parser.add_argument("--architecture", default="bag-of-words", help="or convolution, recurrent, transformer")
    parser.add_argument("--encodings", nargs="+", default=["none", "complex-order"])
    arguments = parser.parse_args()
    for encoding in arguments.encodings:
        share = accuracy(encoding, arguments.architecture, arguments.steps)
        print(f"{encoding:16} accuracy {share:.3f}", flush=True)


if __name__ == "__main__":
    main()
