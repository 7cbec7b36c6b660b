"""The outcomes of a test of two arms, as results.json has them."""

from collections.abc import Mapping

BETTER, WORSE, SAME, NOT_DISTINGUISHABLE, IDENTICAL, NOT_TESTED, NO_CLAIM = (
    "better",
    "worse",
    "same",
    "not distinguishable",
    "identical",
    "not tested",
    "no claim",
)
REVERSED = {BETTER: WORSE, WORSE: BETTER}
"""Outcome -> the same seen from the other arm, where that differs."""

LostRuns = Mapping[str, tuple[int, int]]
"""Arm -> number of runs that were lost, and of those that ended; only arms that lost any."""


def claimed_outcome(arm: str, against: str, difference: float, lost: LostRuns) -> tuple[str, str | None]:
    """Return the outcome of a difference that is claimed, and why it is none after all: the arm ahead lost more runs.

    The arm ahead is judged by the runs that went well only.
    """
    ahead, behind = (arm, against) if difference > 0 else (against, arm)
    (gone, of), (gone_behind, of_behind) = (lost.get(name, (0, 1)) for name in (ahead, behind))
    if gone / of > gone_behind / of_behind:
        return NO_CLAIM, f"{ahead} lost {gone} of {of} runs"
    return (BETTER if difference > 0 else WORSE), None
