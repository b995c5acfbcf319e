"""Tests of small searches whose times were computed by hand: two slots, four jobs, one kind of cost at a time."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from hopyard.errors import InvalidInput
from hopyard.policy import CONTINUE, Cluster, Decision, IterationFinish, Policy
from hopyard.traces import Trace
from hopyard_policies.bandit import BanditPolicy
from hopyard_simulator import Costs, Faults, Fleet, Result, SimulationError, TraceWorkload, simulate
from tests.unit.simulator.policies import Turns

pytestmark = pytest.mark.quick


def trace(job: str, values: Sequence[float], seconds: float = 1.0) -> Trace:
    return Trace(job, {"x": int(job)}, "accuracy", "max", tuple(values), (seconds,) * len(values))


FOUR = [
    trace("1", (0.1, 0.2, 0.3), 1.0),
    trace("2", (0.1, 0.4, 0.9), 2.0),
    trace("3", (0.5, 0.6, 0.7), 1.0),
    trace("4", (0.2, 0.2, 0.2), 2.0),
]


def run(policy: Any = "default", **options: Any) -> Result:
    return simulate(TraceWorkload(FOUR), policy, slots=2, details=True, **options)


def intervals(result: Result) -> dict[str, list[tuple[str, float, float]]]:
    """Return (job, start, end) of the runs on each slot."""
    found: dict[str, list[tuple[str, float, float]]] = {}
    for one in sorted(result.runs or (), key=lambda r: (r.slot, r.start)):
        found.setdefault(one.slot, []).append((one.job, one.start, one.end))
    return found


def test_nothing_costs_anything() -> None:
    # Jobs 2 and 3 both end at 6.0. Events at one time happen in the order in which they were planned: that of job 2 first, at 4.0.
    result = run()
    assert intervals(result) == {
        "node1/0": [("1", 0.0, 3.0), ("3", 3.0, 6.0)],
        "node2/0": [("2", 0.0, 6.0), ("4", 6.0, 12.0)],
    }
    assert (result.time, result.job_seconds, result.iterations) == (12.0, 18.0, 12)
    assert result.utilisation == 18 / 24
    assert (result.best, result.best_job) == (0.9, "2")
    assert (result.first_at_R, result.jobs_at_R) == (3.0, ((3.0, 1), (6.0, 2), (6.0, 3), (12.0, 4)))
    assert (result.jobs_started, result.jobs_terminated, result.suspends, result.promotions) == (4, 0, 0, 0)


def test_starts_cost() -> None:
    result = run(costs=Costs(start=0.5))
    assert intervals(result) == {
        "node1/0": [("1", 0.0, 3.5), ("3", 3.5, 7.0)],
        "node2/0": [("2", 0.0, 6.5), ("4", 6.5, 13.0)],
    }


def test_snapshots_and_leaving_cost() -> None:
    # As in a live search, each position is saved (0.25 s). A complete job leaves its slot (0.5 s).
    costs = Costs(snapshot=0.25, suspend=0.5)
    assert intervals(run(costs=costs)) == {
        "node1/0": [("1", 0.0, 4.25), ("3", 4.25, 8.5)],
        "node2/0": [("2", 0.0, 7.25), ("4", 7.25, 14.5)],
    }
    assert intervals(run(costs=costs, parameters={"snapshot_every": 0})) == {
        "node1/0": [("1", 0.0, 3.75), ("3", 3.75, 7.5)],
        "node2/0": [("2", 0.0, 6.75), ("4", 6.75, 13.5)],
    }


def test_a_promotion_in_memory_costs_a_snapshot() -> None:
    """Check two jobs with rungs at 1 and 2 on one slot. Job 2 is the better one, and is promoted in memory when it reports at 1."""
    traces = [trace("1", (0.1, 0.2)), trace("2", (0.5, 0.6))]
    given = {"eta": 2, "brackets": [0], "snapshot_every": 0}
    result = simulate(
        TraceWorkload(traces), "asha", slots=1, details=True, costs=Costs(snapshot=0.25), parameters=given
    )
    # Job 2 trains from 1.25 to 2.25, saves to 2.5, trains to 3.5 and saves to 3.75.
    assert intervals(result) == {"node1/0": [("1", 0.0, 1.25), ("2", 1.25, 3.75)]}


def test_resumes_cost() -> None:
    # Jobs 1 and 2 are first. Each position ends with a suspend, and jobs resume in order of arrival. Starts cost nothing.
    result = run(Turns, costs=Costs(resume=1.0, suspend=0.5))
    assert intervals(result)["node1/0"][:3] == [("1", 0.0, 1.5), ("3", 1.5, 3.0), ("1", 3.0, 5.5)]
    assert intervals(result)["node2/0"][:2] == [("2", 0.0, 2.5), ("4", 2.5, 5.0)]
    assert result.suspends == 8
    assert len(result.runs or ()) == 12
    # 18 s of training, 12 times 0.5 s to leave a slot, 8 resumes of 1 s
    assert result.job_seconds == 18 + 6 + 8


def test_training_from_scratch() -> None:
    # The second run of a job repeats 1 position, and the third one 2: 1 + 2 positions more for each job.
    result = run(Turns, from_scratch=True)
    assert result.job_seconds == 18 + 3 * (1 + 2 + 1 + 2)
    assert result.iterations == 12 + 4 * (1 + 2)


def test_the_target_ends_it() -> None:
    # Job 3 starts at 3.0 and reports 0.6 at 5.0. Job 2 is in its third position then, and leaves at 6.0.
    result = run(target=0.6)
    assert result.time_to_target == 5.0
    assert result.time == 6.0
    assert result.jobs_started == 3
    assert result.jobs_terminated == 0


def test_a_target_that_is_never_reached() -> None:
    result = run(target=0.95)
    assert result.time_to_target is None
    assert result.time == 12.0


def test_the_time_is_over() -> None:
    result = run(max_time=4.0)
    # Job 3 reports at 4.0 and leaves its slot; job 2 reports its second position at the same time.
    assert result.time_to_target is None
    assert 4.0 <= result.time <= 6.0
    assert result.best == 0.5


def test_bandit_ends_the_worse() -> None:
    # A boundary at each position, epsilon 0.5. Job 2 equals the best value at 2.0 (0.1), and is the best itself at 4.0 and 6.0. Job 4
    # starts at 6.0, when job 2 ends first; its 0.2 at 8.0 is too far from 0.9.
    result = simulate(TraceWorkload(FOUR), BanditPolicy, slots=2, parameters={"evaluation_boundary": 1}, details=True)
    assert intervals(result) == {
        "node1/0": [("1", 0.0, 3.0), ("3", 3.0, 6.0)],
        "node2/0": [("2", 0.0, 6.0), ("4", 6.0, 8.0)],
    }
    assert result.jobs_terminated == 1
    assert result.iterations == 10


def test_slots_differ() -> None:
    result = simulate(TraceWorkload(FOUR), "default", fleet=Fleet(2, speeds=(1.0, 0.5)), details=True)
    assert intervals(result)["node2/0"] == [("2", 0.0, 12.0)]


def test_latency() -> None:
    # The start takes 0.25 s to the slot, and the end 0.25 s to the scheduler. Reports that need no decision cost nothing.
    result = run(costs=Costs(latency=0.25))
    assert intervals(result) == {
        "node1/0": [("1", 0.25, 3.25), ("3", 3.75, 6.75)],
        "node2/0": [("2", 0.25, 6.25), ("4", 6.75, 12.75)],
    }
    assert result.time == 13.0


def test_a_straggler_takes_longer() -> None:
    plain, slow = run(), run(faults=Faults(straggling=1.0), seed=1)
    assert slow.job_seconds > plain.job_seconds
    factors = [(one.end - one.start) / (3.0 if one.job in "13" else 6.0) for one in slow.runs or ()]
    assert all(factor >= 1.0 for factor in factors)
    assert len({round(factor, 9) for factor in factors}) == 4


def test_drops_are_trained_again() -> None:
    """Check that a drop costs the position that it interrupts, and without snapshots the job's training."""
    saved, unsaved = (
        run(faults=Faults(drop=0.2), seed=3, parameters={"max_losses": 1000, **terms})
        for terms in ({}, {"snapshot_every": 0})
    )
    assert saved.jobs_at_R[-1][1] == unsaved.jobs_at_R[-1][1] == 4
    assert saved.iterations == 12
    assert unsaved.iterations > 12
    assert saved.job_seconds > 18


