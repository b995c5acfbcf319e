"""Tests of the messages to a watcher when only the reasons why jobs wait have changed."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from hopyard.policy.vocabulary import StreamId
from hopyard.v1 import experiment_pb2
from hopyard_engine.core.events import Operated
from hopyard_scheduler.experiments.waiting_reasons import AGAIN_SECONDS, MAX_NEWS, WatcherState
from tests.unit.core.rig import Rig

pytestmark = pytest.mark.quick


def told_of(rig: Rig) -> WatcherState:
    payload = {"name": "e", "spec": '{"stop": {}, "metric": {}, "resources": {}}', "bundle": ""}
    rig.stream.founder.payload = payload
    return WatcherState(rig.core, rig.stream, rig.stream.founder, lambda: rig.now)


def jobs_in(news: Iterable[experiment_pb2.WatchExperimentResponse]) -> dict[str, str]:
    return {one.job.id: one.job.reason for one in news if one.HasField("job")}


def test_it_is_told_when_it_is_time_and_only_what_has_changed() -> None:
    rig = Rig(capacity=1)
    rig.start(rig.create())
    rig.create()
    told = told_of(rig)
    for job in rig.stream.jobs.values():
        told.job(job)
    assert told.experiment().experiment.reason == ""
    rig.now += AGAIN_SECONDS
    assert list(told.news()) == []
    rig.join("n2", 1)
    rig.now += AGAIN_SECONDS / 2
    assert list(told.news()) == []
    rig.now += AGAIN_SECONDS / 2
    assert jobs_in(told.news()) == {"2": "the policy has not started it (1 slot is idle)"}
    rig.expire("n1")
    rig.expire("n2")
    rig.now += AGAIN_SECONDS
    news = list(told.news())
    assert set(jobs_in(news)) == {"1", "2"}
    assert news[-1].experiment.reason == "the cluster has no slot (no agent is connected; nodes n1 and n2 are lost)"


def test_many_jobs_are_told_a_part_at_a_time() -> None:
    rig = Rig(capacity=1, jobs=250)
    for _ in range(250):
        rig.create()
    told = told_of(rig)
    parts = []
    for _ in range(4):
        rig.now += AGAIN_SECONDS
        parts.append(len(jobs_in(told.news())))
    assert parts == [MAX_NEWS, MAX_NEWS, 250 - 2 * MAX_NEWS, 0]


def test_the_end_is_not_told_before_it_is_journalled() -> None:
    rig = Rig(capacity=1)
    rig.create()
    told = told_of(rig)
    rig.feed(Operated(rig.now, StreamId("x"), "stop"))
    assert rig.stream.state.ended
    rig.now += AGAIN_SECONDS
    assert list(told.news()) == []
