"""How a job scales: what a unit takes on so many machines, and on how many of them a job may train."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence


class Scaling:
    """How long a unit takes on so many machines, and on how many of them a job may train.

    Attributes:
        sizes: The gangs that a job may train on, rising: those of the profile that are faster than every smaller one, up to the
            largest whose efficiency is at least the wanted one. Efficiency is the machine time of a unit on the smallest gang, by that
            on this one.
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

    def fitting(self, machines: int) -> int:
        """The largest gang of so many machines; 0: they are too few."""
        return max((size for size in self.sizes if size <= machines), default=0)

    def saved(self, size: int, other: int, left: float) -> float:
        """Seconds that so many units take less on another gang than on one of this size."""
        return left * (self._seconds[size] - self._seconds[other])

    def grow(self, sizes: list[int], weights: Sequence[float], spare: int) -> None:
        """Widens gangs, in place, by `spare` machines at most: each time where a further machine saves most, the first of several.

        `weights` are the units that each has left, times what its seconds are worth. Gangs whose size is none of `sizes` stay as
        they are.
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

    def divide(self, weights: Sequence[float], machines: int) -> list[int]:
        """Gangs for jobs of such weights: each the smallest, the first first; then they are widened. 0: none."""
        least = self.sizes[0]
        served = min(len(weights), max(machines, 0) // least)
        sizes = [least] * served
        self.grow(sizes, weights, machines - served * least)
        return sizes + [0] * (len(weights) - served)
