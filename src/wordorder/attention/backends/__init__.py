"""The ways to compute attention, one class a file, and the choice of one by shapes, dtypes and device of a call."""

import os

from wordorder.attention.backends.backend import Backend
from wordorder.attention.backends.far_and_near import FarAndNear
from wordorder.attention.backends.flex import Flex
from wordorder.attention.backends.reference import Reference
from wordorder.attention.backends.sdpa import Sdpa
from wordorder.attention.backends.tiles import Tiles
from wordorder.attention.backends.triton import Triton
from wordorder.attention.call import Call
from wordorder.errors import BadInput

VARIABLE = "WORDORDER_BACKEND"
"""The environment variable that forces a backend wherever no argument does."""

BACKENDS: list[Backend] = [Tiles(keep=True), FarAndNear(), Tiles(keep=False), Triton(), Flex(), Sdpa(), Reference()]
"""All backends, in the order in which they are asked; one of your own goes to the front."""


def choose_backend(call: Call, forced: str | Backend | None = None) -> Backend:
    """Return the first backend of `BACKENDS` that is at home in a call and can do it; all backends are exact.

    Args:
        call: with what the terms add (`Call.with_terms`).
        forced: the caller's choice, a name or a backend of its own; with None the environment variable
            ``WORDORDER_BACKEND`` is asked.

    Raises:
        ValueError: the forced backend is unknown, or cannot do what is asked.
    """
    named = os.environ.get(VARIABLE) if forced is None else None
    if forced is None and not named:
        return _first_at_home(call)
    by_name = {backend.name: backend for backend in BACKENDS}
    if named:
        if named not in by_name:
            raise BadInput(f"{VARIABLE} must be one of {', '.join(by_name)}, or not be set, got {named!r}")
        # a variable speaks for a whole program: calls that the named backend cannot do go where they would go anyway
        return by_name[named] if by_name[named].refusal(call) is None else _first_at_home(call)
    backend = by_name.get(forced) if isinstance(forced, str) else forced
    if not isinstance(backend, Backend):
        raise ValueError(f"backend must be one of {', '.join(by_name)}, or a Backend, got {forced!r}")
    if refusal := backend.refusal(call):
        raise ValueError(f"backend {backend.name!r} {refusal}")
    return backend


def _first_at_home(call: Call) -> Backend:
    for backend in BACKENDS:
        if backend.refusal(call) is None and backend.at_home(call):
            return backend
    raise AssertionError("the reference is at home everywhere")
