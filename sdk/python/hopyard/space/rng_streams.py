"""Independent random streams that are named, not taken in turn.

A stream is found by what it is for (a seed, an ordinal, a parameter's name), so drawing from one never moves another:
a space that gains a parameter keeps the values of all others. Built on SHA-256, since Python's `hash` differs from
process to process.
"""

from __future__ import annotations

import hashlib
import random


def stream(*name: str | int) -> random.Random:
    """The random stream called `name`: equal names give equal streams, in every process and on every host."""
    digest = hashlib.sha256()
    for part in name:
        # Length and type go in too, so that ("ab", "c"), ("a", "bc"), 1 and "1" are four different names.
        data = str(part).encode()
        digest.update(f"{type(part).__name__}:{len(data)}:".encode())
        digest.update(data)
    return random.Random(int.from_bytes(digest.digest(), "big"))


def below(rng: random.Random, bound: int) -> int:
    """A uniform integer in [0, bound), unbiased for every bound >= 1.

    Only `getrandbits` is used: the algorithms of `randrange` and `choice` may change between Python versions, and a
    replay must not.
    """
    bits = bound.bit_length()
    while (value := rng.getrandbits(bits)) >= bound:
        pass
    return value
