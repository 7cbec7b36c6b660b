"""Converted Transformer-XL and LaMemo checkpoints compute what those codes compute; every fault is named."""

import json
from pathlib import Path

import pytest
import torch
import xl_reference as ref
from safetensors.torch import save_file
from torch.testing import assert_close
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer
from tupe_reference import foreign

import wordorder.models  # noqa: F401  registers the model types
from wordorder.errors import BadInput
from wordorder.inspection.saved import first_tokens
from wordorder.papers.folder import ConversionReport
from wordorder.papers.lamemo import convert_lamemo

EXACT = {"rtol": 1e-10, "atol": 1e-10}
CLUSTERS = {
    "one width": {"cutoffs": (5, 12, 18)},
    "narrower": {"cutoffs": (5, 12, 18), "divisor": 2},
}


@pytest.fixture
def convert(tmp_path):
    """Save weights as the reference code does, convert them, and give the folder and the report."""

    def convert(w, config, *, prefix="", stream=False, vocab_object=None, **options):
        path = ref.save(tmp_path / "model.pt", w, config, prefix=prefix, stream=stream, vocab=vocab_object)
        report = convert_lamemo(path, tmp_path / "out", **options)
        assert isinstance(report, ConversionReport)
        return str(tmp_path / "out"), report

    return convert


def faults(convert, *arguments, **options) -> str:
    with pytest.raises(BadInput) as error:
        convert(*arguments, **options)
    return "\n".join(error.value.faults)


def segments(count=4, length=ref.N):
    return [torch.randint(ref.V, (2, length)) for _ in range(count)]


def read(folder, parts):
    model = AutoModelForCausalLM.from_pretrained(folder).eval()
    assert model.dtype == torch.float64
    memory, found = None, []
    for ids in parts:
        output = model(ids, memory=memory)
        memory = output.memory
        found.append(output.logits)
    return found


def check(folder, w, parts, **options):
    ours, theirs = read(folder, parts), ref.logits(w, parts, **options)
    assert theirs[-1].std() > 0.5
    for a, b in zip(ours, theirs, strict=True):
        assert_close(a, b, **EXACT)


# attn_type 33 cannot run there with a memory shorter than a segment
SHORT = [(kind, 3, False) for kind in (0, 3, 31, 32)]


@pytest.mark.parametrize(("kind", "memory", "pre"), SHORT + [
    (kind, memory, pre) for kind in (0, 3, 31, 32, 33) for memory, pre in ((5, True), (7, False), (12, False))
])  # fmt: skip
def test_logits_over_segments_are_the_reference_s(convert, kind, memory, pre):
    w = ref.weights(kind)
    config = ref.settings(kind, pre_lnorm=pre, mem_len=memory)
    folder, report = convert(w, config, prefix="module." if pre else "", stream=pre)
    assert report.config["memory"] == ("segment-recurrence" if kind == 0 else "look-ahead")
    check(folder, w, segments(), kind=kind, memory=memory, pre=pre)


@pytest.mark.parametrize("memory", [5, 7])
def test_same_length_and_clamped_distances(convert, memory):
    w = ref.weights(0)
    folder, report = convert(w, ref.settings(0, same_length=True, clamp_len=4, mem_len=memory))
    assert report.config["memory_options"] == {"same_length": True}
    assert report.config["encoding_options"]["clamp"] == 4
    check(folder, w, segments(), memory=memory, same_length=True, clamp=4)


def test_clamped_distances_of_a_look_ahead(convert):
    w = ref.weights(3)
    folder, _ = convert(w, ref.settings(3, clamp_len=3))
    check(folder, w, segments(), kind=3, clamp=3)


def test_ragged_segments_of_transformer_xl(convert):
    w, parts = ref.weights(0), [torch.randint(ref.V, (2, length)) for length in (5, 1, 3, 9)]
    folder, _ = convert(w, ref.settings(0))
    check(folder, w, parts)


def test_without_memory(convert):
    w = ref.weights(0)
    folder, report = convert(w, ref.settings(0, mem_len=0))
    assert "memory" not in report.config
    ids = segments(1)
    assert_close(AutoModelForCausalLM.from_pretrained(folder).eval()(ids[0]).logits, ref.logits(w, ids)[0], **EXACT)


