"""Tests of POP on small simulated searches: which jobs end, keep a slot, or take turns."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

import pytest
from typing_extensions import override

from hopyard.policy import Cluster, Decision, IterationFinish, Policy
from hopyard.policy.conformance import IN_PROCESSES, PolicyConformance
from hopyard.policy.testing import Unanswered, VirtualCluster
from hopyard.policy.vocabulary import Ask, Command, DecisionKind, Predict
from hopyard.predictor import LEVELS, NotPredictableError, Prediction, Predictor, Question
from hopyard.traces import Trace
from hopyard_policies.earlyterm import EarlyTermPolicy
from hopyard_policies.pop import PopPolicy, outlook_of
from hopyard_policies.pop.policy import _Estimate
from hopyard_simulator import Costs, PredictionCache, Result, TraceWorkload, simulate

pytestmark = pytest.mark.quick


class Told(Predictor):
    """A predictor that returns the probability `p` of the job's configuration for each future position from `at` on, 0 before."""

    @override
    def predict(self, question: Question) -> Prediction:
        if question.curve.hyperparameters.get("silent"):
            raise NotPredictableError("nothing is known")
        last = question.curve.positions[-1]
        ahead = tuple(range(last + 1, question.horizon + 1))
        p = float(question.curve.hyperparameters["p"])
        reaches = tuple(p if position >= question.curve.hyperparameters.get("at", 0) else 0.0 for position in ahead)
        return Prediction(ahead, (0.5,) * len(ahead), (0.0,) * len(ahead), reaches, (0.5,) * len(LEVELS))


def foreseen(question: Predict | Ask) -> Prediction:
    """Answer a question of the conformance suite: of three jobs one has no chance, one a good one, and one is not predictable."""
    assert isinstance(question, Predict)
    which = int(question.job) % 3
    if which == 0:
        raise Unanswered("nothing is known")
    ahead = (5, 6)
    return Prediction(ahead, (0.5,) * 2, (0.1,) * 2, (0.0 if which == 1 else 0.7,) * 2, (0.5,) * len(LEVELS))


def minimised(one: Trace) -> Trace:
    """Return the trace with negated metrics, to be minimised."""
    return replace(one, mode="min", metrics=tuple(-value for value in one.metrics))


def trace(job: int, p: float, value: float = 0.2, reports: int = 10, **more: Any) -> Trace:
    return curved(job, p, (value,) * reports, **more)


def curved(job: int, p: float, values: Sequence[float], **more: Any) -> Trace:
    return Trace(str(job), {"p": p, "job": job, **more}, "accuracy", "max", tuple(values), (1.0,) * len(values))


def search(*traces: Trace, slots: int = 1, target: float | None = 0.9, **options: Any) -> Result:
    parameters = {"evaluation_boundary": 2, **options.pop("parameters", {})}
    return simulate(
        TraceWorkload(traces),
        PopPolicy,
        slots=slots,
        target=target,
        parameters=parameters,
        predictor=Told(),
        details=True,
        **options,
    )


def runs(result: Result) -> list[tuple[str, float, float]]:
    return [(one.job, one.start, one.end) for one in sorted(result.runs or (), key=lambda one: (one.start, one.slot))]


def test_a_job_without_a_chance_ends() -> None:
    # Its prediction is requested at 2.0, and it ends when it has saved. Exactly 0.05 is not below 0.05.
    result = search(trace(1, 0.049), trace(2, 0.05))
    assert runs(result)[0] == ("1", 0.0, 2.0)
    assert result.jobs_terminated == 1
    assert result.jobs_at_R == ((12.0, 1),)


def test_a_job_that_never_learns_ends_at_its_boundary_unasked() -> None:
    foreseen = PredictionCache()
    result = search(trace(1, 0.9, 0.1), trace(2, 0.9), parameters={"kill_threshold": 0.15}, foreseen=foreseen)
    assert runs(result)[0] == ("1", 0.0, 2.0)
    assert result.jobs_terminated == 1
    assert foreseen.asked == 4  # Job 2 at 2, 4, 6, 8.


def test_a_job_whose_learning_crashes_ends() -> None:
    # It is low from 2 on. With boundaries at 2, 4, ... it ends at 6, where its low values are 4 units apart.
    result = search(curved(1, 0.9, [0.2] + [0.1] * 9), parameters={"kill_threshold": 0.15})
    assert runs(result) == [("1", 0.0, 6.0)]
    assert result.jobs_terminated == 1


