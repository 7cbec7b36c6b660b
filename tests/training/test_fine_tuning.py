"""Tasks as GLUE has them: single texts and pairs, classes and numbers, scored on validation; and using the models."""

import json
import random

import pytest
from scipy.stats import pearsonr
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from wordorder.errors import BadInput
from wordorder.inference import classify, evaluate_model_dir, regress
from wordorder.tasks import TASKS
from wordorder.training import read_recipe, run

RECIPE = """
[data]
source = "{folder}/train.jsonl"
validation_source = "{folder}/dev.jsonl"
test_source = "none"

[task]
name = "{task}"
{options}
truncate = true

[tokenizer]
kind = "word"
vocab_size = 64

[model]
network = "encoder"
encoding = "tupe-r"
hidden_size = 16
num_hidden_layers = 1
num_attention_heads = 2
max_position_embeddings = 24
hidden_dropout_prob = 0.0
attention_probs_dropout_prob = 0.0
initializer_range = 0.2

[training]
output_dir = "{folder}/{task}"
max_steps = 40
batch_size = 16
learning_rate = 1e-2
evaluate_every = 10
trackers = []
device = "cpu"
select = "{metric}"
"""
WORDS = "red green blue cold warm dry wet old new".split()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder, draw = tmp_path_factory.mktemp("glue"), random.Random(0)
    for name, count in (("train", 400), ("dev", 60)):
        rows = []
        for number in range(count):
            first, second = draw.sample(WORDS, 4), draw.sample(WORDS, 4)
            warm = int("warm" in first)
            rows.append(
                {
                    "text": " ".join(first),
                    "text_pair": " ".join(second),
                    "label": warm,
                    "degree": 3.0 * ("warm" in first + second) + 2.0 * ("cold" in first + second),
                    "nearly_ten": 10 + 0.1 * (number % 2),
                }
            )
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def recipe_for(folder, task, metric, options=""):
    path = folder / f"{task}-{metric}.toml"
    path.write_text(RECIPE.format(folder=folder, task=task, metric=metric, options=options))
    return path


@pytest.fixture(scope="module")
def texts(folder):
    """A model of single texts: is the word `warm` there?"""
    return run(read_recipe(recipe_for(folder, "classification", "matthews_correlation")), progress=False)


@pytest.fixture(scope="module")
def pairs(folder):
    """A model of pairs and a number from 0 to 5: 3 for `warm` in one of them, 2 for `cold`."""
    options = 'pair_column = "text_pair"\nlabel_column = "degree"\nlabel_scale = 5.0'
    return run(read_recipe(recipe_for(folder, "regression", "pearson", options)), progress=False)


def rows_of(folder, name="dev"):
    return [json.loads(line) for line in (folder / f"{name}.jsonl").read_text().splitlines()]


def test_single_texts_are_learned_and_scored_on_validation(texts):
    scores = texts.metrics["validation"]
    assert set(scores) == {*TASKS["classification"].metric_names, "examples"}
    assert "test" not in texts.metrics
    assert scores["matthews_correlation"] > 0.8
    assert scores["examples"] == 60


def test_the_best_checkpoint_is_that_of_the_chosen_metric(pairs):
    seen = {row["step"]: row["validation_pearson"] for row in pairs.curve if "validation_pearson" in row}
    assert len(seen) == 4
    assert pairs.metrics["validation"]["pearson"] == pytest.approx(max(seen.values()))
    assert seen[pairs.metrics["best_step"]] == max(seen.values())


def test_pairs_of_texts_give_numbers(pairs):
    scores = pairs.metrics["validation"]
    assert set(scores) == {*TASKS["regression"].metric_names, "examples"}
    assert scores["pearson"] > 0.9
    assert scores["loss"] < 0.05  # of labels between 0 and 1, not between 0 and 5
    config = AutoModelForSequenceClassification.from_pretrained(pairs.model_dir).config
    assert (config.num_labels, config.problem_type) == (1, "regression")


def test_predictions_of_numbers_are_on_the_scale_of_the_labels(pairs, folder):
    rows = rows_of(folder)
    first, second = ([row[name] for row in rows] for name in ("text", "text_pair"))
    found = [answers[0]["value"] for answers in regress(pairs.model_dir, first, pairs=second)]
    labels = [row["degree"] for row in rows]
    assert pearsonr(found, labels).statistic == pytest.approx(pairs.metrics["validation"]["pearson"], abs=1e-3)
    squares = sum((value - label) ** 2 for value, label in zip(found, labels, strict=True)) / len(labels)
    assert squares / 25 == pytest.approx(pairs.metrics["validation"]["loss"], rel=1e-2)


def test_predictions_of_classes_are_those_that_were_scored(texts, folder):
    rows = rows_of(folder)
    found = classify(texts.model_dir, [row["text"] for row in rows], top_k=1)
    right = sum(int(answers[0]["label"]) == row["label"] for answers, row in zip(found, rows, strict=True))
    assert right / len(rows) == pytest.approx(texts.metrics["validation"]["accuracy"])


