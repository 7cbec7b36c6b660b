import pytest
import torch
from torch.testing import assert_close
from transformers import AutoModelForCausalLM, AutoModelForMaskedLM

from wordorder.cost import cost
from wordorder.encodings import ReplacesEmbedding
from wordorder.errors import BadInput
from wordorder.models import build_config, build_model

SIZES = {
    "vocab_size": 50,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "pad_token_id": 0,
    "initializer_range": 0.3,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
}
SCHEMES = [
    {},
    {"frequency": "word-sharing", "frequency_trainable": False},
    {"frequency": "dimension-sharing", "phase": True, "damping": "learned"},
    {"as_real": "real-part"},
]


def build(options=None, task="masked-lm", network="encoder", encoding="complex-order", **fields):
    config = build_config(network, encoding=encoding, encoding_options=options, **{**SIZES, **fields})
    return build_model(config, task, seed=1).eval()


def ids(batch=2, length=9, vocabulary=50):
    return torch.randint(1, vocabulary, (batch, length))


def rows(model):
    return {name: p.shape[0] for name, p in model.get_input_embeddings().waves.named_parameters()}


@pytest.mark.parametrize("options", SCHEMES)
@pytest.mark.parametrize("mean_resizing", [True, False])
def test_resizing_acts_on_all_tables_and_keeps_words_and_ties(options, mean_resizing, tmp_path):
    model, x = build(options), ids()
    before, frozen = model(x).logits, [n for n, p in model.named_parameters() if not p.requires_grad]
    model.resize_token_embeddings(60, mean_resizing=mean_resizing)
    shared = {"frequency", "decay"} if options.get("frequency") == "word-sharing" else set()
    assert rows(model) == {name: 1 if name in shared else 60 for name in rows(model)}
    assert model.config.vocab_size == model.get_input_embeddings().num_embeddings == 60
    assert model.head.decoder.weight is model.get_input_embeddings().weight
    assert_close(model(x).logits[..., :50], before, rtol=1e-5, atol=1e-5)
    assert model(torch.full((1, 4), 59)).logits.isfinite().all()
    assert [n for n, p in model.named_parameters() if not p.requires_grad] == frozen
    model.save_pretrained(tmp_path)
    again = AutoModelForMaskedLM.from_pretrained(tmp_path)
    assert_close(again(x).logits, model(x).logits, rtol=0, atol=0)
    model.resize_token_embeddings(pad_to_multiple_of=32)
    assert model.config.vocab_size == 64
    model.resize_token_embeddings(50)
    assert_close(model(x).logits, before, rtol=1e-5, atol=1e-5)


