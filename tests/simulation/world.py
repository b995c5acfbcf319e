"""Virtual time and the only source of chance of a schedule."""

from __future__ import annotations

import heapq
import itertools
import random
from collections import Counter
from collections.abc import Callable
from typing import Any


class World:
    """An event heap keyed (time, sequence): the same seed gives the same schedule, event for event."""

    def __init__(self, seed: str, trace: bool = False) -> None:
        self.rng = random.Random(seed)
        self.now = 1000.0
        self.faults: Counter[str] = Counter()
        self.faulty = True
        self.orphans: set[str] = set()  # Blobs that came to the store when nobody was left to say so.
        self.trained: Counter[tuple[str, str, int]] = (
            Counter()
        )  # How often runs came to a state, by experiment and job.
        self.lost: Counter[tuple[str, str, int]] = Counter()  # What runs that crashed had not saved.
        self.story: list[str] | None = [] if trace else None
        self._heap: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._sequence = itertools.count()

    def later(self, delay: float, action: Callable[..., None], *arguments: Any) -> None:
        """Does something after a delay (seconds)."""
        heapq.heappush(self._heap, (self.now + delay, next(self._sequence), action, arguments))

    def step(self) -> bool:
        """Does what comes next. False when nothing will ever happen again."""
        if not self._heap:
            return False
        self.now, _, action, arguments = heapq.heappop(self._heap)
        action(*arguments)
        return True

    def happens(self, probability: float) -> bool:
        """Whether a fault of this probability strikes now; never after faults have stopped."""
        return self.faulty and probability > 0.0 and self.rng.random() < probability

    def fault(self, kind: str, text: object = "") -> None:
        """Counts a fault."""
        self.faults[kind] += 1
        self.note("fault:", kind, text)

    def note(self, *words: object) -> None:
        """A line of the story, when it is traced."""
        if self.story is not None:
            self.story.append(f"{self.now:10.3f}  " + " ".join(str(word) for word in words))
