"""Evaluating a saved model and predicting with it."""

import json
import math
import shutil
from functools import partial

import pytest
import torch
from safetensors.torch import load_file
from torch.nn import functional
from transformers import (
    AutoModelForMaskedLM,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    BertConfig,
    BertForMaskedLM,
    RobertaConfig,
    RobertaForMaskedLM,
)

from wordorder.data import DataSettings, TokenizerConfig
from wordorder.errors import BadInput
from wordorder.inference import classify, evaluate_model_dir, fill_mask, regress
from wordorder.inference.predict import answer, source_ids
from wordorder.inference.saved_model import data_settings, saved_options
from wordorder.models import swap_encoding
from wordorder.tasks import TASKS, prepare
from wordorder.tasks.masked_lm import MaskedLMOptions
from wordorder.training import read_recipe, run


@pytest.fixture(scope="session")
def language_model(shared_recipe_file):
    recipe = read_recipe(shared_recipe_file, ["training.max_steps=3"])
    return run(recipe, progress=False, output_dir=shared_recipe_file.parent / "language-model")


@pytest.fixture(scope="session")
def classifier(shared_recipe_file):
    overrides = ["task.name=classification", "data.validation_fraction=0.2", "training.max_steps=30"]
    recipe = read_recipe(shared_recipe_file, overrides)
    return run(recipe, progress=False, output_dir=shared_recipe_file.parent / "classifier")


def test_the_same_source_gives_the_scores_of_the_run(language_model, corpus):
    found = evaluate_model_dir(language_model.model_dir, f"{corpus}/*/*.txt")
    assert found == pytest.approx(language_model.metrics["test"], rel=1e-6)
    validation = evaluate_model_dir(language_model.model_dir, f"{corpus}/*/*.txt", split="validation")
    assert validation == pytest.approx(language_model.metrics["validation"], rel=1e-6)


def test_scores_do_not_depend_on_the_batches_and_equal_a_loop_over_examples(language_model, corpus):
    data = DataSettings(source=f"{corpus}/*/*.txt", length=32)
    folder = language_model.model_dir
    model = AutoModelForMaskedLM.from_pretrained(folder).eval().double()
    prepared = prepare(data, MaskedLMOptions(), TokenizerConfig(kind="existing", path=str(folder)), seed=0)
    total, count = 0.0, 0
    for index in range(len(prepared.test)):
        example = prepared.test[index]
        with torch.no_grad():
            logits = model(input_ids=example["input_ids"][None]).logits[0]
        total += float(functional.cross_entropy(logits, example["labels"], reduction="sum"))
        count += int((example["labels"] != -100).sum())
    for batch_size in (1, 7, 100):
        found = evaluate_model_dir(folder, data, batch_size=batch_size)
        assert found["tokens"] == count
        assert found["loss"] == pytest.approx(total / count, rel=1e-6)


def test_all_of_a_source_is_more_than_its_test_split(language_model, corpus):
    parts = [evaluate_model_dir(language_model.model_dir, f"{corpus}/*/*.txt", split=s) for s in ("train", "test")]
    everything = evaluate_model_dir(language_model.model_dir, f"{corpus}/*/*.txt", split="all")
    together = sum(part["tokens"] for part in parts) + language_model.metrics["validation"]["tokens"]
    assert everything["tokens"] == pytest.approx(together, rel=0.02)  # how many are masked is rounded by chance


@pytest.mark.parametrize(
    ("rows", "fields"),
    [
        ([("abc", "left")], {"examples": 1}),
        ([("abc", "left"), ("abc def", "left"), ("def", "left")], {"examples": 3}),
        ([("abc", "left"), ("abc def", "middle"), ("def", "right")], {"examples": 3}),
    ],
)
def test_a_new_file_is_scored_whole_whatever_could_be_learned_from_it(classifier, tmp_path, rows, fields):
    path = tmp_path / "new.jsonl"
    path.write_text("".join(json.dumps({"text": text, "label": label}) + "\n" for text, label in rows))
    found = evaluate_model_dir(classifier.model_dir, str(path))
    assert {name: found[name] for name in fields} == fields
    answers = classify(classifier.model_dir, [text for text, _ in rows])
    right = [guesses[0]["label"] == label for guesses, (_, label) in zip(answers, rows, strict=True)]
    assert found["accuracy"] == pytest.approx(sum(right) / len(rows))


