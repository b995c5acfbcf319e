"""What a policy process says that nobody has asked for."""

from __future__ import annotations

import pytest

from hopyard.errors import InvalidInput
from hopyard.v1 import policy_pb2 as pb
from hopyard_scheduler.policy_process import streams
from hopyard_scheduler.policy_process.streams import Greeting, Seat, SeatLost

pytestmark = pytest.mark.quick


async def nowhere(message: pb.DriveResponse) -> None:
    raise AssertionError(f"nothing is sent, found {message}")


async def test_a_process_that_only_talks_is_hung_up_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "MOST_UNREAD", 2)
    seat, lost = Seat(Greeting("mine"), nowhere), list[bool]()
    seat.when_lost(lambda: lost.append(True))
    for number in range(2):
        seat.take(pb.DriveRequest(answer=pb.Answer(number=number)))
    assert lost == []
    for number in range(2, 5):
        seat.take(pb.DriveRequest(answer=pb.Answer(number=number)))
    assert lost == [True]
    assert seat.gone
    with pytest.raises(InvalidInput, match="found 2 messages more"):
        await seat.over()
    assert [(await seat.hear()).answer.number for _ in range(2)] == [0, 1]
    with pytest.raises(SeatLost):
        await seat.hear()
