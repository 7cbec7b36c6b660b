import pytest
import torch
from torch.testing import assert_close
from transformers import AutoConfig, AutoModel, AutoModelForSequenceClassification

from wordorder.errors import BadInput
from wordorder.models import build_config, build_model

ARCHITECTURES = ["bag-of-words", "convolution", "recurrent", "transformer"]
ENCODINGS = ["none", "learned", "complex-order", "complex complex-order"]
WITH_ATTENTION = ["rope", "tupe-r", "complex-order+t5", "complex complex-order+tupe-r"]
CASES = [(a, e) for a in ARCHITECTURES for e in ENCODINGS]
CASES += [*(("transformer", e) for e in WITH_ATTENTION), ("recurrent unitary", "complex complex-vanilla")]
SIZES = {
    "vocab_size": 50,
    "hidden_size": 16,
    "num_attention_heads": 2,
    "filters": 6,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
    "initializer_range": 0.3,
    "num_labels": 3,
}


def build(architecture, encoding="none", task="classification", **fields):
    """A model; "complex" before the encoding asks for complex layers, "unitary" after the architecture for its cell."""
    torch.manual_seed(0)
    architecture, *cell = architecture.split()
    *complex_valued, encoding = encoding.split()
    given = {"architecture": architecture, "encoding": encoding, "complex_valued": bool(complex_valued)}
    if architecture == "transformer":
        given |= {"num_hidden_layers": 2}
    if cell:
        given |= {"recurrent_cell": cell[0]}
    config = build_config("classifier", **{**SIZES, **given, **fields})
    return build_model(config, task, seed=1).eval()


def ids(batch=2, length=9):
    return torch.randint(1, 50, (batch, length))


WAVES = {"architecture": "convolution", "encoding": "complex-order", "complex_valued": True}

every = pytest.mark.parametrize(("architecture", "encoding"), CASES)
each = pytest.mark.parametrize("architecture", ARCHITECTURES)


