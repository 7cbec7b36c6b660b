"""Random numbers that are pure functions of what they are for.

Every choice in the data is `uniform(counter_hash(seed, epoch, example index, ...))`. There is no generator whose state
could depend on the number of workers, the make-up of a batch or what was drawn before; a resumed run repeats exactly.
"""

import numpy as np
import numpy.typing as npt

Words = npt.NDArray[np.uint64]

_WORD = (1 << 64) - 1


def splitmix64(x: Words) -> Words:
    """Mix each 64-bit word of x, one to one (Steele, Lea and Flood 2014, "Fast Splittable ...").

    Args:
        x: an array, not a numpy scalar: numpy warns when a scalar wraps around, which is meant here.
    """
    x = x + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def counter_hash(seed: int, *counters: int | npt.NDArray[np.integer]) -> Words:
    """Hash a seed and counters to 64-bit words, one per element of the broadcast counters (at least one-dimensional).

    Args:
        seed: any whole number; taken modulo 2**64.
        counters: whole numbers or arrays of them; their order matters.
    """
    state = splitmix64(np.array([seed & _WORD], dtype=np.uint64))
    for counter in counters:
        word = np.array([counter & _WORD], np.uint64) if isinstance(counter, int) else counter.astype(np.uint64)
        state = splitmix64(state ^ word)
    return state


def uniform(words: Words) -> npt.NDArray[np.float64]:
    """Turn 64-bit words into numbers in [0, 1), of 53 random bits each."""
    return (words >> np.uint64(11)).astype(np.float64) * 2.0**-53