def test_the_distance_of_low_values_that_ends_a_job_can_be_set() -> None:
    # At 4 the low values are 2 units apart, at 8 they are 6 apart.
    for crash_after, end in ((1, 4.0), (2, 4.0), (3, 6.0), (6, 8.0)):
        parameters = {"kill_threshold": 0.15, "crash_after": crash_after}
        assert runs(search(curved(1, 0.9, [0.2] + [0.1] * 9), parameters=parameters)) == [("1", 0.0, end)]


def test_the_example_of_the_documentation() -> None:
    parameters = {"kill_threshold": 0.15, "evaluation_boundary": 4, "crash_after": 8}
    values = [0.1] * 30
    values[3] = values[4] = 0.2
    assert runs(search(curved(1, 0.9, values), parameters=parameters)) == [("1", 0.0, 16.0)]
    values[12] = 0.2
    assert runs(search(curved(1, 0.9, values), parameters=parameters)) == [("1", 0.0, 24.0)]


def test_a_job_that_recovers_is_not_ended() -> None:
    # It is low from 2 to 4 and from 6 to 9, where it is 2 apart at the boundaries 4 and 8. At its end no job is judged.
    values = [0.2, 0.1, 0.1, 0.1, 0.2, 0.1, 0.1, 0.1, 0.1, 0.1]
    result = search(curved(1, 0.9, values), parameters={"kill_threshold": 0.15})
    assert (result.jobs_terminated, result.jobs_at_R) == (0, ((10.0, 1),))


def test_opportunistic_jobs_take_turns() -> None:
    # One slot, p = 0.5 each: no job deserves a whole slot. At 3.0 job 1 is suspended for the next one, and so on; new jobs go first.
    result = search(*(trace(job, 0.5) for job in (1, 2, 3)))
    assert runs(result)[:5] == [("1", 0.0, 3.0), ("2", 3.0, 6.0), ("3", 6.0, 9.0), ("1", 9.0, 11.0), ("2", 11.0, 13.0)]


def test_opportunistic_jobs_take_turns_with_a_boundary_at_each_report() -> None:
    result = search(*(trace(job, 0.5, reports=4) for job in (1, 2)), parameters={"evaluation_boundary": 1})
    assert runs(result)[:3] == [("1", 0.0, 2.0), ("2", 2.0, 4.0), ("1", 4.0, 6.0)]


def test_a_promising_job_keeps_its_slot() -> None:
    result = search(*(trace(job, 1.0) for job in (1, 2)))
    assert runs(result) == [("1", 0.0, 10.0), ("2", 10.0, 20.0)]
    assert result.suspends == 0


def test_promising_jobs_come_first_when_they_have_to_wait() -> None:
    # The prediction for job 1 is requested at 2.0, and it is suspended at 3.0, since 0.5 deserves no slot alone. Job 2 has p = 1 and
    # stays.
    result = search(trace(1, 0.5), trace(2, 1.0), trace(3, 0.5))
    assert runs(result)[:3] == [("1", 0.0, 3.0), ("2", 3.0, 13.0), ("3", 13.0, 16.0)]


def positive_labels(result: Result) -> dict[str, list[list[float]]]:
    """Return the positive labels of each job that had any, as [time, label]."""
    given = {
        job: [[time, label] for time, label in labels if label > 0] for job, labels in (result.labels or {}).items()
    }
    return {job: labels for job, labels in given.items() if labels}


def test_without_a_slot_for_promising_jobs_no_job_is_promising() -> None:
    # One slot: at 0.5 and 0.9 jobs deserve no whole slot, so all are opportunistic (figure 3a). At 1.0 one does.
    result = search(trace(1, 0.5), trace(2, 0.9))
    assert result.labels == {"1": [[2.0, 0.0]], "2": [[5.0, 0.0]]}
    assert positive_labels(search(trace(1, 0.5), trace(2, 1.0))) == {"2": [[5.0, 1.0]]}
    # Jobs of two slots each: 0.4 deserves one slot of four, half of what a job needs. 0.6 deserves two, which is one job.
    assert (
        positive_labels(search(*(trace(job, 0.4) for job in range(4)), slots=4, parameters={"slots_per_job": 2})) == {}
    )
    found = positive_labels(search(*(trace(job, 0.6) for job in range(4)), slots=4, parameters={"slots_per_job": 2}))
    assert found["1"][0] == [2.0, 0.6]


