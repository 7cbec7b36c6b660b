"""The parameters that decay are transformers'; each optimizer steps as torch's own does."""

import pytest
import torch
from torch import nn
from transformers import (
    BertConfig,
    BertForMaskedLM,
    LlamaConfig,
    LlamaForCausalLM,
    T5Config,
    T5ForConditionalGeneration,
)
from transformers.trainer_pt_utils import get_parameter_names

from wordorder.models import build_config, build_model, model_class
from wordorder.training.loop.optimizers import UNDECAYED, Optimizers, decayed_names
from wordorder.training.recipe.settings import TrainingSettings

SIZES = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "vocab_size": 30}


def own(network, task, **fields):
    return build_model(build_config(network, **SIZES, **fields), model_class(network, task), seed=0)


MODELS = {
    "encoder": lambda: own("encoder", "masked-lm", encoding="tupe-r"),
    "modern decoder": lambda: own("decoder", "causal-lm", encoding="rope", block="modern"),
    "bert": lambda: BertForMaskedLM(
        BertConfig(hidden_size=16, num_hidden_layers=1, num_attention_heads=2, vocab_size=30)
    ),
    "llama": lambda: LlamaForCausalLM(
        LlamaConfig(hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2, vocab_size=30)
    ),
    "t5": lambda: T5ForConditionalGeneration(
        T5Config(d_model=16, d_kv=8, d_ff=32, num_layers=1, num_heads=2, vocab_size=30)
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_what_decays_is_what_decays_in_transformers(name):
    model = MODELS[name]()
    expected = get_parameter_names(model, [nn.LayerNorm], [pattern.pattern for pattern in UNDECAYED])
    tied = {name for name, _ in model.named_parameters()}  # a tied weight has one of its names here
    assert decayed_names(model) == set(expected) & tied


def stepped(model, optimizers, shares):
    for share in shares:
        model.zero_grad()
        model(torch.arange(12.0).reshape(3, 4)).square().sum().backward()
        yield optimizers.step(share)


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 5), nn.LayerNorm(5), nn.Linear(5, 2))


def test_adamw_is_that_of_torch_at_rates_of_a_schedule():
    settings = TrainingSettings(learning_rate=0.1, weight_decay=0.5, adam_beta2=0.98)
    model, other = network(), network()
    rates = list(stepped(model, Optimizers(model, settings), [0.5, 1.0, 0.25]))
    assert rates == [0.05, 0.1, 0.025]
    decayed = [p for name, p in other.named_parameters() if name in ("0.weight", "2.weight")]
    rest = [p for name, p in other.named_parameters() if name not in ("0.weight", "2.weight")]
    groups = [{"params": decayed, "weight_decay": 0.5}, {"params": rest, "weight_decay": 0.0}]
    adam = torch.optim.AdamW(groups, lr=0.1, betas=(0.9, 0.98), eps=1e-8, fused=True)
    schedule = torch.optim.lr_scheduler.LambdaLR(adam, [0.5, 1.0, 0.25, 0.0].__getitem__)
    for _ in range(3):
        other.zero_grad()
        other(torch.arange(12.0).reshape(3, 4)).square().sum().backward()
        adam.step()
        schedule.step()
    for one, two in zip(model.parameters(), other.parameters(), strict=True):
        assert torch.equal(one, two)


@pytest.mark.parametrize("name", ["adamw", "sgd", "muon"])
def test_a_saved_state_goes_on_to_the_bit(name):
    settings = TrainingSettings(learning_rate=0.01, optimizer=name, momentum=None if name == "adamw" else 0.9)
    model, other = network(), network()
    whole = Optimizers(model, settings)
    list(stepped(model, whole, [1.0] * 5))
    first = Optimizers(other, settings)
    list(stepped(other, first, [1.0] * 2))
    again = Optimizers(other, settings)
    again.load_state_dict(first.state_dict())
    list(stepped(other, again, [1.0] * 3))
    for one, two in zip(model.parameters(), other.parameters(), strict=True):
        assert torch.equal(one, two)


def test_muon_steps_hidden_matrices_and_adamw_the_rest():
    model = own("decoder", "causal-lm", encoding="learned")
    muon, adamw = Optimizers(model, TrainingSettings(optimizer="muon")).made
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    of_muon, of_adamw = ({names[id(p)] for group in one.param_groups for p in group["params"]} for one in (muon, adamw))
    assert of_muon
    assert all(".layers." in name and name.endswith("weight") for name in of_muon)
    assert of_muon | of_adamw == set(names.values())
    assert not of_muon & of_adamw
