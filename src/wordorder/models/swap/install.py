"""Take a model's own positions away where they go and let others act, and put them back."""

# transformers' modules are typed in part only
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

import warnings
from typing import Any, cast

import torch
from torch import Tensor, nn

from wordorder.encodings import (
    Encoding,
    OnEmbeddings,
    OnQueriesAndKeys,
    OnScoresByContent,
    OnScoresByInput,
    Rotary,
)
from wordorder.models.swap.call import CROSS, NAME
from wordorder.models.swap.families import NoPositions, NoRotation, put_module
from wordorder.models.swap.order import WordOrder, begin
from wordorder.ops import Arbitrary


class RotaryOfEncoding(nn.Module):
    """A module in the place of a model's rotations that makes those of an encoding of this package."""

    def __init__(self, rotary: Rotary) -> None:
        super().__init__()
        self._rotary = (rotary,)  # a tuple, in which torch registers nothing: it is the encoding's

    def forward(self, x: Tensor, position_ids: Tensor, *args: object, **kwargs: object) -> tuple[Tensor, Tensor]:
        """Return cosines and sines (B or 1, T, D) in the dtype of x."""
        turn = self._rotary[0].rotation(Arbitrary(position_ids), dtype=x.dtype, device=x.device)
        cos, sin = (torch.cat((half, half), dim=-1)[:, 0].to(x.dtype) for half in (turn.cos_B1TK, turn.sin_B1TK))
        return cos, sin


def install(order: WordOrder, config: Any) -> None:
    """Take the model's own positions away where they go, and let ours act; ``config`` is that of the whole model."""
    host, encoding, body, family = order.host, order.encoding, order.host.body, order.host.family
    places = set(encoding.place_of.values())
    keeps = [layer.keeps for layer in order.layers]
    rotating = [name for name, place in encoding.place_of.items() if place is OnQueriesAndKeys]
    by_content = [any(map(_reads_queries_and_keys, encoding.parts_of(layer))) for layer in range(len(keeps))]

    # One rotation of all channels in halves needs no function of ours: it takes the place of the model's.
    first = encoding.parts[rotating[0]] if len(rotating) == 1 else None
    in_model = False
    if isinstance(first, Rotary) and family.rotary is not None and not any(by_content) and not any(keeps):
        in_model = first.channels == first.head_dim and not first.interleaved and not list(first.parameters())
    if in_model:
        encoding.place_of[rotating[0]] = Encoding  # called by the module in the model's place, not with the other terms
    order.in_function = (
        bool(places - {Encoding, OnEmbeddings, OnQueriesAndKeys})
        or (bool(rotating) and not in_model)
        or any(kind.window for kind in order.encoding.kinds)
        or (family.t5_bias and any(keeps) and not all(keeps))  # all layers of a T5 are handed one bias
    )
    if family.rotary is not None:
        _install_rotation(order, cast(Rotary, first) if in_model else None, by_content)
    if family.table is not None and not any(keeps):
        _remove(order, body, family.table, NoPositions())
    if family.t5_bias and not any(keeps):
        _change(order, host.attentions[0], "has_relative_attention_bias", value=False)
        _remove(order, host.attentions[0], "relative_attention_bias", None)

    hook = {"with_kwargs": True}
    for layer in order.changing_layers:
        order.hooks.append(host.attentions[layer].register_forward_pre_hook(order.change_input, **hook))
    for layer in order.reading_layers:
        order.hooks.append(host.attentions[layer].register_forward_pre_hook(order.read_input, **hook))
    if family.t5_bias and order.in_function:
        for module in body.modules():
            if isinstance(module, type(host.attentions[0])) and (not any(keeps) or module not in host.attentions):
                order.hooks.append(module.register_forward_pre_hook(order.no_bias, **hook))
            if isinstance(module, type(host.attentions[0])) and module not in host.attentions:
                setattr(module, CROSS, True)
    if order.in_function:
        chosen = config._attn_implementation
        if chosen not in (None, "sdpa", "eager", NAME):  # the first three are defaults of transformers
            warnings.warn(
                f"encoding {config.wordorder['encoding']!r} adds terms to attention, which {chosen!r} cannot:"
                f" attn_implementation is {NAME!r} now",
                stacklevel=3,
            )
        # `generate` makes masks by the configuration of the whole model, which a T5 shares with neither stack
        for part in (config, body.config, *(attention.config for attention in host.attentions)):
            if part._attn_implementation != NAME:
                _change(order, part, "_attn_implementation_internal", value=NAME)
    body.add_module("wordorder", order)
    order.hooks.append(body.register_forward_pre_hook(begin, **hook))
    order.train(body.training)


