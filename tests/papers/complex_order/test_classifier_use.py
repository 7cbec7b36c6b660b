"""Classifiers where they are used: recipes, pipelines, word vectors, cost before training."""

import json
from itertools import product

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from torch.testing import assert_close
from transformers import PreTrainedTokenizerFast, pipeline

from wordorder.cost import cost
from wordorder.errors import BadInput
from wordorder.models import build_config, build_model

WORDS = {"[PAD]": 0, "[UNK]": 1, "a": 2, "b": 3, "c": 4}
SIZES = {"vocab_size": 5, "hidden_size": 4, "num_attention_heads": 2, "pad_token_id": 0}
ARCHITECTURES = ["bag-of-words", "convolution", "recurrent", "transformer"]


def saved(folder, **fields):
    labels = {"id2label": {0: "no", 1: "yes"}, "label2id": {"no": 0, "yes": 1}}
    model = build_model(build_config("classifier", **SIZES, **labels, **fields), "classification", seed=0).eval()
    words = Tokenizer(models.WordLevel(WORDS, unk_token="[UNK]"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    model.save_pretrained(folder)
    PreTrainedTokenizerFast(tokenizer_object=words, pad_token="[PAD]", unk_token="[UNK]").save_pretrained(folder)
    return model


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_pipeline_classifies_texts_of_any_length(architecture, tmp_path):
    model = saved(tmp_path, architecture=architecture, encoding="complex-order", complex_valued=True)
    pipe = pipeline("text-classification", str(tmp_path), device="cpu")
    texts = ["a b", "b", "", "c a a b a b c"]
    answers = pipe(texts, top_k=None, batch_size=4)
    for text, answer in zip(texts, answers, strict=True):
        ids = torch.tensor([[WORDS[word] for word in text.split()]], dtype=torch.long)
        expected = model(ids).logits.softmax(-1)[0]
        found = {row["label"]: row["score"] for row in answer}
        assert_close(torch.tensor([found["no"], found["yes"]]), expected.detach(), rtol=1e-5, atol=1e-6)
    assert pipe("")[0]["score"] >= 0.5


@pytest.mark.parametrize(
    ("encoding", "complex_valued"), [("none", False), ("complex-order", False), ("complex-order", True)]
)
def test_embeddings_start_from_word_vectors(encoding, complex_valued, tmp_path):
    (tmp_path / "vectors.txt").write_text("2 4\nb 1 2 3 4\nother 0 0 0 0\n", encoding="utf-8")
    model = saved(tmp_path, architecture="convolution", encoding=encoding, complex_valued=complex_valued)
    before = model.get_input_embeddings().weight.detach().clone()
    found = model.load_word_vectors(tmp_path / "vectors.txt", WORDS)
    assert found == 1
    after = model.get_input_embeddings().weight
    assert after[3].tolist() == [1, 2, 3, 4]
    assert torch.equal(after[[0, 1, 2, 4]], before[[0, 1, 2, 4]])
    narrow = build_model(build_config("classifier", **{**SIZES, "hidden_size": 6}), "classification", seed=0)
    with pytest.raises(ValueError, match="holds vectors of 4 channels, but the embedding has 6"):
        narrow.load_word_vectors(tmp_path / "vectors.txt", WORDS)


@pytest.mark.parametrize("encoding", ["none", "complex-order"])
def test_padding_is_zero_whatever_vector_a_file_has_for_it(encoding, tmp_path):
    model = saved(tmp_path, architecture="bag-of-words", encoding=encoding)
    (tmp_path / "vectors.txt").write_text("[PAD] 1 1 1 1\nb 1 2 3 4\n", encoding="utf-8")
    assert model.load_word_vectors(tmp_path / "vectors.txt", WORDS) == 2
    padding = torch.tensor([[WORDS["[PAD]"]] * 3])
    assert_close(model(padding).logits, model.classifier.bias[None], rtol=0, atol=0)


def test_shared_amplitudes_take_no_word_vectors(tmp_path):
    options = {"encoding": "complex-order", "encoding_options": {"amplitude": "dimension-sharing"}}
    model = build_model(build_config("classifier", **SIZES, **options), "classification", seed=0)
    with pytest.raises(ValueError, match="amplitude='full'"):
        model.load_word_vectors(tmp_path / "vectors.txt", WORDS)


@pytest.mark.parametrize("encoding", ["learned", "complex-order", "complex complex-order"])
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_what_a_classifier_costs(architecture, encoding):
    *kind, name = encoding.split()
    fields = {"architecture": architecture, "encoding": name, "complex_valued": bool(kind), "filters": 6}
    config = build_config("classifier", **{**SIZES, "vocab_size": 50, "hidden_size": 16}, **fields, num_labels=3)
    found = cost(config, "classification", length=12, batch_size=2)
    parts = found["parameters"]
    total = sum(parameter.numel() for parameter in build_model(config, "classification", seed=0).parameters())
    assert parts.pop("total") == total == sum(parts.values())
    assert parts["embedding"] == 50 * 16
    assert sum(found["encoding_parameters"].values()) == parts["encoding"]
    assert found["flops_per_token"] > found["forward_flops_per_token"] > 0


def test_flops_of_a_convolution_by_hand():
    config = build_config("classifier", architecture="convolution", encoding="none", filters=6, **SIZES, num_labels=3)
    found = cost(config, "classification", length=12)
    per_token = 2 * (3 + 4 + 5) * 4 * 6  # one window per token and size, filters times channels times tokens seen
    assert found["forward_flops_per_token"] == per_token + round(2 * 3 * 6 * 3 / 12)


def test_a_recipe_trains_a_classifier_from_word_vectors(tmp_path):
    from wordorder.training import read_recipe, run

    rows = [{"text": " ".join(words), "label": words[0]} for words in product("ab", repeat=6)]
    (tmp_path / "texts.jsonl").write_text("\n".join(json.dumps(row) for row in rows), encoding="utf-8")
    (tmp_path / "vectors.txt").write_text("a 1 0 0 0 0 0 0 0\nb 0 1 0 0 0 0 0 0\n", encoding="utf-8")
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(
        f"""
        [data]
        source = "{tmp_path}/texts.jsonl"
        length = 8

        [task]
        name = "classification"
        [tokenizer]
        kind = "word"
        [model]
        network = "classifier"
        architecture = "convolution"
        encoding = "complex-order"
        complex_valued = true
        hidden_size = 8
        filters = 4
        word_vectors = "{tmp_path}/vectors.txt"
        [training]
        output_dir = "{tmp_path}/run"
        max_steps = 2
        learning_rate = 1e-9
        """,
        encoding="utf-8",
    )
    result = run(read_recipe(recipe), progress=False)
    assert 0 <= result.metrics["test"]["accuracy"] <= 1
    model = build_model(build_config("classifier", **SIZES), "classification", seed=0)
    model = type(model).from_pretrained(result.model_dir)
    vocabulary = json.loads((result.model_dir / "tokenizer.json").read_text(encoding="utf-8"))["model"]["vocab"]
    weight = model.get_input_embeddings().weight.detach()
    assert_close(weight[vocabulary["b"]], torch.eye(8)[1], rtol=0, atol=1e-6)
    missing = read_recipe(recipe, [f"model.word_vectors={tmp_path}/none.txt", f"training.output_dir={tmp_path}/other"])
    with pytest.raises(BadInput, match=r"model.word_vectors: .*there is no file"):
        run(missing, progress=False)
