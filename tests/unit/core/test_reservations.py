"""Tests of slots that clients reserve."""

from __future__ import annotations

import pytest

from hopyard.policy.vocabulary import ReleaseSlot, StreamId
from hopyard_engine.core import Core
from hopyard_engine.core.effects import Record, Refused
from hopyard_engine.core.events import JobOperated, Operated, SlotReserved, StreamEvent
from hopyard_engine.journal.codec import decode, encode, kind_of
from tests.simulation import dump
from tests.unit.core.rig import Rig

pytestmark = pytest.mark.quick


@pytest.fixture
def rig() -> Rig:
    return Rig(capacity=2)


def reserve(rig: Rig, slot: str, request: str = "") -> None:
    rig.feed(SlotReserved(rig.now, StreamId("x"), slot, request))


def reserved(rig: Rig, request: str) -> str | None:
    slot = rig.stream.reservation(request)
    return slot.id if slot is not None else None


def test_a_repeated_request_is_no_news(rig: Rig) -> None:
    reserve(rig, "n1/0", "a")
    reserve(rig, "n1/1", "a")
    assert (reserved(rig, "a"), sorted(rig.stream.vacant)) == ("n1/0", ["n1/1"])
    assert not rig.of(Record)


def test_requests_without_a_name_reserve_one_slot_each(rig: Rig) -> None:
    reserve(rig, "n1/0")
    reserve(rig, "n1/1")
    assert (rig.stream.vacant, reserved(rig, "")) == (set(), None)


def test_a_slot_that_is_not_idle_is_refused(rig: Rig) -> None:
    rig.create()
    rig.start("1", "n1/0")
    reserve(rig, "n1/0", "a")
    assert [str(note.reason) for note in rig.of(Refused)] == [
        "refused the reservation: slot 'n1/0' is not an idle slot of this experiment"
    ]
    assert reserved(rig, "a") is None


def test_a_released_slot_may_be_reserved_again(rig: Rig) -> None:
    reserve(rig, "n1/0", "a")
    rig.feed(JobOperated(rig.now, StreamId("x"), ReleaseSlot("n1/0")))
    assert (reserved(rig, "a"), "n1/0" in rig.stream.vacant) == (None, True)


def test_a_reservation_ends_when_the_slot_is_lost(rig: Rig) -> None:
    reserve(rig, "n1/0", "a")
    rig.expire("n1")
    assert reserved(rig, "a") is None


def test_a_reservation_ends_with_its_experiment(rig: Rig) -> None:
    reserve(rig, "n1/0", "a")
    rig.feed(Operated(rig.now, StreamId("x"), "stop"))
    assert (reserved(rig, "a"), rig.stream.slots) == (None, {})


def test_a_run_that_the_policy_starts_on_the_slot_ends_the_reservation(rig: Rig) -> None:
    reserve(rig, "n1/0", "a")
    rig.create()
    rig.start("1", "n1/0")
    assert reserved(rig, "a") is None


def test_the_journal_restores_reservations(rig: Rig) -> None:
    reserve(rig, "n1/0", "a")
    again = Core()
    for event in rig.journal:
        read = decode(kind_of(event), encode(event))
        assert isinstance(read, StreamEvent)
        again.restore(read)
    dump.compare(rig.stream, again.streams[StreamId("x")])
    slot = again.streams[StreamId("x")].reservation("a")
    assert slot is not None
    assert slot.id == "n1/0"
