"""Determines which training of a journal must be repeated, as chains of runs.

Each run of a chain starts from a snapshot of the preceding run. A lost run is used up to the position from which its
job continued. Its later training was repeated by another run, which the journal contains too. The resulting history of
a model has every unit of training once, in the order in which it was trained.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hopyard.policy.vocabulary import Hyperparameters, RunMode
from hopyard_tools.reexecution.extract import RecordedRun


@dataclass(eq=False, slots=True)
class TrainedStretch:
    """The part of a training run that must be repeated.

    Attributes:
        run: The recorded run.
        end: The position at which the part ends.
        saves: Earlier positions at which the repetition saves a snapshot, because another run started there or because
            the recorded run saved there.
    """

    run: RecordedRun
    end: int
    saves: set[int] = field(default_factory=set)


@dataclass(eq=False, slots=True)
class TrainingChain:
    """Training of one configuration in consecutive runs, and evaluations between them.

    A stretch is the part of a run that is repeated. Each stretch starts at the position where the preceding one ends.

    Attributes:
        number: The index among all chains, from 0.
        job: The id of the recorded job.
        hyperparameters: The configuration of the job.
        origin: The number of another chain and the position of its snapshot from which this chain starts; None: it
            starts from scratch.
        stretches: The training, in order.
        evaluations: The evaluation runs; each evaluates the model at its start position.
    """

    number: int
    job: str
    hyperparameters: Hyperparameters
    origin: tuple[int, int] | None
    stretches: list[TrainedStretch] = field(default_factory=list)
    evaluations: list[RecordedRun] = field(default_factory=list)

    @property
    def positions(self) -> int:
        """The number of positions that the chain trains."""
        return sum(stretch.end - stretch.run.start for stretch in self.stretches)

    def plain(self) -> dict[str, Any]:
        """Return the input that `recorded_policy.RecordedPolicy` needs for this chain, as JSON values."""
        return {
            "hyperparameters": dict(self.hyperparameters),
            "origin": self.origin,
            "stretches": [
                [one.run.number, one.run.start, one.end, sorted(one.saves), one.run.inputs] for one in self.stretches
            ],
            "evaluations": [[one.number, one.start, one.parts, one.inputs] for one in self.evaluations],
        }


def chains_of(runs: Sequence[RecordedRun], every: int, jobs: Collection[str] | None = None) -> list[TrainingChain]:
    """Return the chains to repeat: sequences of runs, each started from a snapshot of the preceding run.

    Args:
        runs: All recorded runs, in the order of their starts.
        every: Positions between two automatic snapshots of a run; 0: there are no automatic snapshots.
        jobs: Ids of the jobs to repeat, including the training of other jobs from which they started; None: all jobs.

    Returns:
        The chains in the order of their starts. A chain comes after the chain from which it starts.
    """
    ends = _ends(runs, jobs)
    chains: list[TrainingChain] = []
    places: dict[RecordedRun, tuple[TrainingChain, TrainedStretch]] = {}
    for run in runs:
        if run not in ends:
            continue
        chain = _goes_on(run, places)
        if chain is None:
            chain = TrainingChain(len(chains), run.job, run.hyperparameters, _origin(run, places))
            chains.append(chain)
        if run.mode is RunMode.EVALUATE:
            chain.evaluations.append(run)
        else:
            stretch = TrainedStretch(run, ends[run], _explicit(run, ends[run], every))
            chain.stretches.append(stretch)
            places[run] = chain, stretch
    return chains


def _ends(runs: Sequence[RecordedRun], jobs: Collection[str] | None) -> dict[RecordedRun, int]:
    """Return the runs to repeat, each with the position up to which it must be repeated.

    The position is the higher one of two: the highest position from which a repeated run started with a snapshot of
    this run, and, for the given jobs, the position up to which no later run of the job repeated the training of this run.

    Args:
        runs: All recorded runs, in the order of their starts.
        jobs: Ids of the jobs to repeat; None: all jobs.
    """
    needed: defaultdict[RecordedRun, int] = defaultdict(int)
    resumed: dict[str, int] = {}  # The lowest position from which a job trained again later.
    ends: dict[RecordedRun, int] = {}
    for run in reversed(runs):  # A run that continues another comes after it.
        if run.mode is RunMode.PROFILE:
            continue  # Profiling changes no weights.
        wanted = jobs is None or run.job in jobs
        if run.mode is RunMode.EVALUATE:
            counts, end = wanted and bool(run.reports), run.start
        else:
            own = min(run.reached, resumed.get(run.job, run.reached)) if wanted else run.start
            resumed[run.job] = min(run.start, resumed.get(run.job, run.start))
            end = max(own, needed[run])
            counts = end > run.start
        if counts:
            ends[run] = end
            if run.source is not None:
                needed[run.source] = max(needed[run.source], run.start)
    return ends


def _goes_on(
    run: RecordedRun, places: Mapping[RecordedRun, tuple[TrainingChain, TrainedStretch]]
) -> TrainingChain | None:
    """Return the chain to which a run belongs; None: the run begins a new chain.

    It is the chain of the same job and configuration whose last stretch ends where the run starts.

    Args:
        run: The run.
        places: The chain and the stretch of each earlier run.
    """
    if run.source is None:
        return None
    chain, stretch = places[run.source]
    last = chain.stretches[-1] is stretch and stretch.end == run.start
    return chain if last and chain.job == run.job and chain.hyperparameters == run.hyperparameters else None


def _origin(
    run: RecordedRun, places: Mapping[RecordedRun, tuple[TrainingChain, TrainedStretch]]
) -> tuple[int, int] | None:
    if run.source is None:
        return None
    chain, stretch = places[run.source]
    if run.start < stretch.end:
        stretch.saves.add(run.start)
    return chain.number, run.start


def _explicit(run: RecordedRun, end: int, every: int) -> set[int]:
    """Return the positions before `end` at which a run saved a snapshot although no automatic snapshot was due.

    Args:
        run: The run.
        end: The position up to which it is repeated.
        every: Positions between two automatic snapshots of a run; 0: there are no automatic snapshots.
    """
    found, last = set(), run.start
    for position in sorted(run.snapshots):
        if position < end and (not every or position - last < every):
            found.add(position)
        last = position
    return found
