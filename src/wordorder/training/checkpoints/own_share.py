"""Load one process's share of a checkpoint that perhaps another number of processes wrote."""

from pathlib import Path
from typing import Any

from wordorder.errors import BadInput
from wordorder.training.checkpoints.state_files import load_state, restore_random_state
from wordorder.training.loop.processes import Processes


def own_counts(checkpoint: Path, processes: Processes, *, rows_of_a_step: int) -> dict[str, Any]:
    """Return the counts and averages of this process; those of another number of processes are combined.

    Args:
        checkpoint: a valid one.
        processes: of this run.
        rows_of_a_step: examples that an optimizer step of this run reads, in all processes together.

    Raises:
        BadInput: a step of the former run read another number of examples.
    """
    first = load_state(checkpoint, "training")
    everyones: list[dict[str, Any]] = [first, *first.get("others", ())]
    rows = first.get("rows_of_a_step", rows_of_a_step)
    if rows != rows_of_a_step:
        raise BadInput(
            f"{checkpoint} was written by {len(everyones)} processes whose steps read {rows} examples; here "
            f"{processes.count} would read {rows_of_a_step}, other examples in other steps: resume "
            f"with as many processes, or set training.per_device_train_batch_size so that a step reads {rows}"
        )
    if len(everyones) == processes.count:
        return everyones[processes.index]
    meters = [one["meter"] for one in everyones]
    counted = {**first["meter"], "tokens": sum(meter["tokens"] for meter in meters)}
    return {
        **first,
        "loss_sum": sum(one["loss_sum"] for one in everyones) / len(everyones),
        "meter": counted if processes.is_main else {**counted, "tokens": 0},
        "batches": None,  # the digests of other shares cannot go on
    }


def load_place(examples: Any, checkpoint: Path, processes: Processes) -> None:
    """Restore the position of training data that saves its own (streams do); do nothing for other data.

    Args:
        examples: a data set.
        checkpoint: see `own_counts`.
        processes: of this run.

    Raises:
        BadInput: as many processes as now did not read the data.
    """
    load = getattr(examples, "load_state_dict", None)
    if load is None:
        return
    saved = len(list(checkpoint.glob("data-*.json")))
    if saved != processes.count:
        raise BadInput(
            f"{checkpoint} has the places in the streamed text of {saved} processes, this run has "
            f"{processes.count}, whose shares are others; resume with as many, or start anew"
        )
    load(load_state(checkpoint, f"data-{processes.index}"))


def load_random_state(checkpoint: Path, processes: Processes, *, seed: int) -> None:
    """Restore the random generators of this process; seed them anew for another number of processes.

    Args:
        checkpoint: see `own_counts`.
        processes: of this run.
        seed: what is drawn anew depends on it and on the process; to be another one than at the beginning of the run.
    """
    states = load_state(checkpoint, "random")
    if len(states) == processes.count:
        restore_random_state(states[processes.index])
        return
    from accelerate.utils import set_seed

    set_seed(seed, device_specific=True)
