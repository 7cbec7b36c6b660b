"""Heads take what transformers hands them: columns of a dataset, classes of one's own, changed fields, masks."""

import inspect

import pytest
import torch
from torch.testing import assert_close
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification, Trainer, TrainingArguments

import wordorder.models as models
from wordorder import CATALOG, Decoder
from wordorder.errors import BadInput
from wordorder.models import build_config, build_model
from wordorder.models.layout import cached_layout, layout_of
from wordorder.models.pretrained import CACHE, WordOrderPreTrainedModel
from wordorder.papers import complex_order

SIZES = {
    "vocab_size": 50, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2,
    "max_position_embeddings": 64, "encoding": "rope",
}  # fmt: skip
COLUMNS = {
    "input_ids", "attention_mask", "position_ids", "sequence_ids", "decoder_input_ids", "decoder_attention_mask",
    "decoder_position_ids", "decoder_sequence_ids",
}  # fmt: skip
"""Arguments that a dataset may have as columns."""
NAMES = vars(models) | vars(complex_order)
HEADS = [kind for name, kind in NAMES.items() if name.startswith("WordOrder") and "For" in name]


def parameters(kind: type) -> set[str]:
    return set(inspect.signature(kind.forward).parameters)


@pytest.mark.parametrize("kind", HEADS, ids=lambda kind: kind.__name__)
def test_a_head_names_every_column_that_its_model_reads(kind):
    """transformers' Trainer drops the columns that it does not name, without a word."""
    sizes = SIZES | ({"num_labels": 3} if "Classification" in kind.__name__ else {})
    sizes |= {"architecture": "transformer"} if "Classifier" in kind.__name__ else {}
    model = kind(build_config(kind.config_class.model_type.removeprefix("wordorder-"), **sizes)).model
    assert COLUMNS & parameters(type(model)) <= parameters(kind)


