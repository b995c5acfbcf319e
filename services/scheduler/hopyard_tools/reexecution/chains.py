"""What of a journal counts and is to be trained again: chains of runs, each from the snapshot that the one before has left.

A run that was lost counts up to where its job went on from; what came after was trained again, and the journal has that, too. So the
history that a model carries has every unit once, in the order in which it saw them.
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
        run: What was recorded.
        end: Up to where it counts.
        saves: Positions before that at which it saves, because somebody went on from there or because the recorded one did.
    """

    run: RecordedRun
    end: int
    saves: set[int] = field(default_factory=set)


@dataclass(eq=False, slots=True)
class TrainingChain:
    """Stretches of one configuration, each of which goes on where the one before ended, and evaluations between them.

    Attributes:
        number: Its place among all chains, from 0.
        job: The job that it was.
        hyperparameters: What it trains with.
        origin: The chain, and the position, whose snapshot it begins from; None: it begins from nothing.
        stretches: What it trains.
        evaluations: What it evaluates, each at the position where it stands then.
    """

    number: int
    job: str
    hyperparameters: Hyperparameters
    origin: tuple[int, int] | None
    stretches: list[TrainedStretch] = field(default_factory=list)
    evaluations: list[RecordedRun] = field(default_factory=list)

    @property
    def positions(self) -> int:
        """How many positions it trains."""
        return sum(stretch.end - stretch.run.start for stretch in self.stretches)

    def plain(self) -> dict[str, Any]:
        """What `again.Again` needs of it, as JSON has it."""
        return {
            "hyperparameters": dict(self.hyperparameters),
            "origin": self.origin,
            "stretches": [
                [one.run.number, one.run.start, one.end, sorted(one.saves), one.run.inputs] for one in self.stretches
            ],
            "evaluations": [[one.number, one.start, one.parts, one.inputs] for one in self.evaluations],
        }


def chains_of(runs: Sequence[RecordedRun], every: int, jobs: Collection[str] | None = None) -> list[TrainingChain]:
    """What is to be trained again.

    Args:
        runs: All that there were, in the order of their starts.
        every: Units between two snapshots that runs take by themselves.
        jobs: Only these, with what they went on from; None: all.

    Returns:
        The chains, in the order in which they began; a chain comes after the one that it goes on from.
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
    """Up to where each run counts that does: to where others went on from it, or where its job did, or as far as it came."""
    needed: defaultdict[RecordedRun, int] = defaultdict(int)
    resumed: dict[str, int] = {}  # The least position from which a job trained on later.
    ends: dict[RecordedRun, int] = {}
    for run in reversed(runs):  # Whoever goes on from a run comes after it.
        if run.mode is RunMode.PROFILE:
            continue  # What it trained is in no weights.
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
    """The chain that a run goes on with: the one whose last stretch ends just there, of the same configuration."""
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
    """Where a run saved on its way without being due."""
    found, last = set(), run.start
    for position in sorted(run.snapshots):
        if position < end and (not every or position - last < every):
            found.add(position)
        last = position
    return found