def test_an_untied_model_with_shared_amplitudes_is_resized_too():
    model, x = build({"amplitude": "word-sharing"}, tie_word_embeddings=False), ids()
    before = model(x).logits
    model.resize_token_embeddings(60)
    assert rows(model) == {"amplitude": 1, "frequency": 60}
    assert model.config.vocab_size == model.head.decoder.weight.shape[0] == 60
    assert_close(model(x).logits[..., :50], before, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("options", [{"amplitude": "word-sharing"}, {"amplitude": "dimension-sharing"}])
def test_tying_to_shared_amplitudes_is_refused(options):
    with pytest.raises(BadInput, match=r"output layer \(50, 32\) cannot share .* tie_word_embeddings=false"):
        build(options)
    build(options, task="classification", num_labels=2)  # has no output layer to tie


def test_tied_weights_are_trained_from_both_sides_and_saved_once(tmp_path):
    model, x = build().train(), ids()
    model(x, labels=x).loss.backward()
    amplitude = model.get_input_embeddings().weight
    assert (amplitude.grad[0] != 0).any()  # the padding row is an output class too
    assert model.get_input_embeddings().waves.frequency.grad is not None
    model.save_pretrained(tmp_path)
    from safetensors import safe_open

    with safe_open(tmp_path / "model.safetensors", "pt") as file:
        names = set(file.keys())
    assert "model.encoder.embedding.waves.amplitude" in names
    assert "head.decoder.weight" not in names


def test_missing_tables_are_drawn_and_loaded_ones_are_kept(tmp_path):
    model = build()
    with torch.no_grad():
        model.get_input_embeddings().waves.frequency.fill_(0.125)
        model.get_input_embeddings().weight[0] = 7.0
    state = {name: value for name, value in model.state_dict().items() if "amplitude" not in name}
    model.save_pretrained(tmp_path)
    again = AutoModelForMaskedLM.from_pretrained(tmp_path)
    assert (again.get_input_embeddings().waves.frequency == 0.125).all()
    assert (again.get_input_embeddings().weight[0] == 7).all()
    state.pop("head.decoder.weight")
    state["model.encoder.embedding.waves.amplitude"] = model.get_input_embeddings().weight.detach()
    del state["model.encoder.embedding.waves.frequency"]
    model.save_pretrained(tmp_path, state_dict=state)
    drawn = AutoModelForMaskedLM.from_pretrained(tmp_path).get_input_embeddings().waves
    geometric = 10_000 ** (-torch.arange(32) / 32)
    assert_close(drawn.frequency, geometric.expand(50, 32))
    assert (drawn.amplitude[0] == 7).all()


@pytest.mark.parametrize("name", ["complex-order", "complex-vanilla", "complex-order+t5", "rope+complex-order"])
def test_embeddings_in_the_place_of_ids(name):
    model, x = build(encoding=name), ids()
    embeds = model.get_input_embeddings()(x)
    assert_close(model(inputs_embeds=embeds).logits, model(x).logits, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("options", SCHEMES)
def test_gradient_checkpointing_changes_nothing(options):
    model, x = build(options).train(), ids()
    trained = [p for p in model.parameters() if p.requires_grad]
    plain = torch.autograd.grad(model(x, labels=x).loss, trained)
    (getattr(model, "activation_checkpointing_enable", None) or model.gradient_checkpointing_enable)()
    for ours, wanted in zip(torch.autograd.grad(model(x, labels=x).loss, trained), plain, strict=True):
        assert_close(ours, wanted, rtol=0, atol=0)


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({}, marks=pytest.mark.slow),
        {"frequency": "word-sharing", "phase": True, "damping": "learned"},
    ],
)
def test_compiles_without_a_break(options):
    model, x = build(options), ids()
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    losses = [run(x, labels=x).loss for run in (model, compiled)]
    assert_close(*losses, rtol=1e-4, atol=1e-4)
    for eager, ours in zip(*(torch.autograd.grad(loss, list(model.parameters())) for loss in losses), strict=True):
        assert_close(ours, eager, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("options", SCHEMES)
def test_a_causal_model_generates_as_it_reads(options, tmp_path):
    model, x = build(options, network="decoder", task="causal-lm", eos_token_id=None), ids(1, 5)
    text = model.generate(x, max_new_tokens=6, do_sample=False)
    for end in range(5, 11):  # a cache holds what came before: positions go on
        assert model(text[:, :end]).logits[0, -1].argmax() == text[0, end]
    model.resize_token_embeddings(60)
    assert model.lm_head.weight is model.get_input_embeddings().weight
    model.save_pretrained(tmp_path)
    assert_close(AutoModelForCausalLM.from_pretrained(tmp_path)(x).logits, model(x).logits, rtol=0, atol=0)


@pytest.mark.parametrize("share", [True, False])
def test_a_translator_resizes_and_saves_both_sides(share, tmp_path):
    fields = {"share_embeddings": share, "decoder_start_token_id": 1, "eos_token_id": 2}
    model = build(network="seq2seq", task="translation", **fields)
    source, target = ids(), ids(2, 6)
    before = model(source, decoder_input_ids=target).logits
    model.resize_token_embeddings(60)
    tables = [module for module in model.modules() if isinstance(module, ReplacesEmbedding)]
    assert [table.num_embeddings for table in tables] == [60] * (1 if share else 2)
    assert model.lm_head.weight is tables[-1].weight
    after = model(source, decoder_input_ids=target).logits
    assert_close(after[..., :50], before, rtol=1e-5, atol=1e-5)
    model.save_pretrained(tmp_path)
    again = type(model).from_pretrained(tmp_path)
    assert_close(again(source, decoder_input_ids=target).logits, after, rtol=0, atol=0)


def test_the_cost_tells_words_from_word_order():
    for options, order in (
        ({}, {"complex_order frequency table": 50 * 32, "complex_order projection to real": 2 * 32 * 32}),
        ({"frequency": "word-sharing", "as_real": "real-part"}, {"complex_order frequency table": 32}),
    ):
        found = cost(
            build_config("encoder", encoding="complex-order", encoding_options=options, **SIZES), "masked-lm", length=8
        )
        assert found["encoding_parameters"] == order
        assert found["parameters"]["embedding"] == 50 * 32
        assert found["parameters"]["encoding"] == sum(order.values())


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"frequency": "words"}, "complex-order.frequency must be one of 'full'"),
        ({"frequency": "dimension-sharing", "frequency_init": "geometric"}, "take 'log-uniform'"),
        ({"frequencies": "full"}, "no option 'frequencies'"),
        ({"padding_idx": 3}, "no option 'padding_idx'"),
    ],
)
def test_faults_are_found_in_the_configuration(options, word):
    with pytest.raises(BadInput, match=word):
        build_config("encoder", encoding="complex-order", encoding_options=options)


@pytest.mark.parametrize("encoding", ["complex-order", "rope"])
def test_a_vocabulary_cut_before_its_padding_is_saved_and_loaded(encoding, tmp_path):
    config = build_config("encoder", encoding=encoding, **{**SIZES, "pad_token_id": 49})
    model, x = build_model(config, "masked-lm", seed=1).eval(), ids(vocabulary=20)
    before = model(x).logits[..., :20]
    model.resize_token_embeddings(20)
    model.save_pretrained(tmp_path)
    again = AutoModelForMaskedLM.from_pretrained(tmp_path)
    assert again.config.pad_token_id is None
    assert_close(again(x).logits, before, rtol=1e-5, atol=1e-5)
