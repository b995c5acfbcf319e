"""Built-in policies under the same faults as the probes, in a few schedules each."""

import pytest

from hopyard.policy import ApplicationStat, Cluster, Policy, RunEnd, RunMode
from hopyard_policies.bandit import BanditPolicy
from hopyard_policies.median import MedianPolicy
from hopyard_policies.mop import MopPolicy
from hopyard_policies.pbt import PbtPolicy
from tests.simulation.probes import PROBES, Predict
from tests.simulation.schedule import run


class Bandit(BanditPolicy):
    """Judges often enough to end some of these short jobs."""

    def __init__(self) -> None:
        super().__init__(evaluation_boundary=2, epsilon=0.2)


class Ends(Predict):
    """Ends the experiment, with a winner or without one, once some jobs have trained half-way."""

    def __init__(self) -> None:
        super().__init__()
        self.half_way: dict[str, None] = {}

    def application_stat(self, cluster: Cluster, stat: ApplicationStat) -> None:
        if 2 * stat.report.position >= cluster.jobs[stat.job].max_position:
            self.half_way[stat.job] = None
        if len(self.half_way) >= 2:
            cluster.end_experiment("two are half-way", winner=stat.job if cluster.rng.random() < 0.5 else "")


class Median(MedianPolicy):
    """Judges as early as that."""

    def __init__(self) -> None:
        super().__init__(evaluation_boundary=2, least_jobs=1)


class Pbt(PbtPolicy):
    """Small populations with an interval as short, so that many members are replaced."""

    def __init__(self) -> None:
        super().__init__(population=3, interval=2, truncation=0.5)


class Mop(MopPolicy):
    """Holds every epoch that a job has been through against what it was trained on, and when."""

    def __init__(self) -> None:
        super().__init__(barrier=True)
        self.trained: dict[str, dict[int, str]] = {}

    def on_run_end(self, cluster: Cluster, run: RunEnd) -> None:
        unit = self._visits.running.get(run.job)
        if unit is not None and run.mode is RunMode.TRAIN and run.resume_position > unit.position:
            assert run.resume_position == unit.position + 1
            units = self.trained.setdefault(run.job, {})
            units[unit.position] = unit.partition
            assert cluster.data is not None
            epoch = len(cluster.data.train)
            first = unit.position // epoch * epoch
            visited = [units[position] for position in range(first, unit.position + 1)]
            assert len(set(visited)) == len(visited), f"job {run.job} visited {visited} from {first} on"
        super().on_run_end(cluster, run)


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.parametrize(("name", "policy"), [("bandit", Bandit), ("median", Median), ("pbt", Pbt), ("mop", Mop)])
def test_built_in_policies_survive_all_faults(name: str, policy: type[Policy], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PROBES, name, policy)
    outcomes = [run(name, seed) for seed in range(20)]
    assert [f"{outcome.seed}: {outcome.error}" for outcome in outcomes if outcome.error] == []


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_experiments_that_their_policies_end_survive_all_faults(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PROBES, "ends", Ends)
    outcomes = [run("ends", seed) for seed in range(20)]
    assert [f"{outcome.seed}: {outcome.error}" for outcome in outcomes if outcome.error] == []
