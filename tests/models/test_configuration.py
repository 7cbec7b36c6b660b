import re

import pytest
import torch
from transformers import AutoConfig

from wordorder.errors import BadInput
from wordorder.hints import MOST_HINTS
from wordorder.models import (
    NETWORK_TASKS,
    WordOrderEncoderConfig,
    build_config,
    build_model,
    check_length,
    class_with_head,
    config_fields,
    model_class,
)


def test_fields_are_the_ecosystem_s():
    contract = """vocab_size hidden_size num_hidden_layers num_attention_heads num_key_value_heads intermediate_size
        max_position_embeddings hidden_act hidden_dropout_prob attention_probs_dropout_prob layer_norm_eps
        initializer_range tie_word_embeddings pad_token_id encoding encoding_options norm norm_placement
        memory""".split()
    assert set(contract) <= set(config_fields("encoder"))


def test_round_trip_through_json(tmp_path):
    config = build_config("encoder", encoding="learned+t5", encoding_options={"t5": {"buckets": 8}}, num_labels=3)
    config.save_pretrained(tmp_path)
    again = WordOrderEncoderConfig.from_pretrained(tmp_path)
    assert again.encoding_options == {"t5": {"buckets": 8}}
    assert again.num_labels == 3
    assert again.to_dict() == config.to_dict() | {"transformers_version": again.transformers_version}


def test_all_faults_are_reported_at_once():
    with pytest.raises(BadInput) as error:
        build_config(
            "encoder",
            vocab_siz=5,
            hidden_size=33,
            num_hidden_layers=2.5,
            norm="batch",
            encoding="tupe-q",
            hidden_dropout_prob=1.5,
        )
    text = "\n".join(error.value.faults)
    assert len(error.value.faults) == 6
    for word in [
        "did you mean 'vocab_size'",
        "hidden_size must be a multiple",
        "an integer, got 2.5",
        "norm must be one of 'layer', 'rms'",
        "unknown encoding 'tupe-q'",
        "[0, 1), got 1.5",
    ]:
        assert word in text


@pytest.mark.parametrize(
    ("fields", "word"),
    [
        ({"encoding": "t5", "encoding_options": {"size": 3}}, "no option 'size'"),
        ({"encoding": "t5", "encoding_options": {"buckets": 7}}, "buckets must be even"),
        (
            {"encoding": "rope", "hidden_size": 12, "num_attention_heads": 4},
            "head_dim (width / heads) must be positive and even, got 3",
        ),
        ({"num_key_value_heads": 3}, "num_key_value_heads"),
        ({"hidden_size": 0}, "hidden_size must be positive"),
        ({"layer_norm_eps": 0}, "layer_norm_eps"),
        ({"memory_length": 16}, "memory_length is for a memory; set memory, or leave it out; got 16"),
        ({"document_pooling": "max"}, "document_pooling is for a memory; set memory, or leave it out; got 'max'"),
        ({"memory": "all"}, "unknown memory 'all'; known: none, segment-recurrence"),
        ({"memory": "look-ahead", "document_pooling": "sum"}, "document_pooling must be"),
        ({"memory": "segment-recurrence", "memory_options": {"same_length": True}}, "same_length is for decoders"),
        ({"tie_word_embeddings": 1}, "true or false"),
        ({"head_act": "swiglu"}, "head_act must be one of 'gelu', 'relu', 'silu'"),
        ({"classifier_dense": "no"}, "classifier_dense must be true or false"),
    ],
)
def test_each_fault_is_named(fields, word):
    with pytest.raises(BadInput, match=re.escape(word)):
        build_config("encoder", **fields)


def test_unknown_keys_raise_outside_recipes_too():
    with pytest.raises(BadInput, match="did you mean 'hidden_size'"):
        WordOrderEncoderConfig(hidden_sise=3)
    with pytest.raises(BadInput, match="temperature"):
        WordOrderEncoderConfig(temperature=3.0)  # transformers itself would drop it in silence


