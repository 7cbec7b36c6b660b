"""Record what the core computes in float64: outputs, slots and every gradient of every encoding of the catalogue.

Small networks whose parameters are all moved off their first values, odd lengths, padding on both sides. A value is a
digest of the numbers' bytes beside their norm, so that a difference shows its size too.
"""

import hashlib
import zlib
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn

VOCABULARY, LENGTH, SLOTS, CUTS = 23, 7, 5, (4, 2, 5)
SIZES = {"width": 16, "layers": 2, "heads": 2, "max_positions": 48, "dropout": 0.0, "attention_dropout": 0.0}
MEMORIES = ("segment-recurrence", "look-ahead")
COMBINED = ("learned+t5", "rope+tupe-a", "rope*1,none")
Value = tuple[str, Any]


def values(calls: ModuleType) -> Iterator[Value]:
    """Yield (key, value) of everything that is recorded of the core."""
    for encoding in (*calls.names(), *COMBINED):
        for kind in ("Encoder", "Decoder"):
            yield from of_network(calls, kind, encoding)
            for memory in MEMORIES:
                yield from in_segments(calls, kind, encoding, memory)
        yield from of_pair(calls, encoding)
    for encoding in ("complex-order", "complex-vanilla+t5", "complex-order+rope"):
        for kind in ("ComplexEncoder", "ComplexDecoder"):
            yield from of_network(calls, kind, encoding)


def of_network(calls: ModuleType, kind: str, encoding: str) -> Iterator[Value]:
    """Yield what a network gives for whole rows, packed rows, on each backend and, where it is causal, with a cache."""
    key = f"core/{kind}/{encoding}"
    net = built(calls, kind, encoding)
    if net is None:
        yield f"{key}/refused", True
        return
    yield f"{key}/start", digest(torch.cat([tensor.flatten() for _, tensor in sorted(net.state_dict().items())]))
    net, ids = moved(net), drawn_ids(2, LENGTH)
    for side, padding, positions in padded(calls, LENGTH):
        output = net(ids, positions, key_padding_mask=padding).hidden
        yield from outputs(f"{key}/{side}", net, [output * ~padding[..., None]])
    row, texts = [[0, 1, 2, 3, 0, 1, 2]] * 2, [[0] * 4 + [1] * 3] * 2
    yield from outputs(f"{key}/packed", net, [net(ids, calls.packed(row, texts)).hidden])
    longer = drawn_ids(2, 37)
    for backend in calls.BACKENDS:
        for side, padding, positions in padded(calls, 37):
            try:
                output = net(longer, positions, key_padding_mask=padding, backend=backend).hidden
            except ValueError:  # a backend may refuse what an encoding needs
                yield f"{key}/{backend}/{side}/refused", True
                continue
            yield from outputs(f"{key}/{backend}/{side}", net, [output * ~padding[..., None]], gradients="one")
    if kind.endswith("Decoder"):
        cache = calls.key_cache()
        steps = [net(ids[:, t : t + 1], cache=cache).hidden for t in range(LENGTH)]
        yield from outputs(f"{key}/cached", net, steps)


def in_segments(calls: ModuleType, kind: str, encoding: str, memory: str) -> Iterator[Value]:
    """Yield outputs, slots and gradients of a text that is read segment by segment, the last one padded."""
    key = f"core/{kind}/{encoding}/{memory}"
    net = built(calls, kind, encoding, memory=f"{memory}:{SLOTS}")
    if net is None:
        yield f"{key}/refused", True
        return
    net, state, hidden = moved(net), None, []
    for number, ids in enumerate(drawn_ids(2, sum(CUTS)).split(CUTS, dim=1)):
        padding = torch.zeros(ids.shape, dtype=torch.bool)
        padding[1, ids.shape[1] - number :] = number > 0
        output = net(ids, memory=state, key_padding_mask=padding)
        hidden.append(output.hidden * ~padding[..., None])
        state = output.memory
        for name, tensor in calls.slots(state).items():
            yield f"{key}/segment-{number}/{name}", digest(tensor)
    yield from outputs(key, net, hidden)