def test_only_jobs_with_a_slot_for_promising_jobs_are_promising() -> None:
    # Three jobs at 0.6 want 3 of 4 slots and deserve 2.4: two are promising. Of equal ones, the oldest are, until they complete at 10.
    result = search(*(trace(job, 0.6, at=10) for job in (1, 2, 3)), trace(4, 0.1), slots=4)
    assert positive_labels(result) == {"1": [[2.0, 0.6]], "2": [[2.0, 0.6]], "3": [[10.0, 0.6]]}


def stale(max_time: float) -> Result:
    """Return a search in which job 1 waits from 3 to 40 with an ERT of 27 s, and job 2 has the slot for promising jobs until 40.

    Two slots: of the jobs 1 and 2, both at p = 0.5, one is promising. At 2 job 1 is predicted to reach the target after 54 s with this
    probability, so its ERT is 27 s; that of job 2 is at most 0.5 s. The other jobs, at 0.2, train in turns on the other slot, new ones
    first.
    """
    others = (trace(job, 0.2) for job in range(3, 25))
    first = trace(1, 0.5, reports=200, at=56)
    return search(first, trace(2, 0.5, reports=40), *others, slots=2, max_time=max_time)


def test_a_job_whose_expected_time_fits_is_promising_when_a_slot_for_promising_jobs_is_free() -> None:
    result = stale(100.0)
    assert positive_labels(result)["1"][:2] == [[2.0, 0.5], [40.0, 0.5]]  # at 2, until the prediction of job 2
    assert [start for job, start, _ in runs(result) if job == "1"][:2] == [0.0, 40.0]


def test_a_job_whose_expected_time_exceeds_the_time_left_is_not_promising() -> None:
    # At 2, 56 s are left, and the ERT of 27 s fits. At 40, 18 s are left.
    result = stale(58.0)
    assert positive_labels(result) == {"1": [[2.0, 0.5]], "2": [[2.0, 0.5]]}
    # The slots are divided by the other probabilities.
    chances = [chances[0] for time, _, chances in result.confidences or () if 40.0 < time < 54.0]
    assert chances
    assert set(chances) == {0.2}
    # New jobs start before it: from 40 to 54 they have both slots. Then job 1 gets its turn as any other suspended job.
    assert [start for job, start, _ in runs(result) if job == "1"][:2] == [0.0, 54.0]


def test_training_reduces_the_expected_time() -> None:
    # The target is predicted with certainty at 12, when the time is over. At 3 the ERT of the prediction at 2 was 10 s, and 9 s are
    # left, but job 1 has trained for a second since, so it stays.
    result = search(trace(1, 1.0, reports=20, at=12), trace(2, 1.0, reports=20), max_time=12.0)
    assert [job for job, _, _ in runs(result)] == ["1"]


def test_a_step_back_adds_to_the_expected_time() -> None:
    # It was predicted at 4 to reach the target in 6 units of 2 s, with p = 0.5: its ERT is 6 s, at 5 it is 0.5 x 10 s, at 2 0.5 x 16 s.
    estimate = _Estimate(outlook_of([0.0] * 5 + [0.5], math.inf, 2.0), 4, 2.0)
    assert [estimate.at(position).remaining for position in (2, 4, 5, 10, 11)] == [8.0, 6.0, 5.0, 0.0, 0.0]


def test_nobody_leaves_when_nobody_waits() -> None:
    result = search(trace(1, 0.3), trace(2, 0.3), slots=2)
    assert runs(result) == [("1", 0.0, 10.0), ("2", 0.0, 10.0)]


def test_a_prediction_that_is_late_holds_nobody_up() -> None:
    result = search(trace(1, 0.01), trace(2, 1.0), costs=Costs(prediction=2.5))
    # Requested at 2.0, answered at 4.5, terminated at 5.0.
    assert runs(result)[0] == ("1", 0.0, 5.0)


