"""Language models do what transformers' and TRL's tools ask of them, in training and between its steps."""

import pytest
import torch
from torch.testing import assert_close
from transformers import DataCollatorWithFlattening, Trainer, TrainingArguments

from wordorder.errors import BadInput
from wordorder.models import build_config, build_model

SIZES = {
    "vocab_size": 30, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4, "pad_token_id": 0,
    "bos_token_id": 1, "eos_token_id": 2, "max_position_embeddings": 32,
}  # fmt: skip


def build(network="decoder", task="causal-lm", **fields):
    return build_model(build_config(network, **{**SIZES, **fields}), task, seed=0)


def ids(batch=2, length=9):
    return torch.randint(3, 30, (batch, length), generator=torch.Generator().manual_seed(length))


def smoothed(logits, labels, factor):
    """The mean over labelled tokens of -(1 - factor) log p(label) - factor mean_v log p(v)."""
    log_p, counted = logits.log_softmax(-1), labels != -100
    right = log_p.gather(-1, labels.clamp(min=0)[..., None])[..., 0]
    return -((1 - factor) * right + factor * log_p.mean(-1))[counted].mean()


@pytest.mark.parametrize("adapted", [False, True])
def test_labels_that_the_trainer_smooths_are_of_the_next_token(adapted, tmp_path):
    model = build(encoding="rope").eval()
    if adapted:
        peft = pytest.importorskip("peft")
        with pytest.warns(FutureWarning):
            model = peft.get_peft_model(model, peft.LoraConfig(target_modules=["qkv"])).eval()
    arguments = TrainingArguments(str(tmp_path), label_smoothing_factor=0.1, use_cpu=True, report_to="none")
    labels = ids()
    labels[1, 6:] = -100
    loss = Trainer(model, arguments).compute_loss(model, {"input_ids": ids(), "labels": labels})
    logits = model(ids()).logits
    assert_close(loss, smoothed(logits[:, :-1], labels[:, 1:], 0.1))


def test_labels_of_masked_words_are_smoothed_where_they_stand(tmp_path):
    model = build("encoder", "masked-lm", encoding="t5").eval()
    arguments = TrainingArguments(str(tmp_path), label_smoothing_factor=0.1, use_cpu=True, report_to="none")
    labels = ids().masked_fill(torch.arange(9) % 3 > 0, -100)
    loss = Trainer(model, arguments).compute_loss(model, {"input_ids": ids(), "labels": labels})
    assert_close(loss, smoothed(model(ids()).logits, labels, 0.1))


TEXTS = [{"input_ids": [5, 6, 7, 8]}, {"input_ids": [9]}, {"input_ids": [10, 11, 12]}]
COLLATED = [{}, {"return_flash_attn_kwargs": True}, {"return_seq_idx": True}]


@pytest.mark.parametrize("collated", COLLATED)
def test_packed_batches_with_what_flash_attention_reads(collated):
    model = build(encoding="learned+t5").eval()
    batch = DataCollatorWithFlattening(return_tensors="pt", **collated)(TEXTS)
    labels, position_ids = batch["labels"], batch["position_ids"]
    output = model(**batch)
    assert_close(output.loss, model(batch["input_ids"], position_ids=position_ids, labels=labels).loss)
    alone = torch.cat([model(torch.tensor([text["input_ids"]])).logits for text in TEXTS], 1)
    assert_close(output.logits, alone)
    packing = {name: value for name, value in batch.items() if name not in ("input_ids", "labels", "position_ids")}
    encoder = build("encoder", "masked-lm", encoding="t5").eval()
    assert_close(
        encoder(batch["input_ids"], position_ids=position_ids, **packing).logits,
        encoder(batch["input_ids"], position_ids=position_ids).logits,
    )


@pytest.mark.parametrize("collated", COLLATED[1:])
def test_packed_batches_that_contradict_themselves_are_refused(collated):
    model = build(encoding="rope").eval()
    batch = DataCollatorWithFlattening(return_tensors="pt", **collated)(TEXTS)
    for position_ids in (torch.arange(8)[None], torch.tensor([[0, 1, 2, 0, 0, 0, 1, 2]])):
        with pytest.raises(BadInput, match="differ in where the packed texts begin"):
            model(**{**batch, "position_ids": position_ids})
    del batch["position_ids"]
    with pytest.raises(BadInput, match="pass position_ids too"):
        model(**batch)
    with pytest.raises(TypeError, match="unexpected keyword argument 'cu_seqlens'"):
        model(ids(), cu_seqlens=None)


