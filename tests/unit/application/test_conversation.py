"""Tests of the printed conversation of the conformance program: times, shortened lines, and misplaced snapshots."""

from __future__ import annotations

import re

import pytest

from hopyard._net.rpc.values import hyperparameters_to_proto
from hopyard._runtime.application.conformance.transcript import Conversation
from hopyard.v1 import application_pb2 as wire
from hopyard.v1 import common_pb2, resource_manager_pb2

pytestmark = pytest.mark.quick


def report(position: int) -> wire.AttachRequest:
    return wire.AttachRequest(report=common_pb2.Report(position=position))


def snapshot(position: int) -> wire.AttachRequest:
    taken = resource_manager_pb2.SnapshotTaken(snapshot=common_pb2.Snapshot(position=position))
    return wire.AttachRequest(snapshot_taken=taken)


def test_each_line_has_its_time_and_left_out_lines_are_counted() -> None:
    conversation = Conversation()
    for position in range(1, 21):
        conversation.hear(report(position))
    first, *others = conversation.transcript()
    assert first == f"... {20 - len(others)} lines are left out"
    assert others
    assert re.fullmatch(r" *\d+\.\d\d s <- report \{ position: 20 \}", others[-1])


def test_nothing_is_said_to_be_left_out_of_a_short_one() -> None:
    conversation = Conversation()
    conversation.hear(report(1))
    (line,) = conversation.transcript()
    assert line.endswith(" s <- report { position: 1 }")


def test_a_start_is_shown_by_what_cases_turn_on_and_stays_what_it_is() -> None:
    start = resource_manager_pb2.StartRun(
        hyperparameters=hyperparameters_to_proto({"lr": 0.5}), slot="m" * 300, until=3, allowed=5, completes=True
    )
    start.program.command.arguments.append("word " * 100)
    message = wire.AttachResponse(start=wire.ApplicationStart(start=start, code_folder="c" * 300, lease_seconds=60))
    conversation = Conversation()
    conversation.tell(message)
    (line,) = conversation.transcript()
    assert all(part in line for part in ('"lr"', "until: 3", "allowed: 5", "completes: true", "lease_seconds: 60"))
    assert "word" not in line
    assert "mmm" not in line
    assert not line.endswith("...")
    assert message.start.start == start


def test_a_snapshot_of_another_position_than_the_last_report_is_misplaced() -> None:
    conversation = Conversation()
    for said in (report(1), snapshot(1), report(2)):
        conversation.hear(said)
    assert conversation.misplaced is None
    conversation.hear(snapshot(1))
    assert conversation.misplaced == (1, 2)
