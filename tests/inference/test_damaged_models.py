"""A model folder whose weights or tokenizer are not the model's is refused, with the names, by all that reads it."""

import json
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

sys.path.insert(0, str(Path(__file__).parents[1] / "models"))

from saved_folder import save

from wordorder.errors import BadInput
from wordorder.inference import evaluate_model_dir
from wordorder.inference.continuation import Continuation
from wordorder.inference.predict import answer
from wordorder.inspection import inspect_model_dir
from wordorder.models import WordOrderEncoderConfig, build_config, build_model
from wordorder.training.checkpoints.weights import load_body

TEXT = "the union of states is strong"


@pytest.fixture
def encoder(tmp_path):
    return Path(save(tmp_path / "encoder", "encoder", "masked-lm", encoding="tupe-r"))


@pytest.fixture
def decoder(tmp_path):
    return Path(save(tmp_path / "decoder", "decoder", "causal-lm", encoding="rope", bos_token_id=2))


def uses(folder, tmp_path):
    """All that gives an answer from a model, by name."""
    text = tmp_path / "text.txt"
    text.write_text(f"{TEXT} " * 400)
    every = {
        "evaluate": lambda: evaluate_model_dir(folder, str(text), split="all"),
        "inspect": lambda: inspect_model_dir(folder, tmp_path / "out", text=text if folder.name == "decoder" else None),
    }
    if folder.name == "decoder":
        return {**every, "generate": lambda: list(Continuation(folder).write(TEXT, max_new_tokens=2))}
    return {**every, "predict": lambda: answer(folder, ["the [MASK] of states"])}


@pytest.mark.parametrize("kind", ["encoder", "decoder"])
def test_a_configuration_that_asks_for_tuples_is_read_all_the_same(kind, tmp_path, request):
    folder = request.getfixturevalue(kind)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"return_dict": False}))
    for use in uses(folder, tmp_path).values():
        assert use()


def change(folder, how):
    path = folder / "model.safetensors"
    weights = how(load_file(path))
    save_file(weights, path, metadata={"format": "pt"})


def refused(folder, tmp_path, *named, but=()):
    for name, use in uses(folder, tmp_path).items():
        if name in but:
            continue
        with pytest.raises(BadInput) as error:
            use()
        for words in named:
            assert words in str(error.value), name


@pytest.mark.parametrize("kind", ["encoder", "decoder"])
def test_whole_models_answer(kind, tmp_path, request):
    for use in uses(request.getfixturevalue(kind), tmp_path).values():
        use()


@pytest.mark.parametrize("kind", ["encoder", "decoder"])
def test_a_renamed_weight_is_missing(kind, tmp_path, request):
    folder = request.getfixturevalue(kind)
    lost = min(load_file(folder / "model.safetensors"))
    change(folder, lambda weights: {(f"{n}x" if n == lost else n): weight for n, weight in weights.items()})
    refused(folder, tmp_path, "weights are missing from the file: ", lost)


def test_all_renamed_are_missing(encoder, tmp_path):
    change(encoder, lambda weights: {f"other.{name}": weight for name, weight in weights.items()})
    refused(encoder, tmp_path, "weights are missing from the file: ", "model.")


def test_whole_numbers_are_no_weights(encoder, tmp_path):
    name = min(load_file(encoder / "model.safetensors"))
    change(encoder, lambda weights: {**weights, name: weights[name].to(torch.int64)})
    refused(encoder, tmp_path, f"weights are not of a floating-point type: {name}")


def test_own_encodings_that_are_no_tables_are_named():
    for value in ("x", [1], {"a": 1}):
        with pytest.raises(BadInput, match="own_encodings must be a table of tables"):
            WordOrderEncoderConfig(own_encodings=value)