def test_classes_are_the_models(classifier, tmp_path, corpus):
    found = evaluate_model_dir(classifier.model_dir, f"{corpus}/*/*.txt")
    assert found == pytest.approx(classifier.metrics["test"], rel=1e-6)
    whole = evaluate_model_dir(classifier.model_dir, f"{corpus}/*/*.txt", split="all")
    # Where a class is missing the others must keep their numbers.
    assert whole["accuracy"] > 0.9
    for folder in ("left", "right"):
        shutil.copytree(corpus / folder, tmp_path / folder)
    assert evaluate_model_dir(classifier.model_dir, f"{tmp_path}/*/*.txt", split="all")["accuracy"] > 0.9
    (tmp_path / "left").rename(tmp_path / "other")
    with pytest.raises(BadInput, match=r"does not know: other; it knows: left, middle, right"):
        evaluate_model_dir(classifier.model_dir, f"{tmp_path}/*/*.txt")


def test_masks_are_filled(language_model):
    mask = "[MASK]"
    found = fill_mask(language_model.model_dir, [f"abc {mask} def", f"{mask} abc {mask}"], top_k=3)
    assert [len(guesses) for guesses in found] == [3, 6]
    assert [guess["mask"] for guess in found[1]] == [0, 0, 0, 1, 1, 1]
    assert all(0 <= guess["score"] <= 1 for guesses in found for guess in guesses)


def test_texts_are_classified(classifier, corpus):
    texts = [(corpus / label / f"{number:02d}.txt").read_text() for number, label in enumerate(("left", "middle"))]
    found = classify(classifier.model_dir, texts)
    assert [guesses[0]["label"] for guesses in found] == ["left", "middle"]
    assert sum(guess["score"] for guess in found[0]) == pytest.approx(1)


def test_a_long_text_is_judged_as_it_is_scored(classifier, corpus):
    """Evaluation and prediction read the same pieces and average them in the same way."""
    paths = sorted(corpus.glob("*/*.txt"))
    texts = [path.read_text() for path in paths]
    predicted = classify(classifier.model_dir, texts)
    scores = evaluate_model_dir(classifier.model_dir, f"{corpus}/*/*.txt", split="all")
    assert scores["examples"] == len(paths)
    right = [guesses[0]["label"] == path.parent.name for guesses, path in zip(predicted, paths, strict=True)]
    assert scores["accuracy"] == pytest.approx(sum(right) / len(right))
    likelihoods = [
        next(guess["score"] for guess in guesses if guess["label"] == path.parent.name)
        for guesses, path in zip(predicted, paths, strict=True)
    ]
    assert scores["loss"] == pytest.approx(-sum(map(math.log, likelihoods)) / len(paths), rel=1e-5)
    tokenizer = AutoTokenizer.from_pretrained(classifier.model_dir)
    assert max(len(tokenizer(text)["input_ids"]) for text in texts) > 2 * 32, "no text is read in pieces"


def test_no_texts_have_no_answers(classifier, language_model):
    assert classify(classifier.model_dir, []) == []
    assert fill_mask(language_model.model_dir, []) == []


def test_a_limit_holds_for_a_source_that_is_scored_whole(classifier, corpus):
    data = DataSettings(source=f"{corpus}/*/*.txt", length=32, limit_documents=5)
    assert evaluate_model_dir(classifier.model_dir, data, split="all")["examples"] == 5


def test_names_of_special_tokens_in_a_text_are_letters(classifier, language_model):
    tokenizer = AutoTokenizer.from_pretrained(classifier.model_dir)
    text = "a [SEP] b [CLS] c"
    (ids,) = source_ids(tokenizer, [text])
    assert ids.count(tokenizer.sep_token_id) == ids.count(tokenizer.cls_token_id) == 1
    model = AutoModelForSequenceClassification.from_pretrained(classifier.model_dir).eval()
    with torch.no_grad():
        expected = model(input_ids=torch.tensor([ids])).logits.softmax(-1)[0]
    (guesses,) = classify(classifier.model_dir, [text])
    assert [guess["score"] for guess in guesses] == pytest.approx(expected.sort(descending=True).values.tolist())
    (filled,) = fill_mask(language_model.model_dir, ["a [SEP] [mask] b"], top_k=2)
    model = AutoModelForMaskedLM.from_pretrained(language_model.model_dir).eval()
    before, after = source_ids(tokenizer, ["a [SEP] ", " b"], strip=False)
    ids = [*before[:-1], tokenizer.mask_token_id, *after[1:]]
    with torch.no_grad():
        scores = model(input_ids=torch.tensor([ids])).logits[0, len(before) - 1].softmax(-1)
    assert [guess["score"] for guess in filled] == pytest.approx(scores.topk(2).values.tolist())


