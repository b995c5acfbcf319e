"""Test that a policy process that sends messages without up-calls is disconnected."""

from __future__ import annotations

import pytest

from hopyard.errors import InvalidInput
from hopyard.v1 import policy_pb2 as pb
from hopyard_scheduler.policy_process import connections
from hopyard_scheduler.policy_process.connections import ConnectionLost, Greeting, PolicyConnection

pytestmark = pytest.mark.quick


async def nowhere(message: pb.DriveResponse) -> None:
    raise AssertionError(f"nothing is sent, found {message}")


async def test_large_messages_are_limited_by_their_size(monkeypatch: pytest.MonkeyPatch) -> None:
    message = pb.DriveRequest(answer=pb.Answer(number=1, error="x" * 1000))
    monkeypatch.setattr(connections, "MOST_UNREAD_BYTES", 2 * message.ByteSize())
    connection = PolicyConnection(Greeting("mine"), nowhere)
    for _ in range(5):  # What was read does not count.
        connection.deliver(message)
        await connection.receive()
    connection.deliver(message)
    connection.deliver(message)
    assert not connection.closed
    connection.deliver(message)
    with pytest.raises(InvalidInput, match="found 2 further messages"):
        await connection.wait_closed()


async def test_a_process_that_only_talks_is_hung_up_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "MOST_UNREAD", 2)
    connection, lost = PolicyConnection(Greeting("mine"), nowhere), list[bool]()
    connection.on_lost(lambda: lost.append(True))
    for number in range(2):
        connection.deliver(pb.DriveRequest(answer=pb.Answer(number=number)))
    assert lost == []
    for number in range(2, 5):
        connection.deliver(pb.DriveRequest(answer=pb.Answer(number=number)))
    assert lost == [True]
    assert connection.closed
    with pytest.raises(InvalidInput, match="found 2 further messages"):
        await connection.wait_closed()
    assert [(await connection.receive()).answer.number for _ in range(2)] == [0, 1]
    with pytest.raises(ConnectionLost):
        await connection.receive()
