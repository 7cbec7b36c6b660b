"""Output layers of language models: labels in place, biases, scaled embeddings, words in clusters."""

import pytest
import torch
from safetensors import safe_open
from torch.nn import functional as F
from torch.testing import assert_close
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

from wordorder.errors import BadInput
from wordorder.models import build_config, build_model
from wordorder.networks import AdaptiveEmbedding, AdaptiveSoftmax

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
CUTS = {"adaptive_cutoffs": [10, 25], "head_bias": True}
FORMS = {
    "one width": CUTS,
    "narrower": {**CUTS, "adaptive_divisor": 4},
    "tied projections": {**CUTS, "adaptive_divisor": 4, "adaptive_tied_projections": [False, True, True]},
    "one table, projected": {**CUTS, "adaptive_width": 16, "adaptive_tied_projections": True},
    "own output": {**CUTS, "adaptive_divisor": 2, "tie_word_embeddings": False},
    "no biases": {**CUTS, "adaptive_divisor": 2, "head_bias": False},
}
EXACT = {"rtol": 0, "atol": 1e-12}


def build(**fields):
    return build_model(build_config("decoder", **{**SIZES, **fields}), "causal-lm", seed=1).double().eval()


def ids(batch=2, length=9):
    return torch.randint(50, (batch, length))


@pytest.mark.parametrize("fields", [{}, FORMS["narrower"]], ids=["plain", "adaptive"])
@pytest.mark.parametrize("training", [False, True])
def test_labels_in_place_are_labels_shifted_by_hand(fields, training):
    model, x = build(**fields).train(training), ids()
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


@pytest.mark.parametrize("fields", [{}, FORMS["narrower"]], ids=["plain", "adaptive"])
def test_a_plain_trainer_trains_and_scores(fields, tmp_path):
    model, texts = build(**fields).float(), ids(8, 9)
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


@pytest.mark.parametrize("form", FORMS)
def test_save_and_load_with_each_shared_table_once(form, tmp_path):
    model, x = build(**FORMS[form]), ids()
    model.save_pretrained(tmp_path)
    again, info = AutoModelForCausalLM.from_pretrained(tmp_path, output_loading_info=True)
    assert not any(info[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    assert_close(again(x).logits, model(x).logits, **EXACT)
    with safe_open(tmp_path / "model.safetensors", "pt") as file:
        names = set(file.keys())
    tied = model.config.tie_word_embeddings
    assert ("lm_head.tables.0.weight" in names) != tied
    for loaded in (model, again):
        head, table = loaded.lm_head, loaded.get_input_embeddings()
        assert (type(head), type(table)) == (AdaptiveSoftmax, AdaptiveEmbedding)
        assert all((a.weight is b.weight) == tied for a, b in zip(head.tables, table.tables, strict=True))
        assert (head.tables[0].bias is not None) == model.config.head_bias
    if form == "tied projections":
        assert again.lm_head.projections[1].weight is again.model.decoder.embedding.projections[1].weight
        assert again.lm_head.projections[0].weight is not again.model.decoder.embedding.projections[0].weight
        assert {"lm_head.projections.0.weight"} == {name for name in names if "lm_head.projections" in name}


@pytest.mark.parametrize("form", FORMS)
def test_training_leaves_logits_out_and_has_the_same_loss_and_gradients(form):
    model, x = build(**FORMS[form]), ids()
    told = model(x, labels=x)
    assert_close(told.logits.exp().sum(-1), torch.ones(2, 9, dtype=torch.float64), **EXACT)
    parameters = list(model.parameters())
    expected = torch.autograd.grad(told.loss, parameters)
    model.train()
    output = model(x, labels=x)
    assert output.logits is None
    assert output[0] is output.loss
    assert_close(output.loss, told.loss, **EXACT)
    for a, b in zip(torch.autograd.grad(output.loss, parameters), expected, strict=True):
        assert_close(a, b, **EXACT)
    assert model(x, labels=x, return_logits=True).logits.shape == (2, 9, 50)
    assert model(x).logits.shape == (2, 9, 50)
    model.eval()
    assert model(x, labels=x, return_logits=False).logits is None


def test_a_plain_output_layer_can_leave_logits_out_too():
    model, x = build(), ids()
    output = model(x, labels=x, return_logits=False)
    assert output.logits is None
    assert_close(output.loss, model(x, labels=x).loss, **EXACT)


def test_words_in_clusters_are_generated_as_by_the_whole_distribution():
    model, x = build(**FORMS["tied projections"]), ids(2, 5)
    written = model.generate(x, max_new_tokens=6, do_sample=False)
    for step in range(5, 11):
        assert torch.equal(model(written[:, :step]).logits[:, -1].argmax(-1), written[:, step])
    kept = model(x, logits_to_keep=2).logits
    assert_close(kept, model(x).logits[:, -2:], **EXACT)


def test_it_learns_and_ties_hold():
    model, x = build(**FORMS["tied projections"]).float().train(), ids(4, 12)
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-2)
    losses = []
    for _ in range(30):
        optimiser.zero_grad()
        losses.append(model(x, labels=x).loss)
        losses[-1].backward()
        optimiser.step()
    assert losses[-1] < 0.5 * losses[0]
    assert model.lm_head.tables[2].weight is model.model.decoder.embedding.tables[2].weight


def test_words_in_clusters_cannot_be_resized():
    model = build(**FORMS["narrower"])
    assert isinstance(model.resize_token_embeddings(), AdaptiveEmbedding)
    for resize in (model.resize_token_embeddings, model.model.resize_token_embeddings):
        with pytest.raises(BadInput, match="sorted by frequency into clusters"):
            resize(60)


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
    ({"adaptive_divisor": 4}, "adaptive_divisor says how clusters are made; set adaptive_cutoffs"),
    ({"adaptive_width": 16}, "adaptive_width says"),
    ({"adaptive_cutoffs": [20, 10]}, "cutoffs must grow and lie within 1 .. 49, got 20, 10"),
    ({"adaptive_cutoffs": []}, "at least one id"),
    ({"adaptive_cutoffs": [10], "adaptive_divisor": 64}, "leaves no channel"),
    ({"adaptive_cutoffs": [10], "adaptive_tied_projections": True}, "nothing is projected"),
    ({**FORMS["tied projections"], "tie_word_embeddings": False}, "needs tie_word_embeddings"),
    ({**FORMS["narrower"], "adaptive_tied_projections": [True]}, "each of 3 clusters, got [True]"),
    ({"adaptive_cutoffs": [10], "label_smoothing": 0.1}, "label_smoothing needs every token's probability"),
    ({"adaptive_cutoffs": [10], "encoding": "complex-order"}, "'complex-order' has embeddings of its own"),
    ({"embedding_scale": 0}, "embedding_scale must be positive, got 0"),
    ({"output_dropout": 1.0}, "output_dropout must lie in [0, 1)"),
    ({"adaptive_cutoffs": "10"}, "adaptive_cutoffs must be a list, each an integer, got '10'"),
])  # fmt: skip
def test_faults_of_the_configuration_are_named(fields, said):
    with pytest.raises(BadInput) as error:
        build_config("decoder", **{**SIZES, **fields})
    assert said in str(error.value)
