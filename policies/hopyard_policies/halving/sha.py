"""Synchronous successive halving: `sha`, `hyperband` (cycles through brackets) and `bohb` (with a learning generator)."""

from __future__ import annotations

import abc
from collections.abc import Mapping, Sequence
from typing import Any, Final

from hopyard.policy import ENDLESS, Cluster, JobState, Verdict
from hopyard.policy.vocabulary import TerminateJob
from hopyard_policies.base.parameters import need_whole
from hopyard_policies.halving.bracket import Bracket, SynchronousBracket
from hopyard_policies.halving.brackets import hyperband, needed
from hopyard_policies.halving.policy import HalvingPolicy


class SynchronousPolicy(HalvingPolicy):
    """Base class of policies with synchronous brackets, which start one after the other (Algorithm 1 of the ASHA paper).

    Subclasses define the number of configurations of each bracket.
    """

    _rates: Sequence[int] = ()
    """The early-stopping rates of the brackets, used cyclically."""
    _open_ones: tuple[SynchronousBracket, ...] = ()
    _spared: tuple[str, ...] = ()
    """Jobs to terminate later, because they are HELD or about to be."""

    @abc.abstractmethod
    def _size(self, s: int) -> int:
        """Return the number of configurations of a full bracket that starts at rung s of the ladder."""

    def _opened(self, bracket: SynchronousBracket) -> None:
        """Note that a bracket was opened. By default nothing is done."""

    def _set_up(self) -> None:
        self._rates = self._ladder.rates(self._standard)
        # Decided brackets are decided again when jobs may train further.
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
            self._opened(newest)
            self._open_ones = (*self._open_ones, newest)
        return len(self._ladder.brackets) - 1

    def _settle(self, cluster: Cluster) -> None:
        """Decide rungs in which all results are present: queue the promoted jobs to be trained further, terminate the others."""
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
        """Terminate a job. A job that is HELD (paused by a person) or about to be is terminated after a person has resumed it."""
        state = cluster.jobs[job].state
        others = tuple(other for other in self._spared if other != job)
        # If the command was refused while the job is suspending, the job will be HELD.
        if state is JobState.HELD or (state is JobState.SUSPENDING and job in self._spared):
            self._spared = (*others, job)
            return
        self._spared = others
        if not state.ended:
            cluster.terminate_job(job)

    def on_refused(self, cluster: Cluster, verdict: Verdict) -> None:
        """Put a job whose start was refused back into the queue, and delete the record of a refused change of the end of a run.

        A job whose termination was refused is terminated in a later up-call, when it is not HELD.
        """
        super().on_refused(cluster, verdict)
        if isinstance(verdict.command, TerminateJob):
            self._spared = (*self._spared, verdict.command.job)

    def _last(self, cluster: Cluster) -> bool:
        """Return whether the experiment will get no further configuration, and every idle job is in a bracket."""
        terms = cluster.experiment
        if not terms.running or terms.jobs_left or cluster.count(JobState.CREATING):
            return False
        return all(self._ladder.knows(job.id) for job in cluster.idle_jobs())

    def _width(self, bracket: int, rung: int) -> int | None:
        found: Bracket = self._ladder.brackets[bracket]
        return found.width // found.eta**rung if isinstance(found, SynchronousBracket) else None


_NO_LIMIT: Final = ENDLESS // 2
"""An experiment with at least so many configurations has no limit on jobs; `jobs_left` is then about `ENDLESS`."""


