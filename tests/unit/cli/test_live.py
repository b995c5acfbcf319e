"""Tests of the live view without a terminal: its model, and the lines drawn from it."""

from __future__ import annotations

import io
import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from hopyard.cli.live.columns import ordered
from hopyard.cli.live.controls import Controls, SortOrder
from hopyard.cli.live.model import LiveModel
from hopyard.cli.live.render import render
from hopyard.cli.live.screen import plain_line
from hopyard.cli.live.style import EXPERIMENT, JOB
from hopyard.client.types import (
    Experiment,
    ExperimentState,
    Job,
    JobGone,
    JobReport,
    JobState,
    Metric,
    Node,
    NodeState,
    Point,
    Report,
    Snapshot,
)
from hopyard.policy.vocabulary.reasons import Reason, ReasonCode

pytestmark = pytest.mark.quick

METRIC = Metric("accuracy", "max")


def experiment(**changes: object) -> Experiment:
    given: dict[str, object] = {
        "id": "e1",
        "name": "digits",
        "state": ExperimentState.RUNNING,
        "metric": METRIC,
        "spec": {"stop": {"jobs": 4, "max_iterations": 10}},
        "slots": 2,
        "running_seconds": 20.0,
        **changes,
    }
    return Experiment(**given)  # type: ignore[arg-type]  # a test's shorthand


def job(name: str, state: JobState = JobState.RUNNING, position: int = 5, best: float | None = None) -> Job:
    slots = ("local/0",) if state.live else ()
    return Job("e1", name, state, position=position, best_value=best, last_value=best, slots=slots)


def model(*jobs: Job, **changes: object) -> LiveModel:
    made = LiveModel("digits.yaml", slots=2)
    made.apply(experiment(**changes), 100.0)
    for one in jobs:
        made.apply(one, 100.0)
    return made


def interesting(made: LiveModel) -> list[Job]:
    return ordered(made, SortOrder.STATE)


def drawn(
    made: LiveModel,
    width: int,
    height: int,
    now: float = 100.0,
    *,
    ascii_only: bool = False,
    controls: Controls | None = None,
) -> list[str]:
    console = Console(width=width, height=height, file=io.StringIO(), color_system=None, legacy_windows=False)
    with console.capture() as capture:
        console.print(render(made, width, height, now, ascii_only=ascii_only, controls=controls))
    return [line.rstrip() for line in capture.get().splitlines()]


def test_every_state_has_a_look_of_its_own() -> None:
    assert set(JOB) == set(JobState)
    assert set(EXPERIMENT) == set(ExperimentState)
    for symbols in ([look.symbol for look in JOB.values()], [look.ascii for look in JOB.values()]):
        assert len(set(symbols)) == len(symbols)
    assert all(look.ascii.isascii() for look in JOB.values())


def test_the_header_says_what_matters() -> None:
    made = model(job("1", best=0.5), job("2", JobState.PENDING, 0), best_job="1", best_value=0.5, best_position=5)
    lines = drawn(made, 110, 20)
    assert lines[0] == "digits  e1  RUNNING   0 of 4 jobs   1 of 2 slots (2 held)   20s"
    assert lines[1] == "best accuracy 0.5  job 1 at 5"
    assert lines[2] == "▶ 1 running  ○ 1 pending  0.0 reports/s"


def test_the_header_counts_the_jobs_that_have_ended_of_all_that_there_will_be() -> None:
    ended = [job("1", JobState.COMPLETED, 10), job("2", JobState.FAILED), job("3", JobState.TERMINATED)]
    assert "   3 of 4 jobs   " in drawn(model(*ended, job("4")), 80, 24)[0]
    one = model(job("1"), spec={"stop": {"jobs": 1, "max_iterations": 10}}, slots=1)
    one.slots = 1
    assert "   0 of 1 job   1 of 1 slot   " in drawn(one, 80, 24)[0]
    extended = model(*(job(str(n)) for n in range(6)), spec={"stop": {"jobs": 4}})
    assert "   0 of 6 jobs   " in drawn(extended, 80, 24)[0]


