"""Loading a checkpoint under another encoding says which positions are dropped."""

import re
import warnings

import pytest
from safetensors.torch import load_file
from transformers import AutoModel, AutoModelForCausalLM, AutoModelForMaskedLM

from wordorder.models import build_config, build_model

SIZES = {
    "vocab_size": 37,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "max_position_embeddings": 32,
}


def saved(folder, network, task, encoding):
    model = build_model(build_config(network, **SIZES, encoding=encoding), task, seed=0)
    model.save_pretrained(folder)
    return type(model)


@pytest.mark.parametrize(
    ("network", "task", "auto", "before", "now", "count"),
    [
        ("encoder", "masked-lm", AutoModelForMaskedLM, "tupe-r", "rope", 8),
        ("encoder", "masked-lm", AutoModelForMaskedLM, "tupe-r", "tupe-a", 1),
        ("encoder", "masked-lm", AutoModelForMaskedLM, "complex-order", "alibi", 3),
        ("decoder", "causal-lm", AutoModelForCausalLM, "learned", "tupe-r", 1),
        ("seq2seq", "translation", AutoModel, "shaw", "none", 4),
    ],
)
def test_positions_that_have_no_place_are_named_and_counted(tmp_path, network, task, auto, before, now, count):
    kind = saved(tmp_path, network, task, before)
    told = rf"encoding '{before}', and this model has encoding '{now}', which has no place for {count} of its weights"
    for load in (kind, auto):
        with pytest.warns(UserWarning, match=re.escape(str(tmp_path)) + ".*" + told):
            model = load.from_pretrained(tmp_path, encoding=now)
        assert model.config.encoding == now
    config = kind.config_class.from_pretrained(tmp_path, encoding=now)
    with pytest.warns(UserWarning, match=told) as said:
        _, report = kind.from_pretrained(tmp_path, config=config, output_loading_info=True)
    assert len(said) == 1
    assert len(report["unexpected_keys"]) == count


@pytest.mark.parametrize(("before", "now"), [("tupe-r", "tupe-r"), ("rope", "alibi"), ("rope", "tupe-r")])
def test_nothing_is_said_where_nothing_is_dropped(tmp_path, before, now):
    kind = saved(tmp_path, "encoder", "masked-lm", before)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        kind.from_pretrained(tmp_path, encoding=now)
        AutoModel.from_pretrained(tmp_path, encoding=now)  # a head's weights are no positions


def test_weights_without_a_configuration_load_without_a_word(tmp_path):
    kind = saved(tmp_path, "encoder", "masked-lm", "tupe-r")
    weights, config = load_file(tmp_path / "model.safetensors"), kind.config_class(**SIZES, encoding="rope")
    (tmp_path / "config.json").unlink()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        kind.from_pretrained(None, config=config, state_dict=weights)
        _, report = kind.from_pretrained(tmp_path, config=config, output_loading_info=True)
    assert len(report["unexpected_keys"]) == 8


def test_a_table_of_another_size_is_dropped_too(tmp_path):
    kind = saved(tmp_path, "encoder", "masked-lm", "tupe-r")
    with pytest.warns(UserWarning, match=r"has no place for 2 of its weights \(.*relative.*, .*tupe\.table"):
        kind.from_pretrained(tmp_path, encoding="tupe-a", max_position_embeddings=16, ignore_mismatched_sizes=True)
