"""Synchronous successive halving: `sha`, `hyperband`, which loops through its brackets, and `bohb`, which learns what to try."""

from __future__ import annotations

import abc
from collections.abc import Mapping, Sequence
from typing import Any

from hopyard.policy import Cluster, JobState, Verdict
from hopyard.policy.vocabulary import TerminateJob
from hopyard_policies.base.parameters import need_whole
from hopyard_policies.halving.bracket import Bracket, SynchronousBracket
from hopyard_policies.halving.brackets import hyperband, needed
from hopyard_policies.halving.policy import HalvingPolicy


class SynchronousPolicy(HalvingPolicy):
    """Algorithm 1 of the ASHA paper in brackets that begin one after the other. How wide they are, subclasses say."""

    _rates: Sequence[int] = ()
    """The early-stopping rates of the brackets that begin one after the other, again and again."""
    _open_ones: tuple[SynchronousBracket, ...] = ()
    _spared: tuple[str, ...] = ()
    """Jobs that are to end and could not be ended, since a person has paused them."""

    @abc.abstractmethod
    def _size(self, s: int) -> int:
        """Configurations of a whole bracket."""

    def _set_up(self) -> None:
        self._rates = self._ladder.rates(self._standard)
        # Brackets that are decided are decided again when jobs may train further.
        self._open_ones = tuple(bracket for bracket in self._ladder.brackets if isinstance(bracket, SynchronousBracket))

    def _beginnings(self) -> tuple[Sequence[int], Sequence[int]]:
        left, widths, rungs = self._configurations, [], []
        for s in self._rates:
            widths.append(min(self._size(s), left))
            rungs.append(len(self._ladder.positions) - s)
            left -= widths[-1]
        return widths, rungs

    def _growing(self, cluster: Cluster) -> int:
        newest = self._open_ones[-1] if self._open_ones else None
        if newest is None or newest.size >= newest.width:
            ladder = self._ladder
            s = self._rates[len(ladder.brackets) % len(self._rates)]
            newest = SynchronousBracket(ladder.eta, len(ladder.positions) - s, self._size(s))
            ladder.open(newest, s)
            self._open_ones = (*self._open_ones, newest)
        return len(self._ladder.brackets) - 1

    def _settle(self, cluster: Cluster) -> None:
        """Decides the rungs that are complete: who goes on is queued, and the others end."""
        for job in self._spared:
            self._end(cluster, job)
        last = self._last(cluster)
        for bracket in self._open_ones:
            if last:
                bracket.narrow()
            if cluster.count(JobState.HELD):
                for job in [job for rung in bracket.rungs for job in rung.awaited]:
                    if cluster.jobs[job].state is JobState.HELD:
                        bracket.set_aside(job)
            while (decision := bracket.decide()) is not None:
                winners, losers = decision
                self._queue.update(dict.fromkeys(winners))
                self._spared = tuple(job for job in self._spared if job not in winners)
                for job in losers:
                    if not self._completes(cluster.jobs[job]):
                        self._end(cluster, job)
        self._open_ones = tuple(bracket for bracket in self._open_ones if not bracket.decided)

    def _end(self, cluster: Cluster, job: str) -> None:
        """Ends a job, or has it ended when a person lets it go on."""
        state = cluster.jobs[job].state
        others = tuple(other for other in self._spared if other != job)
        # One that was refused while it left its machine is on its way to be paused.
        if state is JobState.HELD or (state is JobState.SUSPENDING and job in self._spared):
            self._spared = (*others, job)
            return
        self._spared = others
        if not state.ended:
            cluster.terminate_job(job)

    def on_refused(self, cluster: Cluster, verdict: Verdict) -> None:
        """See `HalvingPolicy.on_refused`; a job that could not be ended is ended later."""
        super().on_refused(cluster, verdict)
        if isinstance(verdict.command, TerminateJob):
            self._spared = (*self._spared, verdict.command.job)

    def _last(self, cluster: Cluster) -> bool:
        """Whether no further configuration can come."""
        terms = cluster.experiment
        if not terms.running or terms.jobs_left or cluster.count(JobState.CREATING):
            return False
        return all(self._ladder.knows(job.id) for job in cluster.idle_jobs())

    def _width(self, bracket: int, rung: int) -> int | None:
        found: Bracket = self._ladder.brackets[bracket]
        return found.width // found.eta**rung if isinstance(found, SynchronousBracket) else None


class ShaPolicy(SynchronousPolicy):
    """SHA, Algorithm 1 of the ASHA paper, on several machines: a rung is decided when all its configurations have reported.

    A bracket begins with `width` configurations; of each rung the best floor(k / eta) of k go on together, and the others end. When a
    machine would idle, since all brackets wait for results, another bracket begins (as in BOHB), until the experiment has all its
    jobs; the last bracket has what is left of them. A rung waits for lost runs until they have reported, for failed jobs not
    at all: these are worst. Nor does it wait for jobs that a person has paused: what they report later comes too late.

    Args:
        eta: The reduction factor, at least 2.
        rungs: The most rungs, in 1..64: so r is R / eta^(rungs - 1), and at least 1. None: 5. Not with `r`.
        r: What a configuration of bracket 0 trains at least, at least 1, in the experiment's unit; None: it follows from `rungs`.
        brackets: By early-stopping rate, looped through in rising order: bracket s begins at rung s of the ladder. None: 0.
        width: Configurations of a bracket, at least 1; None: as many as bring one to R, eta^(its rungs - 1).
        ahead: Jobs created beyond those that have a machine, in 0..10000.
        elastic: As `HalvingPolicy` has it.

    Raises:
        ValueError: An argument is out of range, or two do not go together.
    """

    def __init__(
        self,
        eta: int = 4,
        rungs: int | None = None,
        r: int | None = None,
        brackets: Sequence[int] | None = None,
        width: int | None = None,
        ahead: int = 2,
        elastic: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(eta=eta, rungs=rungs, r=r, brackets=brackets, ahead=ahead, elastic=elastic)
        if width is not None:
            need_whole("width", width)
        self._given_width = width

    def _standard(self, rungs: int) -> tuple[int, ...]:
        return (0,)

    def _size(self, s: int) -> int:
        return self._given_width or needed(len(self._ladder.positions) - s, self._ladder.eta)


class HyperbandPolicy(SynchronousPolicy):
    """Hyperband: loops through brackets of SHA, from the one that stops earliest to the one that does not stop any.

    A bracket s of m rungs' ladder gets ceil(m / (m - s) * eta^(m - 1 - s)) configurations, so that all train about as much in
    all. A bracket begins when a machine would idle, so several are under way at a time.

    Its parameters are those of `HalvingPolicy`; without `brackets` it loops through all of them.
    """

    def _standard(self, rungs: int) -> tuple[int, ...]:
        return tuple(range(rungs))

    def _size(self, s: int) -> int:
        return hyperband(len(self._ladder.positions), self._ladder.eta)[s]


class BohbPolicy(ShaPolicy):
    """BOHB: `sha` with a generator that learns from its results, `tpe` if the experiment names none.

    The ASHA paper runs it like this, with the early-stopping rate of SHA. A list of `brackets` makes it loop as Hyperband does.
    Its parameters are those of `sha`.
    """

    generator = "tpe"
