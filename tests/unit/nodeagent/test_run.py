"""What a run passes on of what its process says."""

from __future__ import annotations

import asyncio

import pytest

from hopyard.v1 import application_pb2 as wire
from hopyard.v1 import common_pb2, resource_manager_pb2
from hopyard_nodeagent.keys import RunKey
from hopyard_nodeagent.run import Run


@pytest.mark.parametrize(
    ("metrics", "says"),
    [
        ({str(number): 0.0 for number in range(1001)}, "report at position 4: found 1001 metrics; allowed: 1000"),
        ({"x" * 257: 0.0}, "report at position 4: found a metric name of 257 characters; allowed: 256"),
    ],
)
async def test_a_report_that_no_journal_can_hold_fails_its_run(metrics: dict[str, float], says: str) -> None:
    run = Run(RunKey("e", "j", 1, 0), resource_manager_pb2.StartRun(), "a", clock=lambda: 1.0)

    async def process() -> None:
        await asyncio.Event().wait()

    run.task = asyncio.create_task(process())
    largest = {f"{number:0256}": 0.0 for number in range(1000)}
    run.relay(wire.AttachRequest(report=common_pb2.Report(position=2, metrics=largest)))
    assert (len(run.outgoing), run.position, run.killed) == (1, 2, None)
    both = [common_pb2.Report(position=3), common_pb2.Report(position=4, metrics=metrics)]
    run.relay(wire.AttachRequest(reports=resource_manager_pb2.RunReports(reports=both)))
    await asyncio.wait([run.task])
    assert (len(run.outgoing), run.position, run.task.cancelled()) == (1, 2, True)
    assert run.killed is not None
    assert (run.killed.reason, run.killed.failure) == (
        common_pb2.RUN_END_REASON_FAILED,
        common_pb2.FAILURE_CLASS_USER_CODE,
    )
    assert run.killed.message == says
