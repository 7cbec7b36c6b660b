import re
from pathlib import Path

import pytest
import torch
from torch.testing import assert_close
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForSeq2SeqLM,
    DataCollatorForSeq2Seq,
    DynamicCache,
    EncoderDecoderCache,
)
from transformers.trainer_pt_utils import LabelSmoother

from wordorder.encodings import CATALOG
from wordorder.errors import BadInput
from wordorder.models import NETWORK_TASKS, build_config, build_model

NAMES = [*(name for name, kind in CATALOG.items() if "encoder" not in kind.refused_in), "learned+t5"]
SIZES = {
    "vocab_size": 50,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "decoder_layers": 3,
    "num_attention_heads": 4,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "initializer_range": 0.3,
}
NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


def build(encoding="tupe-r", **fields):
    return build_model(build_config("seq2seq", encoding=encoding, **{**SIZES, **fields}), "translation", seed=1).eval()


def ids(batch=2, length=9):
    return torch.randint(3, 50, (batch, length))


def padded(rows, side, pad=0):
    longest = max(row.shape[1] for row in rows)
    gaps = [(longest - row.shape[1], 0) if side == "left" else (0, longest - row.shape[1]) for row in rows]
    return torch.cat([torch.nn.functional.pad(row, gap, value=pad) for row, gap in zip(rows, gaps, strict=True)])


def batch(sources, targets, side="right"):
    x = padded(sources, side)
    return {"input_ids": x, "attention_mask": (x > 0).long(), "labels": padded(targets, "right", -100)}


