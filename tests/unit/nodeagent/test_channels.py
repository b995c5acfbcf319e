"""Tests of the channel between scheduler and agent: messages arrive once and in order, whatever the network does."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hopyard.v1 import common_pb2
from hopyard.v1 import resource_manager_pb2 as wire
from hopyard_nodeagent.runs.channel import EpochGuard, Incoming, Numbered, Outgoing
from hopyard_nodeagent.runs.run import merge_reports

pytestmark = pytest.mark.quick


def append(last: list[int], new: list[int]) -> bool:
    if len(last) + len(new) > 3:
        return False
    last.extend(new)
    return True


def test_messages_merge_only_until_they_are_numbered() -> None:
    outgoing: Outgoing[list[int]] = Outgoing(append)
    outgoing.push([1], at=10.0)
    first = outgoing.take()
    for value in range(2, 7):
        outgoing.push([value], at=20.0 + value)
    assert first == Numbered(1, 10.0, [1])
    assert outgoing.take() == Numbered(2, 22.0, [2, 3, 4])
    assert outgoing.take() == Numbered(3, 25.0, [5, 6])
    assert outgoing.take() is None
    assert len(outgoing) == 3


def test_a_new_session_sends_again_what_is_unacknowledged() -> None:
    outgoing: Outgoing[list[int]] = Outgoing(lambda last, new: False)
    for value in range(1, 5):
        outgoing.push([value], at=0.0)
    sent = [outgoing.take() for _ in range(3)]
    outgoing.acknowledged(1)
    outgoing.new_session()
    assert [outgoing.take(), outgoing.take()] == sent[1:]
    fourth = outgoing.take()
    assert fourth is not None
    assert fourth.sequence == 4
    outgoing.acknowledged(2)
    outgoing.acknowledged(1)
    assert outgoing.take() is None
    outgoing.acknowledged(4)
    assert len(outgoing) == 0


def test_an_acknowledgement_tells_what_arrived_by_it() -> None:
    outgoing: Outgoing[list[int]] = Outgoing(lambda last, new: False)
    for value in range(1, 5):
        outgoing.push([value], at=0.0)
    for _ in range(3):
        outgoing.take()
    assert list(outgoing) == [[1], [2], [3], [4]]
    assert outgoing.acknowledged(2) == [[1], [2]]
    assert outgoing.acknowledged(2) == []
    assert list(outgoing) == [[3], [4]]
    assert outgoing.acknowledged(9) == [[3]]  # a message that was not sent cannot be acknowledged


def test_reports_merge_into_reports_only_and_up_to_a_bound() -> None:
    def reports(count: int) -> wire.RunMessage:
        return wire.RunMessage(reports=wire.RunReports(reports=[common_pb2.Report(position=1)] * count))

    last = reports(499)
    assert merge_reports(last, reports(1))
    assert len(last.reports.reports) == 500
    assert not merge_reports(last, reports(1))
    assert not merge_reports(wire.RunMessage(started=wire.RunStarted()), reports(1))
    assert not merge_reports(reports(1), wire.RunMessage(ended=wire.RunEnded()))
    large = reports(1)
    large.reports.reports[0].metrics.update({f"{number:0250}": 1.0 for number in range(1000)})
    last = reports(1)
    merged = 0
    while merge_reports(last, large):
        merged += 1
    assert merged == 3, "together below 1 MiB, so that a message stays far below what a peer takes"


def test_commands_are_taken_once_and_in_order() -> None:
    incoming = Incoming()
    assert [incoming.take(sequence) for sequence in (2, 1, 1, 3, 2, 3)] == [False, True, False, False, True, True]
    assert incoming.taken == 3


def test_an_older_epoch_is_refused() -> None:
    guard = EpochGuard()
    assert [guard.admits(epoch) for epoch in (2, 2, 1, 5, 4, 5)] == [True, True, False, True, False, True]
    assert guard.newest == 5


EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("push"), st.integers(1, 4)),
        st.tuples(st.just("send"), st.integers(1, 4)),
        st.tuples(st.sampled_from(["deliver", "duplicate", "drop", "ack", "lose-ack", "reconnect"]), st.integers(0, 9)),
    ),
    max_size=120,
)


@pytest.mark.merge
@given(EVENTS)
def test_nothing_is_lost_doubled_or_reordered(events: list[tuple[str, int]]) -> None:
    """Check that a receiver behind a network that drops, doubles and reorders messages gets exactly the sent ones, in order."""
    outgoing: Outgoing[list[int]] = Outgoing(append)
    receiver = Incoming()
    pushed = 0
    network: list[tuple[int, list[int]]] = []
    acks: list[int] = []
    received: list[int] = []

    def send() -> bool:
        message = outgoing.take()
        if message is not None:
            network.append((message.sequence, list(message.body)))
        return message is not None

    def deliver(index: int, *, keep: bool = False) -> None:
        sequence, values = network[index % len(network)] if keep else network.pop(index % len(network))
        if receiver.take(sequence):
            received.extend(values)
        acks.append(receiver.taken)

    for kind, number in events:
        if kind == "push":
            for _ in range(number):
                pushed += 1
                outgoing.push([pushed], at=0.0)
        elif kind == "send":
            for _ in range(number):
                send()
        elif kind == "reconnect":
            network.clear()
            acks.clear()
            outgoing.new_session()
        elif kind in ("deliver", "duplicate") and network:
            deliver(number, keep=kind == "duplicate")
        elif kind == "drop" and network:
            network.pop(number % len(network))
        elif kind in ("ack", "lose-ack") and acks:
            sequence = acks.pop(number % len(acks))
            if kind == "ack":
                outgoing.acknowledged(sequence)
        assert received == list(range(1, len(received) + 1))

    # Then one last session over a network without faults.
    network.clear()
    outgoing.new_session()
    while send():
        deliver(0)
        outgoing.acknowledged(receiver.taken)
    assert received == list(range(1, pushed + 1))
    assert len(outgoing) == 0
