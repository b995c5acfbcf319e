"""Tests that a job whose processes always die does not let a slot idle that other jobs could use, under each policy."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from hopyard.policy import Policy
from hopyard.policy.vocabulary import RunEndReason, RunMode, StreamId
from hopyard_engine.core.events import StreamCreated, TimerElapsed
from hopyard_engine.core.state.timers import BackoffTimer, timer_of
from hopyard_engine.core.types import PlacedData, PlacedPartition, SnapshotInfo
from hopyard_policies.bandit import BanditPolicy
from hopyard_policies.default import DefaultPolicy
from hopyard_policies.earlyterm import EarlyTermPolicy
from hopyard_policies.halving import AshaPolicy, ShaPolicy
from hopyard_policies.median import MedianPolicy
from hopyard_policies.mop.policy import MopPolicy
from hopyard_policies.pbt import PbtPolicy
from hopyard_policies.pop import PopPolicy
from hopyard_policies.pop_plus import PopPlusPolicy
from hopyard_policies.stage_tree.policy import StageTreePolicy
from tests.unit.core.rig import settings, snapshot
from tests.unit.policies.searching import Searching

pytestmark = pytest.mark.quick

SPACE = {"lr": {"uniform": [0, 100]}}
JOBS = 8
SELECTIVE = ("asha", "sha", "stage_tree over asha")
"""Policies that do not train all jobs to the end, and may wait for the result of the dying one."""

PARTS = tuple(PlacedPartition(f"train/{i}", 10, f"hash {i}", 5, {"n1": f"/n1/{i}"}, ("n1",)) for i in range(4))

IN_ORDER: dict[str, tuple[Callable[[], Policy], Mapping[str, Any]]] = {
    "default": (DefaultPolicy, {}),
    "nothing ahead": (lambda: DefaultPolicy(ahead=0), {}),
    "elastic": (lambda: DefaultPolicy(elastic={"profile": {1: 1.0}}), {}),
    "gangs": (lambda: DefaultPolicy(elastic={"profile": {2: 1.0}}), {"capacity": 2}),
    "bandit": (BanditPolicy, {}),
    "median": (MedianPolicy, {}),
    "earlyterm": (EarlyTermPolicy, {}),
    "pop": (lambda: PopPolicy(evaluation_boundary=4), {}),
    "pop_plus": (PopPlusPolicy, {}),
    "asha": (lambda: AshaPolicy(eta=2, r=2), {}),
    "sha": (lambda: ShaPolicy(eta=2, r=2, width=2), {}),
    "pbt": (lambda: PbtPolicy(population=2, interval=4, truncation=0.5), {}),
    "mop": (MopPolicy, {"data": PlacedData("digits", PARTS)}),
    "stage_tree": (StageTreePolicy, {}),
    "stage_tree over asha": (lambda: StageTreePolicy(tuner={"name": "asha", "eta": 2, "r": 2}), {}),
}


class OneSlot(Searching):
    """Runs a search on one slot, in virtual time. The processes of the jobs in `dying` are killed at each start.

    Attributes:
        idle: Seconds in which the slot idled although another job had not ended or, with `selective`, had not trained.
    """

    def __init__(self, policy: Policy, dying: set[str], *, selective: bool = False, **terms: Any) -> None:
        self.idle = 0.0
        self._dying, self._selective = dying, selective
        super().__init__(
            policy, **{"capacity": 1, "jobs": JOBS, "max_position": 4, "space": SPACE, "keep_latest": 2, **terms}
        )

    def search(self) -> None:
        """Train until only the jobs in `dying` are left, and with `selective` those whose rungs wait for these."""
        while self._others_left():
            self.go_on()
            if self.stream.live:
                self._train(next(iter(self.stream.live)))
            else:
                self._pass_time()

    def _others_left(self) -> bool:
        others = [job for job in self.stream.jobs.values() if job.id not in self._dying]
        left = any(not job.attempt if self._selective else not job.state.ended for job in others)
        return self.stream.founder.jobs_left > 0 or left

    def _train(self, name: str) -> None:
        run, job = self.run(name), self.job(name)
        if name in self._dying:
            self._end(name, RunEndReason.LOST)
            return
        if run.mode is RunMode.TRAIN:
            for position in range(run.start + 1, run.until + 1):
                self.now += 1.0
                self.report(position, 1.0 / float(name), name=name)
        if job.run is run and run.ended is None:
            reason = run.ending or RunEndReason.UNTIL
            saved = None if reason is RunEndReason.TERMINATED else snapshot(run.position, f"{name}/{run.position}")
            self._end(name, reason, saved)

    def _end(self, name: str, reason: RunEndReason, saved: SnapshotInfo | None = None) -> None:
        run = self.run(name)
        for rank in range(len(run.ranks)):
            self.ended(reason, run.position, saved if rank == 0 else None, name=name, rank=rank)

    def _pass_time(self) -> None:
        ticket, at = min(self.stream.timers.items(), key=lambda timer: timer[1])
        assert at < 1e8, "nothing happens any more"
        self.idle += max(at - self.now, 0.0)
        self.now = max(at, self.now)
        self.feed(TimerElapsed(self.now, StreamId("x"), ticket))


@pytest.mark.parametrize("dying", [{"1"}, {"1", "2", "3"}], ids=["one", "three"])
@pytest.mark.parametrize("name", IN_ORDER)
def test_other_jobs_use_the_slot_during_a_backoff(name: str, dying: set[str]) -> None:
    make, terms = IN_ORDER[name]
    rig = OneSlot(make(), dying, selective=name in SELECTIVE, **terms)
    rig.search()
    assert rig.idle == 0.0
    others = [job for job in rig.stream.jobs.values() if job.id not in dying]
    assert len(others) >= JOBS - len(dying)
    assert all(job.attempt and not job.setbacks for job in others)


@pytest.mark.parametrize("name", [name for name in IN_ORDER if name != "gangs"])
def test_another_experiment_gets_the_slot_during_a_backoff(name: str) -> None:
    make, terms = IN_ORDER[name]
    rig = OneSlot(make(), {"1"}, **{"jobs": 1, **terms})
    rig.go_on()
    rig.feed(StreamCreated(rig.now, StreamId("y"), settings()))
    for _ in range(3):
        (job,) = rig.stream.live
        rig._train(job)
        rig.go_on()
        if not rig.stream.live:
            break
    assert [timer_of(ticket) for ticket in rig.stream.timers if ticket.startswith("core/hold")] == [BackoffTimer("1")]
    assert (rig.stream.demand, list(rig.stream.slots)) == (0, [])
    assert list(rig.core.streams[StreamId("y")].slots) == ["n1/0"]
    assert not rig.stream.state.ended
