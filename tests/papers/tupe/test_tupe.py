"""A converted checkpoint computes what the reference code computes, and every fault of a checkpoint is named."""

import json

import pytest
import torch
import tupe_reference as ref
from safetensors.torch import load_file, save_file
from torch.testing import assert_close
from transformers import AutoModel, AutoModelForMaskedLM, AutoModelForSequenceClassification

import wordorder.models  # noqa: F401  registers the model types
from wordorder.errors import BadInput
from wordorder.ops import Contiguous
from wordorder.papers.folder import ConversionReport
from wordorder.papers.tupe import convert_tupe

EXACT = {"rtol": 1e-10, "atol": 1e-10}
HEAD = "sentence_classification_head"


@pytest.fixture
def convert(tmp_path):
    """Save weights as the reference code does, convert them, and give the folder and the report."""

    def convert(w, args=..., *, stream=False, **options) -> tuple[str, ConversionReport]:
        path = ref.save(tmp_path / "model.pt", w, args, stream=stream)
        return str(tmp_path / "out"), convert_tupe(path, tmp_path / "out", **options)

    return convert


def faults(convert, *arguments, **options) -> str:
    with pytest.raises(BadInput) as error:
        convert(*arguments, **options)
    return "\n".join(error.value.faults)


@pytest.mark.parametrize("relative", [True, False], ids=["tupe-r", "tupe-a"])
@pytest.mark.parametrize("pre", [False, True], ids=["post", "pre"])
@pytest.mark.parametrize("embedding_norm", [True, False], ids=["embedding norm", "none"])
def test_logits_are_the_reference_s(convert, relative, pre, embedding_norm):
    w = ref.weights(relative=relative, pre=pre, embedding_norm=embedding_norm)
    folder, _ = convert(w, stream=pre)
    model = AutoModelForMaskedLM.from_pretrained(folder).eval()
    assert model.dtype == torch.float64
    assert model.config.encoding == ("tupe-r" if relative else "tupe-a")

    ids, mask = ref.batch()
    ours, theirs = model(ids, attention_mask=mask).logits, ref.lm_logits(w, ids)
    assert ours.std() > 0.5
    assert_close(ours[mask.bool()], theirs[mask.bool()], **EXACT)
    whole, _ = ref.batch((9, 9))
    assert_close(model(whole).logits, ref.lm_logits(w, whole), **EXACT)


def test_every_position_and_bucket_is_the_reference_s(convert):
    w = ref.weights()
    folder, report = convert(w)
    assert report.config["max_position_embeddings"] == ref.MAXLEN
    ids, _ = ref.batch((ref.MAXLEN,))
    model = AutoModelForMaskedLM.from_pretrained(folder).eval()
    assert_close(model(ids).logits, ref.lm_logits(w, ids), **EXACT)
    # the softmax of a row cancels theta1, so logits do not show it
    ours = model.model.encoder.encoding.parts["tupe"](Contiguous(40), Contiguous(40)).dense()[0]
    theirs = {name.removeprefix("sentence_encoder."): tensor for name, tensor in w.items()}
    assert_close(ours, ref.position_bias(theirs, 40, ref.H), **EXACT)


@pytest.mark.parametrize("dense", [True, False])
@pytest.mark.parametrize("lm_head", [True, False])
def test_classification_head_is_the_reference_s(convert, dense, lm_head):
    w = ref.weights(heads=[(HEAD, 3)], dense=dense, lm_head=lm_head)
    folder, report = convert(w)
    model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    assert (model.config.num_labels, model.config.classifier_dense) == (3, dense)
    ids, mask = ref.batch()
    assert_close(model(ids, attention_mask=mask).logits, ref.class_logits(w, ids, HEAD), **EXACT)
    assert report.architectures[0] == "WordOrderEncoderForSequenceClassification"
    assert len(report.architectures) == 1 + lm_head
    if lm_head:
        masked = AutoModelForMaskedLM.from_pretrained(folder).eval()
        assert_close(masked(ids, attention_mask=mask).logits[0], ref.lm_logits(w, ids)[0], **EXACT)


def test_each_class_finds_all_its_weights_in_one_folder(convert):
    folder, _ = convert(ref.weights(heads=[(HEAD, 2)]))
    for auto, foreign in (
        (AutoModelForMaskedLM, {"dense.weight", "dense.bias", "classifier.weight", "classifier.bias"}),
        (AutoModelForSequenceClassification, {"head.dense.weight", "head.dense.bias", "head.norm.weight"}),
    ):
        _, info = auto.from_pretrained(folder, output_loading_info=True)
        assert not info["missing_keys"]
        assert not info["mismatched_keys"]
        assert foreign <= set(info["unexpected_keys"])
    assert AutoModel.from_pretrained(folder).dtype == torch.float64