def test_trainer_hands_on_which_sequence_a_token_belongs_to(tmp_path):
    model = build_model(build_config("decoder", **SIZES), "causal-lm", seed=0).eval()
    row = {"input_ids": torch.arange(3, 19), "sequence_ids": torch.arange(16) // 5}
    row["labels"] = row["input_ids"]
    arguments = TrainingArguments(str(tmp_path), use_cpu=True, report_to=[])
    found = Trainer(model=model, args=arguments, eval_dataset=[row]).evaluate()["eval_loss"]
    batch = {name: value[None] for name, value in row.items()}
    assert found == pytest.approx(model(**batch).loss.item(), abs=1e-6)
    assert abs(found - model(**batch | {"sequence_ids": None}).loss.item()) > 1e-3


@pytest.mark.parametrize("task", ["masked-lm", "classification", "token-classification", "question-answering"])
def test_a_class_of_ones_own_has_its_parents_loss(task):
    config = build_config("encoder", **SIZES, **({"num_labels": 3} if "classification" in task else {}))
    parent = build_model(config, task, seed=0).eval()
    own = type("Mine", (type(parent),), {})(config).eval()
    own.load_state_dict(parent.state_dict())
    ids = torch.arange(3, 19).view(2, 8)
    labels = {
        "masked-lm": {"labels": ids},
        "classification": {"labels": torch.tensor([0, 2])},
        "token-classification": {"labels": ids % 3},
        "question-answering": {"start_positions": torch.tensor([0, 2]), "end_positions": torch.tensor([1, 3])},
    }[task]
    assert_close(own(ids, **labels).loss, parent(ids, **labels).loss, rtol=0, atol=0)


HOLES_REFUSED = ("shift",)
DECODERS = [name for name, kind in CATALOG.items() if "decoder" not in kind.refused_in and name not in HOLES_REFUSED]


@pytest.mark.parametrize("encoding", [*DECODERS, "rope+tupe-a"])
def test_padding_between_tokens_is_as_if_it_were_not_there(encoding):
    config = build_config("decoder", **SIZES | {"encoding": encoding, "initializer_range": 0.3})
    model = build_model(config, "causal-lm", seed=0).double().eval()
    mask = torch.tensor([[1, 1, 1, 0, 0, 1, 1, 1], [0, 1, 1, 0, 1, 0, 1, 1], [1] * 8, [1, 1, 1, 1, 0, 1, 1, 0]])
    ids, more = torch.randint(3, 50, (4, 8)), torch.randint(3, 50, (4, 3))
    at_once = model(ids, attention_mask=mask).logits
    steps, cache = [], None
    for start, stop in ((0, 8), (8, 9), (9, 11)):
        columns = torch.cat((mask, torch.ones(4, stop - 8, dtype=torch.long)), 1)
        given = {"use_cache": True} if cache is None else {CACHE: cache}
        output = model(torch.cat((ids, more), 1)[:, start:stop], attention_mask=columns, **given)
        steps.append(output.logits)
        cache = output[CACHE]
    for row, valid in enumerate(mask.bool()):
        alone = model(torch.cat((ids[row][valid], more[row]))[None]).logits[0]
        assert_close(at_once[row][valid], alone[:-3], rtol=0, atol=1e-12)
        assert_close(torch.cat((steps[0][row][valid], steps[1][row], steps[2][row])), alone, rtol=0, atol=1e-12)


@torch.no_grad()
def test_padding_between_tokens_counts_no_position_in_a_compiled_step():
    config = build_config("decoder", **SIZES | {"encoding": "learned", "initializer_range": 0.3})
    model = build_model(config, "causal-lm", seed=0).double().eval()
    ids, mask = torch.arange(3, 21).view(2, 9), torch.ones(2, 9, dtype=torch.long)
    mask[0, 3:5] = 0
    read = torch.compile(model, backend="eager", fullgraph=False)
    cache = read(ids[:, :8], attention_mask=mask[:, :8], use_cache=True)[CACHE]
    step = read(ids[:, 8:], attention_mask=mask, **{CACHE: cache}).logits
    assert_close(step, model(ids, attention_mask=mask).logits[:, 8:], rtol=0, atol=1e-12)


def test_padding_between_tokens_and_positions():
    mask = torch.tensor([[1, 1, 0, 1, 1]])
    layout = cached_layout((1, 2), 3, mask, torch.tensor([[12, 13]]))
    assert layout.key_positions.position_BT.tolist() == [[10, 11, 11, 12, 13]]
    assert layout.positions.position_BT.tolist() == [[12, 13]]
    with pytest.raises(ValueError, match="grow by one from token to token"):
        cached_layout((1, 2), 3, mask, torch.tensor([[12, 14]]))
    decoder, ids = Decoder(50, width=16, layers=1, heads=2), torch.arange(3, 8)[None]
    with pytest.raises(BadInput, match="pass positions too"):
        decoder(ids, key_positions=torch.arange(5))
    with pytest.raises(BadInput, match=r"key_positions must be .*\(1, 5\)"):
        decoder(ids, torch.arange(5), key_positions=torch.arange(6))


def test_padding_between_tokens_is_refused_where_there_is_a_memory():
    memory = {"memory": "segment-recurrence", "memory_length": 4, "segment_length": 3}
    model = build_model(build_config("decoder", **SIZES, **memory), "causal-lm", seed=0).eval()
    mask = torch.tensor([[1] * 4, [1, 0, 0, 1]])
    with pytest.raises(BadInput, match=r"padding between tokens \(row 1, column 2\).*texts of one length"):
        model.generate(torch.arange(3, 11).view(2, 4), attention_mask=mask, max_new_tokens=1)
    for padded in ([0, 0, 1, 1], [1, 1, 0, 0]):
        assert cached_layout((1, 4), 0, torch.tensor([padded]), None).valid_BT.int().tolist() == [padded]


@pytest.mark.parametrize("encoding", ["learned", "rope"])
def test_sequence_ids_beside_padding_on_the_left_count_from_the_first_token(encoding):
    model = build_model(build_config("decoder", **SIZES | {"encoding": encoding}), "causal-lm", seed=0).eval()
    text = torch.arange(3, 9)[None]
    padded = torch.cat([torch.zeros(1, 3, dtype=torch.long), text], 1)
    mask, together = (padded != 0).long(), torch.zeros_like(padded)
    found = model(padded, attention_mask=mask, sequence_ids=together).logits[:, 3:]
    assert_close(found, model(text).logits, rtol=1e-5, atol=1e-6)
    assert layout_of((1, 9), mask, None, together).positions.position_BT.tolist() == [[0, 1, 2, 0, 1, 2, 3, 4, 5]]


def test_rows_that_go_on_from_a_memory_are_of_one_length():
    config = build_config("decoder", **SIZES, memory="segment-recurrence")
    model = build_model(config, "causal-lm", seed=0).eval()
    memory = model(torch.randint(3, 50, (2, 8))).memory
    ids = torch.tensor([[0, 0, 5, 6], [7, 8, 9, 10]])
    with pytest.raises(BadInput, match="prompts of one length, or write each row by itself"):
        model.generate(ids, attention_mask=(ids != 0).long(), memory=memory, max_new_tokens=2)
    one = model.generate(ids[:1, 2:], memory=memory.reorder(torch.tensor([0])), max_new_tokens=2)
    assert one.shape == (1, 4)


def test_fields_that_from_pretrained_changes_are_checked_and_completed(tmp_path):
    plain = build_model(build_config("decoder", **SIZES), "causal-lm", seed=0)
    plain.save_pretrained(tmp_path / "plain")
    found = AutoModelForCausalLM.from_pretrained(tmp_path / "plain", memory="look-ahead")
    assert (found.config.memory_length, found.config.segment_length) == (32, 32)
    with pytest.raises(BadInput, match="memory_options: look-ahead has no option 'same_lenght'"):
        AutoModelForCausalLM.from_pretrained(
            tmp_path / "plain", memory="look-ahead", memory_options={"same_lenght": True}
        )
    with pytest.raises(BadInput, match="hidden_dropout_prob must lie in"):
        AutoModelForCausalLM.from_pretrained(tmp_path / "plain", hidden_dropout_prob=1.5)


def test_a_model_that_is_loaded_without_its_memory_can_be_saved_and_loaded(tmp_path):
    config = build_config("encoder", **SIZES, memory="look-ahead", num_labels=3, document_pooling="max")
    build_model(config, "classification", seed=0).save_pretrained(tmp_path / "memory")
    found = AutoModelForSequenceClassification.from_pretrained(tmp_path / "memory", memory="none")
    assert (found.config.memory_length, found.config.document_pooling) == (None, None)
    found.save_pretrained(tmp_path / "none")
    again = AutoModelForSequenceClassification.from_pretrained(tmp_path / "none").eval()
    ids = torch.arange(3, 19).view(2, 8)
    assert_close(again(ids).logits, found.eval()(ids).logits, rtol=0, atol=0)


@pytest.mark.parametrize("token", [-1, 50])
def test_a_padding_token_outside_the_vocabulary_is_refused(token):
    with pytest.raises(BadInput, match=rf"pad_token_id must lie in 0 .. 49, got {token}; None where"):
        build_config("encoder", **SIZES, pad_token_id=token)


def test_special_tokens_that_are_cut_off_are_forgotten(tmp_path):
    config = build_config("seq2seq", **SIZES, pad_token_id=49)
    model = build_model(config, "translation", seed=0)
    assert config.decoder_start_token_id == 49
    model.resize_token_embeddings(49)
    model.save_pretrained(tmp_path)
    assert type(model).from_pretrained(tmp_path).config.pad_token_id is None


def test_a_translator_takes_the_mask_of_the_target_in_generation():
    config = build_config("seq2seq", **SIZES, pad_token_id=0)  # which is the start token too
    model = build_model(config, "translation", seed=0).eval()
    source, start = torch.arange(3, 11).view(1, 8), torch.tensor([[0, 5, 6]])
    padded = torch.cat([torch.zeros(1, 2, dtype=torch.long), start], 1)
    mask, options = torch.tensor([[0, 0, 1, 1, 1]]), {"max_new_tokens": 3, "do_sample": False}
    alone = model.generate(source, decoder_input_ids=start, **options)
    found = model.generate(source, decoder_input_ids=padded, decoder_attention_mask=mask, **options)
    assert found[:, 2:].tolist() == alone.tolist()


def test_heads_are_all_there():
    assert len(HEADS) >= 7
    assert all(issubclass(kind, WordOrderPreTrainedModel) for kind in HEADS)