@pytest.mark.parametrize("form", CLUSTERS)
@pytest.mark.parametrize("kind", [0, 3])
def test_words_in_clusters_are_refused_with_the_reason(convert, form, kind):
    options = CLUSTERS[form]
    config = ref.settings(kind, cutoffs=list(options["cutoffs"]), div_val=options.get("divisor", 1))
    for settings in (config, {**config, "cutoffs": None}):
        (fault,) = faults(convert, ref.weights(kind, **options), settings).splitlines()
        assert "words are in clusters (cutoffs, an adaptive softmax)" in fault


def test_a_bare_state_dict_with_settings(tmp_path):
    w, wanted = ref.weights(0), {"mem_len": ref.M, "tgt_len": ref.N}
    torch.save(w, tmp_path / "state.pt")
    report = convert_lamemo(tmp_path / "state.pt", tmp_path / "out", config=wanted)
    assert report.config["num_attention_heads"] == ref.H
    parts = segments(2)
    check(str(tmp_path / "out"), w, parts)
    save_file({name: tensor.clone() for name, tensor in w.items()}, tmp_path / "state.safetensors")
    (tmp_path / "args.json").write_text(json.dumps(wanted))
    again = convert_lamemo(tmp_path / "state.safetensors", tmp_path / "again", config=tmp_path / "args.json")
    assert again.config == report.config
    with pytest.raises(BadInput, match=r"mem_len and tgt_len must be known.*--config"):
        convert_lamemo(tmp_path / "state.pt", tmp_path / "third")


def test_everything_is_mapped_or_ignored_and_biases_are_0(convert):
    w = ref.weights(32)
    folder, report = convert(w, ref.settings(32))
    assert {*report.mapped, *report.ignored} == set(w)
    assert all("logits_constant" in name or name == "pos_emb.inv_freq" for name in report.ignored)
    model = AutoModelForCausalLM.from_pretrained(folder)
    assert report.parameters == sum(parameter.numel() for parameter in model.parameters())
    assert all(layer.attention.qkv.bias.abs().sum() == 0 for layer in model.model.decoder.layers)
    config = model.config
    assert (config.hidden_dropout_prob, config.attention_probs_dropout_prob, config.output_dropout) == (0.2, 0.1, 0.2)
    assert (config.memory_length, config.segment_length) == (ref.M, ref.N)
    assert config.memory_options == {"epsilon": 1e-6, "full": False}


def test_half_precision_is_widened(convert):
    w = {name: tensor.half() for name, tensor in ref.weights(0).items()}
    _, report = convert(w, ref.settings(0))
    assert report.dtype == "float32"


def test_a_list_of_words_becomes_a_tokeniser(convert, tmp_path):
    words = ["<eos>", "<unk>", "the", *(f"word{n}" for n in range(ref.V - 3))]
    (tmp_path / "words.txt").write_text("\n".join(words) + "\n")
    folder, report = convert(ref.weights(0), ref.settings(0), vocab=tmp_path / "words.txt")
    assert report.config["eos_token_id"] == 0
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert tokenizer("the word3 xyz <eos>")["input_ids"] == [2, 6, 1, 0]
    assert tokenizer.eos_token_id == 0


@pytest.mark.parametrize(("first", "noted"), [("\ufeff<unk>", False), ("other", True)])
def test_a_byte_order_mark_is_no_letter_and_a_list_without_unk_is_noted(convert, tmp_path, first, noted):
    words = [first, *(f"word{n}" for n in range(ref.V - 1))]
    (tmp_path / "words.txt").write_text("\n".join(words) + "\n", encoding="utf-8")
    folder, report = convert(ref.weights(0), ref.settings(0), vocab=tmp_path / "words.txt")
    assert any("refuses a text with other words" in note for note in report.notes) == noted
    (tmp_path / "text.txt").write_text("\ufeffword3 xyz", encoding="utf-8")
    if noted:
        with pytest.raises(BadInput, match=r"text\.txt: .* cannot read it: .*Missing \[UNK\]"):
            first_tokens(Path(folder), AutoConfig.from_pretrained(folder), tmp_path / "text.txt", 9)
    else:
        assert first_tokens(Path(folder), AutoConfig.from_pretrained(folder), tmp_path / "text.txt", 9) == [4, 0]


