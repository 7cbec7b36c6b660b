"""Folders of swapped models: the whole model, which no plain class loads, and the small one with the encoding alone."""

import copy
import json
import os
import pickle
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import transformers as hf
from swapped_models import SIZES, apart, body_of, drawn, how_of, ids_of, model_of, output_of, swapped

import wordorder
from wordorder.errors import BadInput
from wordorder.models import load_swapped, save_swapped, swap_encoding, unswap
from wordorder.models.swap.folder import SETTINGS, WEIGHTS

CAUSAL, MASKED, SEQ2SEQ = hf.AutoModelForCausalLM, hf.AutoModelForMaskedLM, hf.AutoModelForSeq2SeqLM
WHOLE = [
    ("llama", CAUSAL, "t5"),
    ("llama", CAUSAL, "rope+fox"),
    ("gemma2", CAUSAL, "model*2,none"),
    ("gpt2", CAUSAL, "learned"),
    ("bert", MASKED, "model+tupe-r"),
    ("roberta", MASKED, "none"),
    ("modernbert", MASKED, "rope@4,t5"),
    ("t5", SEQ2SEQ, "t5@5,alibi"),
]


def loss_free(model):
    ids = ids_of(2, 12)
    more = {"decoder_input_ids": ids_of(2, 5)} if model.config.is_encoder_decoder else {}
    with torch.no_grad():
        return output_of(model, ids, **more)


