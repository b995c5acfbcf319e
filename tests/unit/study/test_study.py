"""Tests of studies on a client that the test controls."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np
import pytest

from hopyard.client import AsyncClient
from hopyard.client.types import Change, Experiment, ExperimentState, Job, JobState, Metric, Report, Statistic
from hopyard.errors import Conflict, InvalidInput, NotFound, TimedOut, Unavailable
from hopyard.study import AsyncStudy, Evaluation, EvaluationFailed, Study
from hopyard.study.spec_builder import request_of, terms_of
from tests.timing import HANG_SECONDS

pytestmark = pytest.mark.quick

SPEC = {"space": {"x": {"uniform": [0.0, 1.0]}}, "constraints": [], "stop": {"idle": 90.0, "max_iterations": 9}}
STUDY = Experiment("s-1", "s", ExperimentState.RUNNING, Metric("loss", "min"), spec=SPEC)


class Scripted(AsyncClient):
    """Simulates a client: creates a job for each request; the test changes the jobs by `becomes`."""

    def __init__(self) -> None:
        super().__init__("127.0.0.1:1")
        self.calls: list[list[str]] = []
        self.known: dict[str, Job] = {}
        self.changes: asyncio.Queue[Change | Exception] = asyncio.Queue()
        self.kept: asyncio.Queue[str] = asyncio.Queue()
        self.closed: list[str] = []
        self.slow = 0
        self.keeps: Exception | None = None
        self.grows = asyncio.Condition()

    async def create(self, *given: Any, **named: Any) -> Experiment:
        return STUDY

    async def get(self, experiment: str | Experiment) -> Experiment:
        if experiment != STUDY.id:
            raise NotFound(f"there is no experiment {experiment!r}")
        return STUDY

    async def experiments(self, state: ExperimentState | None = None) -> list[Experiment]:
        return [replace(STUDY, id="s-0", state=ExperimentState.COMPLETED, reason="over"), STUDY]

    async def request_all(
        self,
        experiment: str | Experiment,
        wanted: Sequence[tuple[Mapping[str, Any], int]],
        *,
        request_ids: Sequence[str] = (),
    ) -> list[Job]:
        self.calls.append(list(request_ids))
        if self.slow:
            self.slow -= 1
            raise TimedOut("no answer within 10 s")
        for (given, _), name in zip(wanted, request_ids, strict=True):
            new = Job("s-1", str(len(self.known) + 1), JobState.PENDING, hyperparameters=given)
            self.known.setdefault(name, new)
        async with self.grows:
            self.grows.notify_all()
        return [self.known[name] for name in request_ids]

    async def watch(self, experiment: str | Experiment) -> AsyncGenerator[Change]:
        while True:
            change = await self.changes.get()
            if isinstance(change, Exception):
                raise change
            yield change
            if isinstance(change, Experiment):
                return

    async def job(self, experiment: str | Experiment, job: str) -> Job:
        return next(one for one in self.known.values() if one.id == job)

    async def statistics(self, experiment: str | Experiment, job: str | None = None) -> list[Statistic]:
        return [Statistic(job or "", 1, Report(at, {"loss": 1.0 / at, "at": at}, 0.5)) for at in range(1, 7)]

    async def keep_experiment(self, experiment: str | Experiment) -> None:
        self.kept.put_nowait("kept")
        if self.keeps is not None:
            raise self.keeps

    async def close_experiment(self, experiment: str | Experiment) -> Experiment:
        self.closed.append("closed")
        return STUDY

    def becomes(self, job: str, state: JobState, **rest: Any) -> None:
        """Change the state of a job, and send the change to the watchers."""
        name, before = next((name, one) for name, one in self.known.items() if one.id == job)
        self.known[name] = replace(before, state=state, **rest)
        self.changes.put_nowait(self.known[name])


async def forever(seconds: float) -> None:
    await asyncio.Event().wait()


async def begun(client: Scripted) -> AsyncStudy:
    return await AsyncStudy(client, sleep=forever).create({})


async def asked(client: Scripted, number: int) -> None:
    async with client.grows:
        await client.grows.wait_for(lambda: len(client.known) >= number)


@pytest.mark.parametrize("late", [50, 1000])
async def test_an_answer_waits_for_all_of_its_reports(monkeypatch: pytest.MonkeyPatch, late: int) -> None:
    """Check reports that can be read only after the job's end is known, as when AppStat restarts while a job ends."""
    client, reads = Scripted(), list[str]()
    whole = client.statistics

    async def statistics(experiment: str | Experiment, job: str | None = None) -> list[Statistic]:
        reads.append(job or "")
        return (await whole(experiment, job))[: 6 if len(reads) > late else 2]

    monkeypatch.setattr(client, "statistics", statistics)
    async with await AsyncStudy(client, sleep=lambda seconds: asyncio.sleep(0)).create({}) as study:
        task = study.start({"x": 0.5}, 3)
        await asked(client, 1)
        client.becomes("1", JobState.COMPLETED, position=3)
        if late == 50:
            assert (await task).value == pytest.approx(1 / 3)
        else:
            with pytest.raises(Unavailable, match="what job 1 reported up to 3 cannot be read yet"):
                await task


