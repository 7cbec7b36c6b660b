"""Print what one use of the core loads and calls, as JSON: `python -m tools.figures.core`.

It runs in a process of its own, since what is loaded can be counted once only.
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType


def package() -> Path:
    """Return the folder of the package that is imported."""
    import wordorder

    return Path(str(wordorder.__file__)).parent


def lines_loaded() -> int:
    """Return the lines of the package's files that this process has imported."""
    modules = [getattr(module, "__file__", None) for module in list(sys.modules.values())]
    files = {Path(file) for file in modules if file and package() in Path(file).parents}
    return sum(len(file.read_text(encoding="utf-8").splitlines()) for file in files)


def calls_of(use: Callable[[], object]) -> int:
    """Return how often functions of the package are called, those inside of comprehensions included."""
    prefix, calls = str(package()), 0

    def count(frame: FrameType, event: str, _: object) -> None:
        nonlocal calls
        calls += event == "call" and frame.f_code.co_filename.startswith(prefix)

    sys.setprofile(count)
    try:
        use()
    finally:
        sys.setprofile(None)
    return calls


def main() -> None:
    """Count, and print the numbers by name."""
    import torch

    import wordorder

    torch.set_num_threads(1)
    ids = torch.randint(1000, (2, 16))
    encoder = wordorder.Encoder(1000, width=64, layers=1, heads=4, encoding="tupe-r")
    encoder(ids)
    figures = {"lines of an encoder": lines_loaded()}

    padding = torch.zeros(2, 16, dtype=torch.bool)
    padding[1, 12:] = True
    figures["calls of an encoder"] = calls_of(lambda: encoder(ids, key_padding_mask=padding))

    for layers in (1, 2):
        memory = wordorder.LookAheadMemory(8)
        decoder = wordorder.Decoder(1000, width=64, layers=layers, heads=4, encoding="transformer-xl", memory=memory)
        # The memory is full from the second segment on; the third is counted.
        state = decoder(ids, memory=decoder(ids).memory).memory
        figures[f"calls of a segment, layers {layers}"] = calls_of(lambda: decoder(ids, memory=state))  # noqa: B023
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
