"""Tests of scripts on a cluster: they attach to a simulated agent over real connections."""

from __future__ import annotations

import json

import pytest

from hopyard._runtime.runner.watchdog import EXIT_AGENT_GONE, EXIT_HUNG
from hopyard.v1 import common_pb2
from hopyard.v1 import resource_manager_pb2 as wire
from tests.unit.script.agent import FakeAgent, over

LOOP = """
for epoch in range({epochs}):
    hopyard.report(accuracy=epoch / 10)
print("last words")
"""

WITH_STATE = """
import json, pathlib
given = hopyard.checkpoint()
x = json.loads((given / "state.json").read_text()) if given else 1.0
print("from", given.name if given else None)
for _ in range(4):
    x = x * 1.1 + hopyard.seed()
    folder = pathlib.Path("last")
    folder.mkdir(exist_ok=True)
    (folder / "state.json").write_text(json.dumps(x))
    hopyard.report({"x": x}, checkpoint=folder)
"""


def test_below_allowed_a_report_never_waits_and_the_end_is_left_to_the_exit_code(agent: FakeAgent) -> None:
    process = agent.script("import time\ntime.sleep(0.2)\n" + LOOP.format(epochs=5))
    agent.start(allowed=9)
    code, output, _ = over(process)
    assert (code, output) == (0, "last words\n")
    agent.until(lambda: len(agent.reports()) == 5)
    assert [(report.position, report.metrics["accuracy"]) for report in agent.reports()] == [
        (1, 0.0), (2, 0.1), (3, 0.2), (4, 0.3), (5, 0.4)
    ]  # fmt: skip
    assert agent.reports()[0].seconds > 0.2, "what it took to come here belongs to the first iteration"
    assert agent.reports()[1].seconds >= 0
    assert [request.WhichOneof("message") for request in agent.said[:2]] == ["hello", "started"]
    assert not any(request.HasField("ended") for request in agent.said)


def test_a_report_waits_for_its_decision_and_a_suspended_script_ends_without_a_snapshot(agent: FakeAgent) -> None:
    process = agent.script(LOOP.format(epochs=5))
    ended = agent.suspended(2)
    assert (ended.reason, ended.position) == (common_pb2.RUN_END_REASON_SUSPENDED, 2)
    assert not ended.HasField("snapshot")
    assert over(process)[:2] == (0, "")


def test_state_goes_into_a_snapshot_and_comes_back_under_its_name(agent: FakeAgent) -> None:
    process = agent.script(WITH_STATE, HOPYARD_SEED="3")
    agent.start(until=2, allowed=2)
    report = agent.reported(2)
    assert report.at_until
    agent.decide(wire.DECISION_CONTINUE, 2)
    ended = agent.ended()
    assert over(process)[:2] == (0, "from None\n")
    assert (ended.reason, ended.snapshot.position) == (common_pb2.RUN_END_REASON_UNTIL, 2)
    # Only the snapshot that is needed is packed.
    assert [
        request.snapshot_taken.snapshot.position for request in agent.said if request.HasField("snapshot_taken")
    ] == [2]
    agent.again()
    process = agent.script(WITH_STATE, HOPYARD_SEED="3")
    agent.start(snapshot=ended.snapshot, until=4, allowed=4)
    found = agent.reported(4).metrics["x"]
    agent.decide(wire.DECISION_CONTINUE, 4)
    assert over(process)[:2] == (0, "from last\n")
    x = 1.0
    for _ in range(4):
        x = x * 1.1 + 3
    assert found == x
    assert [report.position for report in agent.reports()] == [3, 4]


def test_who_does_not_ask_for_the_checkpoint_begins_at_zero(agent: FakeAgent) -> None:
    snapshot = common_pb2.Snapshot(job="j", position=4, sha256="0" * 64)
    process = agent.script(LOOP.format(epochs=1))
    agent.start(snapshot=snapshot, allowed=9)
    agent.reported(1)
    assert over(process)[0] == 0


def test_a_checkpoint_that_is_damaged_is_nobodys_fault(agent: FakeAgent) -> None:
    snapshot = common_pb2.Snapshot(job="j", position=4, sha256="0" * 64)
    (agent.folder / "snapshots" / ("0" * 64)).write_bytes(b"junk")
    process = agent.script("hopyard.checkpoint()")
    agent.start(snapshot=snapshot)
    ended = agent.ended()
    assert (ended.reason, ended.failure) == (common_pb2.RUN_END_REASON_LOST, common_pb2.FAILURE_CLASS_INFRASTRUCTURE)
    assert "has the hash" in ended.message
    code, _, errors = over(process)
    assert code == 1
    assert "hopyard: load at position 4" in errors


def test_a_checkpoint_that_no_snapshot_can_hold_is_the_scripts_fault(agent: FakeAgent) -> None:
    process = agent.script(
        """
        import os, pathlib
        pathlib.Path("last").mkdir()
        os.symlink("/etc/passwd", "last/link")
        hopyard.report(x=1, checkpoint="last")
        """
    )
    agent.start(snapshot_every=1)
    ended = agent.ended()
    assert (ended.reason, ended.failure) == (common_pb2.RUN_END_REASON_FAILED, common_pb2.FAILURE_CLASS_USER_CODE)
    assert "link is neither a file nor a folder" in ended.message
    assert over(process)[0] == 1