def test_a_node_fails_and_comes_back() -> None:
    faults = Faults(node_failures=0.05, downtime=5.0)
    result = run(faults=faults, costs=Costs(detection=1.0), seed=0)
    # The second node fails while job 2 trains, and is back after 5 s. Job 2 starts again before job 4, which is new, when the first
    # node is free, and continues from its snapshot at its first position.
    (_, _, failed), (job, back, done), *_ = intervals(result)["node2/0"]
    assert job == "4"
    assert back - failed == pytest.approx(5.0)
    assert done - back == pytest.approx(6.0)
    assert [(job, start) for job, start, _ in intervals(result)["node1/0"][:3]] == [("1", 0.0), ("3", 3.0), ("2", 6.0)]
    assert result.jobs_at_R[-1][1] == 4
    assert [one.trained for one in result.runs or () if one.job == "2"] == [1, 2]
    unsaved = run(faults=faults, costs=Costs(detection=1.0), seed=0, parameters={"snapshot_every": 0})
    assert [one.trained for one in unsaved.runs or () if one.job == "2"] == [1, 2, 2, 3]  # It starts from scratch.


def test_suspends_are_runs_that_leave_their_slots_while_their_jobs_can_train_further() -> None:
    """Check the run that reaches the target, runs that the end of the time suspends, and that lost and complete ones do not count."""
    winner, late = run(target=0.45), run(max_time=1.5)
    assert [one.reason for one in winner.runs or () if one.job == winner.best_job] == ["SUSPENDED"]
    assert (winner.best_job, winner.time_to_target, winner.suspends) == ("3", 4.0, 1)
    assert [one.reason for one in late.runs or ()] == ["SUSPENDED", "SUSPENDED"]
    assert late.suspends == 2
    assert run(faults=Faults(drop=0.2), seed=3, parameters={"max_losses": 1000}).suspends == 0


