import json

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch.testing import assert_close
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForMaskedLM,
    AutoModelForQuestionAnswering,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
)

from wordorder.encodings import CATALOG
from wordorder.models import build_config, build_model

NAMES = [*(name for name, kind in CATALOG.items() if "encoder" not in kind.refused_in), "learned+t5"]
HEADS = {
    "masked-lm": AutoModelForMaskedLM,
    "classification": AutoModelForSequenceClassification,
    "token-classification": AutoModelForTokenClassification,
    "question-answering": AutoModelForQuestionAnswering,
}
SIZES = {
    "vocab_size": 50,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
}


def build(encoding="tupe-r", task="masked-lm", **fields):
    torch.manual_seed(0)
    config = build_config("encoder", encoding=encoding, num_labels=3, **{**SIZES, "initializer_range": 0.3, **fields})
    return build_model(config, task, seed=1).eval()


def ids(batch=2, length=9):
    return torch.randint(1, 50, (batch, length))


def logits(output):
    return torch.stack([output.start_logits, output.end_logits]) if "start_logits" in output else output.logits


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("task", HEADS)
def test_save_and_load_in_every_head(name, task, tmp_path):
    model, x = build(name, task), ids()
    model.save_pretrained(tmp_path)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["config.json", "model.safetensors"]
    again, info = HEADS[task].from_pretrained(tmp_path, output_loading_info=True)
    assert type(again) is type(model)
    assert not any(info[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    assert_close(logits(again(x)), logits(model(x)), rtol=0, atol=0)


def test_auto_classes_know_the_base_model(tmp_path):
    model = build()
    model.save_pretrained(tmp_path)
    assert AutoConfig.from_pretrained(tmp_path).model_type == "wordorder-encoder"
    base = AutoModel.from_pretrained(tmp_path)
    x = ids()
    assert_close(base(x).last_hidden_state, model.model(x).last_hidden_state, rtol=0, atol=0)


def test_missing_weights_are_drawn_and_loaded_ones_are_kept(tmp_path):
    body = build().model
    with torch.no_grad():
        body.encoder.embedding.weight[0] = 7.0  # a padding row that training moved
    body.save_pretrained(tmp_path)
    model = AutoModelForSequenceClassification.from_pretrained(tmp_path)
    for name, parameter in body.named_parameters():
        assert torch.equal(parameter, model.get_parameter(f"model.{name}")), name
    assert 0.1 < model.dense.weight.std() < 0.5
    assert (model.dense.bias == 0).all()


@pytest.mark.parametrize(("name", "kept", "drawn"), [("kerple", "raw_r1", "raw_r2"), ("fire", "c", "outer_weight")])
def test_of_an_encoding_with_starting_values_only_what_is_missing_is_drawn(name, kept, drawn, tmp_path):
    model = build(name)
    model.save_pretrained(tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    names = {part: next(key for key in weights if key.endswith(f"{name}.{part}")) for part in (kept, drawn)}
    weights[names[kept]] += 3.0  # what training made of it
    missing = weights.pop(names[drawn])
    save_file(weights, tmp_path / "model.safetensors", metadata={"format": "pt"})
    again = AutoModelForMaskedLM.from_pretrained(tmp_path)
    assert torch.equal(again.get_parameter(names[kept]), weights[names[kept]])
    assert not torch.equal(again.get_parameter(names[drawn]), missing)
    assert again.get_parameter(names[drawn]).isfinite().all()


@pytest.mark.parametrize("name", NAMES)
def test_eager_equals_sdpa(name):
    model, x, mask = build(name), ids(3, 11), torch.ones(3, 11).long()
    mask[1, 6:] = 0
    mask[2, :4] = 0
    sdpa = model(x, attention_mask=mask)
    model.set_attn_implementation("eager")
    eager = model(x, attention_mask=mask, output_attentions=True, output_hidden_states=True)
    assert_close(sdpa.logits[mask.bool()], eager.logits[mask.bool()], rtol=1e-4, atol=1e-4)
    assert len(eager.attentions) == 2
    assert len(eager.hidden_states) == 3
    for weights in eager.attentions:  # in the caller's columns: no weight on padding
        assert (weights.transpose(1, 3)[~mask.bool()] == 0).all()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("task", HEADS)
def test_padding_side_changes_nothing(name, task):
    model, text = build(name, task).double(), ids(1, 7)
    right, left = torch.nn.functional.pad(text, (0, 4)), torch.nn.functional.pad(text, (4, 0))
    outputs = [logits(model(x, attention_mask=(x > 0).long())) for x in (text, right, left)]
    if task != "classification":
        outputs = [
            y[..., where, :] if task != "question-answering" else y[..., where]
            for y, where in zip(outputs, (slice(7), slice(7), slice(4, 11)), strict=True)
        ]
    assert_close(outputs[1], outputs[0], rtol=1e-10, atol=1e-10)
    assert_close(outputs[2], outputs[0], rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", NAMES)
def test_packed_by_position_ids_equals_separate(name):
    model, texts = build(name).double(), [ids(1, 5), ids(1, 8)]
    position_ids = torch.cat([torch.arange(5), torch.arange(8)])[None]
    packed = model(torch.cat(texts, 1), position_ids=position_ids).logits
    assert_close(packed, torch.cat([model(text).logits for text in texts], 1), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", ["rope", "tupe-r", "learned+t5"])
def test_one_example_alone_equals_it_in_a_batch(name):
    model, x = build(name), ids(4, 9)
    assert_close(model(x[2:3]).logits, model(x).logits[2:3], rtol=1e-5, atol=1e-5)
    embeds = model.get_input_embeddings()(x)
    assert_close(model(inputs_embeds=embeds).logits, model(x).logits)


def test_loss_is_the_mean_over_labelled_tokens_sparse_or_not():
    dense, sparse, x = build(), build(sparse_prediction=True), ids(3, 9)
    labels = torch.where(torch.rand(3, 9) < 0.4, x, -100)
    by_hand = torch.nn.functional.cross_entropy(dense(x).logits[labels != -100], labels[labels != -100])
    assert_close(dense(x, labels=labels).loss, by_hand)
    assert_close(sparse(x, labels=labels).loss, by_hand)
    assert sparse(x, labels=labels).logits.shape == ((labels != -100).sum(), 50)
    count = (labels != -100).sum()
    for model in (dense, sparse):
        assert_close(model(x, labels=labels, num_items_in_batch=2 * count).loss, by_hand / 2)
    half = [sparse(x[rows], labels=labels[rows], num_items_in_batch=count).loss for rows in (slice(0, 1), slice(1, 3))]
    assert_close(sum(half), by_hand)


@pytest.mark.parametrize("task", HEADS)
def test_every_head_has_a_loss_with_gradients(task):
    model, x = build(task=task).train(), ids()
    labels = {
        "masked-lm": {"labels": x},
        "classification": {"labels": torch.tensor([0, 2])},
        "token-classification": {"labels": torch.randint(3, x.shape)},
        "question-answering": {"start_positions": torch.tensor([1, 2]), "end_positions": torch.tensor([3, 4])},
    }[task]
    output = model(x, **labels)
    output.loss.backward()
    assert output.memory is None
    unused = [name for name, p in model.named_parameters() if p.grad is None]
    assert unused == []
    assert isinstance(model(x, return_dict=False), tuple)


@pytest.mark.parametrize("name", ["learned", "tupe-r"])
def test_resizing_embeddings_keeps_them_tied(name, tmp_path):
    model, x = build(name), ids()
    before = model(x).logits
    model.resize_token_embeddings(60)
    assert model.config.vocab_size == 60
    assert model.head.decoder.weight is model.get_input_embeddings().weight
    assert_close(model(x).logits[..., :50], before, rtol=1e-5, atol=1e-5)
    model.save_pretrained(tmp_path)
    assert AutoModelForMaskedLM.from_pretrained(tmp_path)(x).logits.shape[-1] == 60


def test_untied_output_layer():
    model = build(tie_word_embeddings=False)
    assert model.head.decoder.weight is not model.get_input_embeddings().weight


@pytest.mark.parametrize("checkpointing", [False, True])
def test_gradient_checkpointing_through_transformers(checkpointing):
    model, x = build(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0).train(), ids()
    reference = torch.autograd.grad(model(x, labels=x).loss, list(model.parameters()))
    if checkpointing:
        enable = getattr(model, "activation_checkpointing_enable", None) or model.gradient_checkpointing_enable
        enable()
        assert model.model.encoder.gradient_checkpointing
    for ours, plain in zip(
        torch.autograd.grad(model(x, labels=x).loss, list(model.parameters())), reference, strict=True
    ):
        assert_close(ours, plain, rtol=0, atol=0)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["tupe-r", "rope", "shaw"])
def test_compiles_without_a_break(name):
    model, x = build(name), ids(2, 12)
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    assert_close(compiled(x).logits, model(x).logits, rtol=1e-4, atol=1e-4)
    labels = torch.where(torch.rand(2, 12) < 0.5, x, -100)
    loss, plain = compiled(x, labels=labels).loss, model(x, labels=labels).loss
    grads = [torch.autograd.grad(y, list(model.parameters()), allow_unused=True) for y in (loss, plain)]
    for ours, eager in zip(*grads, strict=True):
        assert (ours is None) == (eager is None)
        if eager is not None:
            assert_close(ours, eager, rtol=1e-3, atol=1e-4)


@pytest.mark.slow
@pytest.mark.filterwarnings(
    "ignore:`torch.jit.script_method` is deprecated:DeprecationWarning"
)  # inductor's own import
def test_compiles_with_inductor():
    model, x = build("tupe-r"), ids(2, 12)
    assert_close(torch.compile(model, fullgraph=True)(x).logits, model(x).logits, rtol=1e-4, atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("masked", [False, True])
def test_exports_with_dynamic_batch_and_length(name, masked):
    model = build(name)
    batch, length = torch.export.Dim("batch", min=1, max=64), torch.export.Dim("length", min=2, max=64)

    def inputs(B, T):
        x = ids(B, T)
        mask = torch.ones_like(x)
        mask[0, T // 2 :] = 0
        return {"input_ids": x, "attention_mask": mask} if masked else {"input_ids": x}

    program = torch.export.export(
        model, (), inputs(3, 10), dynamic_shapes={k: {0: batch, 1: length} for k in inputs(2, 3)}
    )
    for B, T in ((1, 23), (5, 2), (2, 64)):
        x = inputs(B, T)
        assert_close(program.module()(**x).logits, model(**x).logits, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("call", "word"),
    [
        (lambda model, x: model(), "exactly one"),
        (lambda model, x: model(x, inputs_embeds=torch.zeros(2, 9, 32)), "exactly one"),
        (lambda model, x: model(x, memory=1), "memory"),
        (lambda model, x: model(ids(1, 65)), "max_positions=64"),
        (lambda model, x: model(x, attention_mask=torch.ones(2, 1, 9, 9)), "attention_mask"),
    ],
)
def test_wrong_arguments_are_named(call, word):
    with pytest.raises(ValueError, match=word):
        call(build(), ids())


def test_tied_weights_are_drawn_once():
    tied, untied, classifier = build(), build(tie_word_embeddings=False), build(task="classification")
    embedding = tied.get_input_embeddings().weight
    assert (embedding[0] == 0).all()  # the padding row
    assert torch.equal(embedding, untied.get_input_embeddings().weight)
    assert torch.equal(embedding, classifier.get_input_embeddings().weight)


def test_a_text_classifier_may_read_the_first_token_as_it_is():
    plain, pooled = (build(task="classification", classifier_dense=dense) for dense in (False, True))
    assert not any(name.startswith("dense.") for name, _ in plain.named_parameters())
    x = ids()
    first_BC = plain.model(x).last_hidden_state[:, 0]
    assert_close(plain(x).logits, plain.classifier(first_BC))
    assert_close(pooled(x).logits, pooled.classifier(torch.tanh(pooled.dense(first_BC))))


@pytest.mark.parametrize("name", ["gelu", "relu", "silu"])
def test_activation_of_the_masked_language_modelling_head(name):
    model, x = build(head_act=name, hidden_act="gelu"), ids()
    inner = model.head.dense(model.model(x).last_hidden_state)
    activated = getattr(torch.nn.functional, name)(inner)
    assert_close(model(x).logits, model.head.decoder(model.head.norm(activated)))


def test_a_configuration_from_before_these_fields_loads_as_it_was(tmp_path):
    for task, field in (("masked-lm", "head_act"), ("classification", "classifier_dense")):
        model, x = build(task=task), ids()
        model.save_pretrained(tmp_path)
        path = tmp_path / "config.json"
        fields = json.loads(path.read_text())
        del fields["head_act"], fields["classifier_dense"]
        path.write_text(json.dumps(fields))
        again = HEADS[task].from_pretrained(tmp_path)
        assert getattr(again.config, field) in ("gelu", True)
        assert_close(again(x).logits, model(x).logits, rtol=0, atol=0)