UNSHARED, UNTIED = {"share_embeddings": False}, {"tie_word_embeddings": False}


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        *((name, {}) for name in NAMES),
        *((name, fields) for name in ("rope", "complex-order") for fields in (UNSHARED, UNTIED)),
    ],
)
def test_save_and_load(name, fields, tmp_path):
    model, x, y = build(name, **fields), ids(), ids(2, 5)
    model.save_pretrained(tmp_path)
    assert sorted(file.name for file in tmp_path.iterdir()) == [
        "config.json",
        "generation_config.json",
        "model.safetensors",
    ]
    again, info = AutoModelForSeq2SeqLM.from_pretrained(tmp_path, output_loading_info=True)
    assert type(again) is type(model)
    assert not any(info[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    assert_close(again(x, labels=y).logits, model(x, labels=y).logits, rtol=0, atol=0)
    assert AutoConfig.from_pretrained(tmp_path).model_type == "wordorder-seq2seq"
    base = AutoModel.from_pretrained(tmp_path)
    assert_close(base(x, decoder_input_ids=y)[0], model.model(x, decoder_input_ids=y)[0], rtol=0, atol=0)


@pytest.mark.parametrize(
    ("fields", "tables"),
    [
        ({}, 1),
        ({"share_embeddings": False}, 2),
        ({"tie_word_embeddings": False}, 2),
        ({"share_embeddings": False, "tie_word_embeddings": False}, 3),
    ],
)
def test_which_tables_are_one_before_and_after_loading_and_resizing(fields, tables, tmp_path):
    model, x = build("rope", **fields), ids()
    before = model(x, labels=x).logits
    model.resize_token_embeddings(60)
    model.save_pretrained(tmp_path)
    again = AutoModelForSeq2SeqLM.from_pretrained(tmp_path)
    for loaded in (model, again):
        network = loaded.model.seq2seq
        found = {
            table.weight.data_ptr() for table in (network.encoder.embedding, network.decoder.embedding, loaded.lm_head)
        }
        assert len(found) == tables
        assert (network.decoder.embedding.weight is loaded.lm_head.weight) == loaded.config.tie_word_embeddings
        assert (network.decoder.embedding is network.encoder.embedding) == loaded.config.share_embeddings
        assert loaded.config.vocab_size == 60
        logits = loaded(x, labels=torch.full_like(x, 59)).logits
        assert logits.shape[-1] == 60
        assert_close(loaded(x, labels=x).logits[..., :50], before, rtol=1e-5, atol=1e-5)


IN_BOTH = [(name, torch.float64, 1e-10) for name in NAMES] + [
    (name, torch.float32, 1e-5) for name in ("rope", "tupe-r")
]


@pytest.mark.parametrize(("name", "dtype", "bound"), IN_BOTH)
def test_token_by_token_equals_all_at_once(name, dtype, bound):
    model, y = build(name).to(dtype), ids(2, 12)
    inputs = {key: value for key, value in batch([ids(1, 7), ids(1, 3)], [y], "left").items() if key != "labels"}
    whole = model(**inputs, decoder_input_ids=y).logits
    cache, encoded, parts = None, None, []
    for token in y.split(1, 1):
        output = model(
            **inputs, decoder_input_ids=token, encoder_outputs=encoded, past_key_values=cache, use_cache=True
        )
        cache, encoded = output.past_key_values, (output.encoder_last_hidden_state,)
        parts.append(output.logits)
    assert isinstance(cache, EncoderDecoderCache)
    assert_close(torch.cat(parts, 1), whole, rtol=0, atol=bound * whole.abs().max().item())


@pytest.mark.parametrize("name", NAMES)
def test_cache_padding_side_and_order_of_a_batch_change_no_translation(name):
    model, sources = build(name).double(), [ids(1, length) for length in (7, 1, 4)]
    settings = {"max_new_tokens": 7, "num_beams": 3, "early_stopping": True}
    alone = [model.generate(source, **settings)[0] for source in sources]
    for order, side, cache in (([0, 1, 2], "left", True), ([2, 0, 1], "right", True), ([2, 0, 1], "left", False)):
        x = padded([sources[i] for i in order], side)
        found = model.generate(x, attention_mask=(x > 0).long(), use_cache=cache, **settings)
        for row, i in zip(found, order, strict=True):
            assert torch.equal(row[: len(alone[i])], alone[i])
            assert set(row[len(alone[i]) :].tolist()) <= {0, 2}  # transformers fills up with either


@pytest.mark.parametrize("name", NAMES)
def test_greedy_search_follows_the_logits_of_the_parallel_pass(name):
    model, x = build(name).double(), ids(3, 6)
    found = model.generate(x, max_new_tokens=8, do_sample=False, eos_token_id=None)
    assert (found[:, 0] == 1).all()
    assert torch.equal(model(x, decoder_input_ids=found[:, :-1]).logits.argmax(-1), found[:, 1:])


def beams_by_hand(model, source, width, steps):
    """Beam search without a cache and without an end, as the textbook has it: the best beams' tokens and scores."""
    beams = [(0.0, [1])]
    for _ in range(steps):
        grown = []
        for score, tokens in beams:
            logits = model(source, decoder_input_ids=torch.tensor([tokens])).logits[0, -1]
            grown += [(score + p, [*tokens, token]) for token, p in enumerate(logits.log_softmax(-1).tolist())]
        beams = sorted(grown, reverse=True)[:width]
    return beams


@pytest.mark.parametrize("name", ["rope", "tupe-r", "shaw"])
@pytest.mark.parametrize("width", [1, 4])
def test_beam_search_is_that_of_the_textbook(name, width):
    model, sources = build(name).double(), [ids(1, 6), ids(1, 3)]
    x = padded(sources, "left")
    found = model.generate(
        x,
        attention_mask=(x > 0).long(),
        num_beams=width,
        num_return_sequences=width,
        max_new_tokens=5,
        eos_token_id=None,
        length_penalty=0.0,
        do_sample=False,
        return_dict_in_generate=True,
        output_scores=True,
    )
    beams = [beam for source in sources for beam in beams_by_hand(model, source, width, 5)]
    assert found.sequences.tolist() == [tokens for _, tokens in beams]
    if width > 1:
        assert_close(found.sequences_scores.double(), torch.tensor([s for s, _ in beams]).double(), rtol=0, atol=1e-5)


def test_beam_search_of_width_one_is_greedy_search():
    model, x = build("rope"), ids(4, 6)
    one, greedy = (model.generate(x, max_new_tokens=9, **how) for how in ({"num_beams": 1}, {"do_sample": False}))
    assert torch.equal(one, greedy)


def test_what_the_encoder_gave_is_enough_to_generate():
    model, x = build("rope"), ids(4, 6)
    encoded = model.get_encoder()(x)
    found = model.generate(encoder_outputs=encoded, max_new_tokens=9, do_sample=False)
    assert torch.equal(found, model.generate(x, max_new_tokens=9, do_sample=False))


def test_sampling_with_and_without_a_cache():
    model, x, drawn = build("t5").double(), ids(4, 6), []
    for cache in (True, False):
        torch.manual_seed(3)
        drawn.append(model.generate(x, max_new_tokens=9, do_sample=True, num_beams=2, use_cache=cache))
    assert torch.equal(*drawn)


@pytest.mark.parametrize("name", NAMES)
def test_changing_a_target_token_changes_nothing_before_it(name):
    model, x, y = build(name).double(), ids(), ids(2, 8)
    changed = y.clone()
    changed[:, 4] = 3 + (changed[:, 4] - 2) % 47
    logits = [model(x, decoder_input_ids=target).logits for target in (y, changed)]
    assert_close(logits[0][:, :4], logits[1][:, :4], rtol=0, atol=1e-13)
    assert not torch.allclose(logits[0][:, 4], logits[1][:, 4])


def test_labels_are_read_one_step_late_behind_the_start_token():
    model, x, y = build(decoder_start_token_id=5).double(), ids(3, 7), ids(3, 4)
    y[1, 2:] = -100
    read = torch.cat([torch.full((3, 1), 5), y[:, :-1]], 1)
    read[1, 3] = 0
    assert torch.equal(model.prepare_decoder_input_ids_from_labels(y), read)
    output = model(x, labels=y)
    assert_close(output.logits, model(x, decoder_input_ids=read).logits)
    by_hand = -output.logits.log_softmax(-1)[y != -100].gather(1, y[y != -100][:, None]).mean()
    assert_close(output.loss, by_hand)
    count = (y != -100).sum()
    parts = [model(x[rows], labels=y[rows], num_items_in_batch=count).loss for rows in (slice(1), slice(1, 3))]
    assert_close(sum(parts), by_hand)


def test_labels_are_smoothed_in_training_as_the_trainer_does_it():
    model, plain, x, y = build(label_smoothing=0.1, **NO_DROPOUT), build(**NO_DROPOUT), ids(), ids(2, 5)
    assert_close(model(x, labels=y).loss, plain(x, labels=y).loss)
    smoothed = model.train()(x, labels=y)
    assert_close(smoothed.loss, LabelSmoother(epsilon=0.1)(smoothed, y))
    assert abs(smoothed.loss - plain(x, labels=y).loss) > 1e-3


class Words:
    """As much of a tokeniser as transformers' collator asks for."""

    padding_side = "right"

    def pad(self, features, **_):
        x = padded([torch.tensor(feature["input_ids"])[None] for feature in features], "right")
        return {"input_ids": x, "attention_mask": (x > 0).long()}


@pytest.mark.slow
def test_transformers_trainer_smooths_labels_and_accumulates(tmp_path):
    from transformers import Trainer, TrainingArguments

    pairs = [
        {"input_ids": ids(1, 3 + i % 4)[0].tolist(), "labels": [*ids(1, 2 + i % 3)[0].tolist(), 2]} for i in range(8)
    ]
    losses = []
    for size, rounds, smoothed_by_model in ((8, 1, False), (2, 4, False), (2, 4, True)):
        model = build("rope", label_smoothing=0.1 if smoothed_by_model else 0.0, **NO_DROPOUT)
        arguments = TrainingArguments(
            str(tmp_path / f"{size}-{smoothed_by_model}"),
            per_device_train_batch_size=size,
            gradient_accumulation_steps=rounds,
            max_steps=2,
            learning_rate=0.1,
            label_smoothing_factor=0.0 if smoothed_by_model else 0.1,
            logging_steps=1,
            save_strategy="no",
            disable_tqdm=True,
            use_cpu=True,
            report_to="none",
        )
        collate = DataCollatorForSeq2Seq(Words(), model=model)
        trainer = Trainer(model, arguments, train_dataset=pairs, data_collator=collate)
        trainer.train()
        losses.append([entry["loss"] for entry in trainer.state.log_history if "loss" in entry])
    assert_close(torch.tensor(losses[1]), torch.tensor(losses[0]), rtol=1e-4, atol=1e-3)
    assert_close(torch.tensor(losses[2]), torch.tensor(losses[0]), rtol=1e-4, atol=1e-3)
    assert losses[0][1] < losses[0][0]


@pytest.mark.parametrize("name", NAMES)
def test_eager_equals_sdpa_and_gives_weights(name):
    model, inputs = build(name), batch([ids(1, 11), ids(1, 7)], [ids(1, 5), ids(1, 6)], "left")
    sdpa = model(**inputs)
    model.set_attn_implementation("eager")
    eager = model(**inputs, output_attentions=True, output_hidden_states=True)
    assert_close(sdpa.logits, eager.logits, rtol=1e-4, atol=1e-4)
    assert [len(eager[key]) for key in ("encoder_attentions", "decoder_attentions", "cross_attentions")] == [2, 3, 3]
    assert [len(eager[key]) for key in ("encoder_hidden_states", "decoder_hidden_states")] == [3, 4]
    for weights in eager.cross_attentions:
        assert weights.shape == (2, 4, 6, 11)
        assert (weights[1, ..., :4] == 0).all()


def test_a_target_padded_on_the_left_is_read_in_the_caller_s_columns():
    model, x, targets = build("tupe-r").double(), ids(), [ids(1, 6), ids(1, 4)]
    y = padded(targets, "left")
    asked = {"output_attentions": True, "output_hidden_states": True}
    together = model(x, decoder_input_ids=y, decoder_attention_mask=(y > 0).long(), **asked)
    alone = model(x[1:], decoder_input_ids=targets[1], **asked)
    assert_close(together.logits[1:, 2:], alone.logits, rtol=1e-10, atol=1e-10)
    for ours, theirs in zip(together.cross_attentions, alone.cross_attentions, strict=True):
        assert_close(ours[1:, :, 2:], theirs, rtol=1e-10, atol=1e-10)
    for ours, theirs in zip(together.decoder_attentions, alone.decoder_attentions, strict=True):
        assert_close(ours[1:, :, 2:, 2:], theirs, rtol=1e-10, atol=1e-10)


def test_packed_pairs_equal_separate_ones():
    model, sources, targets = build("tupe-r").double(), [ids(1, 5), ids(1, 8)], [ids(1, 3), ids(1, 4)]
    separate = [model(x, decoder_input_ids=y).logits for x, y in zip(sources, targets, strict=True)]
    source_at, target_at = (
        torch.cat([torch.arange(row.shape[1]) for row in side])[None] for side in (sources, targets)
    )
    packed = model(
        torch.cat(sources, 1),
        decoder_input_ids=torch.cat(targets, 1),
        position_ids=source_at,
        decoder_position_ids=target_at,
    )
    assert_close(packed.logits, torch.cat(separate, 1), rtol=1e-10, atol=1e-10)


def test_every_parameter_is_trained():
    model, x = build().train(), ids()
    output = model(x, labels=x)
    output.loss.backward()
    assert output.memory is None
    assert output.past_key_values is None
    assert [name for name, p in model.named_parameters() if p.grad is None] == []
    assert isinstance(model(x, labels=x, return_dict=False), tuple)


def test_gradient_checkpointing_through_transformers():
    model, x = build(**NO_DROPOUT).train(), ids()
    plain = torch.autograd.grad(model(x, labels=x).loss, list(model.parameters()))
    enable = getattr(model, "activation_checkpointing_enable", None) or model.gradient_checkpointing_enable
    enable()
    network = model.model.seq2seq
    assert network.encoder.gradient_checkpointing
    assert network.decoder.gradient_checkpointing
    for ours, reference in zip(
        torch.autograd.grad(model(x, labels=x).loss, list(model.parameters())), plain, strict=True
    ):
        assert_close(ours, reference, rtol=0, atol=0)


@pytest.mark.slow
def test_compiles_without_a_break():
    model = build("tupe-r", num_hidden_layers=1, decoder_layers=1)
    inputs = batch([ids(1, 11), ids(1, 7)], [ids(1, 5), ids(1, 6)])
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    loss, plain = compiled(**inputs).loss, model(**inputs).loss
    assert_close(loss, plain)
    grads = [torch.autograd.grad(y, list(model.parameters())) for y in (loss, plain)]
    for ours, eager in zip(*grads, strict=True):
        assert_close(ours, eager, rtol=1e-3, atol=1e-4)


def test_embeddings_instead_of_ids():
    model, x = build("rope"), ids()
    embeds = model.get_input_embeddings()(x)
    assert_close(model(inputs_embeds=embeds, decoder_inputs_embeds=embeds).logits, model(x, decoder_input_ids=x).logits)
    settings = {"max_new_tokens": 5, "num_beams": 2}
    assert torch.equal(model.generate(inputs_embeds=embeds, **settings), model.generate(x, **settings))


def test_configuration():
    assert NETWORK_TASKS["seq2seq"] == ("translation",)
    config = build_config("seq2seq", num_hidden_layers=3, pad_token_id=4)
    assert (config.decoder_layers, config.decoder_start_token_id, config.is_encoder_decoder) == (3, 4, True)
    assert build_config("seq2seq", pad_token_id=4, cls_token_id=2).decoder_start_token_id == 2
    for fields, words in (
        ({"label_smoothing": 1.0}, "label_smoothing must lie"),
        ({"decoder_layers": 0}, "decoder_layers must be positive"),
        ({"decoder_start_token_id": 99, "vocab_size": 99}, r"0 \.\. 98, got 99"),
        (
            {"encoding": "tupe-r", "encoding_options": {"reset": "reference-code"}, "cls_token_id": 2},
            "bidirectional=True",
        ),
    ):
        with pytest.raises(BadInput, match=words):
            build_config("seq2seq", **fields)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda model, x: model(x), "decoder_input_ids"),
        (lambda model, x: model(labels=x), "exactly one of input_ids"),
        (lambda model, x: build(bos_token_id=None, pad_token_id=None)(x, labels=x), "decoder_start_token_id"),
        (lambda model, x: model(x, labels=ids(2, 65)), "max_positions=64"),
        (lambda model, x: model(x, attention_mask=torch.ones(2, 8), labels=x), "attention_mask"),
        (
            lambda model, x: model(x, torch.ones(2, 8), labels=x, encoder_outputs=model.get_encoder()(x)),
            r"attention_mask must be .* = \(2, 9\), those of encoder_outputs, got \(2, 8\)",
        ),
        (lambda model, x: model(x, labels=x, position_ids=torch.arange(9)[None]), "packed sources need packed targets"),
        (lambda model, x: model(x, decoder_input_ids=x, past_key_values=DynamicCache()), "an EncoderDecoderCache"),
        (lambda model, x: model(x, labels=x, logits_to_keep=1), "leave logits_to_keep out"),
        (lambda model, x: model(x, decoder_input_ids=x, decoder_inputs_embeds=torch.zeros(2, 9, 32)), "exactly one"),
    ],
)
def test_wrong_arguments_are_named(call, words):
    with pytest.raises(ValueError, match=words):
        call(build(), ids())


