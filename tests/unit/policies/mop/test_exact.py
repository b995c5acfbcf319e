"""Tests of the exact scheduler of `mop`: when it requests a plan from the solver and how it uses the answer."""

from __future__ import annotations

import json
from collections import defaultdict
from typing import Any

import pytest
from hypothesis import given, settings

from hopyard.policy import JobState
from hopyard.policy.testing import Delays, VirtualCluster, VirtualStep
from hopyard.policy.testing.world import Unanswered
from hopyard.policy.vocabulary import AnswerReady, Ask, Hyperparameters, Predict, RunEnd, StartJob
from hopyard_policies.mop import MopPolicy
from hopyard_policies.mop.schedule.bounds import lower_bound
from hopyard_policies.mop.schedule.milp import MilpSolver, NoPlanError, solve
from hopyard_policies.mop.schedule.problem import VisitProblem, from_plain, to_plain
from tests.unit.policies.mop.rig import check_epochs, planned, ring
from tests.unit.policies.mop.test_planning import problems

pytestmark = pytest.mark.quick

Plan = list[tuple[str, str, str]]


def uneven(hyperparameters: Hyperparameters, position: int) -> VirtualStep:
    return VirtualStep({"accuracy": position / 100}, (1.0, 2.0, 3.5)[int(hyperparameters["x"]) % 3], examples=50)


def solved(question: Predict | Ask) -> object:
    assert isinstance(question, Ask)
    return MilpSolver().solve(json.loads(json.dumps(question.payload)), question.seconds)


def made(policy: MopPolicy, **changes: Any) -> VirtualCluster:
    data = ring(3)
    terms: dict[str, Any] = {"slots": 3, "jobs": 5, "max_position": 6, "curve": uneven, "data": data, "watch": True}
    return VirtualCluster(policy, **{**terms, **changes})


def asks(cluster: VirtualCluster) -> list[Ask]:
    return [command for entry in cluster.history for command in entry.commands if isinstance(command, Ask)]


def started(cluster: VirtualCluster, after: float, before: float) -> dict[str, list[tuple[str, str]]]:
    """Return, by slot, the (job, partition) of the units that started in `after <= time < before`."""
    found: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for entry in cluster.history:
        for command in entry.commands:
            if isinstance(command, StartJob) and after <= entry.moment.now < before and command.until is not None:
                (slot,) = command.slots
                found[slot].append((command.job, command.inputs[slot]))
    return found


@pytest.mark.merge
@pytest.mark.parametrize("delay", [0.0, 1.2])
def test_the_plan_is_followed_when_it_comes_and_what_ran_meanwhile_is_taken_out(delay: float) -> None:
    answers: list[dict[str, list[tuple[str, str]]]] = []

    def respond(question: Predict | Ask) -> object:
        """Return the exact plan, and record it with the names of its slots, jobs and partitions."""
        assert isinstance(question, Ask)
        plan = solve(from_plain(question.payload), 10.0)
        answers.append(defaultdict(list))
        for unit, slot, _, _ in plan.placed:
            answers[-1][f"m{slot + 1:02}"].append((str(unit.config + 1), f"train/{unit.partition}"))
        return {"placed": [[*each.unit, each.slot] for each in plan.placed]}

    plain = made(MopPolicy("longest", barrier=True, pilot=True))
    plain.run()
    cluster = made(MopPolicy("milp", pilot=True), respond=respond, delays=Delays(answer=delay))
    cluster.run()
    assert all(job.state is JobState.COMPLETED for job in cluster.jobs.values())
    check_epochs(cluster, ring(3))
    assert len(asks(cluster)) == 2  # One for each epoch.
    assert cluster.now <= plain.now + 1e-9
    if delay:
        return
    begins = [entry.moment.now for entry in cluster.history if isinstance(entry.call, AnswerReady)]
    for plan, begin, end in zip(answers, begins, [begins[1], float("inf")], strict=True):
        # The plan leaves out the units that ran at the request; all others start in its order.
        found = {slot: units[1:] for slot, units in started(cluster, begin, end).items()}
        assert found == dict(plan)
    assert started(cluster, 0.0, float("inf")) != started(plain, 0.0, float("inf"))


def test_a_plan_that_is_worse_than_what_the_default_would_do_is_not_followed() -> None:
    """Check with a valid plan on which one slot always waits for the other."""

    def bad(question: Predict | Ask) -> object:
        assert isinstance(question, Ask)
        problem = from_plain(question.payload)
        return {"placed": sorted([*unit, problem.holders[unit.partition][0]] for unit in problem.units)}

    plain, misled = (
        made(MopPolicy("longest", barrier=True, pilot=True)),
        made(MopPolicy("milp", pilot=True), respond=bad),
    )
    plain.run()
    misled.run()
    assert misled.now == pytest.approx(plain.now)


