"""Asynchronous successive halving: `asha`, and `async_hyperband`, which cycles through its brackets."""

from __future__ import annotations

import abc
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hopyard.policy import Cluster, JobState
from hopyard_policies.halving.bracket import Bracket
from hopyard_policies.halving.brackets import divided, hyperband, standard
from hopyard_policies.halving.policy import HalvingPolicy


class AsynchronousPolicy(HalvingPolicy):
    """Base class of policies with several asynchronous brackets (Algorithm 2 of the ASHA paper).

    Subclasses define the number of configurations of each bracket, and which bracket gets the next new configuration.
    """

    _widths: tuple[int, ...] = ()
    """Total number of configurations of each bracket."""

    @abc.abstractmethod
    def _divided(self) -> tuple[int, ...]:
        """Return the total number of configurations that each bracket will get."""

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
    """ASHA (Algorithm 2) with the defaults of section 5.1 of its paper: it needs no settings beyond n and R.

    n is the experiment's number of jobs, R its maximum position. A free slot gets the best configuration that may be
    promoted. Brackets are checked in order, and in each bracket the rungs from the top down. Of a rung with k results
    the best floor(k / eta) may be promoted. If no bracket has a promotion, a new configuration starts at the bottom of
    the bracket that has the least fraction of its part of n. When all n have started, slots without a promotion are left to
    other experiments.

    The rungs go down from R by the factor eta: R, R / eta, R / eta^2, ... not below r. The paper counts up from r; see
    `hopyard.policy.rungs.rung_positions` for the difference. With the infinite horizon, R does not determine the rungs: they start
    at `r` (1 by default) and grow by the factor eta as long as they are not above R.

    Args:
        eta: The reduction factor, at least 2.
        rungs: The maximum number of rungs, in 1..64, or the list of their positions, the last one at R. A number determines
            r = R / eta^(rungs - 1), at least 1. None: 5. Not with `r` or the infinite horizon.
        r: The least training of a configuration in bracket 0, at least 1, in the experiment's unit; None: follows from
            `rungs`.
        brackets: Early-stopping rates: bracket s starts at rung s of the ladder. None: 0, and 1 and 2
            if their brackets have at least two rungs.
        infinite: Use the infinite horizon, with bracket 0 alone by default.
        ahead: Number of jobs created in advance of free slots, in 0..10000.
        elastic: How jobs use several slots each (`hopyard_policies.elastic`); jobs with the most positions left to
            their rungs get most. None: one slot for each job.

    Raises:
        ValueError: An argument is out of range, or two exclude each other.
    """

    def __init__(
        self,
        eta: int = 4,
        rungs: int | Sequence[int] | None = None,
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
        self._ladder.infinite = infinite

    def _beginnings(self) -> tuple[Sequence[int], Sequence[int]]:
        widths, rungs = super()._beginnings()
        return widths, [] if self._infinite else rungs

    def _standard(self, rungs: int) -> tuple[int, ...]:
        return standard(rungs)

    def _divided(self) -> tuple[int, ...]:
        begun = [bracket.size for bracket in self._ladder.brackets]
        return divided(self._configurations, self._ladder.lengths, self._ladder.eta, begun)

    def _growing(self, cluster: Cluster) -> int | None:
        """Return the index of the bracket for the next new configuration; None: all brackets are full.

        It is the bracket with the smallest (size + 1) / width, the first of several. The size is the number of configurations that
        the bracket has, the width is the number that it will have in total.
        """
        sizes = [bracket.size for bracket in self._ladder.brackets]
        room = [((sizes[i] + 1) / width, i) for i, width in enumerate(self._widths) if sizes[i] < width]
        return min(room)[1] if room else None


class AsyncHyperbandPolicy(AsynchronousPolicy):
    """Asynchronous Hyperband: cycles through brackets of ASHA, from the earliest stopping to no stopping.

    With m rungs, bracket s starts at rung s of the ladder. New configurations are added to one bracket at a time, to bracket s
    ceil(m / (m - s) * eta^(m - 1 - s)) of them, so that all brackets train about equally much. Then the next bracket gets new
    configurations. After the last one the first gets more, in addition to those that it has. Promotions in any bracket come
    before new configurations.

    Args:
        eta: The reduction factor, at least 2: one of eta results is promoted.
        rungs: The maximum number of rungs, in 1..64, or the list of their positions, the last one at the maximum position R. A
            number determines r = R / eta^(rungs - 1), at least 1. None: 5. Not with `r`.
        r: The least training of a configuration in bracket 0, at least 1, in the experiment's unit; None: follows from `rungs`.
        brackets: The early-stopping rates s of the brackets in the cycle; None: all, 0..m - 1.
        ahead: Number of jobs created in advance of free slots, in 0..10000.
        elastic: How jobs use several slots each (`hopyard_policies.elastic`); None: one slot for each job.

    Raises:
        ValueError: An argument is out of range, or two exclude each other.
    """

    def _standard(self, rungs: int) -> tuple[int, ...]:
        return tuple(range(rungs))

    def _turns(self) -> list[int]:
        """Return how many new configurations each bracket gets in one cycle through the brackets."""
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
