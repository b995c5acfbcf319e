"""Tests of a run on a node: what it accepts from its process, and what it sends to the scheduler."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from hopyard.policy.vocabulary import RunKey, StreamId
from hopyard.v1 import application_pb2 as wire
from hopyard.v1 import common_pb2, resource_manager_pb2
from hopyard_nodeagent.runs.run import NodeRun
from hopyard_nodeagent.runs.training_process import Runner

pytestmark = pytest.mark.quick

USER_CODE = (common_pb2.RUN_END_REASON_FAILED, common_pb2.FAILURE_CLASS_USER_CODE)


@pytest.fixture
async def run() -> AsyncIterator[NodeRun]:
    """A run with a process that does not end by itself."""
    made = NodeRun(RunKey(StreamId("e"), "j", 1, 0), resource_manager_pb2.StartRun(), "a", clock=lambda: 1.0)

    async def process() -> None:
        await asyncio.Event().wait()

    made.task = asyncio.create_task(process())
    yield made
    made.task.cancel()
    await asyncio.wait([made.task])


async def failed(run: NodeRun) -> str:
    """Wait until the run has failed by a fault of the user's code and its process was ended. Return the message of the failure."""
    assert run.task is not None
    await asyncio.wait([run.task])
    assert run.killed is not None
    assert (run.killed.reason, run.killed.failure, run.task.cancelled()) == (*USER_CODE, True)
    return run.killed.message


@pytest.mark.parametrize(
    ("report", "says"),
    [
        ({"metrics": {str(n): 0.0 for n in range(1001)}}, "report at position 4: found 1001 metrics; allowed: 1000"),
        (
            {"metrics": {"x" * 257: 0.0}},
            "report at position 4: found a metric name of 257 characters; allowed: 256",
        ),
        ({"position": 3}, "report at position 3: allowed: 4 to 2147483647; each report's is above the last one's"),
        ({"position": -1}, "report at position -1: allowed: 4 to 2147483647; each report's is above the last one's"),
        ({"position": 2**31}, "report at position 2147483648: allowed: 4 to 2147483647; each report's is above"),
        (
            {"seconds": -0.5},
            "report at position 4: found -0.5 seconds and 0 examples; allowed: 0 to 1000000000000 seconds",
        ),
        (
            {"seconds": math.nan},
            "report at position 4: found nan seconds and 0 examples; allowed: 0 to 1000000000000 seconds",
        ),
        (
            {"seconds": math.inf},
            "report at position 4: found inf seconds and 0 examples; allowed: 0 to 1000000000000 seconds",
        ),
        ({"seconds": 1e13}, "report at position 4: found 10000000000000.0 seconds and 0 examples; allowed: 0 to"),
        ({"examples": 2**50}, f"report at position 4: found 0.0 seconds and {2**50} examples; allowed: 0 to"),
        (
            {"examples": -1},
            "report at position 4: found 0.0 seconds and -1 examples; allowed: 0 to 1000000000000 seconds",
        ),
    ],
)
async def test_a_report_that_no_journal_can_hold_fails_its_run(run: NodeRun, report: dict[str, Any], says: str) -> None:
    largest = {f"{number:0256}": 0.0 for number in range(1000)}
    run.relay(wire.AttachRequest(report=common_pb2.Report(position=2, metrics=largest)))
    assert (len(run.outgoing), run.position, run.killed) == (1, 2, None)
    both = [common_pb2.Report(position=3), common_pb2.Report(**{"position": 4, **report})]
    run.relay(wire.AttachRequest(reports=resource_manager_pb2.RunReports(reports=both)))
    assert (await failed(run)).startswith(says)
    run.relay(wire.AttachRequest(report=common_pb2.Report(position=5)))
    assert (len(run.outgoing), run.position) == (1, 2)


async def test_a_script_may_begin_anew_before_its_snapshots_position(run: NodeRun) -> None:
    run.position = 9
    run.relay(wire.AttachRequest(report=common_pb2.Report(position=1)))
    assert (len(run.outgoing), run.position, run.killed) == (1, 1, None)


