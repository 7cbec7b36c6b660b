"""Query the processes that a launcher such as torchrun started together: their number, and which of them reports.

No torch is imported here: the command line asks before it has any.
"""

import os
import signal
import sys
import time
from datetime import timedelta
from multiprocessing import parent_process

_FAILED, _CODE = "wordorder/failed", "wordorder/exit-code"
_PATIENCE = timedelta(seconds=5)


def process_count() -> int:
    """Return the number of processes that work on this run together; 1 where no launcher started this one."""
    return int(os.environ["WORLD_SIZE"]) if "RANK" in os.environ and "WORLD_SIZE" in os.environ else 1


def process_index() -> int:
    """Return the index of this process among them, from 0."""
    return int(os.environ["RANK"]) if process_count() > 1 else 0


def is_main() -> bool:
    """Return whether this is process 0, the only one that prints and writes."""
    return process_index() == 0


def is_watched_over() -> bool:
    """Return whether another process passes its signals on to this one, and kills it if it is too slow to stop.

    Launchers do so, even over a single process, and so does a comparison over its workers.
    """
    return "RANK" in os.environ or parent_process() is not None


def first_to_fail(code: int) -> tuple[bool, int]:
    """Return whether this process is to say why it ends, and the exit code to end with.

    What goes wrong in one process breaks the connections of all others, whose complaints would hide it: the first to
    come here speaks, and all end with its code. Before the processes know each other (a recipe that cannot be read),
    the first process of each machine speaks, and
    the others wait for their launcher to end them.
    """
    if process_count() == 1:
        return True, code
    library = sys.modules.get("torch.distributed")
    if library is None or not library.is_available() or not library.is_initialized():
        first = os.environ.get("LOCAL_RANK", "0") == "0"
        if not first:  # a launcher ends all when one ends: the first one speaks before that
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            time.sleep(2 * _PATIENCE.total_seconds())
        return first, code
    store = library.distributed_c10d._get_default_store()  # there is no public name for it
    try:
        if store.add(_FAILED, 1) == 1:
            store.set(_CODE, str(code))
            return True, code
        store.wait([_CODE], _PATIENCE)
        return False, int(store.get(_CODE))
    except Exception:  # the process that kept the store is gone: it has failed, and said so
        return False, code