@pytest.mark.parametrize(
    "respond",
    [None, lambda question: "nonsense", lambda question: {"placed": [[99, 0, 0]]}, lambda question: {"placed": []}],
)
def test_without_a_plan_it_goes_on_as_by_default_and_asks_once_an_epoch(respond: Any) -> None:
    def fails(question: Predict | Ask) -> object:
        raise Unanswered("the solver has no time")

    cluster = made(MopPolicy("milp", pilot=True), respond=respond or fails)
    cluster.run()
    assert all(job.state is JobState.COMPLETED for job in cluster.jobs.values())
    assert len(asks(cluster)) == 2


@pytest.mark.merge
def test_nothing_is_asked_before_times_are_known() -> None:
    cluster = made(MopPolicy("milp"), respond=solved)
    cluster.run()
    seen: set[str] = set()
    for entry in cluster.history:
        if any(isinstance(command, Ask) for command in entry.commands):
            break
        if isinstance(entry.call, RunEnd):
            seen.add(entry.call.job)
    assert seen == set(cluster.jobs)
    assert asks(cluster)


def test_a_slot_that_is_lost_is_reason_to_ask_anew() -> None:
    cluster = made(MopPolicy("milp", pilot=True), respond=planned, data=ring(3, replicas=2), max_losses=20)
    cluster.at(3.0, cluster.lose_slot, "m02")
    cluster.run()
    assert all(job.state is JobState.COMPLETED for job in cluster.jobs.values())
    check_epochs(cluster, ring(3, replicas=2))
    assert len({tuple(from_plain(ask.payload).speeds) for ask in asks(cluster)}) >= 2
    assert {len(from_plain(ask.payload).speeds) for ask in asks(cluster)} == {2, 3}


def test_with_known_times_thinking_takes_a_part_of_the_epoch_at_most() -> None:
    cluster = made(MopPolicy("milp", pilot=True, plan_seconds=500.0), respond=planned)
    cluster.run()
    for ask in asks(cluster):
        assert ask.seconds == pytest.approx(0.25 * lower_bound(from_plain(ask.payload)), rel=0.01)


@pytest.mark.merge
@settings(max_examples=40, deadline=None)
@given(problem=problems())
def test_a_problem_is_the_same_for_the_solver(problem: VisitProblem) -> None:
    again = from_plain(json.loads(json.dumps(to_plain(problem))))
    assert again.units == problem.units
    assert all(again.time(*unit, slot) == problem.time(*unit, slot) for unit in problem.units for slot in [0])
    assert lower_bound(again) == pytest.approx(lower_bound(problem))


@pytest.mark.parametrize(
    "payload",
    [
        None,
        [],
        {},
        {"costs": ["x"], "sizes": [1], "speeds": [1], "holders": [[0]]},
        {"costs": [1], "sizes": [1], "speeds": [1], "holders": [[1]]},
        {"costs": [1], "sizes": [1], "speeds": [1], "holders": []},
        {"costs": [0], "sizes": [1], "speeds": [1], "holders": [[0]]},
        {"costs": [1], "sizes": [1], "speeds": [1], "holders": [[0]], "config_free": [1, 2]},
    ],
)
def test_what_is_no_problem_is_refused(payload: object) -> None:
    with pytest.raises(ValueError, match="problem"):
        MilpSolver().solve(payload, 1.0)


def test_the_solver_says_how_good_its_plan_is() -> None:
    problem = VisitProblem([1.0, 1.0], [1.0, 1.0], [1.0, 1.0], [[0], [1]])
    found = MilpSolver().solve(to_plain(problem), 10.0)
    assert found["makespan"] == pytest.approx(2.0)
    assert found["said"] == "a plan of 4 units on 2 slots that takes 2 s, 1.000 x the bound"
    assert sorted(found["placed"]) == [[0, 0, 0], [0, 1, 1], [1, 0, 0], [1, 1, 1]]


@pytest.mark.merge
def test_more_than_can_be_decided_is_refused() -> None:
    large = VisitProblem([1.0] * 400, [1.0] * 8, [1.0] * 8, [[m] for m in range(8)])
    with pytest.raises(NoPlanError, match="3200 units are too many to plan exactly: 649600 orders, at most 200000"):
        solve(large, 1.0)