class ShaPolicy(SynchronousPolicy):
    """SHA, Algorithm 1 of the ASHA paper, on several slots: a rung is decided when all its configurations have reported.

    One bracket has all n configurations of the experiment. Of a rung with k configurations the best floor(k / eta) are promoted
    together, and the others are terminated. While the bracket waits for results, slots that it cannot use are left to other
    experiments. If the experiment is extended by more jobs, they join the bracket as long as its bottom rung is not decided; later ones
    are another bracket.

    With `width`, brackets have so many configurations each. When a slot would be idle because all brackets wait for results, another
    bracket starts (ASHA paper, section 3.1, after BOHB), until the experiment has all its jobs; the last bracket has the rest of them.
    The same holds, with the default width below, if `brackets` has several rates or if the number of jobs is not limited.

    A rung waits until a lost run has been repeated. A failed job has the worst result at once. A rung does not wait for HELD jobs; if
    they report after the decision, they are not promoted.

    Args:
        eta: The reduction factor, at least 2.
        rungs: The maximum number of rungs, in 1..64, or the list of their positions, the last one at R. A number determines
            r = R / eta^(rungs - 1), at least 1. None: 5. Not with `r`.
        r: The least training of a configuration in bracket 0, at least 1, in the experiment's unit; None: follows from
            `rungs`.
        brackets: Early-stopping rates, used cyclically in ascending order: bracket s starts at rung s of the ladder.
            None: 0.
        width: The number of configurations of a bracket, at least 1; None: all n, or, with several brackets or without a limit on
            jobs, the least with which one certainly trains to R, eta^(number of the bracket's rungs - 1).
        ahead: Number of jobs created in advance of free slots, in 0..10000.
        elastic: How jobs use several slots each (`hopyard_policies.elastic`); None: one slot for each job.

    Raises:
        ValueError: An argument is out of range, or two exclude each other.
    """

    def __init__(
        self,
        eta: int = 4,
        rungs: int | Sequence[int] | None = None,
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
        self._whole: SynchronousBracket | None = None
        """The newest bracket that was opened for all configurations."""

    def _standard(self, rungs: int) -> tuple[int, ...]:
        return (0,)

    def _set_up(self) -> None:
        super()._set_up()
        if self._whole is not None and self._takes_all():
            self._whole.widen(self._whole.size + self._left())

    def _size(self, s: int) -> int:
        if self._takes_all():
            return max(self._left(), 1)
        return self._given_width or needed(len(self._ladder.positions) - s, self._ladder.eta)

    def _opened(self, bracket: SynchronousBracket) -> None:
        self._whole = bracket if self._takes_all() else None

    def _takes_all(self) -> bool:
        """Return whether a bracket has all configurations that no earlier bracket has."""
        return self._given_width is None and len(self._rates) == 1 and self._configurations < _NO_LIMIT

    def _left(self) -> int:
        """Return the number of configurations of the experiment that are in no bracket."""
        return self._configurations - sum(bracket.size for bracket in self._ladder.brackets)


class HyperbandPolicy(SynchronousPolicy):
    """Hyperband: cycles through brackets of SHA, from the earliest stopping to no stopping.

    With m rungs, bracket s gets ceil(m / (m - s) * eta^(m - 1 - s)) configurations, so that all brackets train about
    equally much. A bracket starts when a slot would be idle, so several may be active at a time.

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

    def _size(self, s: int) -> int:
        return hyperband(len(self._ladder.positions), self._ladder.eta)[s]


class BohbPolicy(ShaPolicy):
    """BOHB: `sha` with a generator that learns from its results, `tpe` unless the experiment names another.

    Brackets have `width` configurations each: in a bracket of all n, nearly all configurations would be proposed before the first one
    ends, and the generator could learn from none. When a slot would be idle because all brackets wait for results, another bracket
    starts. By default all brackets have the early-stopping rate 0, as with `sha`; the ASHA paper also runs SHA and BOHB with the same
    rate. With a list of `brackets` the policy cycles through these brackets, like Hyperband.

    Args:
        eta: The reduction factor, at least 2: one of eta results is promoted.
        rungs: The maximum number of rungs, in 1..64, or the list of their positions, the last one at the maximum position R. A
            number determines r = R / eta^(rungs - 1), at least 1. None: 5. Not with `r`.
        r: The least training of a configuration in bracket 0, at least 1, in the experiment's unit; None: follows from `rungs`.
        brackets: Early-stopping rates, used cyclically in ascending order: bracket s starts at rung s of the ladder. None: 0.
        width: The number of configurations of a bracket, at least 1; None: the least with which one certainly trains to R.
        ahead: Number of jobs created in advance of free slots, in 0..10000.
        elastic: How jobs use several slots each (`hopyard_policies.elastic`); None: one slot for each job.

    Raises:
        ValueError: An argument is out of range, or two exclude each other.
    """

    generator = "tpe"

    def _takes_all(self) -> bool:
        return False
