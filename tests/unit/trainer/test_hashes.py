"""Tests of the hash that is computed in a thread: it equals the hash of all pieces in their order."""

from __future__ import annotations

import hashlib
import io
import os
import threading
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hopyard._runtime.hashing import BLOCK, StreamingHash, in_turns

pytestmark = pytest.mark.quick

LENGTHS = st.one_of(st.integers(0, 300), st.integers(256 * 1024 - 1, 256 * 1024 + 1), st.just(BLOCK))


@pytest.mark.merge
@given(st.lists(LENGTHS, max_size=8), st.integers(0, 1000))
@settings(max_examples=50, deadline=None)
def test_pieces_of_any_length_are_hashed_in_order(lengths: list[int], seed: int) -> None:
    random, expected = Random(seed), hashlib.sha256()
    with StreamingHash() as hashed:
        for length, buffer in zip(lengths, in_turns(), strict=False):
            data = random.randbytes(length)
            expected.update(data)
            # The previous buffer may be hashed at this time; this one is not any more.
            buffer[:length] = data
            hashed.update(buffer[:length])
        assert (hashed.hexdigest(), hashed.size) == (expected.hexdigest(), sum(lengths))


class Trickle(io.RawIOBase):
    """A stream that returns fewer bytes at a time than requested."""

    def __init__(self, data: bytes, steps: list[int]) -> None:
        self._data, self._steps = memoryview(data), iter(steps)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]  # what it is given here
        count = min(len(buffer), len(self._data), next(self._steps, len(buffer)))
        buffer[:count], self._data = self._data[:count], self._data[count:]
        return count


def test_a_stream_is_drained_whole_however_little_it_gives() -> None:
    data = os.urandom(3 * BLOCK + 17)
    with StreamingHash() as hashed:
        hashed.drain(Trickle(data, [1, 100_000, 5, BLOCK]))
        assert (hashed.hexdigest(), hashed.size) == (hashlib.sha256(data).hexdigest(), len(data))


def test_what_is_closed_leaves_no_thread() -> None:
    before = set(threading.enumerate())
    with StreamingHash() as hashed:
        hashed.update(os.urandom(2 * BLOCK))
    for thread in set(threading.enumerate()) - before:
        thread.join()


def test_little_needs_no_thread() -> None:
    before = threading.active_count()
    with StreamingHash() as hashed:
        hashed.update(bytes(1000))
        assert threading.active_count() == before
        assert hashed.hexdigest() == hashlib.sha256(bytes(1000)).hexdigest()