def _install_rotation(order: WordOrder, rotary: Rotary | None, by_content: list[bool]) -> None:
    """Put ours in the place of the model's rotation, or take that out of the layers that are to be without it."""
    host, layers = order.host, range(len(order.layers))
    path, keeps = cast(str, host.family.rotary), [layer.keeps for layer in order.layers]
    if any(keeps):
        # Terms by content need queries and keys before the rotation: the function applies it after them.
        order.rotated_in_function = tuple(n for n in layers if keeps[n] and by_content[n])
        without = [n for n in layers if not keeps[n] or by_content[n]]
    else:
        _remove(order, host.body, path, NoRotation(host.head_dim) if rotary is None else RotaryOfEncoding(rotary))
        without = [n for n in layers if rotary is not None and rotary not in order.encoding.parts_of(n)]
        for attention in host.attentions:
            if hasattr(attention, "rotary_ndims"):
                _change(order, attention, "rotary_ndims", value=host.head_dim)
    for n in without:
        order.hooks.append(host.attentions[n].register_forward_pre_hook(order.no_rotation, with_kwargs=True))


def _reads_queries_and_keys(part: nn.Module) -> bool:
    """Tell whether an encoding has a term of queries and keys, which must come to it before any rotation."""
    return isinstance(part, OnScoresByContent) or (isinstance(part, OnScoresByInput) and part.reads_queries_and_keys)


def _remove(order: WordOrder, above: nn.Module, path: str, instead: nn.Module | None) -> None:
    """Take a module out of the model, or put another in its place; of weights, unswap needs the shapes alone."""
    module = above.get_submodule(path)
    order.removed += ((above, path, module.to("meta") if list(module.parameters()) else module),)
    if instead is None:
        delattr(above, path)
    else:
        put_module(above, path, instead)


def _change(order: WordOrder, thing: Any, name: str, *, value: object) -> None:
    order.changed.append((thing, name, getattr(thing, name)))
    setattr(thing, name, value)


@torch.no_grad()
def uninstall(order: WordOrder) -> None:
    """Take the encoding out, and put back what was there; a rotation that was loaded with a folder is made anew."""
    host, device = order.host, next(order.host.body.parameters()).device
    restored = [_restored(module, order, device) for _, _, module in order.removed]
    for hook in order.hooks:
        hook.remove()
    for thing, name, value in reversed(order.changed):
        setattr(thing, name, value)
    for (above, path, _), module in zip(order.removed, restored, strict=True):
        put_module(above, path, module)
    for module in host.body.modules():
        vars(module).pop(CROSS, None)
    del host.body.wordorder


def _restored(module: nn.Module, order: WordOrder, device: torch.device) -> nn.Module:
    """Return a module that was taken out as the model is to have it: a table with what was learned, or a rotation."""
    if list(module.parameters()):
        (part,) = (cast(Any, part) for part in order.encoding.parts.values())
        learned = part.table.weight * getattr(part, "scale", 1.0)
        (table,) = module.to_empty(device=learned.device).to(learned.dtype).parameters()
        table.zero_()  # OPT and RoBERTa have rows before that of position 0
        table[table.shape[0] - learned.shape[0] :] = learned
        return module
    if any(buffer.is_meta for buffer in module.buffers()):
        module = cast(Any, type(module))(order.host.config)
    return module.to(device)