def test_texts_beyond_the_models_positions_are_bad_input_each_with_its_length(language_model):
    fits, long = f"[MASK] {'a ' * 29}", f"[MASK] {'a ' * 40}"  # [CLS] and [SEP] come to them
    assert len(fill_mask(language_model.model_dir, [fits])[0]) == 5
    with pytest.raises(BadInput, match=r"text has 43 tokens, the model takes at most 32.*\n.*43 tokens"):
        fill_mask(language_model.model_dir, [long, fits, long])


@pytest.mark.parametrize("harm", ["pickled", "cut"])
def test_weights_that_are_no_whole_safetensors_are_bad_input(language_model, corpus, tmp_path, harm):
    folder = tmp_path / "model"
    shutil.copytree(language_model.model_dir, folder)
    weights = folder / "model.safetensors"
    if harm == "pickled":
        torch.save(load_file(weights), folder / "pytorch_model.bin")
        weights.unlink()
    else:
        weights.write_bytes(weights.read_bytes()[:-100])
    for call in (lambda: fill_mask(folder, ["[MASK]"]), lambda: evaluate_model_dir(folder, f"{corpus}/*/*.txt")):
        with pytest.raises(BadInput, match="no weights can be read from safetensors"):
            call()


@pytest.mark.parametrize("content", [b"[data", b"\xff", b"data = 3", b"task = 3"])
def test_a_broken_recipe_beside_the_model_is_bad_input(language_model, corpus, tmp_path, content):
    shutil.copytree(language_model.model_dir, tmp_path / "model")
    (tmp_path / "recipe.toml").write_bytes(content)
    with pytest.raises(BadInput, match=r"recipe\.toml"):
        evaluate_model_dir(tmp_path / "model", f"{corpus}/*/*.txt")


@pytest.mark.parametrize(
    ("task", "line", "said"),
    [
        (
            "translation",
            "[task]\nname = 'translation'\nbeams = -3",
            "task.beams: must be at least 1 and at most 1,024, got -3",
        ),
        ("translation", '[task]\nname = "translation"\nbeams = "text"', "task.beams: must be an integer, got 'text'"),
        (
            "translation",
            "[task]\nname = 'translation'\nbeams = 1_000_000_000",
            "task.beams: must be at least 1 and at most 1,024",
        ),
        (
            "translation",
            "[task]\nname = 'translation'\nmax_target_length = true",
            "task.max_target_length: must be an integer, got True",
        ),
        ("translation", '[data]\nlength = "text"', "data.length: must be an integer, got 'text'"),
        (
            "regression",
            '[task]\nname = "regression"\nlabel_scale = "text"',
            "task.label_scale: must be a number, got 'text'",
        ),
    ],
)
def test_wrong_numbers_of_a_recipe_beside_the_model_are_named(tmp_path, task, line, said):
    (tmp_path / "recipe.toml").write_text(line)
    (tmp_path / "model").mkdir()
    config = {"architectures": [f"WordOrder{TASKS[task].head}"], "model_type": "wordorder-any", "problem_type": task}
    (tmp_path / "model" / "config.json").write_text(json.dumps(config))
    read = data_settings if "data" in line else saved_options
    with pytest.raises(BadInput, match=rf"recipe\.toml: {said}"):
        read(tmp_path / "model")