@pytest.mark.parametrize(("text", "said"), [
    ("one\ntwo\n", "has 2 words, but the checkpoint's vocabulary has 23"),
    ("one\none\n", "words that stand there twice: one"),
    ("one\ntwo three\n", "line 2 must be one word"),
    ("one\n\ntwo\n", "line 2 must be one word"),
])  # fmt: skip
def test_a_wrong_list_of_words_is_refused(convert, tmp_path, text, said):
    (tmp_path / "words.txt").write_text(text)
    assert said in faults(convert, ref.weights(0), ref.settings(0), vocab=tmp_path / "words.txt")
    assert not (tmp_path / "out").exists()


def test_the_pickled_vocabulary_of_the_reference_code_is_left_alone(convert):
    with foreign("utils.vocabulary", "Vocab") as vocab:
        _, report = convert(ref.weights(0), ref.settings(0), vocab_object=vocab)
    assert any("no tokeniser" in note for note in report.notes)


@pytest.mark.parametrize(("kind", "changes", "said"), [
    (0, {"attn_type": 1}, "attn_type=1 has no counterpart here"),
    (0, {"attn_type": 7}, "attn_type=7 has no counterpart"),
    (0, {"pre_lnorm": 1}, "pre_lnorm must be true or false, got 1"),
    (0, {"dropout": 2}, "dropout must be a number in [0, 1), got 2"),
    (0, {"mem_len": -1}, "memory_length must be positive, got -1"),
    (0, {"sample_softmax": 5}, "sample_softmax=5 has no counterpart"),
    (0, {"enhance_recurrence": True}, "enhance_recurrence=True has no counterpart"),
    (0, {"cutoffs": [5]}, "words are in clusters (cutoffs, an adaptive softmax)"),
    (0, {"mem_len": ...}, "mem_len must be known"),
])  # fmt: skip
def test_what_cannot_be_converted_is_named(convert, kind, changes, said):
    assert said in faults(convert, ref.weights(kind), ref.settings(kind, **changes))


@pytest.mark.parametrize(("kind", "changes", "said"), [
    (3, {"same_length": True}, "same_length=true with look-ahead memory"),
    (3, {"mem_len": 0}, "mem_len=0 with LaMemo's attention"),
    (31, {"clamp_len": 5}, "clamp_len=5 with attn_type=31"),
    (3, {"attn_type": 32}, "weights are missing: r_w_bias_future"),
    (3, {"attn_type": 31}, "weights that the reference code does not have with these settings: r_r_bias_future"),
    (3, {"attn_type": ...}, "attn_type is missing, and the weights of 3 and 33 have the same names"),
])  # fmt: skip
def test_what_lamemo_cannot_have_is_named(convert, kind, changes, said):
    assert said in faults(convert, ref.weights(kind), ref.settings(kind, **changes))


def test_heads_of_another_width_are_refused(convert):
    w = ref.weights(0)
    w["r_w_bias"] = torch.zeros(ref.H, ref.DH + 1)
    assert "n_head * d_head = 15 is not d_model = 12" in faults(convert, w, ref.settings(0))


def test_projected_embeddings_are_refused(convert):
    w = ref.weights(0, width=8)
    assert "projected embeddings; this has no counterpart here" in faults(convert, w, ref.settings(0, d_embed=8))


def test_wrong_weights_are_listed_together(convert):
    w = ref.weights(0)
    del w["layers.1.dec_attn.o_net.weight"]
    w["layers.0.extra"] = torch.zeros(2)
    w["r_r_bias"] = torch.zeros(H := ref.H, ref.DH + 1)
    w["layers.2.pos_ff.CoreNet.0.bias"] = torch.zeros(ref.FF, dtype=torch.long)
    found = faults(convert, w, ref.settings(0))
    assert "weights are missing: layers.1.dec_attn.o_net.weight" in found
    assert "does not have with these settings: layers.0.extra" in found
    assert f"r_r_bias has shape ({H}, {ref.DH + 1}) instead of ({H}, {ref.DH})" in found
    assert "layers.2.pos_ff.CoreNet.0.bias holds torch.int64 numbers" in found


def test_other_models_are_named(convert):
    assert "holds no model of Transformer-XL's" in faults(convert, {"a": torch.ones(2)}, ref.settings(0))
