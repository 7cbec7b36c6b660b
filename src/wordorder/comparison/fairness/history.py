"""Equal history: count a memory as part of the text that a model looks back on, not as an addition to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from wordorder.comparison.results_file import History
from wordorder.data.names import LANES
from wordorder.errors import BadInput
from wordorder.tasks import TASKS

if TYPE_CHECKING:
    from wordorder.comparison.fairness.arms import Arm
    from wordorder.training import Recipe


def equal_history(arms: Sequence[Arm]) -> tuple[Arm, ...]:
    """Give arms with a memory shorter segments, so that memory and segment together are as long as the others' segment.

    The question is kimiyoung/transformer-xl#95: 512 tokens at once, or 256 beside a memory of 256. With data.length H,
    an arm whose memory holds M reads segments of H - M. Everything else stays equal:

    - A step reads the same H tokens of the same lanes: the arm reads them in H / (H - M) segments, one after another,
      and learns from all of them together (`training.segments_per_step`), its loss being the mean over the same tokens.
    - Arms without a memory are scored in windows of H tokens that advance by H - M (`training.eval_stride`), so that
      they, too, predict every token of a text from at least M + 1 tokens and at most H, once there are so many.

    Raises:
        BadInput: the texts are not read in lanes, or a memory's length leaves no such segments.
    """
    first = arms[0].recipe
    if not TASKS[first.data.task].running_text or first.data.packing != LANES:
        raise BadInput(
            'compare.history = "equal" is for running text that goes on from segment to segment: data.task causal-lm '
            f'with data.packing "lanes", got {first.data.task} with {first.data.packing!r}; leave compare.history out'
        )
    pieces: dict[str, int] = {}
    faults: list[str] = []
    for arm in arms:
        try:
            pieces |= {arm.name: _pieces(arm)} if _remembers(arm.recipe) else {}
        except BadInput as error:
            faults += error.faults
    if faults:
        raise BadInput(faults)
    return tuple(_adapted(arm, pieces.get(arm.name), max(pieces.values(), default=1)) for arm in arms)


def _remembers(recipe: Recipe) -> bool:
    return recipe.model.get("memory", "none") != "none"


def _pieces(arm: Arm) -> int:
    """Return the number of segments in which an arm reads the length of the others."""
    length, memory = int(arm.recipe.data.length or 0), arm.recipe.model.get("memory_length")
    if memory is None:
        if length % 2:
            raise BadInput(f"data.length must be even for a memory of half of it, got {length}")
        return 2
    if memory < length and length % (length - memory) == 0:
        return length // (length - memory)
    fits = [length - length // n for n in (2, 3, 4, 8, 16) if length % n == 0 and length > n]
    raise BadInput(
        f'compare.arms {arm.name!r}: model.memory_length {memory} under compare.history = "equal": what is left of '
        f"data.length {length} must be a segment that goes into it without a rest; take "
        f"{' or '.join(map(str, fits)) or 'another data.length'}"
    )


def _adapted(arm: Arm, pieces: int | None, most: int) -> Arm:
    length = int(arm.recipe.data.length or 0)
    changes: dict[str, Any] = {}
    if pieces is not None:
        changes = {"training.segments_per_step": pieces, "model.memory_length": length - length // pieces}
    elif most > 1:
        changes = {"training.eval_stride": length // most}
    try:
        return replace(arm, recipe=arm.recipe.with_overrides(changes)) if changes else arm
    except BadInput as error:
        raise BadInput([f"compare.arms {arm.name!r}: {fault}" for fault in error.faults]) from None


def histories(arms: Sequence[Arm]) -> dict[str, History]:
    """Return the tokens that each arm can look back on: its segment, its memory, and both; {} for other tasks.

    Per layer: through L layers of a memory, information reaches L times further (Transformer-XL, Sec. 3.2).
    """
    if arms[0].recipe.data.packing != LANES:
        return {}
    found: dict[str, History] = {}
    for arm in arms:
        segment, memory = arm.recipe.segment_length, 0
        if _remembers(arm.recipe):
            half = max(int(arm.recipe.model["max_position_embeddings"]) // 2, 1)  # the configurations' default
            memory = int(arm.recipe.model.get("memory_length") or half)
        found[arm.name] = History(segment=segment, memory=memory, history=segment + memory)
    return found


def history_sentence(found: Mapping[str, History], *, equal: bool) -> str:
    """Return one sentence about the history that the arms had; "" if none of them has a memory."""
    lengths = [own.history for own in found.values()]
    if not any(own.memory for own in found.values()):
        return ""
    if equal or min(lengths) == max(lengths):
        return f"Segment and memory together are {lengths[0]:,} tokens for every arm."
    return (
        f"History is not equal: segment and memory together are {min(lengths):,} to {max(lengths):,} tokens; "
        'compare.history = "equal" makes them the same.'
    )