COMPLEX = ["complex-order", "complex-vanilla", "complex-order+t5", "rope+complex-order"]


@pytest.mark.parametrize("name", COMPLEX)
@pytest.mark.parametrize("fields", [{}, {"share_embeddings": False, "complex_options": {"shared_weights": True}}])
def test_complex_networks_translate_and_are_saved_like_real_ones(name, fields, tmp_path):
    model, sources = build(name, complex_valued=True, **fields), [ids(1, 7), ids(1, 3)]
    x = padded(sources, "left")
    inputs = {"input_ids": x, "attention_mask": (x > 0).long()}
    model.save_pretrained(tmp_path)
    again, info = AutoModelForSeq2SeqLM.from_pretrained(tmp_path, output_loading_info=True)
    assert not any(info[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    assert_close(again(**inputs, labels=x).logits, model(**inputs, labels=x).logits, rtol=0, atol=0)
    assert model.lm_head.weight is model.model.seq2seq.decoder.embedding.weight
    assert type(model.model.seq2seq.decoder).__name__ == "ComplexDecoder"
    loss = again.train()(**inputs, labels=x).loss
    loss.backward()
    assert [n for n, p in again.named_parameters() if p.grad is None] == []
    model = model.double()
    found = [model.generate(**inputs, max_new_tokens=6, num_beams=3, use_cache=cache) for cache in (True, False)]
    assert torch.equal(*found)
    output = model(**inputs, decoder_input_ids=found[0], use_cache=True)
    steps = model(**inputs, decoder_input_ids=found[0][:, :1], use_cache=True)
    later = model(**inputs, decoder_input_ids=found[0][:, 1:], past_key_values=steps.past_key_values)
    assert_close(torch.cat([steps.logits, later.logits], 1), output.logits, rtol=1e-10, atol=1e-10)
    for row, source in enumerate(sources):
        alone = model(source, decoder_input_ids=found[0][row : row + 1]).logits
        assert_close(alone[0], output.logits[row], rtol=1e-10, atol=1e-10)


def test_a_complex_network_resizes_all_tables_of_its_words():
    model, x = build("complex-order", complex_valued=True, share_embeddings=False), ids()
    before = model(x, labels=x).logits
    model.resize_token_embeddings(60)
    network = model.model.seq2seq
    for half in (network.encoder, network.decoder):
        assert {tuple(table.shape) for table in half.embedding.parameters()} == {(60, 32)}
    assert model.lm_head.weight is network.decoder.embedding.weight
    assert_close(model(x, labels=x).logits[..., :50], before, rtol=1e-5, atol=1e-5)
    model(torch.full((1, 3), 59), labels=torch.full((1, 3), 59))


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"encoding": "rope", "complex_valued": True}, "needs complex embeddings"),
        ({"encoding": "complex-order", "complex_options": {"scores": "modulus"}}, "complex_valued = true"),
        (
            {"encoding": "complex-order", "complex_valued": True, "complex_options": {"score": "modulus"}},
            "known: share",
        ),
        ({"encoding": "complex-order", "complex_valued": True, "complex_options": {"scores": "sum"}}, "scores must be"),
        ({"encoding": "complex-order", "complex_valued": True, "complex_options": {"read_out": "none"}}, "read_out"),
    ],
)
def test_faults_of_complex_configurations(fields, words):
    for network in ("seq2seq", "decoder", "encoder"):
        with pytest.raises(BadInput, match=words):
            build_config(network, **fields)


def test_the_code_on_the_page_of_the_docs_runs():
    page = (Path(__file__).parents[2] / "docs" / "decoder.md").read_text(encoding="utf-8")
    names = {}
    exec("\n".join(re.findall(r"```python\n(.*?)```", page, re.S)), names)
    assert names["loss"].isfinite()
