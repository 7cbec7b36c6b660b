"""The same targets, guided by coverage: atheris draws the bytes that hypothesis makes inputs of.

    pip install atheris
    python tests/fuzz/with_atheris.py recipe --runs 10000

One target a process, because atheris ends it. An input that fails is written to build/fuzz/<target>, as in `make fuzz`.
"""

import argparse
import hashlib
import logging
import os
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), *(str(HERE.parent / name) for name in ("checkpoints", "comparison", "encodings"))]
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")


def main() -> None:
    """Fuzz one target."""
    import atheris

    # before the package is imported: what is imported here is instrumented
    with atheris.instrument_imports(include=["wordorder"]):
        from targets import TARGETS, check, folder_of
    from hypothesis import HealthCheck, given, settings

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("target", choices=list(TARGETS))
    parser.add_argument("--runs", type=int, default=10_000, help="inputs")
    parser.add_argument("--seconds", type=int, default=600, help="time at most")
    options = parser.parse_args()
    name, count = options.target, 0
    logging.disable(logging.WARNING)
    failed = HERE.parents[1] / "build" / "fuzz" / name

    @settings(database=None, deadline=None, suppress_health_check=list(HealthCheck))
    @given(TARGETS[name].inputs())
    def fuzz(content: bytes) -> None:
        nonlocal count
        count += 1
        try:
            check(name, content)
        except AssertionError:
            failed.mkdir(parents=True, exist_ok=True)
            (failed / hashlib.sha256(content).hexdigest()[:16]).write_bytes(content)
            raise

    with atheris.instrument_imports(include=["wordorder"]):
        os.chdir(folder_of(name))
        TARGETS[name].read(TARGETS[name].good(), folder_of(name))
    limits = [f"-runs={options.runs}", f"-max_total_time={options.seconds}", "-max_len=20000", "-len_control=0"]
    # hypothesis needs some bytes to draw from; the process ends within Fuzz, so what was done is said by libFuzzer
    atheris.Setup([sys.argv[0], *limits, "-timeout=60", "-rss_limit_mb=8192"], fuzz.hypothesis.fuzz_one_input)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