@pytest.mark.parametrize("name", ["texts", "pairs"])
def test_a_saved_model_is_scored_as_its_run_scored_it(name, folder, request):
    result = request.getfixturevalue(name)
    expected = pytest.approx(result.metrics["validation"], rel=1e-5)
    assert evaluate_model_dir(result.model_dir, f"{folder}/train.jsonl", split="validation") == expected
    # The file alone is another source: it is split by share, and all of it together is what the run called validation.
    alone = evaluate_model_dir(result.model_dir, f"{folder}/dev.jsonl", split="all")
    assert alone == pytest.approx(result.metrics["validation"], rel=1e-3)


def test_the_run_s_own_source_is_known_however_its_path_is_written(texts, folder, monkeypatch):
    monkeypatch.chdir(folder.parent)
    expected = pytest.approx(texts.metrics["validation"], rel=1e-5)
    for source in (f"{folder.name}/train.jsonl", f"{folder}/../{folder.name}/train.jsonl"):
        assert evaluate_model_dir(texts.model_dir, source, split="validation") == expected


def test_another_file_is_read_as_it_is_written(texts, folder, tmp_path):
    rows = rows_of(folder)
    lines = [f"{row['text']};{row['label']}" for row in rows]
    (tmp_path / "other.csv").write_text("text;label\n" + "\n".join(lines) + "\n")
    found = evaluate_model_dir(texts.model_dir, str(tmp_path / "other.csv"), changes={"data": {"delimiter": ";"}})
    assert found == pytest.approx(texts.metrics["validation"], rel=1e-5)


def test_a_test_that_the_run_had_not_is_no_split(texts, folder):
    with pytest.raises(BadInput, match="the data has no test split; valid: train, validation, all"):
        evaluate_model_dir(texts.model_dir, f"{folder}/train.jsonl")


@pytest.mark.slow
@pytest.mark.parametrize("accumulated", ["classification", "regression"])
def test_a_small_batch_accumulated_is_a_large_batch(folder, tmp_path, accumulated):
    """transformers' regression loss is a mean whatever it is told, unlike that of classes."""
    options = 'label_column = "nearly_ten"' if accumulated == "regression" else ""
    path = recipe_for(folder, accumulated, "loss", options)
    settings = ["training.max_steps=4", "training.log_every=1", "training.evaluate_every=never", "training.select=last"]
    sizes = {"large": (16, 1), "small": (4, 4)}
    losses = {}
    for name, (size, times) in sizes.items():
        batches = [f"training.batch_size={size * times}", f"training.micro_batch_size={size}"]
        result = run(read_recipe(path, [*settings, *batches]), progress=False, output_dir=tmp_path / name)
        losses[name] = [row["loss"] for row in result.curve]
    assert losses["small"][0] == pytest.approx(losses["large"][0], rel=0.3)  # batches differ, their size does not
    assert len(losses["small"]) == 4


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda texts, pairs: classify(texts, ["a"], pairs=["b"]), "trained on single texts: give no second ones"),
        (lambda texts, pairs: regress(pairs, ["a"]), "trained on pairs: give a second text for each"),
        (lambda texts, pairs: regress(pairs, ["a", "b"], pairs=["c"]), "2 texts and 1 second texts"),
        (lambda texts, pairs: classify(pairs, ["a"], pairs=["b"]), "trained for text-regression, it cannot do"),
        (lambda texts, pairs: regress(texts, ["a"]), "trained for text-classification, it cannot do text-regression"),
    ],
)
def test_texts_that_the_model_was_not_made_for_are_bad_input(texts, pairs, call, words):
    with pytest.raises(BadInput, match=words):
        call(texts.model_dir, pairs.model_dir)


def test_a_pair_that_is_too_long_loses_the_end_of_the_longer_text(pairs):
    long = "red " * 40
    cut, fits = (
        regress(pairs.model_dir, [text], pairs=["blue"])[0][0]["value"] for text in (long, "red " * 20)
    )  # 24 positions: [CLS], [SEP], [SEP], one for blue, twenty for red
    assert cut == pytest.approx(fits)
    assert len(AutoTokenizer.from_pretrained(pairs.model_dir)("red", "blue")["input_ids"]) == 5


def test_f1_of_more_than_two_classes_is_refused_before_training(folder, tmp_path):
    path = recipe_for(folder, "classification", "f1", 'label_column = "degree"')
    with pytest.raises(BadInput, match=r"f1 is that of the second of two classes, but the data has 4: .*take macro_f1"):
        run(read_recipe(path), progress=False, output_dir=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def having(metric):
    return ", ".join(name for name, task in TASKS.items() if metric in task.metric_names)


@pytest.mark.parametrize(
    ("task", "metric", "valid"),
    [
        (
            "classification",
            "pearson",
            f"task classification has no pearson (task {having('pearson')} has); valid: loss, accuracy",
        ),
        (
            "regression",
            "matthews_correlation",
            f"task regression has no matthews_correlation (task {having('matthews_correlation')} has)",
        ),
        ("regression", "accuracy", f"(task {having('accuracy')} has)"),
    ],
)
def test_a_metric_that_the_task_has_not_is_refused_with_the_recipe(folder, task, metric, valid):
    with pytest.raises(BadInput) as error:
        read_recipe(recipe_for(folder, task, metric))
    (fault,) = error.value.faults
    assert fault.startswith("training.select: ")
    assert valid in fault