def test_an_empty_text_is_refused_where_no_special_token_is_added(recipe_file, tmp_path):
    overrides = ["task.name=classification", "data.validation_fraction=0.2", "training.max_steps=1"]
    recipe = read_recipe(recipe_file, [*overrides, "tokenizer.add_special_tokens=false"])
    folder = run(recipe, progress=False, output_dir=tmp_path / "bare").model_dir
    assert len(classify(folder, ["abc"])) == 1
    with pytest.raises(BadInput, match="text 2, 3 has no tokens, and this model's tokenizer adds none of its own"):
        classify(folder, ["abc", "", ""])


def test_wrong_models_texts_and_data_are_bad_input(language_model, tmp_path):
    folder = language_model.model_dir
    for call, words in [
        (lambda: fill_mask(folder, ["no mask", "none here"]), r"text has no \[MASK\].*\n.*none here"),
        (lambda: classify(folder, ["text"]), "trained for fill-mask, it cannot do text-classification"),
        (lambda: regress(folder, ["text"]), "trained for fill-mask, it cannot do text-regression"),
        (lambda: fill_mask(tmp_path, ["[MASK]"]), "holds no model"),
        (lambda: evaluate_model_dir(folder, "nowhere.txt"), "no file matches 'nowhere.txt'"),
        (lambda: evaluate_model_dir(tmp_path, "sotu"), "holds no model"),
        (
            lambda: evaluate_model_dir(folder, "sotu", changes={"task": {"name": "classification"}}),
            "for masked-lm, not for classification",
        ),
    ]:
        with pytest.raises(BadInput, match=words):
            call()


@pytest.fixture(scope="module")
def berts(language_model, tmp_path_factory):
    """A BERT and a RoBERTa for 32 tokens, plain and swapped, with the tokeniser of a run."""
    folder = tmp_path_factory.mktemp("berts")
    tokenizer = AutoTokenizer.from_pretrained(language_model.model_dir)
    sizes = {"vocab_size": len(tokenizer), "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    sizes |= {"intermediate_size": 16, "pad_token_id": tokenizer.pad_token_id}
    unused = tokenizer.pad_token_id + 1
    for name, model in (
        ("bert", BertForMaskedLM(BertConfig(max_position_embeddings=32, **sizes))),
        ("roberta", RobertaForMaskedLM(RobertaConfig(max_position_embeddings=32 + unused, **sizes))),
    ):
        model.save_pretrained(folder / name)
        swap_encoding(model, "model+tupe-r").save_pretrained(folder / f"swapped-{name}")
        for kind in (name, f"swapped-{name}"):
            tokenizer.save_pretrained(folder / kind)
    return folder


def test_a_model_of_another_package_is_bad_input(berts, corpus, tmp_path):
    folder = tmp_path / "other"
    shutil.copytree(berts / "bert", folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "model_type": "electra"}))
    for call in (
        lambda: answer(folder, ["[MASK]"]),
        lambda: evaluate_model_dir(folder, f"{corpus}/*/*.txt"),
    ):
        with pytest.raises(BadInput, match="holds a model of type 'electra', not one of this package") as caught:
            call()
        assert len(caught.value.faults) == 1


def test_a_model_of_transformers_whose_encoding_can_be_swapped_is_used_as_it_is(berts, corpus):
    assert len(answer(berts / "bert", ["abc [MASK] def"], top_k=3)[0]) == 3
    assert evaluate_model_dir(berts / "bert", f"{corpus}/*/*.txt")["tokens"] > 10


@pytest.mark.parametrize("host", ["bert", "roberta"])
def test_a_swapped_model_is_used_as_any_other(berts, corpus, host):
    folder = berts / f"swapped-{host}"
    assert len(answer(folder, ["abc [MASK] def"], top_k=3)[0]) == 3
    assert evaluate_model_dir(folder, f"{corpus}/*/*.txt")["tokens"] > 10
    with pytest.raises(BadInput, match="text has 43 tokens, the model takes at most 32"):
        answer(folder, [f"[MASK] {'a ' * 40}"])


def test_one_text_in_place_of_a_list_is_refused(classifier, language_model):
    with pytest.raises(BadInput, match=r"texts must be a list of texts, got one: 'a text'; write \[text\]"):
        classify(classifier.model_dir, "a text")
    for call in (partial(classify, classifier.model_dir), partial(fill_mask, language_model.model_dir)):
        with pytest.raises(BadInput, match="top_k must be positive, got 0"):
            call(["a [MASK] text"], top_k=0)