def test_before_anything_is_known() -> None:
    lines = drawn(LiveModel("digits.yaml"), 80, 20)
    assert lines[0].startswith("digits.yaml  waiting for the cluster")


def test_rows_are_bounded_and_the_most_interesting_come_first() -> None:
    jobs = [job(str(number), JobState.COMPLETED, 10, number / 100) for number in range(50)]
    made = model(
        *jobs, job("a", JobState.RUNNING, 3, 0.01), job("b", JobState.FAILED, 2), best_job="49", best_value=0.49
    )
    assert [one.id for one in interesting(made)[:4]] == ["49", "a", "b", "48"]
    lines = drawn(made, 90, 12)
    assert len(lines) <= 12
    assert lines[-1].startswith("... 46 more jobs: 46 completed")


def test_a_job_that_is_no_more_is_not_counted() -> None:
    made = model(job("1"), job("2", JobState.CREATING))
    assert made.counts() == {JOB[JobState.RUNNING]: 1, JOB[JobState.CREATING]: 1}
    made.apply(JobGone("2"), 100.0)
    assert made.counts() == {JOB[JobState.RUNNING]: 1}


@pytest.mark.parametrize("width", [30, 50, 60, 80, 100, 140])
@pytest.mark.parametrize("ascii_only", [False, True])
def test_no_line_is_wider_than_the_terminal(width: int, ascii_only: bool) -> None:
    made = model(*(job(str(number), state, 3, 0.123456) for number, state in enumerate(JobState)), reason="words " * 40)
    made.apply(JobReport("1", Report(1, {"accuracy": math.nan})), 100.0)
    made.apply(JobReport("1", Report(2, {"accuracy": 0.5})), 100.0)
    lines = drawn(made, width, 20, ascii_only=ascii_only)
    assert max(map(len, lines)) <= width
    if ascii_only:
        assert all(line.replace("…", "").isascii() for line in lines)


def test_rate_counts_the_last_ten_seconds() -> None:
    made = model(job("1"))
    for second in range(30):
        made.apply(JobReport("1", Report(second, {"accuracy": 0.1})), 100.0 + second)
        made.apply(JobReport("1", Report(second, {"accuracy": 0.1})), 100.0 + second)
    assert made.rate(129.0) == pytest.approx(2.0)
    assert made.rate(200.0) == 0.0
    assert made.reports == 60


def test_a_curve_takes_each_position_once_and_only_the_whole() -> None:
    made = model(job("1"))
    made.load_curve("1", [Point(1, 0.1), Point(2, 0.2)])
    made.apply(JobReport("1", Report(2, {"accuracy": 0.9})), 100.0)
    made.apply(JobReport("1", Report(3, {"accuracy": 0.3}, part="a")), 100.0)
    made.apply(JobReport("1", Report(3, {"accuracy": 0.3})), 100.0)
    assert made.curve("1") == [0.1, 0.2, 0.3]


def test_on_partitioned_data_the_metric_is_not_missed_before_something_was_evaluated() -> None:
    made = model(job("1"), spec={"stop": {}, "data": "dig"})
    assert made.without_best() == "no report yet"
    made.apply(JobReport("1", Report(1, {"train_accuracy": 0.1})), 100.0)
    assert made.without_best() == "no evaluation yet"
    made.apply(JobReport("1", Report(2, {"acuracy": 0.1}, part="eval/0")), 100.0)
    assert made.without_best().startswith("accuracy is not reported; reported are acuracy, train_accuracy")


@pytest.mark.merge
@given(st.integers(min_value=1, max_value=3000))
def test_long_curves_stay_bounded_and_keep_the_newest(length: int) -> None:
    made = model(job("1"))
    made.load_curve("1", [Point(position, float(position)) for position in range(1, length + 1)])
    curve = made.curve("1")
    assert len(curve) <= 512
    assert curve[-1] == length
    assert list(curve) == sorted(curve)


