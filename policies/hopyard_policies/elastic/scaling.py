"""The scaling of a job: the time of a unit on a number of slots, and the efficient gang sizes."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence


class Scaling:
    """Time of a unit by gang size, and the gang sizes that a job may use.

    Attributes:
        sizes: The allowed gang sizes, ascending: sizes of the profile that are faster than every smaller allowed one
            and whose efficiency is at least the given one. Efficiency is the slot time of a unit on the smallest
            gang divided by that on this one.
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
        """Return the largest allowed gang of at most `slots` slots; 0: there is none."""
        return max((size for size in self.sizes if size <= slots), default=0)

    def saved(self, size: int, other: int, left: float) -> float:
        """Return the seconds saved by training `left` units on gangs of size `other` instead of `size`."""
        return left * (self._seconds[size] - self._seconds[other])

    def grow(self, sizes: list[int], weights: Sequence[float], spare: int) -> None:
        """Widen gangs in place by at most `spare` slots, each time where a further slot saves most.

        Ties go to the first gang. `weights` are the units that each job has left, times the value of its seconds. Gangs
        whose size is not allowed stay as they are.
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
        """Divide slots among jobs with these weights: each gets the smallest gang in order, then gangs are widened. 0: none."""
        least = self.sizes[0]
        served = min(len(weights), max(slots, 0) // least)
        sizes = [least] * served
        self.grow(sizes, weights, slots - served * least)
        return sizes + [0] * (len(weights) - served)
