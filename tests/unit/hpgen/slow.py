"""A generator that takes its time, as long as the test wants."""

import threading

from hopyard.space import Configuration
from tests.unit.hpgen.broken import Wrapped


class Slow(Wrapped):
    started = threading.Event()
    may_go_on = threading.Event()

    def create(self, job: str, ordinal: int) -> Configuration | None:
        Slow.started.set()
        assert Slow.may_go_on.wait(30)
        return super().create(job, ordinal)
