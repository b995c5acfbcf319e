"""Tests of the quota of the store: which snapshots are evicted first, and that no needed one is."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from hopyard.policy.vocabulary import ForkJob, KeepSnapshots, Report, RunEndReason, StartJob, StreamId
from hopyard_engine.core import Core
from hopyard_engine.core.actions.snapshots.store_quota import (
    EvictionRank,
    StoreContents,
    StoredContents,
    stored_contents,
)
from hopyard_engine.core.effects import ForgetSnapshot, JobChanged, Noted
from hopyard_engine.core.events import Operated, SnapshotsGivenUp, StoreQuotaSet, Updated
from hopyard_engine.core.state.stream import Stream
from hopyard_engine.core.types import EarlierTrial
from hopyard_scheduler.converters import experiment_to_proto, job_to_proto
from hopyard_scheduler.storage.store_usage import of_rows
from tests.unit.core.rig import Rig, snapshot
from tests.unit.core.test_quota import branched, has, save, trained

pytestmark = pytest.mark.quick


def held(
    sha256: str, size: int, seconds: float, before: str = "", rank: EvictionRank = EvictionRank.SPARE
) -> StoredContents:
    return StoredContents(sha256, size, rank, seconds, before)


def gone(room: StoreContents, limit: int) -> list[str]:
    return [one.sha256 for one in room.keep_within(limit)]


# ------------------------------------------------------------------------------------------------------- what goes first


def test_what_is_quickest_to_train_again_for_its_bytes_goes_first_of_whichever_experiment() -> None:
    stream = [held("long", 10, 100.0), held("short", 10, 5.0)]
    y = [held("large", 1000, 100.0), held("small", 1, 5.0)]
    room = StoreContents({StreamId("x"): stream, StreamId("y"): y})
    assert room.used == 1021
    # By byte: 0.1 s for "large", 0.5 for "short", 5 for "small", 10 for "long".
    assert gone(room, 15) == ["large", "short"]
    assert room.used == 11


def test_what_goes_makes_dearer_what_lies_behind_it_also_in_another_experiment() -> None:
    stream = [held("a", 1, 3.0), held("b", 1, 4.0, "a")]
    y = [held("c", 1, 2.0, "b"), held("d", 1, 8.0)]
    # c costs 2, then a costs 3, then b costs 3 + 4 and d 8.
    assert gone(StoreContents({StreamId("x"): stream, StreamId("y"): y}), 1) == ["c", "a", "b"]


def test_what_extensions_would_go_on_from_goes_last() -> None:
    room = StoreContents(
        {StreamId("x"): [held("end", 100, 1.0, rank=EvictionRank.END)], StreamId("y"): [held("branch", 1, 1000.0)]}
    )
    assert gone(room, 0) == ["branch", "end"]


def test_contents_that_one_of_several_needs_stay_and_all_others_give_them_up_together() -> None:
    both = [held("same", 5, 1.0), held("own", 5, 9.0)]
    room = StoreContents({StreamId("x"): both, StreamId("y"): [held("same", 5, 0.0, rank=EvictionRank.NEEDED)]})
    assert (room.used, gone(room, 0), room.used) == (10, ["own"], 5)
    (one, _) = StoreContents({StreamId("x"): both, StreamId("y"): [held("same", 5, 0.5)]}).keep_within(0)
    assert (one.sha256, one.owners, one.seconds) == ("same", ("x", "y"), 0.5)


def test_how_full_it_is_and_what_it_would_cost() -> None:
    room = StoreContents(
        {StreamId("x"): [held("a", 3, 6.0), held("b", 4, 2.0, "a"), held("c", 5, 0.0, rank=EvictionRank.NEEDED)]}
    )
    use = room.use(7)
    assert (use.quota, use.used, use.needed, use.spare, use.spare_seconds) == (7, 12, 5, 2, 8.0)
    assert (use.next_size, use.next_seconds) == (4, 2.0)
    assert StoreContents({}).use(None) == StoreContents({StreamId("x"): []}).use(None)


CONTENTS = [f"c{number}" for number in range(8)]


@st.composite
def stores(draw: st.DrawFn) -> dict[StreamId, list[StoredContents]]:
    """Generate contents for three experiments; each follows one with a lower number, or none."""
    found: dict[StreamId, list[StoredContents]] = {}
    for owner in "xyz":
        for number, name in enumerate(CONTENTS):
            if draw(st.booleans()):
                before = draw(st.sampled_from(["", *CONTENTS[:number]]))
                rank = draw(st.sampled_from(EvictionRank))
                found.setdefault(StreamId(owner), []).append(
                    StoredContents(name, number * 3, rank, float(draw(st.integers(0, 9))), before)
                )
    return found


def one_by_one(store: dict[StreamId, list[StoredContents]], limit: int) -> list[tuple[str, float]]:
    """Return the evictions of a simple implementation, which recomputes all costs before each eviction."""
    known: dict[str, StoredContents] = {}
    for one in (one for own in store.values() for one in own):
        known[one.sha256] = one.and_also(known.get(one.sha256, one))
    went: dict[str, float] = {}

    def seconds(one: StoredContents) -> float:
        return one.seconds + (seconds(known[one.before]) if one.before in went else 0.0)

    while sum(one.size for one in known.values() if one.sha256 not in went) > limit:
        spare = [
            one for one in known.values() if one.rank is not EvictionRank.NEEDED and one.size and one.sha256 not in went
        ]
        if not spare:
            break
        first = min(spare, key=lambda one: (one.rank, seconds(one) / one.size, seconds(one), one.sha256))
        went[first.sha256] = seconds(first)
    return list(went.items())


@pytest.mark.merge
@hypothesis_settings(deadline=None, max_examples=200)
@given(stores(), st.integers(0, 90))
def test_it_is_within_its_quota_or_holds_nothing_but_what_is_needed(
    store: dict[StreamId, list[StoredContents]], limit: int
) -> None:
    needed = {one.sha256 for own in store.values() for one in own if one.rank is EvictionRank.NEEDED}
    sizes = {one.sha256: one.size for own in store.values() for one in own}
    room = StoreContents(store)
    went = room.keep_within(limit)
    names = [one.sha256 for one in went]
    left = {name: size for name, size in sizes.items() if name not in names}
    assert room.used == sum(left.values())
    assert not needed.intersection(names)
    assert room.used <= limit or not (left.keys() - needed - {name for name, size in left.items() if not size})
    assert all(sum(sizes.values()) - sum(sizes[n] for n in names[:i]) > limit for i in range(len(names)))
    for one in went:
        assert set(one.owners) == {owner for owner, own in store.items() if one.sha256 in {each.sha256 for each in own}}
    assert [(one.sha256, one.seconds) for one in went] == one_by_one(store, limit)


# -------------------------------------------------------------------------------------------------------- what is needed


def ranks(stream: Stream) -> dict[str, EvictionRank]:
    return {one.sha256: one.rank for one in stored_contents(stream)}


def test_what_the_policy_of_a_live_experiment_may_start_from_is_needed_until_it_lets_it_go() -> None:
    rig = branched(1000)
    assert set(ranks(rig.stream).values()) == {EvictionRank.NEEDED}
    rig.command(KeepSnapshots("1", (4,)))
    assert ranks(rig.stream) == {
        "1@4": EvictionRank.NEEDED,
        "1@6": EvictionRank.NEEDED,
    }  # 2 is deleted at once: job 1 has not ended.
    rig.feed(SnapshotsGivenUp(rig.now, StreamId("x"), ("1@4", "1@6")))
    assert has(rig) == [4, 6]


def test_what_is_not_in_the_store_and_not_on_its_way_takes_no_room_there() -> None:
    rig = Rig(capacity=1, ship_every=0)
    rig.create()
    rig.start("1")
    rig.report(1, 0.1)
    rig.taken(1)
    assert (has(rig), stored_contents(rig.stream)) == ([1], [])


def test_what_earlier_experiments_lend_is_needed() -> None:
    rig = Rig(
        plan="p",
        lasting=True,
        earlier=(EarlierTrial("old/1", {}, (Report(4, {"score": 0.7}),), None, (snapshot(4, "lent"),)),),
    )
    assert ranks(rig.stream) == {"lent": EvictionRank.NEEDED}


def finished(**terms: object) -> Rig:
    """Return a finished experiment with two jobs of three positions and their snapshots.

    Job 2 has the result, at 2, and both could be extended.
    """
    rig = Rig(capacity=2, max_position=3, jobs=2, keep_latest=2, keep_best=1, **terms)
    for _ in range(2):
        rig.create()
    trained(rig, "1", [0.5, 0.4, 0.3], slot="n1/0", seconds=1.0)
    trained(rig, "2", [0.1, 0.9, 0.8], slot="n1/1", seconds=1.0)
    assert rig.stream.state.ended
    return rig


def test_a_finished_experiment_needs_its_result_only() -> None:
    rig = finished()
    assert ranks(rig.stream) == {
        "1@1": EvictionRank.SPARE,
        "1@2": EvictionRank.SPARE,
        "1@3": EvictionRank.END,
        "2@2": EvictionRank.NEEDED,
        "2@3": EvictionRank.END,
    }


def test_it_gives_up_what_it_does_not_need_and_says_what_that_costs() -> None:
    rig = finished()
    effects = rig.feed(SnapshotsGivenUp(rig.now, StreamId("x"), ("1@2", "1@3", "2@2", "of another")))
    assert [e.sha256 for e in effects if isinstance(e, ForgetSnapshot)] == ["1@2", "1@3"]
    assert {e.job for e in effects if isinstance(e, JobChanged)} == {"1"}
    (text,) = [str(e.reason) for e in effects if isinstance(e, Noted)]
    assert text == "gave up 2 snapshots (20 bytes): 2 s of training would recreate them"
    assert (has(rig), has(rig, "2")) == ([1], [2, 3])
    again = rig.feed(SnapshotsGivenUp(rig.now, StreamId("x"), ("1@2",)))
    assert not any(isinstance(effect, ForgetSnapshot | Noted) for effect in again)


def test_a_fork_whose_origin_was_given_up_stays_completed_when_the_experiment_is_extended() -> None:
    rig = Rig(capacity=1, max_position=3, forks=True)
    rig.create()
    rig.start("1", snapshot_at=(1,))
    rig.report(1, 0.5)
    save(rig, 1)
    rig.command(ForkJob("2", "1", 1, {"lr": 2.0}))
    rig.report(2, 0.6)
    rig.report(3, 0.9, at_until=True)
    rig.ended(RunEndReason.UNTIL, 3, snapshot(3, "1@3"))
    rig.stored(3, sha256="1@3")
    rig.command(StartJob("2", ("n1/0",), from_snapshot=("1", 1)))
    for position in (2, 3):
        rig.report(position, 0.1, name="2", at_until=position == 3)
    rig.ended(RunEndReason.UNTIL, 3, snapshot(3, "2@3"), "2")
    rig.stored(3, "2", sha256="2@3")
    rig.feed(Operated(rig.now, StreamId("x"), "stop"))
    rig.feed(SnapshotsGivenUp(rig.now, StreamId("x"), ("1@1", "2@3")))
    assert has(rig, "2") == []
    effects = rig.feed(Updated(rig.now, StreamId("x"), "r", max_position=5))
    assert "job 2 stays COMPLETED: the snapshot from which it would continue was deleted" in [
        str(e.reason) for e in effects if isinstance(e, Noted)
    ]


# ------------------------------------------------------------------------------------------------- finished, by their rows


def by_rows(rig: Rig) -> list[StoredContents]:
    for experiment in rig.stream.experiments.values():
        experiment.payload = {"name": "n", "spec": "{}", "bundle": ""}
    experiments = [
        experiment_to_proto(rig.stream, experiment, rig.now, experiment.reason)
        for experiment in rig.stream.experiments.values()
    ]
    return of_rows(experiments, [job_to_proto(rig.stream, job, job.reason) for job in rig.stream.jobs.values()])


def test_the_rows_of_a_finished_experiment_say_the_same() -> None:
    rig = finished()
    assert by_rows(rig) == stored_contents(rig.stream)
    rig.stream.jobs["1"].origin, rig.stream.jobs["1"].prefix = (
        ("2", 2),
        tuple(rig.stream.curve(rig.stream.jobs["2"])[:2]),
    )
    found = {one.sha256: one.before for one in by_rows(rig)}
    assert found == {one.sha256: one.before for one in stored_contents(rig.stream)}
    assert found["1@3"] == "1@2"
    assert found["2@3"] == "2@2"


def test_jobs_whose_experiment_ran_out_of_time_need_what_they_have() -> None:
    rig = Rig(capacity=1, max_position=9, keep_latest=2, max_seconds=5.0)
    rig.create()
    rig.start("1")
    for position in (1, 2):
        rig.report(position, 0.1)
        save(rig, position)
    rig.stream.founder.out_of_time = True
    assert {one.rank for one in by_rows(rig)} == {EvictionRank.NEEDED}


# ------------------------------------------------------------------------------------------------------------- the quota


def test_the_quota_is_remembered_by_the_clusters_journal() -> None:
    core, again = Core(), Core()
    for size in (7, None, 9):
        event = StoreQuotaSet(1.0, size)
        core.handle(event)
        again.restore_cluster(event)
        assert core.cluster.store_quota == again.cluster.store_quota == size


def test_contents_are_one_whoever_has_them() -> None:
    one, other = held("a", 5, 4.0, "b"), replace(held("a", 5, 2.0, "c"), rank=EvictionRank.END)
    assert one.and_also(other) == other.and_also(one) == StoredContents("a", 5, EvictionRank.END, 2.0, "c")
