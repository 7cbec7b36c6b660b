"""LoRA by peft on every network here: one step of training, saved, loaded, and merged into the same outputs."""

import pytest
import torch
from transformers import BertConfig, BertForMaskedLM

from wordorder.models import build_config, build_model, lora_targets, swap_encoding

peft = pytest.importorskip("peft", reason="peft is not installed; it comes with the extra peft")

# what peft 0.21 asks of transformers 5.23
pytestmark = pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")
SIZES = {"vocab_size": 30, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "pad_token_id": 0}
STARTS = {"bos_token_id": 1, "eos_token_id": 2}


def build(name):
    """Model, task of peft, inputs, whether positions have projections of their own."""
    x = torch.randint(3, 30, (2, 7))
    if name.startswith("tupe"):
        config = build_config("encoder", encoding=name, max_position_embeddings=16, **SIZES)
        return build_model(config, "masked-lm", seed=0), None, {"input_ids": x, "labels": x}, True
    if name == "classifier":
        config = build_config("encoder", encoding="tupe-a", max_position_embeddings=16, num_labels=3, **SIZES)
        inputs = {"input_ids": x, "labels": torch.tensor([0, 2])}
        return build_model(config, "classification", seed=0), "SEQ_CLS", inputs, True
    if name in ("transformer-xl", "alibi", "deberta"):
        memory = {"memory": "look-ahead", "memory_length": 4, "segment_length": 7} if name != "deberta" else {}
        config = build_config("decoder", encoding=name, **memory, **SIZES, **STARTS)
        return build_model(config, "causal-lm", seed=0), "CAUSAL_LM", {"input_ids": x, "labels": x}, False
    if name == "seq2seq":
        config = build_config("seq2seq", encoding="t5", decoder_start_token_id=1, **SIZES, **STARTS)
        return build_model(config, "translation", seed=0), "SEQ_2_SEQ_LM", {"input_ids": x, "labels": x}, False
    assert name == "swapped"
    host = BertForMaskedLM(BertConfig(intermediate_size=32, max_position_embeddings=16, **SIZES))
    return swap_encoding(host, "model+tupe-r", seed=0), None, {"input_ids": x, "labels": x}, True


def read(model, inputs):
    """Logits, of two segments where there is a memory."""
    inputs = {**inputs}
    with torch.no_grad():
        first = model(**inputs)
        if getattr(first, "memory", None) is None:
            return first.logits
        return torch.cat([first.logits, model(**inputs, memory=first.memory).logits], dim=1)


@pytest.mark.parametrize(
    "name", ["tupe-a", "tupe-r", "classifier", "transformer-xl", "alibi", "deberta", "seq2seq", "swapped"]
)
def test_an_adapter_learns_is_saved_loaded_and_merged(name, tmp_path):
    base, task, inputs, positions = build(name)
    plain = {key: value.clone() for key, value in base.state_dict().items()}
    targets = lora_targets(base, positions=positions)
    if name in ("transformer-xl", "deberta"):  # projections that nothing calls would be adapters that do nothing
        targets = "all-linear"
    config = peft.LoraConfig(r=2, lora_alpha=8, target_modules=targets, task_type=task)
    model = peft.get_peft_model(base, config)
    before = read(model.eval(), inputs)
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=0.05)
    for _ in range(2):  # B is 0 at first, so that A learns from the second step on
        optimizer.zero_grad()
        model.train()
        model(**inputs).loss.backward()
        optimizer.step()
    adapters = [key for key, p in model.named_parameters() if "lora_B" in key]
    still = [key for key in adapters if not model.get_parameter(key).any()]
    assert still == []
    # with two segments the memory is read through the adapter too
    trained = read(model.eval(), inputs)
    assert (trained - before).abs().max() > 1e-3
    model.save_pretrained(tmp_path)
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".json", ".md", ".safetensors"]
    fresh = build(name)[0]
    fresh.load_state_dict(plain)
    loaded = peft.PeftModel.from_pretrained(fresh, tmp_path).eval()
    torch.testing.assert_close(read(loaded, inputs), trained, rtol=0, atol=1e-6)
    merged = loaded.merge_and_unload()
    assert type(merged) is type(base)
    torch.testing.assert_close(read(merged, inputs), trained, rtol=0, atol=1e-5)


def test_an_adapted_decoder_with_memory_generates():
    base, task, inputs, _ = build("alibi")
    model = peft.get_peft_model(base, peft.LoraConfig(r=2, target_modules=lora_targets(base), task_type=task)).eval()
    told = {"max_new_tokens": 9, "do_sample": False}
    written = model.generate(input_ids=inputs["input_ids"], **told)
    assert torch.equal(written, model.get_base_model().generate(input_ids=inputs["input_ids"], **told))


def test_targets_are_named_and_what_is_not_there_is_refused():
    encoder, decoder = build("tupe-a")[0], build("alibi")[0]
    assert lora_targets(encoder) == ["qkv", "out"]
    assert lora_targets(encoder, positions=True) == ["qkv", "out", "query_projection", "key_projection"]
    assert lora_targets(build("seq2seq")[0]) == ["qkv", "out", "q", "kv"]
    assert lora_targets(build("swapped")[0])[0:3] == ["query", "key", "value"]
    with pytest.raises(ValueError, match="encoding 'alibi' has no projections of positions"):
        lora_targets(decoder, positions=True)
    host = BertForMaskedLM(BertConfig(intermediate_size=32, **SIZES))
    with pytest.raises(ValueError, match=r"encoding 'model\+t5' has no projections of positions"):
        lora_targets(swap_encoding(host, "model+t5"), positions=True)
    with pytest.raises(ValueError, match="must have attention"):
        lora_targets(torch.nn.Linear(2, 2))
