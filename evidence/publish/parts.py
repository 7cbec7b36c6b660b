"""Score a model with a part of its positional maps alone: what distance decides, the rest, or neither."""

from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from typing import Any, Literal, cast, get_args

from torch import nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

from wordorder.encodings import OnScores
from wordorder.inspection.toeplitz import toeplitz_split
from wordorder.ops import Bias, Contiguous, DenseBias, as_positions

Part = Literal["toeplitz", "rest", "nothing"]


@contextmanager
def keep_part(part: Part) -> Generator[None]:
    """Replace, within the context, the map of every encoding that adds to the scores by a part of it.

    The energy of a part says how large it is, not what it does: numbers that training left behind may be large and do
    nothing. Scored with one part alone, a model says what the part is worth.

    The row and column of [CLS] stay as they are where TUPE resets them, and so does each row's mean over the other
    keys, so that attention to [CLS] is what it was. Works on every model that runs meanwhile, for contiguous positions;
    without gradients, and slower: each forward splits its maps anew.

    Args:
        part: "toeplitz" for what depends on distance alone (`wordorder.inspection.toeplitz.toeplitz_split`, up to row
            constants), "rest" for what does not, "nothing" for the rows' means alone.

    Raises:
        ValueError: unknown part; within it, a model runs on packed or otherwise irregular positions.
    """
    if part not in get_args(Part):
        raise ValueError(f"part must be one of {', '.join(get_args(Part))}, got {part!r}")

    inner: set[nn.Module] = set()

    def note_inner(module: nn.Module, _: Any) -> None:
        if isinstance(module, OnScores):  # TUPE-R calls an encoding of its own, whose term is not yet what is added
            inner.update(child for child in module.modules() if child is not module)

    def replaced(module: nn.Module, inputs: tuple[Any, ...], output: Any) -> Bias | None:
        if not isinstance(module, OnScores) or module in inner:
            return None  # leaves the output as it is
        for positions in map(as_positions, inputs[:2]):
            if not (isinstance(positions, Contiguous) and isinstance(positions.offset, int) and positions.offset == 0):
                raise ValueError(f"a part of a map can be kept for positions 0 .. N - 1 only, got {positions}")
        map_1HNN, first = output.dense().detach().clone(), int(module.first_position_apart)
        inner_HNN = map_1HNN[0, :, first:, first:]
        part_HNN = inner_HNN.double().mean(-1, keepdim=True).expand_as(inner_HNN)
        if part != "nothing" and inner_HNN.shape[-1] > 0:
            split = toeplitz_split(inner_HNN, up_to_row_constants=True)
            part_HNN = part_HNN + (split.part_HTS if part == "toeplitz" else split.rest_HTS)
        inner_HNN.copy_(part_HNN)
        return DenseBias(map_1HNN)

    before = register_module_forward_pre_hook(note_inner)
    # declared to return nothing, but what it returns takes the output's place
    after = register_module_forward_hook(cast("Callable[..., None]", replaced))
    try:
        yield
    finally:
        before.remove()
        after.remove()


def worth_of_parts(score: Callable[[], Mapping[str, object]]) -> dict[str, dict[str, object]]:
    """Return a model's scores with the whole of its maps and with each part alone.

    Args:
        score: runs the model and gives its scores by name; called four times.

    Returns:
        "whole", "toeplitz", "rest", "nothing" -> what ``score`` gave.
    """
    scores = {"whole": dict(score())}
    for part in get_args(Part):
        with keep_part(part):
            scores[part] = dict(score())
    return scores
