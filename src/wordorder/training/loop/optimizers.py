"""The optimizers of a run: AdamW, SGD, or Muon with AdamW beside it, and their learning rates."""

# torch and accelerate have types in part.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

import re
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from wordorder.encodings import encoding_parameters
from wordorder.training.checkpoints.weights import shared_out
from wordorder.training.recipe.settings import TrainingSettings

UNDECAYED = tuple(map(re.compile, (r"bias", r"layernorm", r"rmsnorm", r"(?:^|\.)norm(?:$|\.)", r"_norm(?:$|\.)")))
"""Names of parameters that weight decay leaves alone, as in transformers; those of `nn.LayerNorm` too."""
_AVERAGES = ("exp_avg", "exp_avg_sq", "momentum_buffer")
"""Tensors in the state of an optimizer that have the shape of their parameter."""
_MUON_MOMENTUM = 0.95


def decayed_names(model: nn.Module) -> set[str]:
    """Return the names of the parameters on which weight decay acts."""
    norms = {
        f"{prefix}.{name}" if prefix else name
        for prefix, module in model.named_modules()
        if isinstance(module, nn.LayerNorm)
        for name, _ in module.named_parameters()
    }
    names = {name for name, _ in model.named_parameters()} - norms
    return {name for name in names if not any(pattern.search(name.lower()) for pattern in UNDECAYED)}


class Optimizers:
    """One optimizer or two, each with groups of parameters of one base rate, which a step's share multiplies.

    Groups are, of each optimizer, the decayed parameters and the others; then, where encodings have a rate of their
    own, those of the encodings in the same order.
    """

    def __init__(self, model: nn.Module, settings: TrainingSettings) -> None:
        self.made = _made(model, settings)
        self._rates = [[float(group["lr"]) for group in one.param_groups] for one in self.made]

    def prepare(self, accelerator: Any) -> None:
        """Put them on the devices and processes of a run."""
        self.made = [accelerator.prepare(one) for one in self.made]

    def step(self, share: float) -> float:
        """Take a step at a share of the peak rate, and return the rate of the first group."""
        for one, rates in zip(self.made, self._rates, strict=True):
            for group, rate in zip(one.param_groups, rates, strict=True):
                group["lr"] = rate * share
            one.step()
        return self._rates[0][0] * share

    def state_dict(self) -> list[Any]:
        return [one.state_dict() for one in self.made]

    def load_state_dict(self, saved: list[Any]) -> None:
        """Load whole states, also for sharded parameters; ValueError or TypeError for those of other optimizers."""
        for one, state in zip(self.made, saved, strict=True):
            _load(one, state)


def _made(model: nn.Module, settings: TrainingSettings) -> list[Any]:
    named = [(name, parameter) for name, parameter in model.named_parameters() if parameter.requires_grad]
    decayed = {name for name, _ in named} if settings.decay_all_parameters else decayed_names(model)
    of_encodings = set(map(id, encoding_parameters(model).values()))

    def groups(chosen: list[tuple[str, nn.Parameter]]) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = [
            {"params": [p for name, p in chosen if name in decayed], "weight_decay": settings.weight_decay},
            {"params": [p for name, p in chosen if name not in decayed], "weight_decay": 0.0},
        ]
        factor = settings.encoding_learning_rate
        if factor in (None, 1.0):
            return found
        own = [
            {
                **group,
                "params": [p for p in group["params"] if id(p) in of_encodings],
                "lr": settings.learning_rate * factor,
            }
            for group in found
        ]
        # the first group is the one whose rate is logged
        return [{**group, "params": [p for p in group["params"] if id(p) not in of_encodings]} for group in found] + own

    if settings.optimizer == "sgd":
        # its weight decay is a part of the gradient, and so of the momentum
        return [
            torch.optim.SGD(groups(named), lr=settings.learning_rate, momentum=settings.momentum or 0.0, fused=True)
        ]
    if settings.optimizer == "muon":
        embedded = {
            id(p) for module in model.modules() if isinstance(module, nn.Embedding) for p in module.parameters()
        }
        head = getattr(model, "get_output_embeddings", lambda: None)()
        embedded |= set() if head is None else set(map(id, head.parameters()))
        hidden = [(name, p) for name, p in named if p.ndim == 2 and id(p) not in embedded and id(p) not in of_encodings]
        rest = [(name, p) for name, p in named if id(p) not in {id(one) for _, one in hidden}]
        momentum = _MUON_MOMENTUM if settings.momentum is None else settings.momentum
        muon = torch.optim.Muon(
            groups(hidden)[:2],
            lr=settings.learning_rate,
            momentum=momentum,
            adjust_lr_fn="match_rms_adamw",  # one learning rate for both
        )
        return [muon, _adamw(groups(rest), settings)]
    return [_adamw(groups(named), settings)]


def _adamw(groups: list[dict[str, Any]], settings: TrainingSettings) -> torch.optim.AdamW:
    betas = (settings.adam_beta1, settings.adam_beta2)
    return torch.optim.AdamW(groups, lr=settings.learning_rate, betas=betas, eps=settings.adam_epsilon, fused=True)


def _load(optimizer: Any, saved: Any) -> None:
    for group, own in zip(saved["param_groups"], optimizer.state_dict()["param_groups"], strict=True):
        check_alike(group, own)
        lost = [name for name, value in own.items() if name not in group and not isinstance(value, bool | None)]
        if lost or group["params"] != own["params"]:
            raise ValueError(f"a group of parameters lacks {', '.join(lost) or 'parameters of this model'}")
    parameters = dict(enumerate(parameter for group in optimizer.param_groups for parameter in group["params"]))
    state: dict[int, dict[str, Any]] = {}
    for number, values in saved["state"].items():
        parameter, state[number] = parameters[number], {}
        for name, value in values.items():
            like = parameter.shape if name in _AVERAGES else ()
            if name in (*_AVERAGES, "step") and torch.as_tensor(value).shape != like:
                raise ValueError(f"{name} of parameter {number} has the shape {tuple(torch.as_tensor(value).shape)}")
            state[number][name] = shared_out(value, parameter) if isinstance(value, Tensor) else value
    optimizer.load_state_dict({**saved, "state": state})


def check_alike(saved: Any, own: Mapping[Any, Any]) -> None:
    """Refuse values of other types than the run's own have; an integer counts as a number.

    What is None in either is not compared, nor is what one of them lacks.
    """
    if not isinstance(saved, dict):
        raise TypeError("it holds no table")
    for name, value in saved.items():
        here = own.get(name)
        numbers = all(isinstance(one, int | float) and not isinstance(one, bool) for one in (value, here))
        if value is not None and here is not None and not numbers and type(value) is not type(here):
            raise TypeError(f"{name} is {value!r}, not {here!r}")
        if isinstance(value, list | tuple):
            check_alike(dict(enumerate(value)), dict(enumerate(here or ())))
