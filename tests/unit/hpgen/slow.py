"""Generators that do not return, for the tests of time limits."""

import sys
import threading
from typing import Any

from hopyard.generator import Result
from hopyard.space import Configuration, Space
from tests.timing import HANG_SECONDS
from tests.unit.hpgen.broken import Wrapped


class Slow(Wrapped):
    started = threading.Event()
    may_go_on = threading.Event()

    def create(self, job: str, ordinal: int) -> Configuration | None:
        Slow.started.set()
        assert Slow.may_go_on.wait(HANG_SECONDS)
        return super().create(job, ordinal)


class Hangs(Wrapped):
    """Does not return from the second `create` (in Python code) or from `report_final` (in a lock) until `behaves` is set."""

    behaves = threading.Event()

    def create(self, job: str, ordinal: int) -> Configuration | None:
        while ordinal == 1 and not Hangs.behaves.is_set():
            pass
        return super().create(job, ordinal)

    def report_final(self, job: str, result: Result) -> None:
        Hangs.behaves.wait()


class Leaves(Wrapped):
    """Tries to end the process in `create`."""

    def create(self, job: str, ordinal: int) -> Configuration | None:
        sys.exit("enough")


class Unmakeable(Wrapped):
    """Does not return from its constructor until `Hangs.behaves` is set."""

    def __init__(self, space: Space, seed: int, **parameters: Any) -> None:
        Hangs.behaves.wait()
        super().__init__(space, seed, **parameters)
