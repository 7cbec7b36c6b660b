"""What every test shares: one thread a process, no network, and GPU tests skipped where there is no GPU."""

import os
import signal
import sys
from collections.abc import Iterator

# Set before torch or transformers load: workers run side by side, and results must not depend on the number of cores.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import pytest


@pytest.fixture(scope="session", autouse=True)
def cache_of_this_session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep what tests cache out of the user's own cache, and what the user cached out of the tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WORDORDER_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="session", autouse=True)
def interrupts_are_heard() -> None:
    """Hear Ctrl-C as in a terminal: a shell that starts the tests in the background has them ignore it."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def seeded() -> None:
    """Draw the same numbers in every run of a test, whatever ran before it."""
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(0)


@pytest.fixture(autouse=True)
def compiled_for_this_test_alone() -> Iterator[None]:
    """Forget what a test compiled: all tests of a process share one limit on how often a function is compiled anew."""
    yield
    if "torch._dynamo" in sys.modules:
        sys.modules["torch"].compiler.reset()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip the tests marked `gpu` where torch sees no CUDA device."""
    marked = [item for item in items if item.get_closest_marker("gpu")]
    if marked:
        import torch

        if not torch.cuda.is_available():
            for item in marked:
                item.add_marker(pytest.mark.skip(reason="torch sees no CUDA device"))