def test_one_class_is_regression(convert):
    folder, _ = convert(ref.weights(heads=[(HEAD, 1)]))
    model = AutoModelForSequenceClassification.from_pretrained(folder)
    assert (model.config.num_labels, model.config.problem_type) == (1, "regression")


def test_of_several_heads_one_is_chosen(convert):
    w = ref.weights(heads=[("mnli", 3), ("rte", 2)])
    assert "choose with --head: mnli, rte" in faults(convert, w)
    assert "it has: mnli, rte" in faults(convert, w, head="cola")
    folder, report = convert(w, ref.arguments(w, num_classes=3), head="rte")
    assert set(report.ignored) == {name for name in w if ".mnli." in name}
    ids, _ = ref.batch()
    model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    assert_close(model(ids[:1]).logits, ref.class_logits(w, ids[:1], "rte"), **EXACT)


def test_configuration_says_what_the_reference_code_fixes(convert):
    folder, report = convert(ref.weights())
    config = AutoModelForMaskedLM.from_pretrained(folder).config
    assert config.encoding_options == {
        "cls": "position-0",
        "theta": "table-rows",
        "projection_bias": True,
        "reset": "reference-code",
        "buckets": 32,
        "max_distance": 128,
    }
    assert (config.vocab_size, config.hidden_size, config.num_hidden_layers) == (ref.V, ref.D, ref.L)
    assert (config.num_attention_heads, config.intermediate_size) == (ref.H, ref.FF)
    assert (config.hidden_dropout_prob, config.attention_probs_dropout_prob) == (0.2, 0.15)
    assert (config.classifier_dropout, config.layer_norm_eps) == (0.05, 1e-5)
    assert (config.norm_placement, config.embedding_norm, config.tie_word_embeddings) == ("post", True, True)
    ids = [getattr(config, f"{name}_token_id") for name in ("bos", "cls", "pad", "eos", "sep", "mask")]
    assert ids == [0, 0, 1, 2, 2, ref.V - 1]
    for name, value in report.config.items():
        assert getattr(config, name) == value


def test_tupe_a_has_no_relative_terms_and_options_of_its_own(convert):
    _, report = convert(ref.weights(relative=False))
    assert report.config["encoding_options"] == {"cls": "position-0", "theta": "table-rows", "projection_bias": True}


def test_relu_is_taken_over_in_the_layers_and_in_the_head(convert):
    w = ref.weights()
    folder, _ = convert(w, ref.arguments(w, activation_fn="relu"))
    ids, _ = ref.batch((9, 9))
    model = AutoModelForMaskedLM.from_pretrained(folder).eval()
    assert_close(model(ids).logits, ref.lm_logits(w, ids, activation="relu"), **EXACT)


def test_an_output_layer_of_its_own_is_not_tied(convert):
    w = ref.weights()
    w["lm_head.weight"] = torch.randn(ref.V, ref.D, dtype=torch.float64)
    folder, report = convert(w)
    model = AutoModelForMaskedLM.from_pretrained(folder).eval()
    assert model.config.tie_word_embeddings is False
    assert any("not tied" in note for note in report.notes)
    ids, _ = ref.batch((9,))
    assert_close(model(ids).logits, ref.lm_logits(w, ids), **EXACT)


def test_the_copy_of_the_embeddings_may_be_missing(convert):
    w = ref.weights()
    copy = w.pop("lm_head.weight")
    folder, report = convert(w)
    assert report.config["tie_word_embeddings"] is True
    ids, _ = ref.batch((9,))
    logits = AutoModelForMaskedLM.from_pretrained(folder).eval()(ids).logits
    assert_close(logits, ref.lm_logits({**w, "lm_head.weight": copy}, ids), **EXACT)


def test_fused_projections_and_buckets_of_a_later_version(convert):
    w = ref.weights()
    fused = dict(w)
    for end in ("weight", "bias"):
        parts = [fused.pop(f"sentence_encoder.pos_{side}_linear.{end}") for side in "qk"]
        fused[f"sentence_encoder.pos_proj.{end}"] = torch.cat(parts)
    index = range(ref.MAXLEN)
    buckets = torch.tensor([[16 if i == 0 else 32 if j == 0 else ref.bucket(i, j) for j in index] for i in index])
    folder, report = convert({**fused, "sentence_encoder.rp_bucket": buckets})
    assert report.ignored == ("sentence_encoder.rp_bucket",)
    assert len(report.mapped["sentence_encoder.pos_proj.weight"]) == 2
    ids, _ = ref.batch((9,))
    assert_close(AutoModelForMaskedLM.from_pretrained(folder).eval()(ids).logits, ref.lm_logits(w, ids), **EXACT)


