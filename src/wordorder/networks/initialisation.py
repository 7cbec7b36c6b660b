"""Initial weights: one rule for every network, and a way to draw them from a seed and a parameter's name."""

import hashlib
import warnings
from collections.abc import Callable, Collection, Iterator
from functools import partial
from typing import cast

import torch
from torch import nn

from wordorder.encodings.composition import keeps_start_values

Generators = Callable[[str], torch.Generator | None]


def initialise_module(
    module: nn.Module,
    *,
    std: float = 0.02,
    generator_for: Generators | None = None,
    skip: Collection[nn.Parameter] = frozenset(),
) -> None:
    """Initialise the parameters that this module itself holds (not those of its children).

    Matrices and tables are drawn from N(0, std), biases and free numbers are 0, norm weights 1, the padding row 0: the
    rule of BERT, which TUPE's reference code applies to its tables and projections too. A module with a rule of its
    own has a method ``draw_parameters(std, generator_for)``.

    What the constructor of an encoding from outside of this package sets stays (`keeps_start_values`).

    ``nn.init`` is used throughout: transformers guards those functions, so that loaded weights are not drawn again.

    Args:
        std: standard deviation of matrices and tables.
        generator_for: random generator by the parameter's name within the module; None = torch's global one.
        skip: parameters that are left as they are.
    """
    if keeps_start_values(module):
        return
    lost, parameters = vars(module).get("lost_start_values"), list(module.parameters(recurse=False))
    loaded = all(getattr(parameter, "_is_hf_initialized", False) for parameter in parameters)
    if lost and not loaded and not any(parameter.is_meta for parameter in parameters):
        warnings.warn(
            f"{lost} was built on the meta device, where what its constructor sets is lost, and is drawn anew: give it"
            " draw_parameters(std, generator_for), or build the model elsewhere",
            stacklevel=2,
        )
    own_rule = getattr(module, "draw_parameters", None)
    if callable(own_rule):
        own_rule(std, generator_for)
        return
    for name, parameter in module.named_parameters(recurse=False):
        if parameter in skip:
            continue
        if isinstance(module, nn.LayerNorm | nn.RMSNorm | NormParameters):
            nn.init.constant_(parameter, float(name == "weight"))
        elif parameter.dim() < 2 or name == "free_theta":
            nn.init.zeros_(parameter)
        else:
            nn.init.normal_(parameter, 0.0, std, generator=generator_for(name) if generator_for else None)
    # a row is a new tensor, which does not carry transformers' mark of a loaded weight
    loaded = isinstance(module, nn.Embedding) and getattr(module.weight, "_is_hf_initialized", False)
    if isinstance(module, nn.Embedding) and module.padding_idx is not None and not loaded:
        nn.init.zeros_(module.weight.detach()[module.padding_idx])


class NormParameters(nn.Module):
    """A norm that is not torch's: its weight begins at 1, its bias, if it has one, at 0."""


def initialise(
    root: nn.Module,
    *,
    seed: int | None = None,
    std: float = 0.02,
    leave: nn.Module | Collection[nn.Parameter] | None = None,
) -> None:
    """Initialise every parameter under ``root``.

    Args:
        seed: draw each parameter from a generator seeded by (seed, its full name), so that two networks share every
            weight whose name and shape they have in common, whatever else differs; None = torch's global generator.
            A tied parameter is drawn once, under the name by which it comes first.
        std: standard deviation of matrices and tables.
        leave: a module under ``root``, or parameters of it, that stay as they are.
    """
    drawn: set[nn.Parameter] = set() if leave is None or isinstance(leave, nn.Module) else set(leave)
    if isinstance(leave, nn.Module):
        left = set(leave.modules())
    else:  # also a table whose padding row would become 0
        left = {module for module in root.modules() if drawn and drawn.issuperset(module.parameters(recurse=False))}
    for prefix, module in cast("Iterator[tuple[str, nn.Module]]", root.named_modules()):
        if module in left:
            continue
        generator_for = None if seed is None else partial(_generator, seed, prefix)
        initialise_module(module, std=std, generator_for=generator_for, skip=drawn)
        drawn.update(module.parameters(recurse=False))


def _generator(seed: int, prefix: str, name: str) -> torch.Generator:
    digest = hashlib.sha256(f"{seed}/{prefix}.{name}".encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:8], "little", signed=True))