def of_pair(calls: ModuleType, encoding: str) -> Iterator[Value]:
    """Yield what a translator gives, both halves with the same encoding."""
    key = f"core/Seq2Seq/{encoding}"
    halves = [built(calls, "Encoder", encoding), built(calls, "Decoder", encoding, cross_attention=True)]
    if None in halves:
        yield f"{key}/refused", True
        return
    try:
        net = moved(calls.pair(*halves))
        source, target = drawn_ids(2, LENGTH), drawn_ids(2, 5)
        padding = torch.zeros(2, LENGTH, dtype=torch.bool)
        padding[1, -2:] = True
        hidden = net(source, target, source_padding_mask=padding).hidden
    except ValueError:
        yield f"{key}/refused", True
        return
    yield from outputs(key, net, [hidden])


def outputs(key: str, net: nn.Module, hidden: list[Tensor], *, gradients: str = "each") -> Iterator[Value]:
    """Yield digests of outputs, and of the gradients of all parameters against a random upstream.

    Args:
        gradients: "each" for a value a parameter, "one" for one value of all.
    """
    for number, tensor in enumerate(hidden):
        yield f"{key}/hidden-{number}", digest(tensor)
    draw = torch.Generator().manual_seed(3)
    loss = sum((t * torch.randn(t.shape, generator=draw, dtype=t.dtype)).sum() for t in hidden)
    named = dict(net.named_parameters())
    gradient_list = torch.autograd.grad(loss, list(named.values()), allow_unused=True)
    grads = {
        name: torch.zeros_like(named[name]) if g is None else g for name, g in zip(named, gradient_list, strict=True)
    }
    if gradients == "one":
        yield f"{key}/gradients", digest(torch.cat([grads[name].flatten() for name in sorted(grads)]))
    else:
        yield from ((f"{key}/gradient/{name}", digest(gradient)) for name, gradient in sorted(grads.items()))


def built(calls: ModuleType, kind: str, encoding: str, **options: Any) -> nn.Module | None:
    """Return a network with the first values that a seed draws; None if the encoding is refused there."""
    try:
        net = calls.network(kind, VOCABULARY, encoding=encoding, **{**SIZES, **options})
    except ValueError:  # what a network cannot have is bad input
        return None
    calls.start(net, 5)
    return net


def moved(net: nn.Module) -> nn.Module:
    """Return the network in float64 with noise on all parameters: nothing may hide behind a zero or a one."""
    with torch.no_grad():
        for name, parameter in net.double().named_parameters():
            draw = torch.Generator().manual_seed(zlib.crc32(name.encode()))
            parameter += 0.1 * torch.randn(parameter.shape, generator=draw, dtype=torch.float64)
    return net.eval()


def padded(calls: ModuleType, length: int) -> Iterator[tuple[str, Tensor, Any]]:
    """Yield a padding mask (True = padding) and positions for padding of the second row on either side."""
    for side, columns in (("right", slice(length - 3, length)), ("left", slice(0, 3))):
        padding = torch.zeros(2, length, dtype=torch.bool)
        padding[1, columns] = True
        yield side, padding, calls.shifted(length, [0, -3 if side == "left" else 0])


def drawn_ids(rows: int, length: int) -> Tensor:
    """Return token ids that depend on the sizes alone."""
    return torch.randint(1, VOCABULARY, (rows, length), generator=torch.Generator().manual_seed(length))


def digest(tensor: Tensor) -> str:
    """Return a digest of a tensor's type, shape and bytes, and its norm."""
    content = tensor.detach().contiguous()
    text = f"{content.dtype} {tuple(content.shape)} ".encode() + content.numpy().tobytes()
    return f"{hashlib.sha256(text).hexdigest()[:16]} norm {float(content.double().norm()):.17g}"