def trained(made: LiveModel, seconds: int, *jobs: str, start: float = 100.0) -> float:
    """Let jobs train one iteration in each second; return the time of the last report."""
    for second in range(1, seconds + 1):
        for name in jobs:
            position = made.jobs[name].position + 1
            made.apply(replace(made.jobs[name], position=position), start + second)
            made.apply(JobReport(name, Report(position, {"accuracy": 0.5})), start + second)
    return start + seconds


def test_time_left_goes_by_how_long_jobs_really_are() -> None:
    # The ended job had 10 iterations, so job 2 needs 30 - 4 more and the job that is not created yet 30.
    stop = {"stop": {"jobs": 3, "max_iterations": 50}}
    made = model(job("1", JobState.COMPLETED, 30), job("2", position=0), spec=stop)
    now = trained(made, 4, "2")
    assert made.time_left(now) == pytest.approx(26 + 30)
    assert made.remaining(now) == "about 1m left"
    made.apply(experiment(spec={"stop": {**stop["stop"], "max_time": 40.0}}, running_seconds=20.0), now)
    assert made.remaining(now) == "at most 20s left"
    assert model(job("1", position=5)).time_left(100.0) is None


def test_no_time_is_estimated_while_the_experiment_is_paused_nor_from_what_was_trained_before_the_view_began() -> None:
    made = model(job("1", position=3), spec={"stop": {"jobs": 1, "max_iterations": 100}})
    now = trained(made, 3, "1")
    assert made.time_left(now) is None
    now = trained(made, 2, "1", start=now)
    assert made.time_left(now) == pytest.approx(92)
    made.apply(replace(experiment(), state=ExperimentState.PAUSED), now)
    assert made.remaining(now) == ""


@pytest.mark.parametrize(
    "changes",
    [
        {"spec": {"policy": {"name": "asha"}, "stop": {"jobs": 4, "max_iterations": 10}}},
        {"spec": {"policy": {"name": "module:Mine"}, "stop": {"jobs": 4, "max_iterations": 10}}},
        {"metric": Metric("accuracy", "max", target=0.9)},
    ],
)
def test_nobody_knows_how_long_a_search_takes_that_does_not_train_every_job_to_the_end(changes: dict[str, Any]) -> None:
    made = model(job("1", position=1), job("2", JobState.SUSPENDED, 1), **changes)
    now = trained(made, 6, "1")
    assert made.remaining(now) == ""
    assert " left" not in plain_line(made, now)
    assert " left" not in drawn(made, 110, 20, now)[0]


def test_a_cluster_that_does_not_answer_is_said_to_be_away() -> None:
    made = model(job("1", position=1), job("2", position=1))
    assert trained(made, 5, "1", "2", start=95.0) == 100.0
    assert "reports/s" in plain_line(made, 105.0)
    for shown in (plain_line(made, 112.0), "\n".join(drawn(made, 110, 20, 112.0))):
        assert "no answer from the cluster for 12s" in shown
        assert "reports/s" not in shown
        assert " left" not in shown
    made.heard(111.0)
    assert "about" in plain_line(made, 112.0)


def test_time_stands_while_it_is_paused() -> None:
    assert model(state=ExperimentState.PAUSED).elapsed(150.0) == 20.0
    assert model().elapsed(150.0) == 70.0


def test_time_never_runs_backwards() -> None:
    made = model()
    made.apply(experiment(state=ExperimentState.PAUSING, running_seconds=24.0), 105.0)
    assert made.elapsed(105.0) == made.elapsed(111.0) == 25.0
    made.apply(experiment(state=ExperimentState.PAUSED, running_seconds=24.0), 111.0)
    assert made.elapsed(120.0) == 25.0


def test_plain_lines() -> None:
    made = model(job("1", best=0.5), best_job="1", best_value=0.5, best_position=4)
    line = plain_line(made, 100.0)
    assert line.strip().startswith("20s  digits RUNNING  1 running")
    assert "1 running  best accuracy 0.5 (job 1 at 4)" in line
    assert "waiting for the cluster" in plain_line(LiveModel("x.yaml"), 0.0)