def test_other_buckets_are_refused(convert):
    w = ref.weights()
    buckets = torch.zeros(ref.MAXLEN, ref.MAXLEN, dtype=torch.long)
    assert "rp_bucket" in faults(convert, {**w, "sentence_encoder.rp_bucket": buckets})
    assert "rp_bucket" in faults(convert, {**w, "sentence_encoder.rp_bucket": buckets[:3]})


@pytest.mark.parametrize(
    ("dtype", "written"),
    [
        (torch.float16, torch.float32),
        (torch.bfloat16, torch.float32),
        (torch.float32, torch.float32),
        (torch.float64, torch.float64),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_numbers_are_kept_exactly(convert, dtype, written, stream):
    w = ref.weights(dtype=dtype)
    folder, report = convert(w, stream=stream)
    assert report.dtype == str(written).removeprefix("torch.")
    stored = load_file(f"{folder}/model.safetensors")
    assert {tensor.dtype for tensor in stored.values()} == {written}
    assert report.parameters == sum(tensor.numel() for tensor in stored.values())
    mapped = {
        theirs: torch.cat([stored[name] for name in ours])
        for theirs, ours in report.mapped.items()
        if theirs != "lm_head.weight"
    }
    assert set(mapped) == set(w) - {"lm_head.weight"}
    for name, tensor in mapped.items():
        assert torch.equal(tensor, w[name].to(written)), name


@pytest.mark.parametrize("prefix", ["decoder.", ""])
def test_safetensors_with_a_config_is_the_same(convert, tmp_path, prefix):
    w = ref.weights()
    folder, _ = convert(w)
    stored = {name: tensor.clone() for name, tensor in ref.prefixed(w, prefix).items()}
    save_file(stored, tmp_path / "model.safetensors")
    (tmp_path / "args.json").write_text(json.dumps(vars(ref.arguments(w))))
    convert_tupe(tmp_path / "model.safetensors", tmp_path / "again", config=tmp_path / "args.json")
    first, second = (load_file(f"{path}/model.safetensors") for path in (folder, tmp_path / "again"))
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first)
    configs = [json.loads((tmp_path / name / "config.json").read_text()) for name in ("out", "again")]
    assert configs[0] == configs[1]


def test_config_takes_the_place_of_args_and_defaults_stand_in_for_both(convert):
    w = ref.weights()
    _, report = convert(w, None, config={"dropout": 0.3})
    assert report.config["hidden_dropout_prob"] == 0.3
    assert report.config["num_attention_heads"] == ref.H  # from the relative table
    assert not any("no args" in note for note in report.notes)
    _, report = convert(w, None, overwrite=True)
    assert report.config["hidden_dropout_prob"] == 0.1
    assert any("no args" in note for note in report.notes)
    assert "encoder_attention_heads is missing" in faults(convert, ref.weights(relative=False), None, overwrite=True)


def test_dropout_that_has_no_counterpart_is_noted(convert):
    w = ref.weights()
    _, report = convert(w, ref.arguments(w, activation_dropout=0.1))
    assert any("activation_dropout=0.1" in note for note in report.notes)


@pytest.mark.parametrize("relative", [True, False], ids=["tupe-r", "tupe-a"])
@pytest.mark.parametrize("pre", [False, True], ids=["post", "pre"])
def test_saving_again_keeps_names_and_numbers(convert, tmp_path, relative, pre):
    w = ref.weights(relative=relative, pre=pre)
    folder, _ = convert(w)
    model = AutoModelForMaskedLM.from_pretrained(folder)
    model.save_pretrained(tmp_path / "again")
    again = AutoModelForMaskedLM.from_pretrained(tmp_path / "again")
    configs = [json.loads((tmp_path / name / "config.json").read_text()) for name in ("out", "again")]
    assert configs[0] == configs[1]
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, again.state_dict()[name]), name


def test_missing_and_extra_weights_are_listed_in_one_error(convert):
    w = ref.weights()
    del w["sentence_encoder.layers.1.fc1.bias"], w["sentence_encoder.pos_ln.weight"]
    w["sentence_encoder.embed_positions.weight"] = torch.zeros(3)
    w["sentence_encoder.layers.5.fc1.bias"] = torch.zeros(3)
    said = faults(convert, w)
    for word in (
        "missing: sentence_encoder.pos_ln.weight, sentence_encoder.layers.1.fc1.bias",
        "sentence_encoder.embed_positions.weight, sentence_encoder.layers.5.fc1.bias",
    ):
        assert word in said


