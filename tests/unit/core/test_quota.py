"""Tests of the snapshot quota: which snapshots are evicted first, which never, and that sizes are always correct."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from hopyard.policy.vocabulary import AmendRun, ForkJob, JobState, Report, RunEndReason, StreamId, TerminateJob
from hopyard_engine.core.actions.snapshots import eviction
from hopyard_engine.core.actions.snapshots.recompute_cost import seconds_again
from hopyard_engine.core.effects import ForgetSnapshot, JobChanged, Noted
from hopyard_engine.core.events import Amended, Operated, StreamCreated, Updated
from hopyard_engine.core.state.entities import Job
from hopyard_engine.core.state.snapshot_entries import SnapshotEntry
from hopyard_engine.core.state.stream import Stream
from hopyard_engine.core.types import SnapshotInfo
from tests.unit.core.rig import Rig, settings, snapshot

pytestmark = pytest.mark.quick


def has(rig: Rig, job: str = "1") -> list[int]:
    return rig.stream.snapshots.positions(job)


def save(rig: Rig, position: int, job: str = "1", *, stored: bool = True) -> None:
    """Take a snapshot of 10 bytes at a position and, with `stored`, upload it."""
    rig.taken(position, job, f"{job}@{position}")
    if stored:
        rig.stored(position, job, sha256=f"{job}@{position}")


def trained(rig: Rig, job: str, values: list[float], *, slot: str, seconds: float = 0.0) -> None:
    """Train a job from the start to completion, with a snapshot at each position."""
    rig.start(job, slot, until=len(values))
    for position, value in enumerate(values, 1):
        rig.report(position, value, name=job, at_until=position == len(values), seconds=seconds)
        save(rig, position, job)
    rig.ended(RunEndReason.UNTIL, len(values), snapshot(len(values), f"{job}@{len(values)}"), job)


# ------------------------------------------------------------------------------------------------------- what goes first


def test_the_best_of_ended_jobs_go_first_and_what_an_extension_goes_on_from_last() -> None:
    rig = Rig(capacity=2, max_position=3, keep_latest=2, keep_best=1, snapshot_quota=1000)
    for _ in range(2):
        rig.create()
    trained(rig, "1", [0.5, 0.4, 0.3], slot="n1/0")  # The best at 1, the latest at 2, the end at 3.
    trained(rig, "2", [0.1, 0.8, 0.9], slot="n1/1")  # The incumbent: its best is its end.
    assert (has(rig), has(rig, "2")) == ([1, 2, 3], [2, 3])
    order = [one.sha256 for one in eviction._droppable(rig.stream)]
    assert order == ["1@1", "1@2", "2@2", "1@3"]


def test_an_open_jobs_extras_go_after_those_of_ended_jobs_and_never_what_it_goes_on_from() -> None:
    rig = Rig(capacity=2, max_position=5, keep_latest=3, keep_best=1, snapshot_quota=60)
    for _ in range(2):
        rig.create()
    trained(rig, "1", [0.1, 0.2, 0.3, 0.4, 0.9], slot="n1/0")
    rig.start("2", "n1/1")
    values = [0.8, 0.2, 0.3, 0.1]
    for position, value in enumerate(values, 1):
        rig.report(position, value, name="2")
        save(rig, position, "2", stored=position < 4)
    # 7 of 10 bytes: 1@3, the lowest of the ended job's latest, is evicted.
    assert (has(rig), has(rig, "2")) == ([4, 5], [1, 2, 3, 4])
    rig.stream.founder.settings = settings(max_position=5, keep_latest=3, keep_best=1, snapshot_quota=30)
    rig.report(5, 0.0, name="2")
    rig.stream.collect(rig.job("2"))
    eviction.keep_within(rig.stream)
    # The result, and the open job's newest snapshot and newest stored one, remain.
    assert (has(rig), has(rig, "2")) == ([5], [3, 4])


def test_the_job_with_the_worst_result_loses_its_extras_first() -> None:
    rig = Rig(capacity=3, max_position=2, keep_latest=2, snapshot_quota=60)
    for _ in range(3):
        rig.create()
    trained(rig, "1", [0.4, 0.5], slot="n1/0")
    trained(rig, "2", [0.1, 0.2], slot="n1/1")
    trained(rig, "3", [0.8, 0.9], slot="n1/2")
    rig.stream.founder.settings = settings(max_position=2, keep_latest=2, snapshot_quota=40)
    eviction.keep_within(rig.stream)
    assert (has(rig, "1"), has(rig, "2"), has(rig, "3")) == ([2], [2], [1, 2])


def test_equal_contents_count_once_and_go_together() -> None:
    rig = Rig(capacity=2, max_position=3, keep_latest=2, snapshot_quota=25)
    for name, slot in (("1", "n1/0"), ("2", "n1/1")):
        rig.create()
        rig.start(name, slot)
        for position in (1, 2):
            rig.report(position, 0.5, name=name)
            rig.taken(position, name, f"same@{position}")
            rig.stored(position, name, sha256=f"same@{position}")
    assert rig.stream.snapshots.size == 20
    assert (has(rig, "1"), has(rig, "2")) == ([1, 2], [1, 2])
    rig.report(3, 0.5, name="1")
    rig.taken(3, "1", "of 1")
    # Job 2 needs "same@2", so evicting it for job 1 would free nothing.
    assert (has(rig, "1"), has(rig, "2")) == ([2, 3], [2])
    assert [(e.sha256, e.stored) for e in rig.of(ForgetSnapshot)] == [("same@1", True)]
    assert {e.job for e in rig.of(JobChanged)} == {"1", "2"}


# ------------------------------------------------------------------------------------------------------- what never goes


def test_what_is_needed_stays_above_the_quota_and_people_are_told_once() -> None:
    rig = Rig(capacity=1, keep_latest=3, snapshot_quota=5)
    rig.create()
    rig.start("1", "n1/0")
    rig.report(1, 0.1)
    rig.taken(1, "1", "1@1")
    assert has(rig) == [1]
    told = [str(note.reason) for note in rig.of(Noted)]
    assert told == [
        "snapshots take 10 bytes, 5 more than snapshot.quota; all of them are still needed, so none is deleted"
    ]
    assert str(eviction.warning(rig.stream)) == told[0]
    rig.stored(1, "1", sha256="1@1")
    rig.report(2, 0.2)
    save(rig, 2, stored=False)
    assert has(rig) == [1, 2]  # It would fall back to the stored one.
    assert "15 more" in str(eviction.warning(rig.stream))
    rig.stored(2, "1", sha256="1@2")
    assert has(rig) == [2]
    for position in (3, 4, 5):
        rig.report(position, 0.1)
        save(rig, position)
        assert rig.of(Noted) == []  # It changes with each snapshot, and is already noted.
    assert "5 more" in str(eviction.warning(rig.stream))


def test_a_forks_origin_stays_until_the_child_has_its_own_in_the_store() -> None:
    rig = Rig(capacity=2, snapshot_quota=0)
    rig.create()
    rig.start("1", "n1/0")
    rig.report(1, 0.1)
    save(rig, 1)
    rig.command(ForkJob("2", "1", 1, {"lr": 0.2}))
    rig.report(2, 0.2)
    save(rig, 2)
    assert has(rig) == [1, 2]
    rig.start("2", "n1/1")
    rig.report(2, 0.1, name="2")
    save(rig, 2, "2", stored=False)
    assert (has(rig), has(rig, "2")) == ([1, 2], [2])
    rig.stored(2, "2", sha256="2@2")
    assert (has(rig), has(rig, "2")) == ([2], [2])


def test_a_snapshot_that_the_policy_asked_for_stays_while_it_may_fork_from_it() -> None:
    rig = Rig(capacity=1, snapshot_quota=0, max_failures=3)
    rig.create()
    rig.start("1", "n1/0", snapshot_at=(2,))
    rig.command(AmendRun("1", "t", snapshot_at=(3,)))
    rig.say(rig.key(), Amended("t", True, 0))
    for position in (1, 2, 3, 4, 5):
        rig.report(position, 0.1 * position)
        save(rig, position)
    assert has(rig) == [2, 3, 5]
    rig.ended(RunEndReason.FAILED, 5)  # The policy did not end it.
    assert has(rig) == [2, 3, 5]
    rig.command(ForkJob("2", "1", 2, {"lr": 0.2}))
    rig.command(TerminateJob("1"))  # The policy releases its branch points, except the fork's origin.
    assert has(rig) == [2, 5]  # 5 is the result.
    rig.feed(Operated(rig.now, StreamId("x"), "stop"))
    assert has(rig) == [5]


def test_an_amendment_that_came_too_late_asks_for_nothing() -> None:
    rig = Rig(capacity=1)
    rig.create()
    rig.start("1", "n1/0")
    rig.command(AmendRun("1", "t", snapshot_at=(2,)))
    rig.say(rig.key(), Amended("t", False, 2))
    for position in (2, 3):
        rig.report(position, 0.1)
        save(rig, position)
    assert has(rig) == [3]


def test_the_result_of_a_finished_experiment_stays_whatever_the_quota() -> None:
    rig = Rig(capacity=2, max_position=2, keep_latest=1, keep_best=1, snapshot_quota=0, jobs=2)
    for _ in range(2):
        rig.create()
    trained(rig, "1", [0.9, 0.4], slot="n1/0")
    trained(rig, "2", [0.2, 0.3], slot="n1/1")
    assert (has(rig, "1"), has(rig, "2")) == ([1], [])


def test_a_completed_fork_whose_state_was_dropped_stays_completed_when_the_experiment_is_extended() -> None:
    rig = Rig(capacity=1, max_position=2, snapshot_quota=0)
    for _ in range(2):
        rig.create()
    trained(rig, "2", [0.8, 0.9], slot="n1/0")
    rig.start("1", "n1/0", until=1)
    rig.report(1, 0.5, at_until=True)
    save(rig, 1)
    rig.ended(RunEndReason.UNTIL, 1, snapshot(1, "1@1"))
    rig.command(ForkJob("3", "1", 1, {"lr": 0.5}))
    rig.start("3", "n1/0")
    rig.report(2, 0.1, name="3", at_until=True)
    save(rig, 2, "3")
    rig.ended(RunEndReason.UNTIL, 2, snapshot(2, "3@2"), "3")
    rig.command(TerminateJob("1"))
    assert (rig.job("3").state, has(rig, "3"), has(rig, "1")) == (JobState.COMPLETED, [], [])
    rig.feed(Updated(rig.now, StreamId("x"), "u", max_position=4))
    assert rig.job("3").state is JobState.COMPLETED
    assert [str(note.reason) for note in rig.of(Noted)] == [
        "job 3 stays COMPLETED: the snapshot from which it would continue was deleted"
    ]
    assert rig.job("2").state is JobState.SUSPENDED


def test_a_lost_snapshot_lowers_what_is_above_the_quota() -> None:
    rig = Rig(capacity=1, snapshot_quota=0)
    rig.create()
    rig.start("1", "n1/0")
    rig.report(1, 0.1)
    save(rig, 1, stored=False)
    assert rig.stream.quota_excess == 10
    rig.expire("n1")
    assert (rig.stream.snapshots.size, rig.stream.quota_excess, eviction.warning(rig.stream)) == (0, 0, None)


# ------------------------------------------------------------------------------- policies that train again what is gone


def branched(quota_bytes: int) -> Rig:
    """Return a core with two jobs of 8 positions.

    Job 1 trains seven positions of 1, 2, ..., 7 seconds and saves at 2, 4 and 6; job 2 starts from the snapshot at 4.
    """
    rig = Rig(capacity=2, max_position=8, rebuilds=True, snapshot_quota=quota_bytes)
    for _ in range(2):
        rig.create()
    rig.start("1", "n1/0", snapshot_at=(2, 4, 6))
    for position in range(1, 8):
        rig.report(position, 0.1 * position, seconds=float(position))
        if position in (2, 4, 6):
            save(rig, position)
        if position == 4:
            rig.start("2", "n1/1", from_snapshot=("1", 4), snapshot_at=(6,))
    return rig


def kept(rig: Rig) -> dict[str, list[int]]:
    return {job: has(rig, job) for job in ("1", "2") if has(rig, job)}


def test_what_is_the_quickest_to_train_again_goes_first() -> None:
    rig = branched(1000)
    for position in (5, 6):
        rig.report(position, 0.1, name="2", seconds=10.0)
    save(rig, 6, "2")
    again = {f"{e.job}@{e.info.position}": seconds_again(rig.stream, e) for e in rig.stream.snapshots.entries()}
    # From nothing: 1 + 2. From 2: 3 + 4. From 4: 5 + 6, and in job 2: 10 + 10.
    assert again == {"1@2": 3.0, "1@4": 7.0, "1@6": 11.0, "2@6": 20.0}
    # The snapshots that the jobs continue from are needed, and no others.
    assert [one.sha256 for one in eviction._droppable(rig.stream)] == ["1@2", "1@4"]


def test_what_goes_makes_dearer_what_lies_behind_it() -> None:
    rig = branched(1000)
    rig.stream.founder.settings = replace(rig.stream.founder.settings, snapshot_quota=20)
    eviction.keep_within(rig.stream)
    assert kept(rig) == {"1": [4, 6]}
    entry = rig.stream.snapshots.get("1", 4)
    assert entry is not None
    assert seconds_again(rig.stream, entry) == 1 + 2 + 3 + 4


def test_it_is_the_time_as_it_is_after_what_went_before_that_counts() -> None:
    rig = Rig(capacity=1, max_position=9, rebuilds=True, snapshot_quota=1000)
    rig.create()
    rig.start("1", "n1/0", snapshot_at=(2, 4, 6, 8))
    for position, seconds in enumerate((2.0, 2.0, 2.0, 3.0, 3.0, 3.0, 1.0, 1.0), 1):
        rig.report(position, 0.1 * position, seconds=seconds)
        if position % 2 == 0:
            save(rig, position)
    rig.stream.founder.settings = replace(rig.stream.founder.settings, snapshot_quota=20)
    # 2 costs 4 s, 4 costs 5 s, 6 costs 6 s. Without 2, 4 costs 9 s: 6 goes next.
    eviction.keep_within(rig.stream)
    assert kept(rig) == {"1": [4, 8]}


def test_of_two_that_take_as_long_the_older_goes() -> None:
    rig = Rig(capacity=2, max_position=9, rebuilds=True, snapshot_quota=1000)
    for name, slot in (("1", "n1/0"), ("2", "n1/1")):
        rig.create()
        rig.start(name, slot, snapshot_at=(3,))
    for name in ("2", "1"):  # Job 2 saves first.
        for position in range(1, 5):
            rig.report(position, 0.1, name=name, seconds=1.0)
            if position >= 3:
                save(rig, position, name)
    rig.stream.founder.settings = replace(rig.stream.founder.settings, snapshot_quota=30)
    eviction.keep_within(rig.stream)
    assert kept(rig) == {"1": [3, 4], "2": [4]}


def test_a_snapshot_that_a_run_loads_stays_and_a_policy_that_rebuilds_nothing_keeps_what_it_asked_for() -> None:
    rig = branched(1000)
    rig.stream.snapshots.pin(("1", 2), "run:3.1")
    rig.stream.founder.settings = replace(rig.stream.founder.settings, snapshot_quota=0)
    eviction.keep_within(rig.stream)
    assert kept(rig) == {"1": [2, 6]}
    rig = branched(1000)
    rig.stream.founder.settings = replace(rig.stream.founder.settings, snapshot_quota=0, rebuilds=False)
    eviction.keep_within(rig.stream)
    assert kept(rig) == {"1": [2, 4, 6]}


def test_jobs_that_were_answered_from_each_other_have_a_price_all_the_same() -> None:
    rig = branched(1000)
    rig.job("1").origin = ("2", 5)
    entry = rig.stream.snapshots.get("1", 6)
    assert entry is not None
    assert seconds_again(rig.stream, entry) >= 6.0


# ------------------------------------------------------------------------------------------------------- whatever happens

JOBS = ("1", "2", "3")
POSITIONS = st.integers(1, 5)


class Quotas(RuleBasedStateMachine):
    """A state machine in which snapshots of three jobs are taken, uploaded, pinned and lost.

    After each step all snapshots that are not needed fit into the quota.
    """

    @initialize(
        latest=st.integers(1, 3),
        best=st.integers(0, 2),
        limit=st.integers(0, 60),
        values=st.lists(st.floats(0, 1)),
        rebuilds=st.booleans(),
    )
    def begin(self, latest: int, best: int, limit: int, values: list[float], rebuilds: bool) -> None:
        terms = settings(keep_latest=latest, keep_best=best, snapshot_quota=limit, rebuilds=rebuilds)
        self.x = Stream(StreamCreated(0.0, StreamId("x"), terms))
        self.limit = limit
        self.there: set[str] = set()  # Contents that were taken and not deleted since.
        for ordinal, name in enumerate(JOBS, 1):
            job = self.x.jobs[name] = self.x.open[name] = Job(name, ordinal, 0.0, self.x.founder, JobState.RUNNING)
            for position, value in enumerate(values[ordinal::3][:5], 1):
                job.curve.add(Report(position, {"score": value}, value))
                job.best = max(job.best or (value, position), (value, position))
                mine = (name, position, value)
                self.x.founder.best = max(self.x.founder.best or mine, mine, key=lambda b: b[2])

    @rule(job=st.sampled_from(JOBS), position=POSITIONS, content=st.integers(0, 9), node=st.sampled_from("ab"))
    def take(self, job: str, position: int, content: int, node: str) -> None:
        info = SnapshotInfo(position, f"c{content}", 3 * content)  # A few contents: many are equal.
        self.there.add(info.sha256)
        self.x.drop(self.x.snapshots.taken(job, info, node, 1))
        self.settle(job)

    @rule(job=st.sampled_from(JOBS), position=POSITIONS)
    def store(self, job: str, position: int) -> None:
        entry = self.x.snapshots.get(job, position)
        if entry is not None:
            assert self.x.snapshots.stored(job, position, entry.info.sha256, 1)
            self.settle(job)

    @rule(job=st.sampled_from(JOBS), position=POSITIONS, holder=st.sampled_from(["run:1.1", "fork:2"]))
    def pin(self, job: str, position: int, holder: str) -> None:
        if self.x.snapshots.get(job, position) is not None:
            self.x.snapshots.pin((job, position), holder)
            self.settle(job)

    @rule(job=st.sampled_from(JOBS), position=POSITIONS, holder=st.sampled_from(["run:1.1", "fork:2"]))
    def unpin(self, job: str, position: int, holder: str) -> None:
        self.x.snapshots.unpin((job, position), holder)
        self.settle(job)

    @rule(job=st.sampled_from(JOBS), position=POSITIONS)
    def ask(self, job: str, position: int) -> None:
        self.x.jobs[job].asked.add(position)
        self.settle(job)

    @rule(node=st.sampled_from("ab"))
    def lose(self, node: str) -> None:
        for entry in self.x.snapshots.node_lost(node):
            self.x.drop(self.x.snapshots.released(entry))
        self.settle("1")

    @rule(job=st.sampled_from(JOBS), state=st.sampled_from([s for s in JobState if s.ended]))
    def end(self, job: str, state: JobState) -> None:
        self.x.jobs[job].state = state
        self.x.open.pop(job, None)
        self.settle(job)

    def settle(self, job: str) -> None:
        """Delete snapshots that no rule retains, then those beyond the quota, as the core does."""
        self.x.collect(self.x.jobs[job])
        needed = {(e.job, e.info.position) for e in self.x.snapshots.entries() if self.needed(e)}
        eviction.keep_within(self.x)
        left = {(e.job, e.info.position) for e in self.x.snapshots.entries()}
        assert needed <= left
        if self.x.snapshots.size > self.limit:
            contents = {e.info.sha256 for e in self.x.snapshots.entries()}
            assert contents == {e.info.sha256 for e in self.x.snapshots.entries() if self.needed(e)}
        for effect in self.x.effects:
            if isinstance(effect, ForgetSnapshot):
                assert effect.sha256 in self.there, "deleted twice, or never taken"
                self.there.discard(effect.sha256)
        self.x.effects.clear()

    def needed(self, entry: SnapshotEntry) -> bool:
        """Return whether a snapshot is needed, by an independent second definition."""
        job = self.x.jobs[entry.job]
        later = [e for e in self.x.snapshots.of(job.id) if e.info.position > entry.info.position]
        goes_on = not job.state.ended and (not later or (entry.stored and not any(e.stored for e in later)))
        asked = entry.info.position in job.asked and job.state is not JobState.TERMINATED
        asked = asked and not self.x.settings.rebuilds
        best = self.x.best
        result = False
        if best is not None and best[0] == job.id:
            there = self.x.snapshots.get(job.id, best[1]) is not None
            result = entry.info.position == best[1] if there else not later
        return bool(entry.pins) or goes_on or asked or result

    @precondition(lambda self: hasattr(self, "x"))
    @invariant()
    def nothing_is_miscounted(self) -> None:
        entries = list(self.x.snapshots.entries())
        contents = {e.info.sha256: e.info.size for e in entries}
        assert self.there == set(contents)
        assert self.x.snapshots.size == sum(contents.values())
        for sha256 in contents:
            assert self.x.snapshots._copies[sha256] == sum(e.info.sha256 == sha256 for e in entries)
        assert set(self.x.snapshots._copies) == set(contents)
        assert self.x.snapshots.settled == all(e.settled for e in entries)
        assert self.x.quota_excess == max(self.x.snapshots.size - self.limit, 0)


TestQuotas = pytest.mark.merge(Quotas.TestCase)
TestQuotas.settings = hypothesis_settings(max_examples=150, stateful_step_count=40, deadline=None)