def test_a_plain_line_says_what_starts_while_nothing_trains_and_on_how_many_slots() -> None:
    starting = Job("e1", "1", JobState.STARTING, "starts on a/0, b/0: its process prepares", slots=("a/0", "b/0"))
    line = plain_line(model(starting), 100.0)
    assert "1 starting (2 slots busy)  no report yet" in line
    assert line.endswith("job 1 starts on a/0, b/0: its process prepares")
    line = plain_line(model(starting, job("2")), 100.0)
    assert "1 running, 1 starting (3 slots busy)" in line
    assert "prepares" not in line


def test_a_job_that_leaves_its_slot_is_not_called_suspending() -> None:
    made = model(Job("e1", "1", JobState.SUSPENDING, "trained to its end, saving"))
    assert "1 leaving" in plain_line(made, 100.0)
    assert "1 leaving" in drawn(made, 110, 20)[2]


def test_smaller_is_better_when_the_metric_says_so() -> None:
    made = model(job("1", best=0.5), job("2", best=0.1), job("3", best=math.nan), metric=Metric("loss", "min"))
    assert [one.id for one in interesting(made)] == ["2", "1", "3"]


def test_a_metric_that_is_not_reported_is_named_while_it_trains() -> None:
    made = model(job("1"), metric=Metric("acuracy", "max"))
    assert "no report yet" in plain_line(made, 100.0)
    made.apply(JobReport("1", Report(1, {"accuracy": 0.5, "loss": 1.0})), 100.0)
    expected = "acuracy is not reported; reported are accuracy, loss (did you mean accuracy?)"
    assert expected in plain_line(made, 100.0)
    assert drawn(made, 110, 20)[1] == expected


def test_a_metric_that_is_never_finite_is_no_best_value() -> None:
    made = model(job("1", best=math.nan), best_job="1", best_value=math.nan)
    made.apply(JobReport("1", Report(1, {"accuracy": math.nan})), 100.0)
    assert drawn(made, 110, 20)[1] == "accuracy is reported, but never finite"
    made.load_metrics({"accuracy": True})
    assert "never finite" not in plain_line(made, 100.0)


def test_slots_are_held_only_when_they_do_not_train() -> None:
    assert "   1 of 2 slots   " in drawn(model(job("1"), slots=1), 110, 20)[0]


def waiting(name: str, reason: str, state: JobState = JobState.PENDING) -> Job:
    return Job("e1", name, state, reason)


def test_the_commonest_reasons_why_jobs_wait_stand_in_the_header() -> None:
    busy = "waits for a slot: 2 of 2 in its share are busy"
    jobs = [waiting("2", busy), waiting("3", busy), waiting("4", "waits for the generator's answer", JobState.CREATING)]
    made = model(job("1", best=0.5), *jobs, waiting("5", "starts on a/0: its process prepares", JobState.STARTING))
    lines = drawn(made, 110, 20)
    assert lines[3:5] == [f"○ 2 jobs  {busy}", "· 1 job  waits for the generator's answer"]
    # Below 20 lines, the table of jobs needs the space of the reasons.
    assert not any(busy in line for line in drawn(made, 110, 12))
    # The plain line omits the reason because a job trains.
    assert busy not in plain_line(made, 100.0)
    assert plain_line(model(*jobs), 100.0).endswith(f"reports/s  {busy}")
    assert plain_line(model(*jobs, reason="paused by a person"), 100.0).endswith("reports/s  paused by a person")
    asked = {"reason": "waits for the policy", "reason_code": ReasonCode.WAITS_FOR_POLICY}
    assert plain_line(model(*jobs, **asked), 100.0).endswith("reports/s")
    long = {"reason": "waits for the policy, which has not answered for 3 s", "reason_args": {"seconds": 3}}
    assert plain_line(model(*jobs, **{**asked, **long}), 100.0).endswith("answered for 3 s")