@pytest.mark.parametrize(("kind", "auto", "encoding"), WHOLE)
def test_a_whole_folder_is_loaded_as_it_was(kind, auto, encoding, tmp_path):
    model = swapped(kind, encoding, auto)
    expected, plain = loss_free(model), type(model)
    model.save_pretrained(tmp_path, max_shard_size="20KB")
    assert len([*tmp_path.glob("*.safetensors")]) > 1  # shards
    again, info = auto.from_pretrained(tmp_path, output_loading_info=True, **how_of(kind))
    assert not any(info[name] for name in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    assert type(again) is plain
    assert not again.training
    assert apart(loss_free(again), expected) == 0
    assert again.config.model_type == kind
    assert again.config.wordorder == model.config.wordorder
    again.save_pretrained(tmp_path / "again")  # what was loaded is saved as it was read
    assert json.loads((tmp_path / "again/config.json").read_text()) == json.loads(
        (tmp_path / "config.json").read_text()
    )
    for copied in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert apart(loss_free(copied), expected) == 0
        drawn(copied)  # has weights of its own
        assert apart(loss_free(model), expected) == 0
    torch.save(model, tmp_path / "model.pt")
    assert apart(loss_free(torch.load(tmp_path / "model.pt", weights_only=False)), expected) == 0


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_a_folder_is_loaded_in_another_dtype_and_attention(dtype, tmp_path):
    model = swapped("llama", "rope+t5")
    model.save_pretrained(tmp_path)
    again = CAUSAL.from_pretrained(tmp_path, dtype=dtype)
    assert {parameter.dtype for parameter in again.parameters()} == {dtype}
    assert again.config._attn_implementation == "wordorder"
    bound = {torch.bfloat16: 0.1, torch.float64: 1e-5}[dtype]
    assert apart(loss_free(again).float(), loss_free(model)) <= bound * 4
    rotated = swapped("llama", "rope*2,none")
    rotated.save_pretrained(tmp_path / "rotated")
    for attention in ("eager", "sdpa"):  # which rotations need no function of ours
        again = CAUSAL.from_pretrained(tmp_path / "rotated", attn_implementation=attention)
        assert again.config._attn_implementation == attention
        assert apart(loss_free(again), loss_free(rotated)) <= 1e-5


@pytest.mark.parametrize(("kind", "encoding"), [("llama", "rope+t5"), ("gpt2", "learned+fox"), ("llama", "rope")])
def test_a_folder_is_placed_and_built_anew(kind, encoding, tmp_path):
    pytest.importorskip("accelerate", reason="accelerate is not installed; it comes with the extra models")
    model = swapped(kind, encoding)
    model.save_pretrained(tmp_path)
    assert apart(loss_free(CAUSAL.from_pretrained(tmp_path, device_map="cpu")), loss_free(model)) == 0
    drawn_anew = CAUSAL.from_config(hf.AutoConfig.from_pretrained(tmp_path))
    assert drawn_anew.state_dict().keys() == model.state_dict().keys()
    asked = CAUSAL.from_pretrained(tmp_path, attn_implementation="eager")
    assert asked.config._attn_implementation == ("eager" if encoding == "rope" else "wordorder")
    assert apart(loss_free(asked), loss_free(model)) <= 1e-5


@pytest.mark.filterwarnings("ignore:.*newly initialized")
@pytest.mark.parametrize(("kind", "encoding"), [("llama", "t5"), ("bert", "model+tupe-r"), ("gpt2", "learned+fox")])
def test_other_heads_are_loaded_from_a_language_models_folder(kind, encoding, tmp_path):
    model = swapped(kind, encoding, CAUSAL if kind != "bert" else MASKED)
    model.save_pretrained(tmp_path)
    expected = {name: tensor for name, tensor in model.base_model.state_dict().items() if "pooler" not in name}
    heads = [hf.AutoModel, hf.AutoModelForSequenceClassification, hf.AutoModelForTokenClassification]
    # transformers' Llama for questions names its body otherwise, plain or swapped
    for auto in heads + [hf.AutoModelForQuestionAnswering] * (kind != "llama"):
        other = auto.from_pretrained(tmp_path)
        state = other.base_model.state_dict()
        assert [name for name, tensor in expected.items() if not torch.equal(state[name], tensor)] == []
        assert sum("wordorder" in module._modules for module in other.modules()) == 1
        ids = ids_of(2, 12)
        ours = other.base_model(ids).last_hidden_state
        assert apart(ours.detach(), model.base_model(ids).last_hidden_state.detach()) <= 1e-6
        other.save_pretrained(tmp_path / "head")
        assert apart(auto.from_pretrained(tmp_path / "head")(ids)[0].detach(), other(ids)[0].detach()) == 0
        shutil.rmtree(tmp_path / "head")


def test_a_table_of_tokens_grows_and_the_folder_with_it(tmp_path):
    model = swapped("llama", "learned+t5")
    expected = loss_free(model)
    model.resize_token_embeddings(70, mean_resizing=False)
    assert apart(loss_free(model)[..., :60], expected) == 0
    model.save_pretrained(tmp_path)
    again = CAUSAL.from_pretrained(tmp_path)
    assert again.config.vocab_size == 70
    assert apart(loss_free(again), loss_free(model)) == 0


@pytest.mark.parametrize(
    ("kind", "cls"),
    [("llama", hf.LlamaForCausalLM), ("bert", hf.BertForMaskedLM), ("t5", hf.T5ForConditionalGeneration)],
)
@pytest.mark.parametrize("encoding", ["none", "alibi"])
def test_a_plain_class_says_what_the_folder_is(kind, cls, encoding, tmp_path):
    swapped(kind, encoding, cls).save_pretrained(tmp_path)
    with pytest.raises(Exception, match=r"a swapped model: import wordorder.models, then AutoModel"):
        cls.from_pretrained(tmp_path)
    document = json.loads((tmp_path / "config.json").read_text())
    assert document["model_type"] == "wordorder-swapped"
    assert document["wordorder"]["host_type"] == kind
    assert "model_type" not in document["host"]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"wordorder": None}, "must hold wordorder.host_type"),
        ({"host": {"attn_implementation": "owner/kernel"}}, "code of the Hub is not run"),
        ({"host": None}, "that model's fields below host"),
        ({"wordorder": {"encoding": "t5", "options": {}, "max_positions": 9}}, r"got None"),
        ({"wordorder": {"encoding": "t5", "options": {}, "max_positions": 9, "host_type": "gptj"}}, "one of llama"),
        ({"wordorder": {"encoding": "t5", "options": {}, "max_positions": 9, "host_type": "wordorder-swapped"}}, "one"),
        ({"wordorder": {"encoding": "t5", "options": 3, "max_positions": 9, "host_type": "llama"}}, "options .a table"),
        ({"wordorder": {"encoding": "t6", "options": {}, "max_positions": 9, "host_type": "llama"}}, "unknown enc"),
        ({"wordorder": {"encoding": "t5", "model": 3, "host_type": "llama"}}, "must hold encoding"),
    ],
)
def test_a_damaged_configuration_is_refused(changes, words, tmp_path):
    swapped("llama", "t5").save_pretrained(tmp_path)
    document = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(document | changes))
    with pytest.raises(BadInput, match=words):
        CAUSAL.from_pretrained(tmp_path)


@pytest.mark.slow
def test_a_process_that_does_not_know_this_package_cannot_load_it(tmp_path):
    swapped("llama", "none").save_pretrained(tmp_path)
    program = (
        "from transformers import AutoModelForCausalLM\n"
        "try:\n    AutoModelForCausalLM.from_pretrained('.')\n"
        "except ValueError as error:\n    print(type(error).__name__, 'wordorder-swapped' in str(error))"
    )
    source = str(Path(wordorder.__file__).parents[1])
    how = {"cwd": tmp_path, "env": {**os.environ, "PYTHONPATH": source}, "capture_output": True, "text": True}
    done = subprocess.run([sys.executable, "-c", program], **how, timeout=120)
    assert done.stdout == "ValueError True\n", done.stderr
    known = program.replace("try", "import wordorder.models\ntry", 1).replace("('.')", "('.').config.wordorder")
    done = subprocess.run([sys.executable, "-c", known + "\nelse:\n    print('loaded')"], **how, timeout=120)
    assert done.stdout == "loaded\n", done.stderr


