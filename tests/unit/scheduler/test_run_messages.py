"""Tests of the conversion of agents' messages into events: a number out of range ends its run.

A number that the engine accepts is added to others and sent to policies and clients. A sum beyond int64 would end the scheduler, and
would again when the agent repeats its message.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from hopyard.policy.vocabulary import RunEndReason
from hopyard.v1 import common_pb2
from hopyard.v1 import resource_manager_pb2 as pb
from hopyard_engine.core.events import Ended
from hopyard_scheduler.converters import run_message_from_proto


def taken(position: int = 0, size: int = 0) -> pb.RunMessage:
    snapshot = common_pb2.Snapshot(position=position, size_bytes=size)
    return pb.RunMessage(snapshot_taken=pb.SnapshotTaken(snapshot=snapshot))


def ended(position: int = 0, size: int = 0) -> pb.RunMessage:
    snapshot = common_pb2.Snapshot(size_bytes=size)
    reason = common_pb2.RUN_END_REASON_UNTIL
    return pb.RunMessage(ended=pb.RunEnded(reason=reason, position=position, snapshot=snapshot))


def failure_of(message: pb.RunMessage) -> str:
    """Return the cause of the failure that the message becomes; empty: it is valid."""
    body = run_message_from_proto(message, 1.0, {}).body
    if not isinstance(body, Ended) or body.cause is None:
        return ""
    assert (body.reason, body.user_code) == (RunEndReason.FAILED, True)
    return str(body.cause)


@pytest.mark.parametrize("wrong", [-1, 2**31])
@pytest.mark.parametrize(
    ("field", "message"),
    [
        ("started", lambda n: pb.RunMessage(started=pb.RunStarted(position=n))),
        ("report", lambda n: pb.RunMessage(reports=pb.RunReports(reports=[common_pb2.Report(position=n)]))),
        ("amended", lambda n: pb.RunMessage(amended=pb.RunAmended(position=n))),
        ("snapshot", taken),
        ("snapshot_stored", lambda n: pb.RunMessage(snapshot_stored=pb.SnapshotStored(position=n))),
        ("ended", ended),
    ],
)
def test_positions_out_of_range_end_the_run(field: str, message: Callable[[int], pb.RunMessage], wrong: int) -> None:
    assert failure_of(message(2**31 - 1)) == ""
    assert failure_of(message(wrong)) == f"{field}.position: found {wrong}, allowed is 0 to 2147483647"


@pytest.mark.parametrize("wrong", [-1, 2**46 + 1, 2**63 - 1])
@pytest.mark.parametrize(
    ("field", "message"),
    [
        ("started.fetched_bytes", lambda n: pb.RunMessage(started=pb.RunStarted(fetched_bytes=n))),
        ("snapshot.size_bytes", lambda n: taken(size=n)),
        ("snapshot.size_bytes", lambda n: ended(size=n)),
    ],
)
def test_sizes_out_of_range_end_the_run(field: str, message: Callable[[int], pb.RunMessage], wrong: int) -> None:
    assert failure_of(message(2**46)) == ""
    assert failure_of(message(wrong)) == f"{field}: found {wrong}, allowed is 0 to {2**46}"


@pytest.mark.parametrize("user_code", [True, False])
def test_only_a_failure_of_user_code_is_permanent(user_code: bool) -> None:
    failure = common_pb2.FAILURE_CLASS_USER_CODE if user_code else common_pb2.FAILURE_CLASS_INFRASTRUCTURE
    ended = pb.RunEnded(reason=common_pb2.RUN_END_REASON_FAILED, failure=failure, permanent=True)
    body = run_message_from_proto(pb.RunMessage(ended=ended), 1.0, {}).body
    assert isinstance(body, Ended)
    assert (body.permanent, body.unable) == (user_code, False)
