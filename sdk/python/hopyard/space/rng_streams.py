"""Independent streams of random numbers that are identified by names.

A stream is identified by its purpose (a seed, an ordinal, a parameter's name). Drawing from one stream therefore does
not change another: if a parameter is added to a space, the values of the other parameters stay the same. The names are
hashed with SHA-256, because Python's `hash` differs between processes.
"""

from __future__ import annotations

import hashlib
import random


def stream(*name: str | int) -> random.Random:
    """Return a new random generator whose seed is derived from `name`, the sequence of arguments.

    Equal names give equal random numbers, in every process and on every host. 1 and "1" are different names.
    """
    digest = hashlib.sha256()
    for part in name:
        # Hash length and type as well, so that ("ab", "c"), ("a", "bc"), 1 and "1" are four different names.
        data = str(part).encode()
        digest.update(f"{type(part).__name__}:{len(data)}:".encode())
        digest.update(data)
    return random.Random(int.from_bytes(digest.digest(), "big"))


def below(rng: random.Random, bound: int) -> int:
    """Return a random integer in [0, bound), uniformly distributed without bias; `bound` >= 1.

    It uses only `getrandbits`: the algorithms of `randrange` and `choice` can change between Python versions, and a
    replay must give the same values.
    """
    bits = bound.bit_length()
    while (value := rng.getrandbits(bits)) >= bound:
        pass
    return value
