"""The scaling of a job: the time of a unit on a number of slots, and the efficient gang sizes."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence


class Scaling:
    """The time of a unit of training by gang size (the number of slots), and the gang sizes that a job may use.

    The efficiency of a gang is the slot time of a unit (seconds times slots) on the smallest gang of the profile divided by
    that on this gang.

    Args:
        profile: The seconds of a unit by number of slots; not empty.
        efficiency: The least efficiency of an allowed gang, in (0, 1].

    Attributes:
        sizes: The allowed gang sizes, ascending: sizes of the profile that are faster than every smaller allowed one
            and whose efficiency is at least `efficiency`.
    """

    def __init__(self, profile: Mapping[int, float], efficiency: float) -> None:
        self._seconds = dict(sorted(profile.items()))
        least = next(iter(self._seconds))
        sizes: list[int] = []
        for size, seconds in self._seconds.items():
            faster = not sizes or seconds < self._seconds[sizes[-1]]
            if faster and least * self._seconds[least] >= efficiency * size * seconds:
                sizes.append(size)
        self.sizes = tuple(sizes)

    def fitting(self, slots: int) -> int:
        """Return the largest allowed gang size of at most `slots` slots; 0: there is none."""
        return max((size for size in self.sizes if size <= slots), default=0)

    def saved(self, size: int, other: int, left: float) -> float:
        """Return the seconds that training `left` units on `other` slots takes less than on `size` slots; negative if it takes more."""
        return left * (self._seconds[size] - self._seconds[other])

    def grow(self, sizes: list[int], weights: Sequence[float], spare: int) -> None:
        """Widen gangs in place by at most `spare` slots in total, each time the gang for which a further slot saves most.

        Of gangs with equal savings the first is widened. Gangs whose size is not allowed stay as they are.

        Args:
            sizes: The size of each gang; updated.
            weights: For each gang, the units that its job has left, times the relative value of finishing it a second earlier.
            spare: The number of slots by which gangs may grow.
        """
        following = dict(zip(self.sizes, self.sizes[1:], strict=False))
        heap: list[tuple[float, int, int]] = []

        def offer(index: int) -> None:
            wider = following.get(sizes[index])
            if wider is not None and wider - sizes[index] <= spare:
                gain = self.saved(sizes[index], wider, weights[index]) / (wider - sizes[index])
                heapq.heappush(heap, (-gain, index, wider))

        for index in range(len(sizes)):
            offer(index)
        while heap and spare > 0:
            _, index, wider = heapq.heappop(heap)
            if wider - sizes[index] <= spare:
                spare -= wider - sizes[index]
                sizes[index] = wider
                offer(index)

    def divide(self, weights: Sequence[float], slots: int) -> list[int]:
        """Divide slots among jobs: first a gang of the smallest allowed size for each job, in order, then gangs are widened.

        Args:
            weights: For each job, the units that it has left, times the relative value of finishing it a second earlier.
            slots: The number of slots.

        Returns:
            The gang size of each job; 0: it gets no slots.
        """
        least = self.sizes[0]
        served = min(len(weights), max(slots, 0) // least)
        sizes = [least] * served
        self.grow(sizes, weights, slots - served * least)
        return sizes + [0] * (len(weights) - served)