@pytest.mark.parametrize(
    ("field", "hint"),
    [
        ("positional_encoding", "did you mean 'encoding'?"),
        (
            "position_embedding_type",
            "did you mean 'encoding'? ('absolute' is 'learned' here, 'relative_key' is 'shaw')",
        ),
        ("rope_theta", "did you mean encoding_options={'base': ...}, with encoding='rope'?"),
        ("hidden_sise", "did you mean 'hidden_size'?"),
    ],
)
def test_names_of_other_models_configurations_lead_to_ours(field, hint):
    with pytest.raises(BadInput, match=re.escape(f"unknown model field {field!r}; {hint} known: ")):
        build_config("encoder", **{field: 1})


@pytest.mark.parametrize("build", [WordOrderEncoderConfig, lambda **fields: build_config("encoder", **fields)])
def test_of_many_unknown_fields_the_first_have_hints(build):
    names = [f"hidden_sise{number}" for number in range(200)]
    with pytest.raises(BadInput) as error:
        build(**dict.fromkeys(names, 1))
    assert [name in fault for name, fault in zip(names, error.value.faults, strict=True)] == [True] * 200
    assert sum("did you mean 'hidden_size'?" in fault for fault in error.value.faults) == MOST_HINTS


def test_length_beyond_a_table_names_the_limit_and_the_remedy():
    with pytest.raises(BadInput, match=r"length 65.*max_position_embeddings=64; raise"):
        check_length(build_config("encoder", encoding="tupe-a", max_position_embeddings=64), 65)
    check_length(build_config("encoder", encoding="tupe-a", max_position_embeddings=64), 64)
    check_length(build_config("encoder", encoding="rope", max_position_embeddings=64), 6500)


def test_networks_and_tasks_are_listed():
    assert {"masked-lm", "classification"} <= set(NETWORK_TASKS["encoder"])
    with pytest.raises(BadInput, match="does: masked-lm"):
        model_class("encoder", "translation")
    with pytest.raises(BadInput, match="known: encoder"):
        build_config("perceiver")


def test_a_model_is_built_by_a_name_or_by_its_class():
    config = build_config("encoder", vocab_size=30, hidden_size=16, num_hidden_layers=1, num_attention_heads=2)
    named, given = (
        build_model(config, task, seed=3) for task in ("masked-lm", class_with_head("encoder", "ForMaskedLM"))
    )
    assert type(named) is type(given)
    assert all(torch.equal(one, other) for one, other in zip(named.parameters(), given.parameters(), strict=True))
    assert class_with_head("decoder", "ForMaskedLM") is None
    with pytest.raises(BadInput, match="known: encoder"):
        class_with_head("perceiver", "ForMaskedLM")


def test_a_classifier_without_classes_is_refused():
    with pytest.raises(BadInput, match="num_labels must be positive, got 0"):
        WordOrderEncoderConfig(vocab_size=30, num_labels=0)


def test_sizes_that_nobody_set_follow_when_a_field_is_changed():
    config = build_config("decoder", hidden_size=32, num_attention_heads=4)
    config.hidden_size, config.num_attention_heads = 64, 2
    assert (config.intermediate_size, config.num_key_value_heads) == (256, 2)
    own = build_config("decoder", hidden_size=32, num_attention_heads=4, intermediate_size=48, num_key_value_heads=2)
    own.hidden_size, own.num_attention_heads = 64, 8
    assert (own.intermediate_size, own.num_key_value_heads) == (48, 2)


def test_a_block_decides_what_nothing_else_says_and_is_saved(tmp_path):
    config = build_config("decoder", vocab_size=9, hidden_size=8, num_attention_heads=2, block="modern", norm="layer")
    parts = ("norm", "hidden_act", "qk_norm", "use_bias")
    assert [getattr(config, name) for name in parts] == ["layer", "swiglu", "rms", False]
    assert config.network_options("decoder").block == "modern"
    config.save_pretrained(tmp_path)
    loaded = AutoConfig.from_pretrained(tmp_path)
    assert [getattr(loaded, name) for name in parts] == ["layer", "swiglu", "rms", False]
    classic = AutoConfig.from_pretrained(tmp_path, block="classic", use_bias=False)
    assert [getattr(classic, name) for name in parts] == ["layer", "gelu", "none", False]
    with pytest.raises(BadInput, match="block must be one of 'classic', 'modern', got 'modren'"):
        build_config("decoder", block="modren")
    with pytest.raises(BadInput, match="complex layers have no qk_norm"):
        build_config("decoder", encoding="complex-order", complex_valued=True, block="modern")
