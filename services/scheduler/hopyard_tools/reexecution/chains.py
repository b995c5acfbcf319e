"""Determines which runs of a journal must be repeated: chains of runs, each starting from its predecessor's snapshot.

A lost run counts up to the position from which its job continued; the training after it was repeated, and the journal
contains that too. The resulting history of a model has every unit once, in the order in which it was trained.
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
    """The part of a training run that counts.

    Attributes:
        run: The recorded run.
        end: The position up to which it counts.
        saves: Earlier positions at which it saves, because another run started there or the recorded run saved there.
    """

    run: RecordedRun
    end: int
    saves: set[int] = field(default_factory=set)


@dataclass(eq=False, slots=True)
class TrainingChain:
    """Stretches of one configuration, each starting where the previous one ended, and evaluations between them.

    Attributes:
        number: Its index among all chains, from 0.
        job: The recorded job.
        hyperparameters: Its configuration.
        origin: The chain and the position of the snapshot that it starts from; None: it starts from scratch.
        stretches: The training runs.
        evaluations: The evaluation runs, each at its position.
    """

    number: int
    job: str
    hyperparameters: Hyperparameters
    origin: tuple[int, int] | None
    stretches: list[TrainedStretch] = field(default_factory=list)
    evaluations: list[RecordedRun] = field(default_factory=list)

    @property
    def positions(self) -> int:
        """The number of trained positions."""
        return sum(stretch.end - stretch.run.start for stretch in self.stretches)

    def plain(self) -> dict[str, Any]:
        """Return what `recorded_policy.RecordedPolicy` needs, as JSON values."""
        return {
            "hyperparameters": dict(self.hyperparameters),
            "origin": self.origin,
            "stretches": [
                [one.run.number, one.run.start, one.end, sorted(one.saves), one.run.inputs] for one in self.stretches
            ],
            "evaluations": [[one.number, one.start, one.parts, one.inputs] for one in self.evaluations],
        }


def chains_of(runs: Sequence[RecordedRun], every: int, jobs: Collection[str] | None = None) -> list[TrainingChain]:
    """Return the chains to repeat.

    Args:
        runs: All recorded runs, in the order of their starts.
        every: Units between two automatic snapshots.
        jobs: Only these jobs, with the training that they started from; None: all.

    Returns:
        The chains in the order of their starts; a chain comes after the one that it starts from.
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
    """Return the position up to which each run counts: where other runs or its own job continued, or its last position."""
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
    """Return the chain that a run continues: one with the same configuration whose last stretch ends where the run starts."""
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
    """Return the positions at which a run saved although no automatic snapshot was due."""
    found, last = set(), run.start
    for position in sorted(run.snapshots):
        if position < end and (not every or position - last < every):
            found.add(position)
        last = position
    return found