def test_a_plain_model_beside_a_swapped_one_stays_as_it_was(tmp_path):
    """Models that are built from one configuration share it."""
    config = model_of("llama").config
    one, other = drawn(hf.LlamaForCausalLM(config)).eval(), drawn(hf.LlamaForCausalLM(config)).eval()
    expected = loss_free(other)
    swap_encoding(one, "t5")
    assert type(other.config) is hf.LlamaConfig
    assert other.config._attn_implementation == "sdpa"
    assert apart(loss_free(other), expected) == 0
    other.save_pretrained(tmp_path)
    assert apart(loss_free(hf.LlamaForCausalLM.from_pretrained(tmp_path)), expected) == 0


SMALL = [("llama", "t5"), ("llama", "rope+fox"), ("bert", "model+tupe-r"), ("gpt2", "learned"), ("phi", "rope@4,shaw")]
SMALL += [("t5", "t5"), ("mt5", "fox"), ("llama", "rope*2,none")]


@pytest.mark.parametrize(("kind", "encoding"), SMALL)
def test_a_small_folder_gives_an_untouched_base_the_same_encoding(kind, encoding, tmp_path):
    model = swapped(kind, encoding)
    save_swapped(model, tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [SETTINGS, WEIGHTS]
    base = model_of(kind)
    assert load_swapped(base, tmp_path) is base
    if kind == "mt5":
        assert apart(loss_free(base), loss_free(model)) == 0
    with torch.no_grad():
        more = {"decoder_input_ids": ids_of(2, 5)} if kind == "mt5" else {}
        assert apart(output_of(base, ids_of(2, 12), **more), output_of(model, ids_of(2, 12), **more)) == 0
    again = {name: tensor for name, tensor in base.state_dict().items() if "wordorder" in name}
    assert again.keys() == {name for name in model.state_dict() if "wordorder" in name}


def test_a_small_folder_fits_another_head_and_another_dtype(tmp_path):
    model = swapped("bert", "model+tupe-r", MASKED)
    save_swapped(model, tmp_path)
    torch.manual_seed(0)
    base = hf.BertForSequenceClassification(model_of("bert", MASKED).config).eval()
    base.bert.load_state_dict(model_of("bert", MASKED).bert.state_dict(), strict=False)
    load_swapped(base.double(), tmp_path)
    assert {parameter.dtype for parameter in base.parameters()} == {torch.float64}
    ids = ids_of(2, 12)
    ours, expected = base.bert(ids).last_hidden_state, model.bert(ids).last_hidden_state
    assert apart(ours.detach(), expected.detach()) <= 1e-5


def test_a_small_folder_is_as_large_as_its_weights(tmp_path):
    sizes = {"hidden_size": 256, "num_attention_heads": 4, "num_hidden_layers": 2, "max_position_embeddings": 512}
    model = swap_encoding(hf.BertModel(hf.BertConfig(**{**SIZES, **sizes})), "model+tupe-r")
    save_swapped(model, tmp_path)
    weights = sum(p.numel() * p.element_size() for p in body_of(model).wordorder.parameters())
    bytes_of = {path.name: path.stat().st_size for path in tmp_path.iterdir()}
    assert sum(bytes_of.values()) <= 1.05 * (weights + bytes_of[SETTINGS])
    assert bytes_of[SETTINGS] < 1000


def damaged(folder, how):
    if how == "no settings":
        (folder / SETTINGS).unlink()
    elif how == "no weights":
        (folder / WEIGHTS).unlink()
    elif how == "cut weights":
        content = (folder / WEIGHTS).read_bytes()
        (folder / WEIGHTS).write_bytes(content[: len(content) // 2])
    elif how == "pickled weights":
        torch.save({"a": torch.zeros(1)}, folder / WEIGHTS)
    elif how == "no JSON":
        (folder / SETTINGS).write_text('{"encoding": "t5"')
    elif how == "a list":
        (folder / SETTINGS).write_text("[1]")
    elif how == "no type":
        document = json.loads((folder / SETTINGS).read_text())
        del document["host_type"]
        (folder / SETTINGS).write_text(json.dumps(document))
    else:  # other values
        document = json.loads((folder / SETTINGS).read_text())
        (folder / SETTINGS).write_text(json.dumps(document | how))


@pytest.mark.parametrize(
    ("how", "words"),
    [
        *((how, "no folder of save_swapped") for how in ("no settings", "no weights", "cut weights")),
        *((how, "no folder of save_swapped") for how in ("pickled weights", "no JSON", "a list", "no type")),
        ({"host_type": "bert"}, "belongs to a bert .*, and the model is a llama"),
        ({"encoding": "t6"}, "unknown encoding 't6'"),
        ({"encoding": "shaw", "options": {}}, "not of this model's sizes"),
        ({"options": {"t5": {"buckets": 16}}}, "not of this model's sizes"),
        ({"options": {"t5": {"bucket": 16}}}, "no option 'bucket'"),
        ({"options": {"t5": {"buckets": "x"}}}, "buckets"),
        ({"max_positions": -3}, "max_positions"),
        ({"max_positions": "x"}, "must hold encoding"),
        ({"options": ["t5"]}, "must hold encoding"),
        ({"encoding": 3}, "must hold encoding"),
        ({"trust": "me"}, "must hold encoding .*'trust'"),
    ],
)
def test_a_wrong_small_folder_is_refused_and_the_model_left_alone(how, words, tmp_path):
    save_swapped(swapped("llama", "t5"), tmp_path)
    damaged(tmp_path, how)
    base = model_of("llama")
    before, expected = list(base.state_dict()), loss_free(base)
    with pytest.raises(BadInput, match=words):
        load_swapped(base, tmp_path)
    assert list(base.state_dict()) == before
    assert type(base.config) is hf.LlamaConfig
    assert apart(loss_free(base), expected) == 0


def test_a_small_folder_of_another_size_is_refused(tmp_path):
    save_swapped(swapped("llama", "shaw"), tmp_path)
    for fields in ({"num_attention_heads": 2}, {"num_hidden_layers": 2}):
        with pytest.raises(BadInput, match="not of this model's sizes"):
            load_swapped(model_of("llama", **fields), tmp_path)
    with pytest.raises(BadInput, match="swapped already"):
        load_swapped(swapped("llama", "none"), tmp_path)


def test_what_is_not_swapped_has_nothing_to_save(tmp_path):
    with pytest.raises(BadInput, match="LlamaForCausalLM whose encoding was not swapped; save_pretrained"):
        save_swapped(model_of("llama"), tmp_path)
    with pytest.raises(BadInput, match="LlamaForCausalLM whose encoding was not swapped"):
        unswap(model_of("llama"))


COPIED = [("gpt2", "learned"), ("opt", "learned"), ("bert", "learned"), ("roberta", "learned"), ("t5", "t5")]


@pytest.mark.parametrize(
    ("kind", "encoding"), [*COPIED, ("mt5", "t5"), ("llama", "rope"), ("llama", "model"), ("gemma3_text", "model")]
)
def test_the_models_own_kind_is_copied_and_unswapped(kind, encoding, tmp_path):
    plain = model_of(kind)
    more = {"decoder_input_ids": ids_of(2, 5)} if kind == "mt5" else {}
    with torch.no_grad():
        expected, names = output_of(plain, ids_of(2, 12), **more), list(plain.state_dict())
        model = swap_encoding(plain, encoding, start="copy" if encoding in ("learned", "t5") else None)
        assert apart(output_of(model, ids_of(2, 12), **more), expected) <= 1e-5
        drawn(model, 0.3, only="wordorder.")
        learned = output_of(model, ids_of(2, 12), **more)
        assert unswap(model) is model
        assert apart(output_of(model, ids_of(2, 12), **more), learned) <= 1e-5
    assert sorted(model.state_dict()) == sorted(names)
    assert type(model.config) is type(model_of(kind).config)
    assert not any("wordorder" in name for name in vars(model.config))
    assert not any(module._forward_pre_hooks for module in model.modules())
    model.save_pretrained(tmp_path)
    again = type(model).from_pretrained(tmp_path).eval()
    with torch.no_grad():
        assert apart(output_of(again, ids_of(2, 12), **more), learned) <= 1e-5
    swap_encoding(model, "none")  # and can be swapped again


@pytest.mark.parametrize(
    ("kind", "encoding", "how"),
    [
        ("llama", "t5", {}),
        ("llama", "rope", {"options": {"base": 500.0}}),
        ("llama", "rope+t5", {}),
        ("llama", "model*2,none", {}),
        ("llama", "model+t5", {}),
        ("llama", "rope@4", {}),
        ("phi", "rope", {}),
        ("gpt_neox", "rope", {}),
        ("gpt2", "learned", {"max_positions": 80}),
        ("bert", "none", {}),
        ("t5", "t5", {"options": {"buckets": 16}}),
        ("t5", "t5", {"options": {"max_distance": 64}}),
        ("modernbert", "rope", {}),
        ("gemma3_text", "rope", {}),
    ],
)
def test_what_the_plain_model_cannot_compute_stays_swapped(kind, encoding, how):
    model = swapped(kind, encoding, **how)
    expected = loss_free(model)
    with pytest.raises(BadInput, match=r"does not compute encoding .* keep it swapped, or load the plain one anew"):
        unswap(model)
    assert apart(loss_free(model), expected) == 0