def test_other_shapes_are_named(encoder, tmp_path):
    name = min(load_file(encoder / "model.safetensors"))
    change(encoder, lambda weights: {**weights, name: torch.zeros(3, 5)})
    refused(encoder, tmp_path, f"weights have other sizes than config.json says: {name}")


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_not_finite_are_named(encoder, tmp_path, value):
    name = min(load_file(encoder / "model.safetensors"))
    change(encoder, lambda weights: {**weights, name: weights[name].clone().index_fill_(0, torch.tensor(0), value)})
    refused(encoder, tmp_path, f"weights are not finite: {name}")


def test_training_starts_from_no_such_weights(encoder):
    name = next(name for name in load_file(encoder / "model.safetensors") if name.startswith("model."))
    change(encoder, lambda weights: {**weights, name: torch.full_like(weights[name], float("nan"))})
    fields = json.loads((encoder / "config.json").read_text())
    names = ("vocab_size", "pad_token_id", "hidden_size", "num_hidden_layers", "num_attention_heads", "encoding")
    config = build_config("encoder", max_position_embeddings=32, **{name: fields[name] for name in names})
    model, weights = build_model(config, "classification", seed=0), load_file(encoder / "model.safetensors")
    change(encoder, lambda weights: {**weights, name: torch.ones_like(weights[name], dtype=torch.int64)})
    with pytest.raises(BadInput, match=rf"{name} is not of a floating-point type"):
        load_body(model, encoder, with_head=False)
    change(encoder, lambda _: weights)
    with pytest.raises(BadInput, match=rf"{name} is not finite"):
        load_body(model, encoder, with_head=False)
    # a head that is new may have been anything
    head = {n: torch.full_like(w, float("nan")) for n, w in load_file(encoder / "model.safetensors").items()}
    change(
        encoder,
        lambda weights: {n: head[n] if n.startswith("head") else w.nan_to_num() for n, w in weights.items()},
    )
    load_body(model, encoder, with_head=False)


def rewrite_tokenizer(folder, how):
    path = folder / "tokenizer.json"
    content = json.loads(path.read_text())
    how(content)
    path.write_text(json.dumps(content))


def shift(content):
    vocabulary = content["model"]["vocab"]
    content["model"]["vocab"] = {token: number + 1 for token, number in vocabulary.items()}
    for token in content["added_tokens"]:
        token["id"] += 1


def grow(content):
    content["model"]["vocab"]["another"] = 999


@pytest.mark.parametrize(
    ("kind", "how", "named"),
    [
        ("encoder", shift, "the tokenizer's pad token has the id 1, config.json says 0"),
        ("decoder", shift, "the tokenizer's eos token has the id 4, config.json says 3"),
        ("encoder", grow, "the tokenizer has ids up to 999, the model has"),
        ("decoder", grow, "the tokenizer has ids up to 999, the model has"),
    ],
)
def test_a_tokenizer_that_is_not_the_models_is_refused(kind, how, named, tmp_path, request):
    folder = request.getfixturevalue(kind)
    rewrite_tokenizer(folder, how)
    refused(folder, tmp_path, named, but=() if kind == "decoder" else ("inspect",))  # which reads no text of an encoder


@pytest.mark.parametrize("kind", ["encoder", "decoder"])
def test_another_special_token_may_be_taken_for_padding(kind, tmp_path, request):
    folder = request.getfixturevalue(kind)
    path = folder / "tokenizer_config.json"
    content = json.loads(path.read_text())
    path.write_text(json.dumps({**content, "pad_token": content["sep_token"]}))
    for name, use in uses(folder, tmp_path).items():
        assert use() is not None, name


def test_a_tokenizer_that_has_lost_its_mask_token_fills_none(encoder):
    path = encoder / "tokenizer_config.json"
    content = json.loads(path.read_text())
    del content["mask_token"]
    path.write_text(json.dumps(content))
    assert len(answer(encoder, ["the [MASK] of states"])[0]) == 5  # it is known by its name
    path = encoder / "tokenizer.json"
    path.write_text(path.read_text().replace('"[MASK]"', '"[LOST]"'))
    with pytest.raises(BadInput, match="the tokenizer has no mask token"):
        answer(encoder, ["the [MASK] of states"])