async def test_equal_evaluations_are_one_request_and_both_are_answered() -> None:
    client = Scripted()
    study = await begun(client)
    tasks = [study.start({"x": 0.5}, 3), study.start({"x": 0.5}, 3), study.start({"x": 0.25}, 3)]
    await asked(client, 2)
    assert client.calls == [[request_of({"x": x}, 3) for x in (0.5, 0.25)]]
    client.becomes("1", JobState.RUNNING)
    client.becomes("1", JobState.COMPLETED, position=3)
    done, waiting = await study.wait_any(tasks)
    assert done[0].result().value == pytest.approx(1 / 3)
    client.becomes("2", JobState.COMPLETED, position=3)
    found = await study.wait_all([*done, *waiting])
    assert [answer.job for answer in found] == ["1", "1", "2"]
    assert [point.position for point in found[0].curve] == [1, 2, 3]
    assert (found[0].metrics, found[0].seconds) == ({"loss": pytest.approx(1 / 3), "at": 3}, 1.5)
    await study.close()
    assert client.closed == ["closed"]


async def test_the_curve_begins_with_what_others_trained() -> None:
    client = Scripted()
    study = await begun(client)
    first, second = study.start({"x": 0.5}, 6), study.start({"x": 0.5}, 5)
    await asked(client, 2)
    client.becomes("1", JobState.COMPLETED, position=6)
    client.becomes("2", JobState.COMPLETED, position=5, parent="1", fork_position=5)
    assert [point.position for point in (await second).curve] == [1, 2, 3, 4, 5]
    assert (await first).position == 6
    await study.close()


async def test_of_two_that_trained_for_each_other_one_began() -> None:
    client = Scripted()
    study = await begun(client)
    tasks = [study.start({"x": 0.5}, 5), study.start({"x": 0.5}, 6)]
    await asked(client, 2)
    client.becomes("1", JobState.COMPLETED, position=5, parent="2", fork_position=5)
    client.becomes("2", JobState.COMPLETED, position=6, parent="1", fork_position=3)
    found = await study.wait_all(tasks)
    assert [[point.position for point in answer.curve] for answer in found] == [[1, 2, 3, 4, 5], [1, 2, 3, 4, 5, 6]]
    await study.close()


async def test_what_fails_says_which_job_and_why() -> None:
    client = Scripted()
    study = await begun(client)
    tasks = [study.start({"x": 0.5}, 3), study.start({"x": 0.25}, 3)]
    await asked(client, 2)
    client.becomes("1", JobState.FAILED, reason="ValueError: no")
    client.becomes("2", JobState.TERMINATED, reason="stopped by a person")
    with pytest.raises(EvaluationFailed, match="job 1 of experiment s-1 failed: ValueError: no") as caught:
        await study.wait_all(tasks)
    assert (caught.value.job, caught.value.reason) == ("1", "ValueError: no")
    with pytest.raises(EvaluationFailed, match="job 2 of experiment s-1 was ended: stopped by a person"):
        await tasks[1]
    await study.close()


async def test_bad_input_is_refused_before_anything_is_sent() -> None:
    client = Scripted()
    study = await begun(client)
    with pytest.raises(InvalidInput, match="configuration: x = 7 is outside"):
        await study.eval({"x": 7}, 3)
    with pytest.raises(InvalidInput, match=r"position: must be a whole number in 1\.\.max_iterations, found 0"):
        await study.eval({"x": 0.5}, 0)
    with pytest.raises(InvalidInput, match=r"position: must be a whole number in 1\.\.max_iterations, found 1180591"):
        await study.eval({"x": 0.5}, 2**70)
    given: Any = {"x": 0.5}
    with pytest.raises(InvalidInput, match="request_id: must be text, found 7"):
        await study.eval(given, 3, request_id=7)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="timeout: must be a number of seconds, or None, found nan"):
        await study.eval(given, 3, timeout=float("nan"))
    with pytest.raises(InvalidInput, match="wait_any: needs at least one"):
        await study.wait_any([])
    assert not client.calls
    await study.close()
    with pytest.raises(Conflict, match="the study is not open"):
        await study.eval({"x": 0.5}, 3)