def test_a_run_that_stands_at_its_until_says_so_and_waits(agent: FakeAgent) -> None:
    first = agent.script("import pathlib; pathlib.Path('f').write_text('s'); hopyard.report(x=1, checkpoint='f')")
    agent.start(until=1)
    agent.reported(1)
    agent.decide(wire.DECISION_SUSPEND, 1)
    snapshot = agent.ended().snapshot
    assert over(first)[0] == 0
    agent.again()
    process = agent.script("print(hopyard.checkpoint().read_text()); hopyard.report(x=2)")
    agent.start(snapshot=snapshot, until=1)
    restated = agent.reported(1)
    assert (restated.at_until, dict(restated.metrics)) == (True, {})
    agent.amend(ticket="t", until=2)
    agent.decide(wire.DECISION_CONTINUE, 1)
    assert agent.reported(2).at_until
    agent.decide(wire.DECISION_TERMINATE, 2)
    assert agent.ended().reason == common_pb2.RUN_END_REASON_TERMINATED
    assert over(process)[:2] == (0, "s\n")


def test_who_catches_the_end_is_told_again(agent: FakeAgent) -> None:
    process = agent.script(
        """
        for _ in range(3):
            try:
                hopyard.report(x=1)
            except SystemExit as end:
                print("ends with", end.code)
        """
    )
    agent.start()
    agent.reported(1)
    agent.decide(wire.DECISION_TERMINATE, 1)
    assert over(process)[:2] == (0, "ends with 0\n" * 3)
    assert len(agent.reports()) == 1


def test_a_failing_script_leaves_its_traceback_and_its_exit_code(agent: FakeAgent) -> None:
    process = agent.script("hopyard.report(x=1); raise ValueError('bad data')")
    agent.start(allowed=9)
    code, _, errors = over(process)
    assert code == 1
    assert errors.endswith("ValueError: bad data\n")
    assert len(agent.reports()) == 1


MISUSES = {
    "hopyard.report(x='a')": "metric 'x' is 'a' (str); allowed: a float",
    "hopyard.report(position=0, x=1)": "position is 0; allowed: a whole number above the last one's, 0",
    "hopyard.report(x=1, checkpoint='nothing')": "checkpoint 'nothing' is not there; allowed: a file or a folder",
    "hopyard.report(x=1); hopyard.checkpoint()": "hopyard.checkpoint() was called after hopyard.report(); allowed: before",
}


@pytest.mark.parametrize("code", MISUSES)
def test_misuse_is_told_in_words(agent: FakeAgent, code: str) -> None:
    process = agent.script(code)
    agent.start(allowed=9)
    returned, _, errors = over(process)
    assert returned == 1
    assert MISUSES[code] in errors


def test_children_neither_speak_nor_end_the_run(agent: FakeAgent) -> None:
    process = agent.script(
        """
        import multiprocessing, os, subprocess, sys

        def child():
            try:
                hopyard.report(x=2)
            except RuntimeError as error:
                print("child:", error)
            sys.exit(0)

        if __name__ == "__main__":
            print(hopyard.hyperparameters())
            hopyard.report(x=1)
            parent = os.getpid()
            print("parent", parent, flush=True)
            if not os.fork():
                child()
            os.wait()
            for method in ("fork", "spawn"):
                worker = multiprocessing.get_context(method).Process(target=child)
                worker.start()
                worker.join()
            hopyard.report(x=3)
        """,
        HOPYARD_HYPERPARAMETERS=json.dumps({"lr": 0.1}),
    )
    agent.start(allowed=9)
    code, output, errors = over(process)
    assert (code, errors) == (0, "")
    first, parent, *children = output.splitlines()
    assert first == "{'lr': 0.1}"
    assert len(children) == 3
    assert all(
        line.startswith(f"child: process {parent.split()[1]} speaks for this run, and process ") for line in children
    )
    assert [(report.position, report.metrics["x"]) for report in agent.reports()] == [(1, 1.0), (2, 3.0)]


def test_a_second_process_is_not_let_in(agent: FakeAgent) -> None:
    agent._attached = True
    code, _, errors = over(agent.script("hopyard.report(x=1)"))
    assert code == 1
    assert "RuntimeError: another process speaks for this run, and process " in errors
    assert "allowed: one process of a run" in errors
    assert "process 7 is attached already" in errors


def test_a_script_whose_agent_is_gone_ends_itself(agent: FakeAgent) -> None:
    process = agent.script("import time; hopyard.report(x=1); time.sleep(600)")
    agent.start(allowed=9)
    agent.reported(1)
    agent.stop()
    code, _, errors = over(process)
    assert code == EXIT_AGENT_GONE
    assert "ends: the a" in errors


def test_a_script_whose_agent_is_silent_ends_itself(agent: FakeAgent) -> None:
    process = agent.script("hopyard.report(x=1)")
    agent.start(lease=0.5)
    code, _, errors = over(process)
    assert code == EXIT_AGENT_GONE
    assert "silent for longer than its lease" in errors


def test_an_iteration_that_hangs_ends_its_script(agent: FakeAgent) -> None:
    process = agent.script("import time; hopyard.report(x=1); time.sleep(600)")
    agent.start(allowed=9, iteration_timeout=0.3)
    code, _, errors = over(process)
    assert code == EXIT_HUNG
    assert "longer than the experiment's iteration time-out" in errors
