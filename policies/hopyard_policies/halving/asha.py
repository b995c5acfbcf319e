"""Asynchronous successive halving: `asha`, and `async_hyperband`, which loops through its brackets."""

from __future__ import annotations

import abc
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hopyard.policy import Cluster, JobState
from hopyard_policies.halving.bracket import Bracket
from hopyard_policies.halving.brackets import divided, hyperband, standard
from hopyard_policies.halving.policy import HalvingPolicy


class AsynchronousPolicy(HalvingPolicy):
    """Algorithm 2 of the ASHA paper in several brackets. How wide they get and which one grows, subclasses say."""

    _widths: tuple[int, ...] = ()
    """How many configurations each bracket gets of all."""

    @abc.abstractmethod
    def _divided(self) -> tuple[int, ...]:
        """How many configurations each bracket gets of all."""

    def _set_up(self) -> None:
        ladder = self._ladder
        if not ladder.brackets:
            for s in ladder.rates(self._standard):
                ladder.open(Bracket(ladder.eta, len(ladder.positions) - s), s)
        self._widths = self._divided()

    def _beginnings(self) -> tuple[Sequence[int], Sequence[int]]:
        return self._widths, self._ladder.lengths

    def _promotion(self, cluster: Cluster, staying: str) -> tuple[str, int] | None:
        for bracket, job, rung in self._candidates():
            state = cluster.jobs[job].state
            if job == staying or cluster.waits(job) or state is JobState.COMPLETED:
                return job, rung
            if state.ended:
                bracket.give_up(job, rung)
        return None

    def _promotable(self, cluster: Cluster) -> int:
        jobs = (job for _, job, _ in self._candidates())
        return sum(cluster.waits(job) or cluster.jobs[job].state is JobState.COMPLETED for job in jobs)

    def _candidates(self) -> Iterator[tuple[Bracket, str, int]]:
        for bracket in self._ladder.brackets:
            for job, rung in bracket.promotable():
                yield bracket, job, rung

    def _width(self, bracket: int, rung: int) -> int | None:
        return self._widths[bracket] if rung == 0 else None


class AshaPolicy(AsynchronousPolicy):
    """ASHA, Algorithm 2 of its paper, with the defaults of section 5.1: it needs no more than random search, n and R.

    n is the experiment's number of jobs, R its max position. A machine that is free gets the best configuration that may be
    promoted: brackets are asked in their order, in each the rungs from the top down, and of a rung of k results the best
    floor(k / eta) may go on. When nobody may in any bracket, a new configuration begins at the bottom of the bracket that is
    furthest behind its part of n. When all n have begun, machines for which there is no promotion are left to others.

    With the infinite horizon R is no aim: rungs begin at `r`, 1 by default, and go on by eta as far as jobs may train at all,
    however many they are.

    Args:
        eta: The reduction factor, at least 2.
        rungs: The most rungs, in 1..64: so r is R / eta^(rungs - 1), and at least 1. None: 5. Not with `r` or the infinite horizon.
        r: What a configuration of bracket 0 trains at least, at least 1, in the experiment's unit; None: it follows from `rungs`.
        brackets: By early-stopping rate: bracket s begins at rung s of the ladder. None: 0, 1 and 2, as far as they have two rungs.
        infinite: The infinite horizon, with bracket 0 alone by default.
        ahead: Jobs created beyond those that have a machine, in 0..10000.
        elastic: How jobs train on several machines each, and on how many (`hopyard_policies.elastic`): those with the longest way to
            their rungs get most. None: each on one.

    Raises:
        ValueError: An argument is out of range, or two do not go together.
    """

    def __init__(
        self,
        eta: int = 4,
        rungs: int | None = None,
        r: int | None = None,
        brackets: Sequence[int] | None = None,
        infinite: bool = False,
        ahead: int = 2,
        elastic: Mapping[str, Any] | None = None,
    ) -> None:
        if type(infinite) is not bool:
            raise ValueError(f"infinite is {infinite!r}; it must be true or false")
        if infinite and rungs is not None:
            raise ValueError(
                f"rungs is {rungs!r}, but the infinite horizon has no top rung to count from; leave rungs out"
            )
        self._infinite = infinite
        if infinite:
            r, brackets = r if r is not None else 1, brackets if brackets is not None else [0]
        super().__init__(eta=eta, rungs=rungs, r=r, brackets=brackets, ahead=ahead, elastic=elastic)

    def _beginnings(self) -> tuple[Sequence[int], Sequence[int]]:
        widths, rungs = super()._beginnings()
        return widths, [] if self._infinite else rungs

    def _standard(self, rungs: int) -> tuple[int, ...]:
        return standard(rungs)

    def _divided(self) -> tuple[int, ...]:
        begun = [bracket.size for bracket in self._ladder.brackets]
        return divided(self._configurations, self._ladder.lengths, self._ladder.eta, begun)

    def _growing(self, cluster: Cluster) -> int | None:
        """The bracket that is furthest behind its part: the smallest (size + 1) / width, the first of several."""
        sizes = [bracket.size for bracket in self._ladder.brackets]
        room = [((sizes[i] + 1) / width, i) for i, width in enumerate(self._widths) if sizes[i] < width]
        return min(room)[1] if room else None


class AsyncHyperbandPolicy(AsynchronousPolicy):
    """Asynchronous Hyperband: loops through brackets of ASHA, from the one that stops earliest to the one that does not stop any.

    New configurations go to one bracket at a time. It gets as many as Hyperband gives its bracket, so that all of them train about as
    much in all, then the next one does, and after the last the first one again: it goes on with all its results. Promotions
    come before new configurations, in whatever bracket they are.

    Its parameters are those of `HalvingPolicy`; without `brackets` it loops through all of them.
    """

    def _standard(self, rungs: int) -> tuple[int, ...]:
        return tuple(range(rungs))

    def _turns(self) -> list[int]:
        """How many configurations each bracket gets in a loop."""
        rungs = len(self._ladder.positions)
        counts = hyperband(rungs, self._ladder.eta)
        return [counts[rungs - length] for length in self._ladder.lengths]

    def _divided(self) -> tuple[int, ...]:
        turns = self._turns()
        loops, left = divmod(self._configurations, sum(turns))
        before = [sum(turns[:index]) for index in range(len(turns))]
        return tuple(loops * turn + min(max(left - start, 0), turn) for turn, start in zip(turns, before, strict=True))

    def _growing(self, cluster: Cluster) -> int | None:
        turns = self._turns()
        begun = sum(bracket.size for bracket in self._ladder.brackets) % sum(turns)
        return next(index for index in range(len(turns)) if begun < sum(turns[: index + 1]))
