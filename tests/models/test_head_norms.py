"""Norms of queries and keys are read from configurations of transformers as their modules have them."""

import importlib
import itertools
from typing import Any

import pytest
import torch
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedConfig

from wordorder.errors import BadInput
from wordorder.models import head_norms, qk_norm_of

SIZES = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "pad_token_id": 0}
SIZES |= {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8}
FAMILIES = sorted(head_norms._ALWAYS | head_norms._NEVER | {*head_norms._BY_FIELD})


def config_of(family: str, **fields: Any) -> PreTrainedConfig:
    return AutoConfig.for_model(family, **SIZES, **fields)


def norms_of_queries(config: PreTrainedConfig) -> list[nn.Module]:
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    names = ("q_norm", "query_norm", "q_layernorm", "query_layernorm", "qk_norm")
    return [module for name, module in model.named_modules() if name.endswith(names)]


@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_norms_each_head_as_its_modules_do(family: str) -> None:
    field, norm = head_norms._BY_FIELD.get(family, ("", None))
    if field:
        assert qk_norm_of(config_of(family, **{field: False})) == "none"
        assert not norms_of_queries(config_of(family, **{field: False}))
    config = config_of(family, **({field: True} if field else {}))
    norms = norms_of_queries(config)
    if field and norm is None:
        assert norms
        with pytest.raises(BadInput, match=f"got {family} with {field}: set qk_norm yourself"):
            qk_norm_of(config)
    elif (qk_norm := qk_norm_of(config)) == "none":
        assert not norms
    else:
        assert len(norms) == SIZES["num_hidden_layers"]
        for module in norms:
            assert [p.shape for name, p in module.named_parameters() if name == "weight"] == [(8,)]
            assert ("RMSNorm" in type(module).__name__) == (qk_norm == "rms"), type(module)


@pytest.mark.parametrize("family", [name for name in FAMILIES if name not in head_norms._NEVER])
def test_the_norm_is_before_the_rotation(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    field, norm = head_norms._BY_FIELD.get(family, ("", "rms"))
    if norm is None:
        pytest.skip("refused")
    model = AutoModelForCausalLM.from_config(config_of(family, **({field: True} if field else {})))
    order: list[str] = []
    for module in model.modules():
        for name in ("q_norm", "q_layernorm"):
            if hasattr(module, name):
                getattr(module, name).register_forward_hook(lambda *_: order.append("norm"))
    code = importlib.import_module(type(model).__module__)
    rotate = code.apply_rotary_pos_emb
    monkeypatch.setattr(code, "apply_rotary_pos_emb", lambda *a, **k: (order.append("rotation"), rotate(*a, **k))[1])
    model(torch.arange(1, 6)[None])
    assert [turn for turn in order if turn == "norm"], "no norm was called"
    # Exaone 4 rotates in layers with a window only
    assert order[0] == "norm"
    assert all(before == "norm" for before, turn in itertools.pairwise(order) if turn == "rotation")


@pytest.mark.parametrize("family", ["olmo2", "hunyuan_v1_dense"])
def test_a_family_that_norms_in_another_way_is_refused(family: str) -> None:
    with pytest.raises(BadInput, match=rf"config must be of a family .*qwen3.*got {family}: set qk_norm yourself"):
        qk_norm_of(config_of(family))