def test_sizes_that_follow_others_are_in_the_configuration():
    config = build_config("decoder", **SIZES)
    assert (config.num_key_value_heads, config.intermediate_size) == (4, 64)
    assert build_config("decoder", **SIZES, num_key_value_heads=2).num_key_value_heads == 2
    wider = type(config).from_dict(config.to_dict(), hidden_size=32, num_attention_heads=8)
    assert (wider.num_key_value_heads, wider.intermediate_size) == (8, 128)
    narrow = type(config).from_dict(config.to_dict(), hidden_size=32, intermediate_size=40)
    assert (narrow.num_key_value_heads, narrow.intermediate_size) == (4, 40)
    peft = pytest.importorskip("peft")
    with pytest.warns(FutureWarning):
        prefixed = peft.get_peft_model(
            build(encoding="rope"), peft.PrefixTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=3)
        )
    assert prefixed(input_ids=ids(), attention_mask=torch.ones(2, 9)).logits.shape == (2, 9, 30)


@pytest.mark.filterwarnings("ignore:.*checkpointing.* is deprecated:FutureWarning")
@pytest.mark.parametrize("memory", [{}, {"memory": "look-ahead", "memory_length": 4, "segment_length": 5}])
def test_a_sample_in_the_middle_of_training_with_checkpointing(memory):
    model = build(encoding="rope", hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, **memory)
    plain = {"attention_mask": torch.ones(2, 9, dtype=torch.long), "max_new_tokens": 4, "do_sample": False}
    expected = model.eval().generate(ids(), **plain)
    model.train().gradient_checkpointing_enable()
    assert torch.equal(model.generate(ids(), **plain), expected)
    assert model.training


def test_fewer_axes_than_a_batch_has_are_named():
    with pytest.raises(ValueError, match=r"\(batch, tokens\)"):
        build(encoding="rope")(torch.tensor([3, 4, 5]))


@pytest.mark.parametrize("network", ["decoder", "seq2seq"])
def test_labels_of_one_axis_are_named(network):
    task = "causal-lm" if network == "decoder" else "translation"
    model, ids = build_model(build_config(network, **SIZES), task, seed=0), torch.tensor([[3, 4, 5]])
    with pytest.raises(ValueError, match=r"labels must be .* got \([23],\)"):
        model(ids, labels=ids[0])


@pytest.mark.parametrize("network", ["encoder", "decoder"])
@pytest.mark.parametrize("memory", ["none", "segment-recurrence", "look-ahead"])
def test_data_parallel_is_told_that_it_cannot_gather_memories(network, memory):
    fields = {} if memory == "none" else {"memory": memory, "memory_length": 4, "segment_length": 8}
    task = "causal-lm" if network == "decoder" else "masked-lm"
    model = build_model(build_config(network, **SIZES, **fields), task, seed=0)
    for module in model.modules():  # as torch.nn.parallel.replicate marks them
        module._is_replica = True
    ids = torch.arange(3, 9).view(2, 3)
    if memory == "none":
        model(ids, labels=ids).loss.backward()
        return
    with pytest.raises(BadInput, match=r"nn\.DataParallel cannot gather .*torchrun"):
        model(ids, labels=ids)


def prompt_learning(model, kind):
    peft = pytest.importorskip("peft")
    return peft.get_peft_model(model, getattr(peft, kind)(task_type="CAUSAL_LM", num_virtual_tokens=3)).eval()


@pytest.mark.filterwarnings("ignore:Position ids are not supported:UserWarning")
@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize("kind", ["PromptTuningConfig", "PromptEncoderConfig", "PrefixTuningConfig"])
@pytest.mark.parametrize("encoding", ["rope", "learned", "tupe-r"])
def test_prompts_padded_on_the_left_behind_a_learned_prompt(encoding, kind):
    model = build(encoding=encoding, initializer_range=0.5)
    model = prompt_learning(model, kind)
    texts, mask = ids(), torch.ones(2, 9, dtype=torch.long)
    texts[1, :4] = mask[1, :4] = 0
    plain = {
        "max_new_tokens": 6,
        "min_new_tokens": 6,
        "do_sample": False,
        "output_logits": True,
        "return_dict_in_generate": True,
    }
    together = model.generate(input_ids=texts, attention_mask=mask, **plain)
    alone = model.generate(input_ids=texts[1:, 4:], attention_mask=mask[1:, 4:], **plain)
    assert torch.equal(together.sequences[1:, 9:], alone.sequences[:, 5:])
    for ours, expected in zip(together.logits, alone.logits, strict=True):
        assert_close(ours[1:], expected)


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize("kind", ["PromptTuningConfig", "PrefixTuningConfig"])
@pytest.mark.parametrize("encoding", ["complex-order", "complex-vanilla"])
def test_prompt_learning_is_told_that_waves_have_no_table_without_positions(encoding, kind):
    with pytest.raises(AttributeError, match=rf"'{encoding}' replaces .*LoRA"):
        prompt_learning(build(encoding=encoding), kind)
