"""Output layers of language models: labels in place, biases, scaled embeddings."""

import pytest
import torch
from torch.nn import functional as F
from torch.testing import assert_close
from transformers import Trainer, TrainingArguments

from wordorder.errors import BadInput
from wordorder.models import build_config, build_model

SIZES = {
    "vocab_size": 50,
    "hidden_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "encoding": "rope",
    "initializer_range": 0.3,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
}
EXACT = {"rtol": 0, "atol": 1e-12}


def build(**fields):
    return build_model(build_config("decoder", **{**SIZES, **fields}), "causal-lm", seed=1).double().eval()


def ids(batch=2, length=9):
    return torch.randint(50, (batch, length))


@pytest.mark.parametrize("training", [False, True])
def test_labels_in_place_are_labels_shifted_by_hand(training):
    model, x = build().train(training), ids()
    labels = x.clone()
    labels[0, :4] = -100
    in_place = torch.cat((labels[:, 1:], torch.full((2, 1), -100)), dim=1)
    ours = model(x, shift_labels=in_place)
    assert_close(ours.loss, model(x, labels=labels).loss, **EXACT)
    logits = model(x).logits
    expected = F.cross_entropy(logits.flatten(0, 1), in_place.flatten(), ignore_index=-100)
    assert_close(ours.loss, expected, **EXACT)
    summed = model(x, shift_labels=in_place, num_items_in_batch=torch.tensor(40)).loss
    assert_close(summed, expected * 13 / 40, **EXACT)
    with pytest.raises(ValueError, match="not both"):
        model(x, labels=x, shift_labels=x)
    with pytest.raises(ValueError, match="labels must be one for each"):
        model(x, shift_labels=x[:, 1:])


def test_the_last_token_of_a_segment_has_a_label_too():
    model, x = build(), ids(1, 9)
    labels = ids(1, 9)
    whole = -model(x).logits.log_softmax(-1).gather(-1, labels[..., None]).mean()
    assert_close(model(x, shift_labels=labels).loss, whole, **EXACT)


def test_a_plain_trainer_trains_and_scores(tmp_path):
    model, texts = build().float(), ids(8, 9)
    data = [{"input_ids": text, "labels": text} for text in texts]
    trainer = Trainer(
        model,
        TrainingArguments(
            str(tmp_path), max_steps=2, per_device_train_batch_size=2, gradient_accumulation_steps=2, use_cpu=True,
            report_to=[], save_strategy="no", disable_tqdm=True,
        ),
        train_dataset=data,
        eval_dataset=data,
        compute_metrics=lambda scored: {"shape": scored.predictions.shape},
    )  # fmt: skip
    trainer.train()
    scores = trainer.evaluate()
    assert scores["eval_shape"] == (8, 9, 50)
    model.eval()
    assert scores["eval_loss"] == pytest.approx(model(texts, labels=texts).loss.item(), rel=1e-5)


def test_head_bias_is_added_and_starts_at_0():
    model, x = build(head_bias=True), ids()
    assert model.lm_head.weight is model.model.decoder.embedding.weight
    assert model.lm_head.bias.abs().sum() == 0
    before = model(x).logits
    torch.nn.init.normal_(model.lm_head.bias)
    assert_close(model(x).logits, before + model.lm_head.bias, **EXACT)


def test_embeddings_are_scaled_and_the_tied_output_is_not():
    plain, scaled, x = build(), build(embedding_scale=32**0.5), ids()
    rows = plain.get_input_embeddings()(x)
    expected = plain(inputs_embeds=rows * 32**0.5).logits
    assert_close(scaled(x).logits, expected, **EXACT)
    assert_close(scaled(inputs_embeds=rows).logits, expected, **EXACT)
    assert (plain(x).logits - expected).abs().max() > 0.1


@pytest.mark.parametrize("placement", ["pre", "post"])
def test_the_output_can_be_normalised_or_not(placement):
    norms = {}
    for chosen in (None, True, False):
        model = build(norm_placement=placement, final_norm=chosen)
        norms[chosen] = "final_norm.weight" in dict(model.model.decoder.named_parameters())
    assert norms == {None: placement == "pre", True: True, False: False}


def test_output_dropout_acts_in_training_alone():
    model, x = build(output_dropout=0.9).train(), ids(1, 4)
    assert not torch.equal(model(x).logits, model(x).logits)
    assert torch.equal(model(x)["logits"] * 0, build()(x).logits * 0)
    model.eval()
    assert_close(model(x).logits, build()(x).logits, **EXACT)


@pytest.mark.parametrize(("fields", "said"), [
    ({"embedding_scale": 0}, "embedding_scale must be positive, got 0"),
    ({"output_dropout": 1.0}, "output_dropout must lie in [0, 1)"),
])  # fmt: skip
def test_faults_of_the_configuration_are_named(fields, said):
    with pytest.raises(BadInput) as error:
        build_config("decoder", **{**SIZES, **fields})
    assert said in str(error.value)
