"""Tests of a C++ program attached to an agent that the test controls: behaviour that the protocol does not require."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from hopyard.v1 import common_pb2
from hopyard.v1 import resource_manager_pb2 as wire
from tests.cpp import Programs
from tests.unit.script.agent import FakeAgent, over

pytestmark = pytest.mark.timeout(600)


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[FakeAgent]:
    agent = FakeAgent(tmp_path)  # type: ignore[abstract]
    yield agent
    agent.stop()


def test_a_script_without_a_checkpoint_is_suspended_without_one(cpp: Programs, agent: FakeAgent) -> None:
    process = agent.program(str(cpp.counter), "script", "--forget=0")
    ended = agent.suspended(2)
    assert (ended.reason, ended.position) == (common_pb2.RUN_END_REASON_SUSPENDED, 2)
    assert not ended.HasField("snapshot")
    assert over(process) == (0, "left: 2\n", "")


def test_what_was_reported_right_before_the_end_is_not_lost(cpp: Programs, agent: FakeAgent) -> None:
    process = agent.program(str(cpp.counter), "script", "--finish=200")
    agent.start(allowed=1000)
    assert over(process) == (0, "", "")
    agent.until(lambda: len(agent.reports()) == 200)
    assert [report.position for report in agent.reports()] == list(range(1, 201))
    assert not any(request.HasField("ended") for request in agent.said)


def test_an_exit_code_is_left_to_the_agent(cpp: Programs, agent: FakeAgent) -> None:
    process = agent.program(str(cpp.counter), "script", "--exit=3")
    agent.start(allowed=1000)
    assert over(process) == (3, "", "")
    agent.until(lambda: len(agent.reports()) == 3)


def test_a_child_of_the_program_cannot_report_and_may_exit(cpp: Programs, agent: FakeAgent) -> None:
    process = agent.program(str(cpp.counter), "script", "--fork=3", "--finish=6")
    agent.start(allowed=1000)
    assert over(process) == (0, "", "")
    agent.until(lambda: len(agent.reports()) == 6)


def test_a_process_beside_the_one_that_speaks_is_refused(cpp: Programs, agent: FakeAgent) -> None:
    first = agent.program(str(cpp.counter), "script")
    agent.start(allowed=1)
    agent.reported(1)
    second = agent.program(str(cpp.counter), "trainer")
    code, _, errors = over(second)
    assert code == 1
    assert "another process speaks for this run" in errors
    assert "(the run's agent says: process 7 is attached already)" in errors
    child = agent.program(str(cpp.counter), "trainer", HOPYARD_SPEAKER="123", HOPYARD_TOKEN="")
    code, _, errors = over(child)
    assert code == 1
    assert "process 123 speaks for this run" in errors
    agent.decide(wire.DECISION_TERMINATE, 1)
    assert over(first) == (0, "left: 3\n", "")
