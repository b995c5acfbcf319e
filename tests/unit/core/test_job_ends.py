"""Tests of how jobs are shown that their experiment left untrained, or that another job's success cut short."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import pytest

from hopyard.policy.vocabulary import (
    EndExperiment,
    ExperimentState,
    JobState,
    ReasonCode,
    RunEndReason,
    StreamId,
    TerminateJob,
)
from hopyard_engine.core.events import JobOperated, Operated, TimerElapsed, Updated
from hopyard_engine.core.job_ends import shown_counts, shown_end
from hopyard_engine.core.quarantine import quarantine
from hopyard_engine.core.state.stream import Stream
from hopyard_engine.core.state.timers import EndTimer
from hopyard_simulator import CurveWorkload, simulate
from hopyard_simulator.world import World
from tests.unit.core.rig import Rig, snapshot

pytestmark = pytest.mark.quick


def shown(stream: Stream) -> dict[str, tuple[str, str]]:
    """Return the state and the sentence that people see of each job."""
    ends = {name: shown_end(job) for name, job in stream.jobs.items()}
    return {name: (state.value, str(reason)) for name, (state, reason) in ends.items()}


def search(policy: str, scores: Mapping[int, float] | None = None, jobs: int = 8, **options: Any) -> Stream:
    """Simulate a search on two slots until it has ended. A job scores its number divided by 100, or what `scores` says."""
    seen: list[World] = []

    class Seen(World):
        def __init__(self, *given: Any, **named: Any) -> None:
            super().__init__(*given, **named)
            seen.append(self)

    parameters = {name: options.pop(name) for name in list(options) if name not in ("target", "max_time", "data")}
    workload = CurveWorkload(
        lambda given, position: (scores or {}).get(given["x"], given["x"] / 100),
        [{"x": number} for number in range(1, jobs + 1)],
        16,
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys.modules[simulate.__module__], "World", Seen)
        simulate(workload, policy, slots=2, parameters=parameters, **options)
    stream = seen[0].experiment
    assert stream.founder.state is ExperimentState.COMPLETED
    return stream


LADDER = (2, 4, 8, 16)


@pytest.mark.parametrize(
    ("policy", "parameters"),
    [
        ("asha", {"brackets": [0]}),
        ("asha", {"brackets": [0, 1]}),
        ("sha", {}),
        ("bohb", {}),
        ("hyperband", {}),
        ("async_hyperband", {}),
        ("stage_tree", {"tuner": "asha", "brackets": [0]}),
    ],
)
def test_a_job_that_halving_did_not_promote_names_its_rung(policy: str, parameters: dict[str, Any]) -> None:
    own = {"eta": 2, "r": 2, **parameters}
    tuner = own.pop("tuner", None)
    stream = search(policy, **(own if tuner is None else {"tuner": {"name": tuner, **own}}))
    assert shown_counts(stream.founder).keys() <= {JobState.COMPLETED, JobState.TERMINATED}
    stopped = [reason for state, reason in map(shown_end, stream.jobs.values()) if state is JobState.TERMINATED]
    assert stopped
    for reason in stopped:
        assert reason is not None
        assert reason.code is ReasonCode.STOPPED_AT_RUNG, reason
        rung, rungs, position = (int(str(reason.args[name])) for name in ("rung", "rungs", "position"))
        assert LADDER[-rungs:][rung] == position, reason  # Bracket s has the rungs of the ladder from rung s.


def test_the_rung_is_numbered_as_the_command_rungs_shows_it() -> None:
    stream = search("asha", jobs=5, eta=4, r=1, brackets=[0])
    assert shown(stream)["1"] == ("TERMINATED", "stopped at rung 0 of 3, position 1")
    assert stream.jobs["1"].state is JobState.SUSPENDED  # It can continue if the experiment is extended.


@pytest.mark.parametrize(("policy", "parameters"), [("bandit", {}), ("median", {"least_jobs": 1})])
def test_a_job_that_its_policy_ended_says_so(policy: str, parameters: dict[str, Any]) -> None:
    scores = {1: 0.9, 2: 0.9, 3: 0.01, 4: 0.01}
    stream = search(policy, scores, jobs=4, evaluation_boundary=2, **parameters)
    ended = {text for state, text in shown(stream).values() if state == "TERMINATED"}
    assert ended
    assert all(text.startswith("its policy ended it at position ") for text in ended), ended


@pytest.mark.parametrize(
    ("policy", "parameters"), [("default", {"barrier": True, "epoch": 4}), ("default", {}), ("asha", {"eta": 2})]
)
def test_jobs_that_the_target_cut_short_name_the_job_that_reached_it(policy: str, parameters: dict[str, Any]) -> None:
    stream = search(policy, {2: 0.95}, target=0.9, **parameters)
    found = shown(stream)
    assert found.pop("2") == ("COMPLETED", "reached the target")
    assert found
    assert set(found.values()) <= {
        ("TERMINATED", "ended: target reached by job 2"),
        ("TERMINATED", "not started: the experiment ended first (target reached by job 2)"),
    }


@pytest.mark.parametrize("policy", ["default", "asha", "median", "stage_tree"])
def test_no_job_of_an_experiment_without_time_waits(policy: str) -> None:
    stream = search(policy, max_time=5.0)
    assert any(not job.state.ended for job in stream.jobs.values())
    assert {state for state, _ in shown(stream).values()} <= {"TERMINATED", "COMPLETED"}
    texts = [text for state, text in shown(stream).values() if state == "TERMINATED"]
    assert all("its time of 5 s is over" in text for text in texts), texts


def test_an_extended_experiment_shows_the_states_of_its_jobs_again() -> None:
    rig = trained()
    out_of_time(rig)
    rig.feed(Updated(rig.now, StreamId("x"), "more", more_seconds=10.0))
    assert [state for state, _ in shown(rig.stream).values()] == ["SUSPENDED", "PENDING", "PENDING"]
    assert shown_counts(rig.stream.founder) == {JobState.SUSPENDED: 1, JobState.PENDING: 2}


def trained() -> Rig:
    """Return an experiment of three jobs: one suspended at 3, one that trains, and one that has not started."""
    rig = Rig(max_seconds=60.0)
    for name in ("1", "2", "3"):
        assert rig.create() == name
    rig.start("1", "n1/0")
    rig.start("2", "n1/1")
    rig.report(3, 0.5)
    return rig


def out_of_time(rig: Rig) -> None:
    rig.now += 60.0
    rig.feed(TimerElapsed(rig.now, StreamId("x"), EndTimer(rig.stream.founder.id).ticket))
    rig.ended(RunEndReason.SUSPENDED, 3, snapshot(3))
    rig.stored(3)
    rig.ended(RunEndReason.SUSPENDED, 0, name="2")
    assert rig.stream.state is ExperimentState.COMPLETED


def test_time_that_ran_out_is_the_reason_of_every_job() -> None:
    rig = trained()
    out_of_time(rig)
    assert shown(rig.stream) == {
        "1": ("TERMINATED", "stopped at position 3: the experiment ended (its time of 60 s is over)"),
        "2": ("TERMINATED", "stopped at position 0: the experiment ended (its time of 60 s is over)"),
        "3": ("TERMINATED", "not started: the experiment ended first (its time of 60 s is over)"),
    }
    assert {job.state.ended for job in rig.stream.jobs.values()} == {False}


def test_a_stopped_experiment_and_a_stopped_job_are_told_apart() -> None:
    rig = trained()
    rig.feed(JobOperated(rig.now, StreamId("x"), TerminateJob("1")))
    rig.ended(RunEndReason.TERMINATED, 4)
    rig.feed(Operated(rig.now, StreamId("x"), "stop"))
    rig.ended(RunEndReason.TERMINATED, 0, name="2")
    assert [text for _, text in shown(rig.stream).values()] == [
        "stopped by a person",
        "stopped at position 0: the experiment ended (stopped by a person)",
        "not started: the experiment ended first (stopped by a person)",
    ]


def test_what_the_policy_ended_before_the_target_was_reached_keeps_its_own_reason() -> None:
    rig = trained()
    rig.command(TerminateJob("1"))
    rig.command(EndExperiment("small enough"))
    rig.ended(RunEndReason.TERMINATED, 4)
    assert str(rig.job().reason) == "its policy ended it at position 4"


def test_a_long_reason_of_the_end_is_told_once_by_the_experiment() -> None:
    rig = trained()
    rig.command(EndExperiment("x" * 61))
    assert str(rig.job("3").reason) == "not started: the experiment ended first"


def test_a_quarantined_experiment_has_no_job_that_trains() -> None:
    rig = trained()
    cause = rig.job("1").reason
    assert cause is not None
    effects = quarantine(rig.core, StreamId("x"), cause, rig.now)
    assert {state for state, _ in shown(rig.stream).values()} == {"TERMINATED"}
    assert {getattr(effect, "job", None) for effect in effects} >= {"1", "2", "3"}  # Their rows are written again.
