"""Check in seconds, on tiny networks, what every encoding must keep to: one of the catalogue, or one of your own."""

from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from inspect import Parameter
from typing import Any, Literal, cast

import torch
from torch import nn

from wordorder.encodings import CATALOG, Encoding, Use, build_encoding, names_of, options_of
from wordorder.encodings.registration import check_hook_names
from wordorder.errors import BadInput
from wordorder.networks.encoding_checks.checks import CHECKS, SIZES, Check, Subject, word_order

USES: tuple[Use, ...] = ("encoder", "decoder", "cross-attention")

_UNDER_TEST = "encoding-under-test"
_SIZES_HINT = (
    "its constructor may take width, heads, head_dim, layers, max_positions, vocabulary, padding_idx and"
    " bidirectional, which the network gives it; every other argument is an option and needs a type and a default"
)


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding about an encoding: a fault, a refusal or a piece of information.

    Args:
        kind: "fault", what must be mended; "refused", the encoding itself says that it is not for this use, and why;
            "information".
        check: what was tried, in two or three words.
        message: what came out, and what to do about it.
    """

    kind: Literal["fault", "refused", "information"]
    check: str
    message: str


def check_encoding(
    encoding: str | type[Encoding], *, use: Use = "encoder", options: Mapping[str, object] | None = None
) -> list[Finding]:
    """Try an encoding out in tiny networks.

    Args:
        encoding: a name of the catalogue (or several joined), or a class that need not be in it.
        use: where: in an "encoder", a "decoder", or for "cross-attention", where the term alone is tried on texts of
            two lengths.
        options: of the encoding; None = its defaults.

    Returns:
        Faults, each with its remedy; where it is refused, that and nothing else; and what is worth knowing. An encoding
        without a fault may be trained.

    Raises:
        BadInput: no encoding has that name, or the class defines something under a name of an earlier version.
        ValueError: it is neither a name nor a class of encodings, or there is no such use.
    """
    if use not in USES:
        raise ValueError(f"use must be one of {', '.join(USES)}, got {use!r}")
    if isinstance(encoding, str):
        return _findings(Subject(encoding, use, options))
    with _known(encoding) as name:
        return _findings(Subject(name, use, options))


@contextmanager
def _known(encoding: type[Encoding]) -> Generator[str]:
    """Put the encoding into the catalogue while the checks run."""
    if not (isinstance(encoding, type) and issubclass(encoding, Encoding)):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ValueError(f"encoding must be a name or a class of wordorder.encodings.Encoding, got {encoding!r}")
    check_hook_names(encoding)
    CATALOG[_UNDER_TEST] = encoding
    try:
        yield _UNDER_TEST
    finally:
        del CATALOG[_UNDER_TEST]


def _findings(subject: Subject) -> list[Finding]:
    # torch leaves the types of these open
    with cast("Any", torch.random).fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)  # torch.manual_seed would start those of GPUs anew too
        refused = _refusal(subject)
        if refused:
            return [Finding("refused", "definition", refused)]
        broken = [Finding("fault", "construction", text) for text in _construction(subject)]
        if broken:
            return broken
        found: list[Finding] = []
        for name, check in (CHECKS if subject.use != "cross-attention" else {"terms": CHECKS["terms"]}).items():
            if name in ("causality", "cache") and subject.use != "decoder":
                continue
            found += [Finding("fault", name, text) for text in _said(check, subject)]
        if not found and subject.use != "cross-attention":
            found += [Finding("information", "word order", text) for text in word_order(subject)]
    return found


def _said(check: Check, subject: Subject) -> list[str]:
    """Return the faults that a check finds; an error that it raises is a fault too."""
    try:
        return list(check(subject))
    except Exception as error:  # whatever somebody's code raises
        kind = type(error).__name__
        return [f"it raised {kind}: {error}; it must take any typed positions, of any length, in any floating dtype"]


def _refusal(subject: Subject) -> str | None:
    """Return why the encoding says that it is not for this use; None where it does not."""
    known = [CATALOG[part] for part in names_of(subject.name)]
    return "; ".join(kind.refused_in[subject.use] for kind in known if subject.use in kind.refused_in) or None


def _construction(subject: Subject) -> Iterator[str]:
    kind = CATALOG.get(subject.name)
    if kind is not None:
        needed = [name for name, default in options_of(kind).items() if default is Parameter.empty]
        if needed:
            yield f"{', '.join(needed)}: an argument without a default that no network gives; {_SIZES_HINT}"
            return
    try:
        with torch.device("meta"):  # as configurations are checked and costs are counted
            built = build_encoding(subject.name, use=subject.use, options=subject.options, **SIZES)  # pyright: ignore[reportArgumentType]
    except BadInput as error:
        yield f"it cannot be built: {' '.join(error.faults)}"
        return
    except Exception as error:
        yield (
            f"it cannot be built on torch's meta device, where models are checked and counted: {type(error).__name__}:"
            f" {error}; {_SIZES_HINT}, and it must not look at what its tensors contain"
        )
        return
    modules = [built] if built.replacement is None else [built, built.replacement]
    for module in modules:
        yield from _tensors(module)


def _tensors(module: nn.Module) -> Iterator[str]:
    """Yield the faults of the tensors that a module holds."""
    for name, parameter in module.named_parameters():
        if parameter.is_complex():
            own = name.rpartition(".")[2]
            yield f"parameter {own} is complex, which optimisers and NCCL refuse; hold its real and imaginary part"
    for name, _ in module.named_buffers():
        yield (
            f"it holds a buffer, {name.rpartition('.')[2]}; Hugging Face leaves buffers that are not saved"
            " uninitialised after loading, so compute it in forward, or make it a parameter"
        )
