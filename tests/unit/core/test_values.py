"""Tests of small parts of the core (channels, curves, snapshots, shares), by hand and by properties."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hopyard.policy.vocabulary import Report
from hopyard.policy.vocabulary.reasons import Reason, ReasonCode
from hopyard_engine.core.cluster.fair_share import Claim, water_fill
from hopyard_engine.core.effects import Kill
from hopyard_engine.core.state.channel import RunChannel
from hopyard_engine.core.state.curve import LearningCurve, same_metrics
from hopyard_engine.core.state.snapshot_entries import Keep
from hopyard_engine.core.state.snapshots import SnapshotBook
from tests.unit.core.rig import snapshot

pytestmark = pytest.mark.quick

# -------------------------------------------------------------------------------------------------------------- channels


@given(st.lists(st.integers(1, 12), max_size=60))
def test_a_channel_takes_each_number_once_and_in_order_whatever_arrives(arrivals: list[int]) -> None:
    channel = RunChannel("n")
    taken = []
    for sequence in arrivals:
        if channel.is_next(sequence):
            channel.received += 1
            taken.append(sequence)
    assert taken == list(range(1, len(taken) + 1))


@pytest.mark.merge
@given(st.lists(st.one_of(st.none(), st.integers(0, 20)), max_size=40))
def test_what_is_unacknowledged_is_what_was_sent_after_the_highest_acknowledgement(steps: list[int | None]) -> None:
    channel = RunChannel("n")
    highest = 0
    for step in steps:
        if step is None:
            channel.send(Kill(Reason(ReasonCode.RUN_OVER)))
        else:
            channel.acknowledge(step)
            highest = max(highest, min(step, channel.sent))
    assert sorted(channel.unacknowledged) == list(range(highest + 1, channel.sent + 1))


# ---------------------------------------------------------------------------------------------------------------- curves


@pytest.mark.merge
@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from(["", "a", "b"]), st.floats()), max_size=30))
def test_the_first_report_of_a_position_and_part_counts(reports: list[tuple[int, str, float]]) -> None:
    curve, first = LearningCurve(), dict[tuple[int, str], float]()
    for position, part, value in reports:
        report = Report(position, {"m": value}, part=part)
        known = curve.recorded(report)
        assert (known is None) == ((position, part) not in first)
        if known is None:
            curve.add(report)
            first[position, part] = value
        else:
            assert same_metrics(known, {"m": first[position, part]})
    there = sorted({position for position, _ in first})
    assert [p.position for p in curve.upto(10)] == there
    assert [p.position for p in curve.back(2)] == [position for position in reversed(there) if position <= 2]


def test_parts_are_combined_by_their_examples_and_none_counts_as_one() -> None:
    curve = LearningCurve()
    curve.add(Report(3, {"loss": 1.0}))
    curve.add(Report(3, {"acc": 1.0}, part="a", examples=0))
    point = curve.add(Report(3, {"acc": 0.5}, part="b", examples=3))
    assert point.metrics == {"loss": 1.0, "acc": (1.0 + 3 * 0.5) / 4}


def test_nan_equals_nan_when_a_report_is_repeated() -> None:
    assert same_metrics({"a": math.nan}, {"a": math.nan})
    assert not same_metrics({"a": math.nan}, {"a": 1.0})
    assert not same_metrics({"a": 1.0}, {"b": 1.0})


# ------------------------------------------------------------------------------------------------------------- snapshots


def no_value(position: int) -> float | None:
    return None


def test_the_newest_and_the_newest_stored_are_kept() -> None:
    book = SnapshotBook()
    for position in (1, 2, 3):
        book.taken("j", snapshot(position), "n", 1)
    assert book.stored("j", 1, "s1", 1)
    assert [d.sha256 for d in book.collect("j", True, no_value, Keep())] == ["s2"]
    assert book.positions("j") == [1, 3]


def test_the_best_are_kept_by_the_metric_at_their_position_and_nan_is_never_best() -> None:
    book = SnapshotBook()
    for position in (1, 2, 3, 4):
        book.taken("j", snapshot(position), "n")
    values = {1: 0.2, 2: 0.9, 3: math.nan, 4: 0.1}
    book.collect("j", True, values.get, Keep(1, 1))
    assert book.positions("j") == [2, 4]


def test_a_pinned_snapshot_outlives_its_job() -> None:
    book = SnapshotBook()
    book.taken("j", snapshot(1), "n")
    book.pin(("j", 1), "fork:k")
    assert book.collect("j", False, no_value, Keep()) == []
    book.unpin(("j", 1), "fork:k")
    assert [(d.sha256, d.nodes) for d in book.collect("j", False, no_value, Keep())] == [("s1", ("n",))]


def test_equal_bytes_are_dropped_with_their_last_entry() -> None:
    book = SnapshotBook()
    book.taken("j", snapshot(1, "same"), "n")
    book.taken("k", snapshot(1, "same"), "m")
    assert book.collect("j", False, no_value, Keep()) == []
    assert [d.sha256 for d in book.collect("k", False, no_value, Keep())] == ["same"]


def test_a_lost_node_takes_its_local_snapshots_with_it_but_not_the_stored_nor_what_its_disk_holds() -> None:
    book = SnapshotBook()
    for position in (1, 2, 3):
        book.taken("j", snapshot(position), "n", 1)
    book.stored("j", 1, "s1", 1)
    lost = book.node_lost("n", frozenset({"s2"}))
    assert [entry.info.sha256 for entry in lost] == ["s3"]
    assert book.positions("j") == [1, 2]


def test_what_a_gone_channel_was_shipping_is_settled_and_unshipped_until_it_is_ordered() -> None:
    book = SnapshotBook()
    book.taken("j", snapshot(1), "n", 1)
    book.taken("j", snapshot(2), "n", 2)
    disk = frozenset({"s1", "s2"})
    assert book.unshipped("n", disk, lambda job, attempt: attempt == 2) == [("j", 1)]
    book.not_shipping("n", lambda job, attempt: attempt == 1)
    first, second = book.of("j")
    assert (first.settled, second.settled) == (True, False)
    for position in (1, 2):
        book.order(("j", position), "n")
    assert book.ordered("n") == [first]
    assert not first.settled
    assert book.unshipped("n", frozenset({"s2"}), lambda job, attempt: False) == [("j", 2)]


def test_only_an_attempt_that_took_the_snapshot_since_it_is_known_can_say_that_it_is_stored() -> None:
    book = SnapshotBook()
    book.taken("j", snapshot(1), "n", 1)
    book.node_lost("n")
    book.taken("j", snapshot(1), "m", 2)
    assert not book.stored("j", 1, "s1", 1)
    assert book.stored("j", 1, "s1", 2)


def test_other_bytes_at_the_same_position_replace_the_old_and_keep_the_pins() -> None:
    book = SnapshotBook()
    book.taken("j", snapshot(1, "old"), "n")
    book.pin(("j", 1), "run:j.2")
    assert [d.sha256 for d in book.taken("j", snapshot(1, "new"), "m")] == ["old"]
    entry = book.get("j", 1)
    assert entry is not None
    assert (entry.info.sha256, entry.pins, entry.nodes) == ("new", {"run:j.2"}, {"m"})


Step = tuple[str, str, int]
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["taken", "stored", "pin", "unpin", "lost", "collect"]),
        st.sampled_from(["j", "k"]),
        st.integers(1, 4),
    ),
    max_size=50,
)


@pytest.mark.merge
@given(STEPS, st.integers(1, 2), st.integers(0, 1))
def test_whatever_happens_pinned_stays_and_dropped_is_needed_by_nobody(
    steps: list[Step], latest: int, best: int
) -> None:
    book = SnapshotBook()
    for what, job, position in steps:
        node = f"n{position}"
        if what == "taken":
            book.taken(job, snapshot(position), node, 1)
        elif what == "stored":
            book.stored(job, position, f"s{position}", 1)
        elif what == "pin" and book.get(job, position) is not None:
            book.pin((job, position), "holder")
        elif what == "unpin":
            book.unpin((job, position), "holder")
        elif what == "lost":
            book.node_lost(node)
        elif what == "collect":
            pinned = {e.info.position for e in book.of(job) if e.pins}
            newest = book.newest(job)
            dropped = {d.sha256 for d in book.collect(job, True, lambda p: float(p % 3), Keep(latest, best))}
            assert pinned <= set(book.positions(job))
            assert book.newest(job) is newest
            assert dropped.isdisjoint(e.info.sha256 for e in book.entries())
        assert all(entry.available for entry in book.entries())


# ---------------------------------------------------------------------------------------------------------------- shares


@pytest.mark.parametrize(
    ("slots", "claims", "expected"),
    [
        (4, [("a", 1, 9), ("b", 1, 9)], {"a": 2, "b": 2}),
        (5, [("a", 1, 9), ("b", 1, 9)], {"a": 3, "b": 2}),
        (6, [("a", 2, 9), ("b", 1, 9)], {"a": 4, "b": 2}),
        (6, [("a", 1, 1), ("b", 1, 9), ("c", 1, 9)], {"a": 1, "b": 3, "c": 2}),
        (6, [("a", 1, 0), ("b", 1, 2)], {"a": 0, "b": 2}),
        (0, [("a", 1, 3)], {"a": 0}),
        (3, [], {}),
    ],
)
def test_water_fill_by_hand(slots: int, claims: list[tuple[str, float, int]], expected: dict[str, int]) -> None:
    assert water_fill(slots, [Claim(*claim) for claim in claims]) == expected


CLAIMS = st.lists(st.tuples(st.floats(0.1, 10.0), st.integers(0, 12)), max_size=6)


@given(st.integers(0, 40), CLAIMS)
def test_shares_add_up_respect_caps_and_are_weighted_max_min(slots: int, raw: list[tuple[float, int]]) -> None:
    claims = [Claim(str(i), weight, cap) for i, (weight, cap) in enumerate(raw)]
    shares = water_fill(slots, claims)
    assert sum(shares.values()) == min(slots, sum(c.cap for c in claims))
    for claim in claims:
        assert 0 <= shares[claim.name] <= claim.cap
        for other in claims:
            # No experiment that could use more stays below what another would have without one slot.
            if shares[claim.name] < claim.cap and shares[other.name] > 0:
                mine = shares[claim.name] / claim.weight
                assert mine >= (shares[other.name] - 1) / other.weight - 1e-9