async def test_a_snapshot_without_a_hash_fails_its_run(run: NodeRun) -> None:
    run.relay(wire.AttachRequest(snapshot_taken=resource_manager_pb2.SnapshotTaken()))
    assert (await failed(run)).startswith("snapshot_taken at position 0: sha256: found ''")
    assert len(run.outgoing) == 0


@pytest.mark.parametrize(
    ("ended", "says"),
    [
        ({}, "ended: found reason 0 and position 0; allowed: RUN_END_REASON_UNTIL, "),
        ({"reason": 99}, "ended: found reason 99 "),
        ({"reason": 1, "position": -1}, "ended: found reason 1 and position -1; "),
        ({"reason": 1, "snapshot": common_pb2.Snapshot(sha256="A" * 64)}, "ended: snapshot: sha256: found 'AAA"),
    ],
)
async def test_an_end_that_no_scheduler_can_take_is_a_failure(run: NodeRun, ended: dict[str, Any], says: str) -> None:
    assert (
        run.acceptable(resource_manager_pb2.RunEnded(reason=common_pb2.RUN_END_REASON_LOST, position=3)).position == 3
    )
    found = run.acceptable(resource_manager_pb2.RunEnded(**ended))
    assert (found.reason, found.failure) == USER_CODE
    assert found.message.startswith(says)


class Deaf(Runner):
    """Simulates a process that trains to the end of its start before it receives any command."""

    def __init__(self) -> None:
        self.began: wire.ApplicationStart | None = None
        self.told: list[wire.AttachResponse] = []

    async def execute(
        self, start: wire.ApplicationStart, heard: Callable[[wire.AttachRequest], None]
    ) -> resource_manager_pb2.RunEnded:
        self.began = start
        return resource_manager_pb2.RunEnded(reason=common_pb2.RUN_END_REASON_UNTIL)

    def tell(self, command: wire.AttachResponse) -> None:
        self.told.append(command)


def told_before(run: NodeRun) -> list[wire.AttachResponse]:
    """Send commands before the process exists: two amendments, a third one that is too late, and a decision. Return them."""
    decide = wire.AttachResponse(decide=resource_manager_pb2.DecideRun(decision=resource_manager_pb2.DECISION_SUSPEND))
    amend = [
        wire.AttachResponse(amend=resource_manager_pb2.AmendRun(ticket=ticket, until=until, snapshot_at=points))
        for ticket, until, points in (("1", 0, [5, 4]), ("2", 9, []), ("3", 2, []))
    ]
    commands = [amend[0], decide, *amend[1:]]
    for command in commands:
        run.tell(command)
    return commands


async def test_what_is_amended_before_the_process_is_there_cannot_come_too_late(run: NodeRun) -> None:
    told_before(run)
    process = Deaf()
    start = resource_manager_pb2.StartRun(until=6, completes=True, snapshot_at=[6])
    start.snapshot.position = 3
    await run.make(process, wire.ApplicationStart(start=start), lambda said: None)
    assert process.began is not None
    began = process.began.start
    assert (began.until, began.completes, list(began.snapshot_at)) == (9, False, [6, 5, 4])
    assert [command.WhichOneof("message") for command in process.told] == ["decide"]
    answers = [message.amended for message in run.outgoing]
    assert [(one.ticket, one.accepted, one.position) for one in answers] == [
        ("1", True, 3),
        ("2", True, 3),
        ("3", False, 3),
    ]


@pytest.mark.parametrize(
    "started",
    [
        resource_manager_pb2.StartRun(until=6, world=2),
        resource_manager_pb2.StartRun(
            until=6, program=resource_manager_pb2.RunProgram(command=resource_manager_pb2.CommandLine())
        ),
    ],
    ids=["a gang", "a command"],
)
async def test_commands_and_gangs_hear_of_amendments(run: NodeRun, started: resource_manager_pb2.StartRun) -> None:
    commands, process = told_before(run), Deaf()
    await run.make(process, wire.ApplicationStart(start=started), lambda said: None)
    assert process.began is not None
    assert (process.began.start.until, process.told) == (6, commands)