async def test_what_numpy_draws_is_taken_as_the_number_that_it_is() -> None:
    client = Scripted()
    study = await begun(client)
    drawn: Any = np.int64(3)
    tasks = [study.start({"x": x}, drawn) for x in (np.float32(0.5), np.array(0.25))]
    await asked(client, 2)
    assert [(type(job.hyperparameters["x"]), job.hyperparameters["x"]) for job in client.known.values()] == [
        (float, 0.5),
        (float, 0.25),
    ]
    await study.close()
    await asyncio.gather(*tasks, return_exceptions=True)


@pytest.mark.merge
async def test_a_closed_study_keeps_nothing_alive_of_the_calls_it_made() -> None:
    client = Scripted()
    study = await begun(client)
    task = study.start({"x": 0.5}, 3)
    await asked(client, 1)
    client.becomes("1", JobState.COMPLETED, position=3)
    await task
    kept = [
        weakref.ref(task) for task in asyncio.all_tasks() if task.get_name().startswith(("watch", "keep", "requests"))
    ]
    assert kept
    await study.close()
    del task
    await asyncio.sleep(0)
    gc.collect()
    assert [one() for one in kept] == [None] * len(kept)
    assert study is not None  # the study object itself still exists


async def test_what_becomes_of_a_configuration_later_is_not_what_was_asked_for() -> None:
    client = Scripted()
    study = await begun(client)
    given = {"x": 0.0}
    for x in (0.25, 0.5):
        given["x"] = x
        study.start(given, 3)
    await asked(client, 2)
    assert [job.hyperparameters for job in client.known.values()] == [{"x": 0.25}, {"x": 0.5}]
    await study.close()


@pytest.mark.merge
async def test_a_tuner_that_breaks_leaves_nothing_behind_that_complains() -> None:
    said = list[object]()
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: said.append(context["message"]))
    client = Scripted()
    study = await begun(client)
    for x in (0.25, 0.5, 0.75):
        study.start({"x": x}, 3)
    await asked(client, 3)
    client.becomes("1", JobState.FAILED, reason="ValueError: no")
    await study.close()
    failing = await begun(client)
    tasks = [failing.start({"x": x}, 3) for x in (0.25, 0.5)]
    for job in ("1", "2"):
        client.becomes(job, JobState.FAILED, reason="ValueError: no")
    with pytest.raises(EvaluationFailed):
        await failing.wait_all(tasks)
    await failing.close()
    del tasks
    gc.collect()
    assert not said


async def test_who_runs_out_of_time_only_waits_no_longer() -> None:
    client = Scripted()
    study = await begun(client)
    with pytest.raises(TimedOut, match="is not trained to 3 after 0 s; it goes on to be"):
        await study.eval({"x": 0.5}, 3, timeout=0)
    waiting = study.start({"x": 0.5}, 3)
    await asked(client, 1)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    client.becomes("1", JobState.COMPLETED, position=3)
    assert (await study.eval({"x": 0.5}, 3)).job == "1"
    await study.close()


async def test_a_call_without_an_answer_is_made_again_with_the_same_ids() -> None:
    client = Scripted()
    client.slow = 2
    study = await begun(client)
    task = study.start({"x": 0.5}, 3)
    await asked(client, 1)
    assert len(client.calls) == 3
    assert client.calls[0] == client.calls[2]
    client.becomes("1", JobState.COMPLETED, position=3)
    await task
    await study.close()


async def test_when_nothing_more_is_heard_those_who_wait_are_told_and_the_next_one_listens_again() -> None:
    client = Scripted()
    study = await begun(client)
    task = study.start({"x": 0.5}, 3)
    await asked(client, 1)
    client.changes.put_nowait(Unavailable("no answer from the cluster"))
    with pytest.raises(Unavailable):
        await task
    again = study.start({"x": 0.5}, 3)
    client.becomes("1", JobState.COMPLETED, position=3)
    assert (await again).job == "1"
    last = study.start({"x": 0.25}, 3)
    await asked(client, 2)
    client.changes.put_nowait(replace(STUDY, state=ExperimentState.COMPLETED, reason="its time of 5 s is over"))
    with pytest.raises(Conflict, match="experiment s-1 is COMPLETED \\(its time of 5 s is over\\)"):
        await last
    await study.close()


async def test_a_mistake_in_what_listens_is_told_to_those_who_wait() -> None:
    client = Scripted()
    study = await begun(client)
    task = study.start({"x": 0.5}, 3)
    await asked(client, 1)
    client.changes.put_nowait(KeyError("a state that this version does not know"))
    async with asyncio.timeout(HANG_SECONDS):
        with pytest.raises(KeyError, match="a state that this version does not know"):
            await task
    await study.close()