def test_a_prediction_that_fails_leaves_a_job_opportunistic() -> None:
    result = search(trace(1, 0.9, silent=1), trace(2, 1.0))
    assert runs(result)[:2] == [("1", 0.0, 3.0), ("2", 3.0, 13.0)]
    assert result.jobs_at_R[-1][1] == 2


@pytest.mark.parametrize("policy", [PopPolicy, EarlyTermPolicy])
def test_what_is_refused_is_asked_again_and_not_waited_for(policy: type[PopPolicy | EarlyTermPolicy]) -> None:
    asked: list[str] = []
    left: list[int] = []

    class Watched(policy):  # type: ignore[misc, valid-type]
        def on_iteration_finish(self, cluster: Cluster, event: IterationFinish) -> Decision:
            decision: Decision = super().on_iteration_finish(cluster, event)
            left.extend([event.position] if decision.kind is DecisionKind.SUSPEND else [])
            return decision

    def refuse(command: Command) -> str:
        asked.extend([command.job] if isinstance(command, Predict) else [])
        return "not now" if isinstance(command, Predict) else ""

    cluster = VirtualCluster(
        Watched(evaluation_boundary=5), slots=1, jobs=2, max_position=20, target=5.0, refuse=refuse
    )
    cluster.run()
    assert asked.count("2") >= 2
    assert bool(left) is (policy is PopPolicy)


def test_without_a_target_the_best_so_far_is_the_aim() -> None:
    asked: list[float | None] = []

    class Asked(Told):
        @override
        def predict(self, question: Question) -> Prediction:
            asked.append(question.target)
            return super().predict(question)

    simulate(
        TraceWorkload([trace(1, 1.0, 0.3), trace(2, 1.0, 0.6)]),
        PopPolicy,
        slots=1,
        parameters={"evaluation_boundary": 5, "step": 0.05},
        predictor=Asked(),
    )
    assert asked == [pytest.approx(0.35), pytest.approx(0.65)]


def test_jobs_that_have_ended_are_forgotten() -> None:
    made: list[PopPolicy] = []

    def make() -> Policy:
        made.append(PopPolicy(evaluation_boundary=2))
        return made[-1]

    chances = [0.01, 1.0, 0.3, 0.6, 0.01, 0.9] * 3
    result = simulate(
        TraceWorkload([trace(job, p) for job, p in enumerate(chances, 1)]),
        make,
        slots=1,
        target=0.95,
        predictor=Told(),
    )
    # The last two to end are still stored, since no decision followed.
    assert result.jobs_started == len(chances)
    assert all(len(book) <= 2 for book in made[0]._books())


def test_no_time_is_no_chance() -> None:
    # The target would be reached with certainty, but only 0.5 s are left at the boundary.
    result = search(trace(1, 1.0), trace(2, 1.0), max_time=2.5)
    assert result.jobs_terminated + len(result.runs or ()) >= 1
    assert result.time <= 3.5


def test_minimising_the_negative_is_the_same_search() -> None:
    traces = [trace(job, p, value) for job, p, value in ((1, 0.5, 0.2), (2, 0.9, 0.1), (3, 0.01, 0.3), (4, 1.0, 0.4))]
    ours = search(*traces, slots=2, parameters={"kill_threshold": 0.15})
    theirs = search(
        *map(minimised, traces), slots=2, target=-0.9, parameters={"kill_threshold": -0.15, "evaluation_boundary": 2}
    )
    assert ours.runs == theirs.runs


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("evaluation_boundary", 0),
        ("least_confidence", 1.5),
        ("least_confidence", True),
        ("slots_per_job", 0),
        ("crash_after", 0),
        ("crash_after", 2.5),
        ("step", -1),
        ("step", True),
        ("ahead", 0),
    ],
)
def test_parameters_out_of_range(name: str, value: float) -> None:
    with pytest.raises(ValueError, match=name):
        PopPolicy(**{name: value})  # type: ignore[arg-type]


@pytest.mark.quick(merge=IN_PROCESSES)
class TestConformance(PolicyConformance):
    symmetric: ClassVar = False  # Targets of its predictions can be negative; a test above compares its searches.

    max_position: ClassVar = 6

    @override
    def make_policy(self) -> Policy:
        return PopPolicy(evaluation_boundary=2)

    @override
    def respond(self, question: Predict | Ask) -> object:
        return foreseen(question)
