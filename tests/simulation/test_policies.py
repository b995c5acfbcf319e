"""Tests of the built-in policies under the same faults as the probes, with a few schedules each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import pytest

from hopyard.policy import ApplicationStat, Cluster, Data, JobState, Policy, RunEnd, RunMode
from hopyard_engine.core.events import ExperimentJoined, StreamCreated
from hopyard_policies.bandit import BanditPolicy
from hopyard_policies.default import DefaultPolicy
from hopyard_policies.halving import AshaPolicy, ShaPolicy
from hopyard_policies.median import MedianPolicy
from hopyard_policies.mop import MopPolicy
from hopyard_policies.pbt import PbtPolicy
from tests.asha_checker import Bracket, Judge, Violation, positions
from tests.simulation.probes import PROBES, Predict
from tests.simulation.schedule import Schedule, run


class Bandit(BanditPolicy):
    """A bandit policy with boundaries frequent enough to terminate some of these short jobs."""

    def __init__(self) -> None:
        super().__init__(evaluation_boundary=2, epsilon=0.2)


class Ends(Predict):
    """A policy that ends the experiment, with or without a winner, when two jobs have trained half-way."""

    def __init__(self) -> None:
        super().__init__()
        self.half_way: dict[str, None] = {}

    def application_stat(self, cluster: Cluster, stat: ApplicationStat) -> None:
        if 2 * stat.report.position >= cluster.jobs[stat.job].max_position:
            self.half_way[stat.job] = None
        if len(self.half_way) >= 2:
            cluster.end_experiment("two are half-way", winner=stat.job if cluster.rng.random() < 0.5 else "")


class Median(MedianPolicy):
    """A median policy with boundaries as frequent."""

    def __init__(self) -> None:
        super().__init__(evaluation_boundary=2, least_jobs=1)


class Pbt(PbtPolicy):
    """Population based training with small populations and short intervals, so that many members are replaced."""

    def __init__(self) -> None:
        super().__init__(population=3, interval=2, truncation=0.5)


class Asha(AshaPolicy):
    """Asynchronous halving with eta 2 in two brackets, so that short jobs are promoted repeatedly."""

    def __init__(self) -> None:
        super().__init__(eta=2, brackets=[0, 1])


class Sha(ShaPolicy):
    """Synchronous halving with the same rungs, and brackets small enough for the few jobs."""

    def __init__(self) -> None:
        super().__init__(eta=2, brackets=[0, 1], width=3)


class Mop(MopPolicy):
    """Model hopper parallelism that asserts that no job visits a partition twice in an epoch."""

    def __init__(self, **parameters: Any) -> None:
        super().__init__(**{"barrier": True, **parameters})
        self.trained: dict[str, dict[int, str]] = {}
        self.steps: list[tuple[str, ...]] = []

    def on_run_end(self, cluster: Cluster, run: RunEnd) -> None:
        unit = self._visits.running.get(run.job)
        if unit is not None and run.mode is RunMode.TRAIN:
            # A lost unit can return with its node.
            for position, name in enumerate(unit.partitions, unit.position):
                self.trained.setdefault(run.job, {}).setdefault(position, name)
        if unit is not None and run.mode is RunMode.TRAIN and run.resume_position > unit.position:
            end = unit.position + len(unit.partitions)
            assert run.resume_position == end
            units = self.trained.setdefault(run.job, {})
            units.update(enumerate(unit.partitions, unit.position))
            self.steps.append(unit.partitions)
            assert cluster.data is not None
            epoch = len(cluster.data.train)
            first = unit.position // epoch * epoch
            visited = [units[position] for position in range(first, end)]
            assert len(set(visited)) == len(visited), f"job {run.job} visited {visited} from {first} on"
        super().on_run_end(cluster, run)


class MopGangs(Mop):
    """Model hopper parallelism that trains on gangs whenever there are fewer jobs than slots."""

    made: ClassVar[list[MopGangs]] = []

    def __init__(self) -> None:
        super().__init__(barrier=False, gang_below=1)
        self.made.append(self)


ELASTIC = {"profile": {1: 8.0, 2: 4.4, 3: 3.2}, "pause": 0}


class InPairs(DefaultPolicy):
    """The default policy with elastic jobs on two or three slots."""

    def __init__(self) -> None:
        super().__init__(elastic={"profile": {2: 4.4, 3: 3.0}, "pause": 0})


class ElasticMedian(MedianPolicy):
    """A median policy with elastic jobs, which it terminates early."""

    def __init__(self) -> None:
        super().__init__(evaluation_boundary=2, least_jobs=1, elastic=ELASTIC)


class MeasuringAsha(AshaPolicy):
    """Asynchronous halving that profiles its elastic jobs."""

    def __init__(self) -> None:
        super().__init__(eta=2, brackets=[0, 1], elastic={"pause": 0, "efficiency": 0.05})


class Planned(Mop):
    """Model hopper parallelism with pilots and with plans that arrive late."""

    def __init__(self) -> None:
        super().__init__(scheduler="milp", pilot=True)


class Tuned(Mop):
    """Model hopper parallelism with a tuner. It terminates the jobs that the tuner leaves waiting, so that everything ends."""

    def _turn(self, cluster: Cluster, data: Data) -> None:
        super()._turn(cluster, data)
        coming = cluster.experiment.jobs_left or cluster.count(JobState.CREATING)
        if not coming and not self._search.busy:
            for job in cluster.idle_jobs():
                cluster.terminate_job(job.id)


class MopAsha(Tuned):
    """`mop` with asynchronous halving, promotions after one and two epochs."""

    def __init__(self) -> None:
        super().__init__(tuner={"name": "asha", "eta": 2, "r": 1}, barrier=False, configurations=3)


class MopHyperband(Tuned):
    """`mop` with Hyperband, whose brackets run in rounds."""

    def __init__(self) -> None:
        super().__init__(tuner={"name": "hyperband", "eta": 2})


class MopPbt(Tuned):
    """`mop` with population based training, forks after each epoch."""

    forks_newest = True

    def __init__(self) -> None:
        super().__init__(tuner={"name": "pbt", "population": 3, "interval": 1, "truncation": 0.5}, barrier=False)


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("name", "policy"),
    [
        ("bandit", Bandit),
        ("median", Median),
        ("pbt", Pbt),
        ("mop", Mop),
        ("mop planned", Planned),
        ("sha", Sha),
        ("mop with asha", MopAsha),
        ("mop with hyperband", MopHyperband),
        ("mop with pbt", MopPbt),
    ],
)
def test_built_in_policies_survive_all_faults(name: str, policy: type[Policy], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PROBES, name, policy)
    outcomes = [run(name, seed) for seed in range(10)]
    assert [f"{outcome.seed}: {outcome.error}" for outcome in outcomes if outcome.error] == []


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("name", "policy", "seeds"),
    [
        ("in pairs", InPairs, range(4, 9)),
        ("elastic median", ElasticMedian, range(26, 31)),
        ("measuring asha", MeasuringAsha, range(26, 31)),
    ],
)
def test_jobs_on_changing_numbers_of_slots_survive_all_faults(
    name: str, policy: type[Policy], seeds: Sequence[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(PROBES, name, policy)
    outcomes = [run(name, seed) for seed in seeds]
    assert [f"{outcome.seed}: {outcome.error}" for outcome in outcomes if outcome.error] == []


@pytest.mark.nightly
def test_models_on_gangs_survive_all_faults(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PROBES, "mop on gangs", MopGangs)
    outcomes = [run("mop on gangs", seed) for seed in range(12)]
    assert [f"{outcome.seed}: {outcome.error}" for outcome in outcomes if outcome.error] == []
    assert sum(len(step) > 1 for policy in MopGangs.made for step in policy.steps) > 20
    assert any(len(set(map(len, policy.steps))) > 1 for policy in MopGangs.made)  # Gangs and single slots in turn.


def test_experiments_that_their_policies_end_survive_all_faults(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PROBES, "ends", Ends)
    outcomes = [run("ends", seed) for seed in range(10)]
    assert [f"{outcome.seed}: {outcome.error}" for outcome in outcomes if outcome.error] == []


def test_every_promotion_under_all_faults_is_that_of_algorithm_2(monkeypatch: pytest.MonkeyPatch) -> None:
    """Check the journals of all searches outside groups, whose rungs are known, with the independent checker."""
    monkeypatch.setitem(PROBES, "asha", Asha)
    promotions = again = 0
    for seed in range(20):
        schedule = Schedule("asha", seed, 200, False)
        assert schedule.run().error == "", seed
        for stream, events in schedule.scheduler.journal.items():
            created = events[0]
            if not isinstance(created, StreamCreated) or any(isinstance(event, ExperimentJoined) for event in events):
                continue
            R, mode = created.settings.max_position, created.settings.mode
            judge = Judge([Bracket(positions(1, R, 2, s), 2, mode) for s in (0, 1)], "score")
            try:
                found = judge.follow(events)
            except Violation as violation:
                pytest.fail(f"asha:{seed} {stream}: {violation}")
            promotions, again = promotions + len(found.promotions), again + len(found.again)
    assert promotions > 100
    assert again > 20
