"""Tests of the curves of earlier experiments: which experiments have the same space and metric, and how many curves are returned."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Mapping
from typing import Any, cast

import pytest

from hopyard._net.rpc.values import hyperparameters_to_proto
from hopyard.errors import HopyardError, Unavailable
from hopyard.spec import canonical_json, load_spec
from hopyard.v1 import appstat_pb2, common_pb2, experiment_pb2
from hopyard_scheduler.external_requests.predictions import prior_curves
from hopyard_scheduler.external_requests.predictions.prior_curves import PriorCurves

pytestmark = pytest.mark.quick

SPEC = """
name: a
command: [train]
metric: {name: accuracy, mode: max}
space: {lr: {loguniform: [0.1, 1.0]}, data: cifar}
stop: {jobs: 3}
"""


class Stored:
    """Simulates the part of AppStat that these tests need: experiments with jobs and reports."""

    def __init__(self) -> None:
        self.experiments: list[experiment_pb2.Experiment] = []
        self.rows: dict[str, list[experiment_pb2.Job]] = {}
        self.reports: dict[str, list[appstat_pb2.Statistic]] = {}
        self.asked: list[str] = []

    def add(self, name: str, curves: Iterable[Mapping[int, float]], *, ended: float = 5.0, text: str = SPEC) -> None:
        """Add a completed experiment, newer than those before. `curves` has the values by position of each job."""
        shown = experiment_pb2.Experiment(id=name, spec_json=canonical_json(load_spec(text, "f")), ended_at=ended)
        shown.state = experiment_pb2.EXPERIMENT_STATE_COMPLETED
        shown.metric.name, shown.metric.mode = "accuracy", common_pb2.METRIC_MODE_MAX
        self.experiments.insert(0, shown)
        self.rows[name], self.reports[name] = [], []
        for number, curve in enumerate(curves, 1):
            job = experiment_pb2.Job(experiment=name, id=str(number), state=common_pb2.JOB_STATE_COMPLETED)
            job.hyperparameters.CopyFrom(hyperparameters_to_proto({"lr": 0.5, "data": "cifar"}))
            self.rows[name].append(job)
            for position, value in curve.items():
                report = common_pb2.Report(position=position, metrics={"accuracy": value})
                self.reports[name].append(appstat_pb2.Statistic(experiment=name, job=job.id, report=report))

    async def QueryExperiments(self, request: Any) -> appstat_pb2.QueryExperimentsResponse:
        return appstat_pb2.QueryExperimentsResponse(experiments=self.experiments[: request.page_size])

    async def QueryJobs(self, request: Any) -> appstat_pb2.QueryJobsResponse:
        return appstat_pb2.QueryJobsResponse(jobs=self.rows[request.experiment])

    async def QueryStatistics(self, request: Any) -> appstat_pb2.QueryStatisticsResponse:
        self.asked.append(request.experiment)
        begin = int(request.page_token or 0)
        end = begin + 4
        found = self.reports[request.experiment]
        token = str(end) if end < len(found) else ""
        return appstat_pb2.QueryStatisticsResponse(statistics=found[begin:end], next_page_token=token)


async def curves(stored: Stored, text: str = SPEC, before: float = 10.0) -> list[dict[str, Any]]:
    found = await PriorCurves(cast(Any, stored)).curves("x", load_spec(text, "f"), before)
    return cast(list[dict[str, Any]], json.loads(found))


async def test_finished_jobs_of_the_same_space_are_given_newest_experiment_first() -> None:
    stored = Stored()
    stored.add("old", [{1: 0.1, 2: 0.2}])
    stored.add("new", [{1: 0.3}, {1: 0.4, 2: float("nan"), 3: 0.5}])
    found = await curves(stored)
    assert [one["positions"] for one in found] == [[1, 2, 3], [1], [1, 2]]
    assert found[0]["values"][0] == 0.4
    assert found[0]["values"][1] != found[0]["values"][1]
    assert found[2] == {
        "positions": [1, 2],
        "values": [0.1, 0.2],
        "hyperparameters": {"lr": 0.5, "data": "cifar"},
        "ended": True,
    }


@pytest.mark.parametrize(
    ("old", "new", "same"),
    [
        ("[0.1, 1.0]", "[0.001, 7.0]", True),  # the range of a parameter does not matter
        ("name: a\n", "name: b\n", True),
        ("jobs: 3", "jobs: 30", True),
        ("data: cifar", "data: imagenet", False),
        ("data: cifar", "data: {choice: [cifar, imagenet]}", False),
        ("lr: {loguniform", "lr: {uniform", False),
        ("lr: {", "rate: {", False),
        (", data: cifar", "", False),
        ("name: accuracy", "name: loss", False),
        ("mode: max", "mode: min", False),
        ("stop:", "unit: steps\nstop:", False),
    ],
)
async def test_what_the_same_space_means(old: str, new: str, same: bool) -> None:
    stored = Stored()
    stored.add("before", [{1: 0.1}])
    assert SPEC.count(old) == 1
    assert len(await curves(stored, SPEC.replace(old, new))) == same


@pytest.mark.parametrize("ended", [0.0, 10.5])
async def test_an_experiment_that_had_not_ended_is_not_earlier(ended: float) -> None:
    stored = Stored()
    stored.add("beside", [{1: 0.1}], ended=ended)
    assert await curves(stored) == []


async def test_one_that_another_version_wrote_is_left_out() -> None:
    stored = Stored()
    stored.add("strange", [{1: 0.1}])
    stored.add("good", [{1: 0.2}])
    stored.experiments[1].spec_json = stored.experiments[1].spec_json.replace("loguniform", "curious")
    assert len(await curves(stored)) == 1


async def test_they_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    stored = Stored()
    stored.add("older", [{1: 0.1}] * 3)
    stored.add("old", [{1: 0.1}, {1: 0.2, 2: 0.2}, {1: 0.3}])
    stored.add("new", [dict.fromkeys(range(1, 8), 0.5)])
    monkeypatch.setattr(prior_curves, "CURVES", 2)
    monkeypatch.setattr(prior_curves, "POINTS", 3)
    assert [one["positions"] for one in await curves(stored)] == [[1, 4, 7], [1, 2]]
    assert set(stored.asked) == {"new", "old"}
    monkeypatch.setattr(prior_curves, "CURVES", 100)
    monkeypatch.setattr(prior_curves, "REPORTS", 9)
    stored.asked.clear()
    assert len(await curves(stored)) == 4  # all curves of `new` and `old`: a page is read as a whole
    assert stored.asked == ["new", "new", "old"]


async def test_they_are_read_once_and_again_when_the_experiment_was_over() -> None:
    stored = Stored()
    stored.add("old", [{1: 0.1}])
    found = PriorCurves(cast(Any, stored))
    spec = load_spec(SPEC, "f")
    first = await found.curves("x", spec, 10.0)
    stored.add("new", [{1: 0.2}])
    assert await found.curves("x", spec, 10.0) == first
    assert stored.asked == ["old"]
    found.forget("x")
    assert len(json.loads(await found.curves("x", spec, 10.0))) == 2


class Failing(Stored):
    """An AppStat that raises an error, or does not answer if it has none, until `well` is set."""

    def __init__(self, error: HopyardError | None) -> None:
        super().__init__()
        self.error = error
        self.well = False
        self.tries = 0

    async def QueryExperiments(self, request: Any) -> appstat_pb2.QueryExperimentsResponse:
        if self.well:
            return await super().QueryExperiments(request)
        self.tries += 1
        if self.error is not None:
            raise self.error
        await asyncio.Event().wait()
        raise AssertionError("nobody sets it")


@pytest.mark.parametrize(
    ("error", "seconds", "said"),
    [(None, 0.0, "it took longer than 0 s"), (Unavailable("AppStat is away"), 30.0, "AppStat is away")],
)
async def test_a_store_that_does_not_answer_is_told_once_and_asked_again_ever_later(
    error: HopyardError | None, seconds: float, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    stored = Failing(error)
    stored.add("old", [{1: 0.1}])
    now = 0.0
    found = PriorCurves(cast(Any, stored), seconds, lambda: now)
    spec = load_spec(SPEC, "f")
    assert await asyncio.gather(*(found.curves("x", spec, 10.0) for _ in range(3))) == ["[]"] * 3
    assert stored.tries == 1  # calls that waited for the failed try do not try again
    tries = []
    for second in range(1, 1000):
        now, before = float(second), stored.tries
        assert await found.curves("x", spec, 10.0) == "[]"
        if stored.tries > before:
            tries.append(second)
    assert tries == [30, 90, 210, 450, 930]
    assert [record.message for record in caplog.records] == [
        f"experiment x is predicted without the curves of earlier ones, which cannot be read: {said}; "
        "this is tried again after 30 s at the earliest"
    ]
    stored.well = True
    assert await found.curves("x", spec, 10.0) == "[]"
    if error is not None:  # without an error, the limit of 0 s is always exceeded
        now = 1530.0
        assert len(json.loads(await found.curves("x", spec, 10.0))) == 1
    found.forget("x")
    stored.well = False
    await found.curves("x", spec, 10.0)
    assert len(caplog.records) == 2