def test_noise_moves_reports_and_repeats() -> None:
    one, two = (run(faults=Faults(noise=0.01), seed=5) for _ in range(2))
    assert one == two
    assert one.best is not None
    assert one.best != 0.9
    assert abs(one.best - 0.9) < 0.1


def test_unequal_truncated_and_missing_values() -> None:
    traces = [
        trace("1", (0.1, math.nan, 0.3)),
        trace("2", (0.2,)),
        Trace("3", {"x": 3}, "accuracy", "max", (0.4, 0.5), (2.0, 1.0), (2, 3), {"loss": (1.0, 0.5)}),
    ]
    result = simulate(TraceWorkload(traces), "default", slots=1, details=True)
    assert result.curves is not None
    assert result.curves["1"] == [[1.0, 1, 0.1], [2.0, 2, None], [3.0, 3, 0.3]]
    assert result.curves["2"] == [[4.0, 1, 0.2]]
    assert result.curves["3"] == [[6.0, 2, 0.4], [7.0, 3, 0.5]]
    # The program of job 2 ended by itself before R.
    assert result.jobs_at_R == ((3.0, 1), (7.0, 2))


def test_promotions_are_counted() -> None:
    class Rungs(Policy):
        every_iteration = False

        def allocate_jobs(self, cluster: Cluster) -> None:
            for slot in cluster.idle_slots():
                job = cluster.get_idle_job()
                if job is None or cluster.jobs[job].position >= 3:
                    break
                until = {0: 1, 1: 3}[cluster.jobs[job].position]
                cluster.start_job(job, slot.id, until=until, allowed=until)
            if cluster.experiment.jobs_left:
                cluster.create_job()

        def on_iteration_finish(self, cluster: Cluster, event: IterationFinish) -> Decision:
            return CONTINUE

    result = run(Rungs)
    assert result.promotions == 4
    assert result.iterations == 12
    assert result.suspends == 4  # Each job leaves its slot at its first `until`, and is promoted later.


def test_pools() -> None:
    points = run(Turns).pools["points"]
    assert run().pools["names"] == ["promising", "opportunistic", "suspended", "pending"]
    assert all(promising == 0 and running <= 2 for _, promising, running, *_ in points)
    assert max(suspended for *_, suspended, _ in points) >= 1


class Pairs(Policy):
    """Trains one job at a time, on both slots, and labels the odd ones."""

    def allocate_jobs(self, cluster: Cluster) -> None:
        waiting, slots = cluster.idle_jobs(), [slot.id for slot in cluster.idle_slots()]
        if waiting and len(slots) == 2:
            cluster.label_job(waiting[0].id, float(waiting[0].ordinal % 2))
            cluster.start_job(waiting[0].id, tuple(slots))
        elif not waiting and cluster.experiment.jobs_left:
            cluster.create_job()


def test_pools_count_slots() -> None:
    held = {(promising, others) for _, promising, others, *_ in run(Pairs).pools["points"]}
    assert held - {(0, 0)} == {(2, 0), (0, 2)}


@pytest.mark.parametrize("policy", ["default", "bandit"])
def test_the_same_again(policy: str) -> None:
    conditions: Mapping[str, Any] = {
        "faults": Faults(straggling=0.5, drop=0.02, node_failures=0.01, downtime=3.0, noise=0.01),
        "costs": Costs(0.5, 0.4, 0.1, 0.2, 0.01, 0.0, 0.3),
        "seed": 11,
        "order_seed": 4,
    }
    assert run(policy, **conditions) == run(policy, **conditions)
    assert run(policy, **conditions) != run(policy, **{**conditions, "seed": 12})


def test_a_node_that_never_comes_back_leaves_nothing_to_happen() -> None:
    faults = Faults(node_failures=0.2, downtime=math.inf)
    with pytest.raises(SimulationError, match="nothing happens any more"):
        run(faults=faults, seed=0)


class Eager(BanditPolicy):
    """A subclass with a parameter, which passes the other ones to its base."""

    def __init__(self, *, eagerness: int = 1, **rest: Any) -> None:
        super().__init__(**rest)
        self.eagerness = eagerness


def test_a_policy_takes_what_its_bases_take() -> None:
    result = run(Eager, parameters={"evaluation_boundary": 1, "epsilon": 0.5, "eagerness": 2, "kill_threshold": 0.0})
    assert result == replace(
        run(BanditPolicy, parameters={"evaluation_boundary": 1, "epsilon": 0.5, "kill_threshold": 0.0}),
        policy="Eager",
        parameters=result.parameters,
    )
    with pytest.raises(InvalidInput, match=r"no parameter rest; it has: .*eagerness, .*epsilon"):
        run(Eager, parameters={"rest": 1})


def test_no_job_is_too_few() -> None:
    with pytest.raises(InvalidInput, match="jobs must be at least 1, found 0"):
        run(jobs=0)