def test_what_keeps_the_cluster_from_going_on_is_shown() -> None:
    made = model(job("1"))
    assert "journal" not in plain_line(made, 100.0)
    made.trouble = "the journal cannot be written: no space left"
    assert plain_line(made, 100.0).endswith("the journal cannot be written: no space left")
    assert "the journal cannot be written: no space left" in "\n".join(drawn(made, 110, 20))


@pytest.mark.parametrize("width", [80, 120])
def test_a_job_that_a_person_paused_is_seen_at_a_glance(width: int) -> None:
    made = model(job("1"), waiting("2", "paused by a person", JobState.HELD))
    text = "\n".join(drawn(made, width, 24))
    assert "◫ 1 held" in text
    assert "◫ 1 job  paused by a person" in text


@pytest.mark.parametrize("ascii_only", [False, True])
def test_jobs_that_the_target_cut_short_are_stopped_and_not_failed(ascii_only: bool) -> None:
    cut = replace(job("1", JobState.TERMINATED), reason_code=ReasonCode.STOPPED_BY_TARGET)
    unstarted = replace(job("2", JobState.TERMINATED, 0), reason_code=ReasonCode.NOT_STARTED)
    made = model(job("3", JobState.COMPLETED), cut, unstarted, state=ExperimentState.COMPLETED)
    text = "\n".join(drawn(made, 110, 24, ascii_only=ascii_only))
    symbols = "+sn" if ascii_only else "✓□◌"
    assert "{} 1 completed  {} 1 stopped  {} 1 not started".format(*symbols) in text
    failed = JOB[JobState.FAILED]
    assert not any(part in text for part in (failed.symbol, failed.word))


def labelled(*priorities: float | None) -> LiveModel:
    states = [JobState.RUNNING, JobState.SUSPENDED, JobState.RUNNING, JobState.TERMINATED, JobState.COMPLETED]
    jobs = [
        replace(job(str(number), state, best=number / 10), priority=priority)
        for number, (state, priority) in enumerate(zip(states, priorities, strict=False), 1)
    ]
    return model(*jobs)


def test_jobs_that_their_policy_tells_apart_are_shown_as_promising_opportunistic_and_ended() -> None:
    lines = drawn(labelled(0.874, 0.0, None, 0.3, 0.9), 110, 20)
    assert any(line.startswith("policy  ★ 1 promising  ☆ 2 opportunistic  ■ 1 ended") for line in lines)
    assert lines[4].split()[:4] == ["job", "state", "p", "position"]
    rows = {line.split()[0]: line for line in lines[5:] if line.strip()}
    assert "★ 0.87" in rows["1"]
    assert all("☆" in rows[name] and "★" not in rows[name] for name in "23")
    assert not any("☆" in rows[name] or "★" in rows[name] for name in "45")
    plain = drawn(labelled(0.874, 0.0), 110, 20, ascii_only=True)
    assert any(line.startswith("policy  * 1 promising  - 1 opportunistic  t 0 ended") for line in plain)


def test_without_labels_there_is_nothing_of_it() -> None:
    text = "\n".join(drawn(labelled(None, None, None, None, None), 110, 20))
    assert "promising" not in text
    assert "☆" not in text


def retrying(name: str, state: JobState = JobState.RUNNING, attempt: int = 2, failures: int = 1) -> Job:
    """Return a job whose last run failed, and that has reported nothing since."""
    cause = Reason.of(
        ReasonCode.RUN_MESSAGE, message="ended with exit code 1; its last lines:\nTraceback\nValueError: no data"
    )
    reason = Reason.of(ReasonCode.ATTEMPT_AFTER_FAILURE, attempt=attempt, attempts=4, cause=cause)
    if not state.live:
        reason = Reason.of(
            ReasonCode.WAITS_FOR_POLICY, last=Reason.of(ReasonCode.FAILED, left=4 - attempt, cause=cause)
        )
    if state is JobState.FAILED:
        reason = Reason.of(ReasonCode.FAILED_TOO_OFTEN, failures=failures, allowed=3, cause=cause)
    return replace(
        job(name, state, 0),
        attempt=attempt if state.live else attempt - 1,
        failures=failures,
        reason=str(reason),
        reason_code=reason.code,
        reason_args=reason.args,
    )