def test_a_model_without_layers_is_refused(convert):
    w = {name: tensor for name, tensor in ref.weights().items() if ".layers." not in name}
    assert "weights are missing: sentence_encoder.layers.0.fc1.weight" in faults(convert, w)


def test_version_numbers_may_be_there(convert):
    w = {**ref.weights(), "version": torch.tensor([3.0]), "sentence_encoder.version": torch.tensor([1])}
    _, report = convert(w)
    assert report.ignored == ("version", "sentence_encoder.version")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"activation_fn": "gelu_accurate"}, "activation_fn must be one of gelu, relu"),
        ({"dropout": 1.5}, "dropout must be a number in [0, 1), got 1.5"),
        ({"attention_dropout": "none"}, "attention_dropout must be a number"),
        ({"pooler_dropout": True}, "pooler_dropout must be a number"),
        ({"dropout": float("nan")}, "dropout must be a number"),
    ],
)
def test_arguments_that_have_no_counterpart_are_named(convert, changes, said):
    w = ref.weights()
    assert said in faults(convert, w, ref.arguments(w, **changes))


def test_arguments_may_be_left_out(convert):
    w = ref.weights()
    absent = {name: ... for name in ("encoder_layers", "rel_pos", "max_positions", "dropout", "activation_fn")}
    _, report = convert(w, ref.arguments(w, **absent))
    assert report.config["hidden_dropout_prob"] == 0.1


@pytest.mark.parametrize("dense", [True, False])
def test_an_activation_of_the_classifier_matters_where_there_is_one(convert, dense):
    w = ref.weights(heads=[(HEAD, 2)], dense=dense)
    args = ref.arguments(w, pooler_activation_fn="relu")
    if dense:
        assert "pooler_activation_fn must be one of tanh" in faults(convert, w, args)
    else:
        convert(w, args)


def test_heads_that_do_not_divide_the_channels(convert):
    w = ref.weights(relative=False)
    assert "hidden_size must be a multiple of num_attention_heads, got 32 and 5" in faults(
        convert, w, ref.arguments(w, encoder_attention_heads=5)
    )


@pytest.mark.parametrize(
    ("name", "tensor", "said"),
    [
        ("pos_ln.bias", torch.zeros(31), "pos_ln.bias has shape (31,) instead of (32,)"),
        ("layers.1.fc2.weight", torch.zeros(64, 32), "fc2.weight has shape (64, 32) instead of (32, 64)"),
        ("layers.0.self_attn.in_proj_weight", torch.zeros(32, 32), "has shape (32, 32) instead of (96, 32)"),
        ("pos.weight", torch.zeros(161), "pos.weight has shape (161,)"),
        ("pos.weight", torch.zeros(1, 32), "max_position_embeddings must be positive, got 0"),
        ("relative_attention_bias.weight", torch.zeros(32, 4), "buckets"),
        ("emb_layer_norm.bias", torch.zeros(32, dtype=torch.long), "holds torch.int64 numbers"),
    ],
)
def test_each_wrong_shape_or_type_is_named(convert, name, tensor, said):
    assert said in faults(convert, {**ref.weights(), f"sentence_encoder.{name}": tensor})


def test_all_faults_of_arguments_or_of_weights_are_reported_at_once(convert):
    w = ref.weights()
    del w["lm_head.bias"]
    w["sentence_encoder.pos_ln.bias"] = torch.zeros(3)
    assert len(faults(convert, w).splitlines()) == 2
    assert len(faults(convert, w, ref.arguments(w, activation_fn="tanh", dropout=2)).splitlines()) == 2


def test_a_model_of_something_else_is_refused(convert):
    assert "embed_tokens" in faults(convert, torch.nn.Linear(3, 4).state_dict())
    assert "both with and without" in faults(
        convert, {"decoder.lm_head.bias": torch.ones(1), "lm_head.bias": torch.ones(1)}
    )


def test_the_report_is_written_too(convert, tmp_path):
    _, report = convert({**ref.weights(), "version": torch.tensor([3.0])})
    written = json.loads((tmp_path / "out" / "conversion.json").read_text())
    assert written["checkpoint"] == "model.pt"
    assert written["ignored"] == ["version"]
    assert written["mapped"]["lm_head.bias"] == ["head.decoder.bias"]
    assert (
        tuple(written["mapped"]["sentence_encoder.relative_attention_bias.weight"])
        == (report.mapped["sentence_encoder.relative_attention_bias.weight"])
    )
    assert str(tmp_path) not in json.dumps(written)
