"""Virtual time, and the main source of randomness of a schedule."""

from __future__ import annotations

import heapq
import itertools
import random
from collections import Counter
from collections.abc import Callable
from typing import Any


class World:
    """A heap of actions by (time, sequence number): the same seed gives the same schedule, event by event."""

    def __init__(self, seed: str, trace: bool = False) -> None:
        self.rng = random.Random(seed)
        self.now = 1000.0
        self.faults: Counter[str] = Counter()
        self.faulty = True
        self.orphans: set[str] = set()  # Blobs that were uploaded but could not be reported.
        self.trained: Counter[tuple[str, str, int]] = Counter()  # How often runs reached a state, by stream and job.
        self.lost: Counter[tuple[str, str, int]] = Counter()  # Unsaved states of crashed runs.
        self.story: list[str] | None = [] if trace else None
        self._heap: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._sequence = itertools.count()

    def later(self, delay: float, action: Callable[..., None], *arguments: Any) -> None:
        """Schedule an action after a delay (seconds)."""
        heapq.heappush(self._heap, (self.now + delay, next(self._sequence), action, arguments))

    def step(self) -> bool:
        """Execute the next action; return False if no action is left."""
        if not self._heap:
            return False
        self.now, _, action, arguments = heapq.heappop(self._heap)
        action(*arguments)
        return True

    def happens(self, probability: float) -> bool:
        """Draw whether a fault of this probability occurs now; it never does after faults have stopped."""
        return self.faulty and probability > 0.0 and self.rng.random() < probability

    def fault(self, kind: str, text: object = "") -> None:
        """Count a fault and note it."""
        self.faults[kind] += 1
        self.note("fault:", kind, text)

    def note(self, *words: object) -> None:
        """Add a line to the trace, if it is enabled."""
        if self.story is not None:
            self.story.append(f"{self.now:10.3f}  " + " ".join(str(word) for word in words))