async def test_it_is_kept_open_while_it_is_open_and_left_open_by_who_only_joined() -> None:
    client, slept = Scripted(), list[float]()

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) > 2:
            await forever(seconds)

    study = await AsyncStudy(client, sleep=sleep).open("s")
    assert study.experiment.id == "s-1"
    for _ in range(2):
        assert await client.kept.get() == "kept"
    assert slept[:2] == [30.0, 30.0]
    await study.close()
    await study.close()
    assert not client.closed
    with pytest.raises(NotFound):
        await AsyncStudy(client, sleep=sleep).open("nothing")


async def test_a_study_that_cannot_be_kept_open_says_so(caplog: pytest.LogCaptureFixture) -> None:
    client = Scripted()
    client.keeps = NotFound("there is no experiment 's-1'")

    async def sleep(seconds: float) -> None:
        await asyncio.sleep(0)

    study = await AsyncStudy(client, sleep=sleep).open("s")
    await client.kept.get()
    assert "experiment s-1 is not kept open any more: there is no experiment 's-1'" in caplog.text
    await study.close()


async def test_a_try_to_keep_it_open_that_takes_too_long_gives_way_to_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    client, tries = Scripted(), list[str]()

    async def create(*given: Any, **named: Any) -> Experiment:
        return replace(STUDY, spec={**SPEC, "stop": {"idle": 0.03}})

    async def keep(experiment: str | Experiment) -> None:
        tries.append("try")
        if len(tries) < 3:
            await asyncio.Event().wait()
        client.kept.put_nowait("kept")

    monkeypatch.setattr(client, "create", create)
    monkeypatch.setattr(client, "keep_experiment", keep)
    study = await AsyncStudy(client, sleep=lambda seconds: asyncio.sleep(0)).create({})
    async with asyncio.timeout(HANG_SECONDS):
        assert await client.kept.get() == "kept"
    await study.close()


async def test_closing_tells_those_who_wait() -> None:
    client = Scripted()
    study = await begun(client)
    task = study.start({"x": 0.5}, 3)
    await asked(client, 1)
    await study.close(end=False)
    with pytest.raises(Conflict, match="the study was closed before this was trained"):
        await task
    assert not client.closed


async def test_values_are_ranked_by_the_metrics_mode() -> None:
    study = await begun(Scripted())
    answers = [Evaluation(str(n), {}, 1, value) for n, value in enumerate((3.0, float("nan"), 1.0, 1.0, float("-inf")))]
    assert [answer.job for answer in study.ranked(answers)] == ["2", "3", "0", "1", "4"]
    await study.close()


def test_a_studys_terms_are_those_of_the_file_without_trials_of_its_own() -> None:
    text = "name: digits\nstop: {jobs: 24, max_iterations: 9}\npolicy: {name: stage_tree, share: false}\n"
    data, _ = terms_of(text, None, 60.0, {"share": "g"})
    assert data["stop"] == {"jobs": 0, "max_iterations": 9, "idle": 60.0}
    assert (data["name"], data["policy"], data["share"]) == ("digits", {"name": "stage_tree", "share": False}, "g")
    assert terms_of(None, None, 60.0, {})[0] == {
        "name": "study",
        "policy": "stage_tree",
        "stop": {"jobs": 0, "idle": 60.0},
    }
    with pytest.raises(InvalidInput, match="stop: needs a mapping, found 3"):
        terms_of({"stop": 3}, None, 60.0, {})
    with pytest.raises(InvalidInput, match="no such file"):
        terms_of("nothing.yaml", None, 60.0, {})
    with pytest.raises(InvalidInput, match="needs a mapping of fields"):
        terms_of("- a\n- b\n", None, 60.0, {})


def test_equal_requests_have_one_name() -> None:
    assert request_of({"a": 1, "b": 2.0}, 3) == request_of({"b": 2, "a": 1.0}, 3) != request_of({"a": 1, "b": 2}, 4)


async def test_what_can_no_longer_be_heard_is_listened_for_again_before_anybody_waits() -> None:
    client = Scripted()
    study = await begun(client)
    client.changes.put_nowait(Unavailable("the stream broke while the request was under way"))
    task = study.start({"x": 0.5}, 3)
    await asked(client, 1)
    client.becomes("1", JobState.COMPLETED, position=3)
    async with asyncio.timeout(HANG_SECONDS):
        assert (await task).job == "1"
    await study.close()


@pytest.mark.merge
def test_a_study_without_an_event_loop_may_be_closed_and_opened_again_after_a_mistake() -> None:
    study = Study(cast(Any, Scripted()))
    with pytest.raises(NotFound):
        study.open("nothing")
    for _ in range(2):
        study.open("s")
        with pytest.raises(Conflict, match="this study is open already"):
            study.open("s")
        assert study.experiment.id == "s-1"
        study.close()
        study.close()