@every
def test_save_and_load(architecture, encoding, tmp_path):
    model, x = build(architecture, encoding), ids()
    model.save_pretrained(tmp_path)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["config.json", "model.safetensors"]
    again, info = AutoModelForSequenceClassification.from_pretrained(tmp_path, output_loading_info=True)
    assert type(again) is type(model)
    for name, parameter in model.state_dict().items():
        assert torch.equal(parameter, again.state_dict()[name]), name
    assert not any(info[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    assert_close(again(x).logits, model(x).logits, rtol=1e-5, atol=1e-5)
    assert AutoConfig.from_pretrained(tmp_path).model_type == "wordorder-classifier"
    body = AutoModel.from_pretrained(tmp_path)
    assert_close(body(x).pooler_output, model.model(x).pooler_output, rtol=1e-5, atol=1e-5)


@every
def test_neither_padding_nor_its_side_nor_the_neighbours_change_a_text(architecture, encoding):
    model, texts = build(architecture, encoding).double(), [ids(1, n) for n in (1, 2, 4, 7)]
    alone = torch.cat([model(text).logits for text in texts])
    for left in (False, True):
        rows = [torch.nn.functional.pad(t, (9 - t.shape[1], 0) if left else (0, 9 - t.shape[1])) for t in texts]
        x = torch.cat(rows)
        logits = model(x, attention_mask=(x > 0).long()).logits
        assert_close(logits, alone, rtol=1e-10, atol=1e-10)
        order = torch.tensor([2, 0, 3, 1])
        shuffled = model(x[order], attention_mask=(x[order] > 0).long()).logits
        assert_close(shuffled, alone[order], rtol=1e-10, atol=1e-10)


@every
def test_an_empty_text_has_the_output_layer_s_bias_and_no_gradient_that_is_not_a_number(architecture, encoding):
    model, x = build(architecture, encoding), ids(3, 6)
    torch.nn.init.normal_(model.classifier.bias)
    mask = torch.ones_like(x)
    mask[1] = 0
    output = model(x, attention_mask=mask, labels=torch.tensor([0, 1, 2]))
    assert_close(output.logits[1], model.classifier.bias, rtol=0, atol=0)
    assert_close(output.logits[0], model(x[:1]).logits[0])
    output.loss.backward()
    assert all(p.grad.isfinite().all() for p in model.parameters() if p.grad is not None)


@each
def test_a_batch_without_a_single_token_is_no_error(architecture):
    model = build(architecture)
    for x in (torch.zeros(2, 0, dtype=torch.long), torch.zeros(2, 0)):  # the second is what a tokeniser returns for ""
        for mask in (None, x):
            assert_close(model(x, attention_mask=mask).logits, model.classifier.bias.expand(2, 3), rtol=0, atol=0)


@every
def test_every_weight_learns(architecture, encoding):
    model, x = build(architecture, encoding).train(), ids(4, 7)
    output = model(x, labels=torch.tensor([0, 2, 1, 0]))
    by_hand = torch.nn.functional.cross_entropy(output.logits, torch.tensor([0, 2, 1, 0]))
    assert_close(output.loss, by_hand)
    output.loss.backward()
    assert [name for name, p in model.named_parameters() if p.grad is None or not p.grad.any()] == _silent(model)


def _silent(model):
    """What an encoding has and a text this short does not read, or a softmax cancels."""
    known = ("theta", "key_bias")
    return [n for n, p in model.named_parameters() if any(k in n for k in known) and not p.grad.any()]


@each
def test_regression_and_the_loss_over_several_batches(architecture):
    model, x = build(architecture, num_labels=1, problem_type="regression", task="regression"), ids(4, 7)
    numbers = torch.randn(4)
    whole = model(x, labels=numbers).loss
    assert_close(whole, ((model(x).logits[:, 0] - numbers) ** 2).mean())
    parts = [model(x[i : i + 2], labels=numbers[i : i + 2], num_items_in_batch=4).loss for i in (0, 2)]
    assert_close(sum(parts), whole)


@pytest.mark.parametrize("problem", [None, "multi_label_classification"])
def test_several_labels_per_text(problem):
    model, x, labels = build("convolution", problem_type=problem), ids(4, 7), torch.randint(2, (4, 3)).float()
    by_hand = torch.nn.functional.binary_cross_entropy_with_logits(model(x).logits, labels)
    parts = [model(x[i : i + 2], labels=labels[i : i + 2], num_items_in_batch=12).loss for i in (0, 2)]
    assert_close(sum(parts), by_hand)
    assert_close(model(x, labels=labels).loss, by_hand)


@each
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_one_precision_throughout(architecture, dtype):
    model = build(architecture, "sinusoidal").to(dtype)
    assert model(ids()).logits.dtype == dtype


@each
def test_16_bits_by_autocast_stay_close(architecture):
    model, x = build(architecture, "sinusoidal"), ids(3, 8)
    mask = torch.ones_like(x)
    mask[1, 5:] = 0
    exact = model(x, attention_mask=mask).logits
    with torch.autocast("cpu", dtype=torch.bfloat16):
        output = model(x, attention_mask=mask, labels=torch.tensor([0, 1, 2]))
    output.loss.backward()
    assert_close(output.logits.float(), exact, rtol=0.05, atol=0.05)
    assert all(p.grad.dtype == torch.float32 and p.grad.isfinite().all() for p in model.parameters())


def test_gradient_checkpointing_is_exact_in_the_transformer_and_refused_elsewhere():
    x, labels = ids(), torch.tensor([0, 2])
    plain, kept = build("transformer", "t5").train(), build("transformer", "t5").train()
    enable = getattr(kept, "activation_checkpointing_enable", None) or kept.gradient_checkpointing_enable
    enable()
    assert kept.model.network.encoder.gradient_checkpointing
    grads = [torch.autograd.grad(m(x, labels=labels).loss, list(m.parameters())) for m in (plain, kept)]
    for ours, theirs in zip(*grads, strict=True):
        assert_close(ours, theirs, rtol=0, atol=0)
    model = build("convolution")
    enable = getattr(model, "activation_checkpointing_enable", None) or model.gradient_checkpointing_enable
    with pytest.raises(ValueError, match="gradient_checkpointing"):
        enable()


@every
def test_resizing_the_vocabulary_keeps_what_was_there(architecture, encoding, tmp_path):
    model, x = build(architecture, encoding), ids()
    before = model(x).logits
    model.resize_token_embeddings(60)
    assert model.config.vocab_size == 60
    assert_close(model(x).logits, before, rtol=0, atol=0)
    model(torch.full((1, 3), 59))
    model.save_pretrained(tmp_path)
    again = AutoModelForSequenceClassification.from_pretrained(tmp_path)
    assert_close(again(x).logits, before, rtol=1e-5, atol=1e-5)


@every
def test_embeddings_may_be_given_instead_of_ids(architecture, encoding):
    model, x = build(architecture, encoding), ids()
    embeds = model.get_input_embeddings()(x)  # of an encoding in its place: the waves of positions 0 .. T - 1
    assert_close(model(inputs_embeds=embeds).logits, model(x).logits)


@every
def test_position_ids_say_where_tokens_stand(architecture, encoding):
    model, x = build(architecture, encoding), ids(2, 6)
    usual = model(x).logits
    assert_close(model(x, position_ids=torch.arange(6)[None]).logits, usual)
    moved = model(x, position_ids=torch.tensor([[0, 1, 5, 3, 4, 2]])).logits
    blind = encoding.split()[-1] in ("none", "complex-vanilla")
    blind |= architecture == "bag-of-words" and "complex" not in encoding  # the same positions in another order, summed
    assert torch.allclose(moved, usual, rtol=1e-5, atol=1e-5) == blind
    padded = torch.nn.functional.pad(x, (3, 0))
    shifted = torch.tensor([[1, 1, 1, 0, 1, 2, 3, 4, 5]])
    mask = (padded > 0).long()
    for padding in (1, -1, 999):  # what is said of padding is not read
        shifted[:, :3] = padding
        assert_close(model(padded, attention_mask=mask, position_ids=shifted).logits, usual, rtol=1e-5, atol=1e-5)


def test_hidden_states_and_attentions_of_the_transformer_only():
    model, x = build("transformer", "t5"), ids(2, 5)
    mask = torch.tensor([[0, 0, 1, 1, 1], [1, 1, 1, 1, 0]])
    output = model(x, attention_mask=mask, output_attentions=True, output_hidden_states=True)
    assert len(output.hidden_states) == 3
    assert (output.attentions[0].transpose(1, 3)[~mask.bool()] == 0).all()
    for asked in ("output_attentions", "output_hidden_states"):
        with pytest.raises(ValueError, match=f"{asked} was asked for, but architecture 'recurrent'"):
            build("recurrent")(x, **{asked: True})


def test_the_mean_of_the_tokens_stands_for_the_text_in_a_transformer():
    model, x = build("transformer", "rope"), ids(2, 5)
    mask = torch.tensor([[0, 0, 1, 1, 1], [1, 1, 1, 1, 0]])
    output = model.model(x, attention_mask=mask)
    by_hand = torch.stack([output.last_hidden_state[b][mask[b].bool()].mean(0) for b in range(2)])
    assert_close(output.pooler_output, by_hand)


@pytest.mark.parametrize("architecture", ["bag-of-words", pytest.param("convolution", marks=pytest.mark.slow)])
def test_compiles_without_a_break(architecture):  # torch's LSTM breaks the graph by itself
    model, x = build(architecture, "complex complex-order"), ids(2, 8)
    mask = torch.ones_like(x)
    mask[1, 5:] = 0
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    assert_close(compiled(x, attention_mask=mask).logits, model(x, attention_mask=mask).logits, rtol=1e-4, atol=1e-4)


def test_initial_weights_depend_on_seed_and_name_alone():
    one, other = build("convolution", "none"), build("convolution", "learned")
    for name, parameter in one.named_parameters():
        assert torch.equal(parameter, other.get_parameter(name)), name
    assert (one.get_input_embeddings().weight[0] == 0).all()


def test_a_new_output_layer_leaves_a_loaded_body_as_it_was(tmp_path):
    for architecture in ARCHITECTURES:
        body = build(architecture).model
        with torch.no_grad():
            for parameter in body.parameters():
                parameter += 0.1
        body.save_pretrained(tmp_path / architecture)
        model = AutoModelForSequenceClassification.from_pretrained(tmp_path / architecture)
        for name, parameter in body.named_parameters():
            assert torch.equal(parameter, model.get_parameter(f"model.{name}")), name


@pytest.mark.parametrize(
    ("call", "word"),
    [
        (lambda model, x: model(), "exactly one"),
        (lambda model, x: model(x, inputs_embeds=torch.zeros(2, 9, 16)), "exactly one"),
        (lambda model, x: model(x.float()), "token ids must be integers"),
        (lambda model, x: model(x[0]), "token ids must be integers"),
        (lambda model, x: model(x + 45), r"token ids must lie in 0 \.\. 49"),
        (lambda model, x: model(ids(1, 65)), "max_positions=64"),
        (lambda model, x: model(x, attention_mask=torch.ones(2, 8)), "attention_mask"),
        (lambda model, x: model(x, position_ids=torch.zeros(2, 8).long()), "position_ids"),
        (
            lambda model, x: model(inputs_embeds=torch.zeros(2, 9, 15)),
            r"\(batch, tokens, 16\), got torch.float32 \(2, 9, 15\)",
        ),
    ],
)
@each
def test_wrong_arguments_are_named(architecture, call, word):
    with pytest.raises(ValueError, match=word):
        call(build(architecture, "learned"), ids())


@pytest.mark.parametrize(
    ("fields", "word"),
    [
        ({"architecture": "cnn"}, "architecture must be one of 'bag-of-words', 'convolution'"),
        ({"architecture": "convolution", "encoding": "rope"}, "acts on queries and keys, which only attention has"),
        (
            {"architecture": "recurrent", "encoding": "learned+t5"},
            "one of: none, sinusoidal, learned, complex-order, c",
        ),
        ({"architecture": "convolution", "hidden_act": "gelu"}, "hidden_act must be relu for architecture 'conv"),
        ({"architecture": "recurrent", "num_hidden_layers": 2}, "num_hidden_layers must be 1 .* 'recurrent', got 2"),
        ({"architecture": "convolution", "filters": 0}, "filters must be positive, got 0"),
        ({"architecture": "recurrent", "recurrent_size": 0}, "hidden must be positive, got 0"),
        ({"architecture": "transformer", "hidden_size": 33}, "multiple of num_attention_heads"),
        ({"complex_valued": True, "encoding": "t5"}, "a complex network needs complex embeddings, got encoding 't5'"),
        ({"complex_options": {"scores": "modulus"}}, "complex_options are for complex layers; set complex_valued"),
        ({**WAVES, "complex_options": {"size": 3}}, "architecture 'convolution' has no option 'size'; known: bias, re"),
        ({**WAVES, "complex_options": {"scores": "modulus"}}, "'convolution' has no option 'scores'; known: bias, re"),
        ({**WAVES, "complex_options": {"read_out": "abs"}}, "read_out must be one of 'modulus', 'none', got 'abs'"),
        ({"complex_valued": True, "complex_options": {"shared_weights": 1}}, "shared_weights must be true or false, g"),
        ({**WAVES, "encoding_options": {"as_real": "concat"}}, "as_real='concat' is for real networks"),
        ({"architecture": "recurrent", "recurrent_cell": "unitary"}, "'unitary' needs complex_valued = true"),
        ({"variant": "reference-code"}, "set architecture = 'transformer' and complex_valued = true"),
        (
            {"variant": "reference-code", "complex_valued": True, "encoding_options": {"phase": True}},
            "'complex-order' or 'complex-vanilla' as it is, got 'complex-order' with encoding_options {'phase': True}",
        ),
        ({"architecture": "bag-of-words", "complex_options": {"bias": "none"}}, "options are for complex layers"),
        (
            {**WAVES, "architecture": "recurrent", "complex_options": {"bias": "none"}},
            "'recurrent' has no option 'b",
        ),
        ({"classifier_dropout": 1.0}, r"classifier_dropout must lie in \[0, 1\), got 1.0"),
    ],
)
def test_wrong_configurations_are_named(fields, word):
    with pytest.raises(BadInput, match=word):
        build_config("classifier", **fields)


def test_heads_are_nothing_to_architectures_without_attention():
    assert build_config("classifier", architecture="convolution", hidden_size=50).hidden_size == 50


REFERENCE = {
    "encoding": "complex complex-order",
    "variant": "reference-code",
    "max_position_embeddings": 9,
    "pad_token_id": 1,
}


def test_the_published_transformer_by_name(tmp_path):
    model, x = build("transformer", **REFERENCE), ids(2, 6)
    assert {type(m).__name__ for m in model.modules()} >= {"ReferenceTextNetwork", "ReferenceTransformer"}
    assert model.get_input_embeddings().waves.amplitude.std() > 0.9  # N(0, 1), not initializer_range
    mask = torch.tensor([[1, 1, 1, 1, 0, 0], [1, 1, 1, 1, 1, 1]])
    right = model(x, attention_mask=mask).logits
    assert_close(model(x[:1, :4]).logits, right[:1])
    left = torch.cat([x[:1, 4:], x[:1, :4]], dim=1)
    assert_close(model(left, attention_mask=torch.tensor([[0, 0, 1, 1, 1, 1]])).logits, right[:1])
    moved = model(x.flip(1)).logits
    assert (moved - model(x).logits).abs().max() > 1e-4
    model.save_pretrained(tmp_path)
    again = AutoModelForSequenceClassification.from_pretrained(tmp_path)
    assert_close(again(x).logits, model(x).logits)
    with pytest.raises(ValueError, match="pads texts to length 9, got 10 tokens"):
        model(ids(1, 10))
    with pytest.raises(ValueError, match="numbers positions itself"):
        model(x, position_ids=torch.arange(6)[None])


def test_the_softmax_of_a_softmax_only_if_it_is_asked_for():
    x, labels = ids(4, 6), torch.tensor([0, 2, 1, 0])
    plain, twice = build("convolution"), build("convolution", loss="double-softmax")
    assert_close(twice(x).logits, plain(x).logits)
    probabilities = plain(x).logits.softmax(-1)
    assert_close(plain(x, labels=labels).loss, -probabilities.log()[range(4), labels].mean())
    assert_close(twice(x, labels=labels).loss, -probabilities.softmax(-1).log()[range(4), labels].mean())
    for shape, count in (((4,), 1), ((4, 3), 3)):  # numbers, and several labels per text: from the first batch on
        model, answers = build("convolution", loss="double-softmax", num_labels=count), torch.rand(shape)
        assert_close(model(x, labels=answers).loss, build("convolution", num_labels=count)(x, labels=answers).loss)


def test_fields_reach_the_network():
    dropped = build("recurrent", hidden_dropout_prob=0.25, classifier_dropout=0.5)
    network = dropped.model.network
    assert (network.words.dropout.p, dropped.dropout.p) == (0.25, 0.5)
    assert build("recurrent", hidden_dropout_prob=0.25).dropout.p == 0.25
    for encoding in ("none", "complex complex-order"):
        assert build("recurrent", encoding, recurrent_size=5).model.network.features == 5
        assert build("convolution", encoding, filters=7).model.network.body.features == 21
    fields = {"variant": "reference-code", "complex_valued": True, "hidden_dropout_prob": 0.25}
    published = build("transformer", "complex complex-order", **fields).model.network
    assert {m.p for m in published.modules() if isinstance(m, torch.nn.Dropout)} == {0.25}
    for architecture, fewer in (("convolution", {"bias": "shared"}), ("transformer", {"shared_weights": True})):
        options = {**fewer, "read_out": "none"}
        model = build(architecture, "complex complex-order", complex_options=options)
        plain = build(architecture, "complex complex-order")
        assert model.classifier.in_features == 2 * plain.classifier.in_features
        assert model.model.num_parameters() < plain.model.num_parameters()