def test_a_job_that_tries_again_after_a_failure_is_marked_until_it_reports() -> None:
    made = model(job("2"), retrying("1"), retrying("3", JobState.SUSPENDED))
    lines = drawn(made, 140, 20)
    assert "job 1 failed, attempt 2 of 4: ValueError: no data" in lines
    assert "job 3 failed, attempt 2 of 4 waits: ValueError: no data" in lines
    assert "▶ running (attempt 2)" in next(line for line in lines if line.startswith(" 1 "))
    assert sum("ValueError" in line for line in lines[:6]) == 2  # Not among the reasons why jobs wait.
    made.apply(replace(job("1"), attempt=2, failures=1), 101.0)
    lines = drawn(made, 140, 20)
    assert not any("job 1 failed" in line for line in lines)
    assert "▶ running " in next(line for line in lines if line.startswith(" 1 "))


def test_each_failure_is_one_line() -> None:
    made = model(job("1"), job("2"))
    assert made.incidents.take() == []
    made.apply(retrying("1", JobState.SUSPENDED), 101.0)
    made.apply(retrying("1"), 101.0)
    made.apply(replace(retrying("2", JobState.FAILED, 5, 4)), 102.0)
    assert made.incidents.take() == [
        "job 1 failed, attempt 2 of 4 waits: ValueError: no data",
        "job 2 failed for good after 4 attempts: ValueError: no data",
    ]
    assert made.incidents.take() == []


def node(state: NodeState, name: str = "n2") -> Node:
    reason = "its agent is silent beyond its lease" if state is NodeState.LOST else ""
    return Node(name, "h:1", state, reason=reason)


def test_a_lost_node_is_one_line_with_what_its_jobs_do() -> None:
    def placed(name: str, *snapshots: Snapshot, slot: str = "n2/0") -> Job:
        return replace(job(name), slots=(slot,), snapshots=snapshots)

    stored, only = Snapshot("3", 4, "a", nodes=("n2",), stored=True), Snapshot("5", 6, "b", nodes=("n2",))
    made = model(placed("3", stored), placed("4"), placed("5", only), placed("6", slot="n1/0"))
    made.apply_nodes([node(NodeState.UP), node(NodeState.UP, "n1"), node(NodeState.LOST, "n0")])
    assert made.incidents.take() == []
    made.apply_nodes([node(NodeState.LOST), node(NodeState.UP, "n1"), node(NodeState.LOST, "n0")])
    assert made.incidents.take() == [
        "node n2 lost (its agent is silent beyond its lease): job 3 restarts from 4, job 4 restarts from the beginning, "
        "job 5 waits for it, because only it has the snapshot at 6"
    ]
    assert "node n2 is lost: its agent is silent beyond its lease" in drawn(made, 110, 20)
    made.apply_nodes([node(NodeState.UP)])
    assert made.incidents.take() == ["node n2 is back"]
    assert not any("n2 is lost" in line for line in drawn(made, 110, 20))


def test_a_lost_connection_replaces_what_is_no_longer_known() -> None:
    made = model(job("1"), waiting("2", "waits for a slot: 1 of 1 in its share are busy"), reason="its share is 0")
    made.server = "127.0.0.1:4650"
    assert "waits for a slot" in "\n".join(drawn(made, 110, 20))
    lines = drawn(made, 200, 20, now=120.0)
    expected = "connection to the cluster at 127.0.0.1:4650 lost 20s ago, trying again: start it with hopyard up if it is stopped"
    assert lines[1].startswith(expected)
    header = "\n".join(lines[: lines.index(next(line for line in lines if line.startswith(" job ")))])
    assert "waits" not in header
    assert "share" not in header
    line = plain_line(made, 120.0)
    assert expected in line
    assert "share" not in line
