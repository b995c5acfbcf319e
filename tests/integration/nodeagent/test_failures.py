"""Tests of failures of user code, processes, snapshots and programs, and of the reasons that the agent reports."""

from __future__ import annotations

import errno
import functools
import os
import re
import signal
import threading
from collections.abc import Callable, Iterable

import pytest

from hopyard._runtime.criu import procfs
from hopyard._runtime.processes.process_family import ProcessFamily
from hopyard.policy.vocabulary import RunKey, StreamId
from hopyard.v1 import common_pb2
from hopyard.v1 import resource_manager_pb2 as wire
from hopyard_nodeagent.runs import executor, training_process
from hopyard_nodeagent.runs.adopted_processes import AdoptedProcesses
from hopyard_nodeagent.runs.training_process import Runner
from hopyard_nodeagent.runs.watchdogs import SilenceGuard
from tests.damage import flip
from tests.integration.nodeagent.cluster import Cluster
from tests.timing import HANG_SECONDS

KEY = RunKey(StreamId("e1"), "j1", 1, 0)
NEXT = RunKey(StreamId("e1"), "j2", 1, 0)


@pytest.mark.parametrize(
    ("fail", "position", "message"),
    [
        ("setup", 0, "setup at position 0: ValueError: a bad setup"),
        ("train", 2, "train at position 2: ValueError: a bad iteration"),
        ("exit", 2, "train at position 2: SystemExit: 3"),
        ("save", 1, "save at position 1: ValueError: a bad save"),
    ],
)
async def test_an_exception_of_the_users_code_fails_the_run_and_the_runner_goes_on(
    cluster: Cluster, fail: str, position: int, message: str
) -> None:
    await cluster.agent()
    scheduler = cluster.scheduler
    cluster.start(KEY, hyperparameters={"fail": fail}, allowed=9, snapshot_at=[1] if fail == "save" else [])
    ended = await scheduler.ended(KEY)
    assert (ended.reason, ended.failure) == (common_pb2.RUN_END_REASON_FAILED, common_pb2.FAILURE_CLASS_USER_CODE)
    assert ended.position == position
    assert ended.message.startswith(message)
    assert "train.py" in ended.message
    assert message.split(": ", 1)[1].split(":")[0] in cluster.log("a", KEY)
    cluster.start(NEXT)
    assert (await scheduler.reported(NEXT, 1)).position == 1


async def test_a_run_keeps_its_end_if_the_processes_that_it_left_cannot_be_listed(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(family: ProcessFamily, seconds: float) -> list[int]:
        raise OSError(errno.EMFILE, "Too many open files", "/proc")

    monkeypatch.setattr(ProcessFamily, "end_orphans", refuse)
    monkeypatch.setattr(AdoptedProcesses, "any", lambda adopted: True)
    await cluster.agent()
    cluster.start(KEY, hyperparameters={"fail": "train"}, allowed=9)
    ended = await cluster.scheduler.ended(KEY)
    assert (ended.reason, ended.failure) == (common_pb2.RUN_END_REASON_FAILED, common_pb2.FAILURE_CLASS_USER_CODE)
    assert "slot a/0: the processes that a run may have left were not ended: [Errno 24]" in caplog.text


@pytest.mark.parametrize(
    ("trainer", "message"),
    [
        ("missing.py:Walk", "there is no missing.py"),
        ("train.py:Walker", "train.py defines no Walker"),
        ("train.py:json", "allowed: a subclass of hopyard.Trainer"),
        ("broken.py:Walk", "ModuleNotFoundError: No module named 'no_such_module'"),
        ("Walk", "a trainer is named FILE.py:CLASS"),
        ("../train.py:Walk", "leads out of the experiment's code"),
        ("no_such_package.train:Walk", "No module named 'no_such_package' (it is neither in the experiment's code"),
    ],
)
async def test_a_trainer_that_cannot_be_imported_fails_the_run(cluster: Cluster, trainer: str, message: str) -> None:
    await cluster.agent()
    cluster.start(KEY, trainer=trainer)
    ended = await cluster.scheduler.ended(KEY)
    assert ended.reason == common_pb2.RUN_END_REASON_FAILED
    assert message in ended.message
    cluster.start(NEXT, trainer="train:Walk")
    assert (await cluster.scheduler.reported(NEXT, 1)).position == 1


@pytest.mark.parametrize(
    ("fail", "message"),
    [
        ("exit now", "the training process ended with exit code 3 in the middle of a run"),
        ("crash", "the training process was killed by signal SIGSEGV in the middle of a run"),
    ],
)
async def test_code_that_ends_its_own_process_fails_the_run(cluster: Cluster, fail: str, message: str) -> None:
    await cluster.agent()
    cluster.start(KEY, hyperparameters={"fail": fail}, allowed=9)
    ended = await cluster.scheduler.ended(KEY)
    assert (ended.reason, ended.failure) == (common_pb2.RUN_END_REASON_FAILED, common_pb2.FAILURE_CLASS_USER_CODE)
    assert ended.message.startswith(message)
    assert "last words" in ended.message
    cluster.start(NEXT)
    await cluster.scheduler.reported(NEXT, 1)


async def test_code_that_ends_its_own_process_has_failed_however_long_what_it_left_takes_to_go(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    end, kill, killed = procfs.end, Runner.kill, threading.Event()

    def slowly(find: Callable[[], Iterable[int]], seconds: float) -> list[int]:
        assert killed.wait(HANG_SECONDS)  # Until the agent no longer waits for the process.
        return end(find, seconds)

    async def killing(runner: Runner) -> None:
        killed.set()
        await kill(runner)

    await cluster.agent()
    monkeypatch.setattr(procfs, "end", slowly)
    monkeypatch.setattr(Runner, "kill", killing)
    monkeypatch.setattr(training_process, "_EXIT_SECONDS", 0.1)
    cluster.start(KEY, hyperparameters={"fail": "exit now"}, allowed=9)
    ended = await cluster.scheduler.ended(KEY)
    assert (ended.reason, ended.failure) == (common_pb2.RUN_END_REASON_FAILED, common_pb2.FAILURE_CLASS_USER_CODE)
    assert ended.message.startswith("the training process ended with exit code 3")


async def test_a_run_above_its_memory_limit_fails_and_one_below_goes_on(cluster: Cluster) -> None:
    await cluster.agent(slots=2)
    limit = 1 << 30
    gate, over = cluster.folder / "gate", cluster.folder / "over"
    grow = {"fail": "grow", "gate": str(gate), "holds": str(over)}
    cluster.start(KEY, hyperparameters=grow, allowed=9, memory_bytes=limit)
    cluster.start(NEXT, slot=1, hyperparameters=grow, allowed=9)
    await cluster.scheduler.reported(KEY, 2)
    gate.touch()
    ended = await cluster.scheduler.ended(KEY)
    over.touch()
    assert (ended.reason, ended.failure) == (common_pb2.RUN_END_REASON_FAILED, common_pb2.FAILURE_CLASS_USER_CODE)
    assert ended.position == 2
    found = re.fullmatch(
        r"out of memory: used (\S+) GiB of its limit of 1\.0 GiB \(resources\.per_job\.memory\)", ended.message
    )
    assert found is not None, ended.message
    assert 1.0 <= float(found[1]) < 1.6
    assert (await cluster.scheduler.reported(NEXT, 4)).position == 4


async def test_memory_that_an_earlier_run_left_is_not_held_against_the_next(cluster: Cluster) -> None:
    await cluster.agent()
    cluster.start(KEY, hyperparameters={"fail": "leak", "at": 1}, until=1, allowed=1, memory_bytes=1 << 30)
    first = await cluster.scheduler.reported(KEY, 1)
    cluster.scheduler.decide("a", KEY, wire.DECISION_CONTINUE, 1)
    await cluster.scheduler.ended(KEY)
    cluster.start(NEXT, memory_bytes=1 << 30)
    second = await cluster.scheduler.reported(NEXT, 1)
    assert first.metrics["pid"] != second.metrics["pid"]


async def test_a_killed_runner_loses_the_run_with_its_last_lines(cluster: Cluster) -> None:
    await cluster.agent()
    cluster.start(KEY, hyperparameters={"fail": "kill"}, allowed=9)
    ended = await cluster.scheduler.ended(KEY)
    assert (ended.reason, ended.failure) == (common_pb2.RUN_END_REASON_LOST, common_pb2.FAILURE_CLASS_INFRASTRUCTURE)
    # Messages that the runner had not sent yet are lost with it.
    assert ended.position <= 2
    assert "killed by signal SIGKILL (out of memory?)" in ended.message
    assert "about to die" in ended.message
    # A waiting runner that is killed does not prevent the next run on its slot.
    cluster.start(NEXT)
    pid = int((await cluster.scheduler.reported(NEXT, 1)).metrics["pid"])
    os.kill(pid, signal.SIGKILL)
    assert (await cluster.scheduler.ended(NEXT)).reason == common_pb2.RUN_END_REASON_LOST
    cluster.start(RunKey(StreamId("e1"), "j2", 2, 0))
    await cluster.scheduler.reported(RunKey(StreamId("e1"), "j2", 2, 0), 1)


async def test_an_iteration_beyond_its_time_out_fails_the_run(cluster: Cluster) -> None:
    await cluster.agent()
    cluster.start(KEY, hyperparameters={"fail": "hang", "at": 2}, allowed=9, iteration_timeout=0.3)
    ended = await cluster.scheduler.ended(KEY)
    assert (ended.reason, ended.failure) == (common_pb2.RUN_END_REASON_FAILED, common_pb2.FAILURE_CLASS_USER_CODE)
    assert "longer than 0.3 s" in ended.message


async def test_an_iteration_that_lets_nobody_else_run_is_ended_too(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The guard acts long before the limit, so that the process never detects the timeout itself.
    guard = functools.partial(SilenceGuard, check_seconds=0.5, margin_seconds=2.0 - HANG_SECONDS)
    monkeypatch.setattr(executor, "SilenceGuard", guard)
    await cluster.agent()
    cluster.start(KEY, hyperparameters={"fail": "hang alone", "at": 1}, allowed=9, iteration_timeout=HANG_SECONDS)
    ended = await cluster.scheduler.ended(KEY)
    assert (ended.reason, ended.failure) == (common_pb2.RUN_END_REASON_FAILED, common_pb2.FAILURE_CLASS_USER_CODE)
    assert ended.message == f"an iteration took longer than {HANG_SECONDS:g} s, let no other thread run, and was ended"
    cluster.start(NEXT)
    await cluster.scheduler.reported(NEXT, 1)


async def test_a_program_this_agent_does_not_run_is_refused(cluster: Cluster) -> None:
    await cluster.agent()
    cluster.scheduler.send("a", KEY, start=wire.StartRun(slot="a/0", program=wire.RunProgram()))
    ended = await cluster.scheduler.ended(KEY)
    assert ended.reason == common_pb2.RUN_END_REASON_FAILED
    assert ended.message == "the run has no program: needs a trainer, a command or a log program"


async def test_a_run_that_cannot_be_prepared_is_lost(cluster: Cluster) -> None:
    await cluster.agent()
    scheduler = cluster.scheduler
    missing = common_pb2.Snapshot(job="j1", position=3, sha256="0" * 64)
    cluster.start(KEY, snapshot=missing)
    ended = await scheduler.ended(KEY)
    assert (ended.reason, ended.position) == (common_pb2.RUN_END_REASON_LOST, 3)
    assert "store: no blob 000" in ended.message
    elsewhere = RunKey(StreamId("e1"), "j3", 1, 0)
    cluster.start(elsewhere, slot=5)
    assert "slot 'a/5' is not on this node" in (await scheduler.ended(elsewhere)).message
    nowhere = RunKey(StreamId("e1"), "j4", 1, 0)
    program = wire.RunProgram(trainer="train.py:Walk", interpreter="/no/such/python")
    scheduler.send("a", nowhere, start=wire.StartRun(slot="a/0", program=program))
    ended = await scheduler.ended(nowhere)
    assert ended.reason == common_pb2.RUN_END_REASON_FAILED
    assert "interpreter /no/such/python: there is no /no/such/python on this node" in ended.message


async def test_a_snapshot_with_a_flipped_bit_is_found_and_got_again(cluster: Cluster) -> None:
    await cluster.agent()
    scheduler = cluster.scheduler
    cluster.start(KEY, until=2, allowed=2)
    await scheduler.reported(KEY, 2)
    scheduler.decide("a", KEY, wire.DECISION_CONTINUE, 2)
    snapshot = (await scheduler.ended(KEY)).snapshot
    await scheduler.until(lambda: any(m.HasField("snapshot_stored") for m in scheduler.received[KEY]))
    file = next(path for path in (cluster.folder / "a" / "snapshots" / snapshot.sha256 / "state").iterdir())
    flip(file)
    second = RunKey(StreamId("e1"), "j1", 2, 0)
    cluster.start(second, snapshot=snapshot)
    assert (await scheduler.reported(second, 3)).position == 3
    assert (cluster.folder / "a" / "snapshots" / snapshot.sha256).is_file(), "it is the packed copy of the store"


async def test_snapshots_are_shipped_when_the_store_comes_back_and_deleted_when_forgotten(cluster: Cluster) -> None:
    await cluster.agent()
    scheduler = cluster.scheduler
    cluster.start(KEY, allowed=3, snapshot_every=1)
    await scheduler.reported(KEY, 1)
    cluster.store.available = False
    await scheduler.reported(KEY, 3)
    scheduler.decide("a", KEY, wire.DECISION_SUSPEND, 3)
    snapshot = (await scheduler.ended(KEY)).snapshot
    cluster.store.available = True
    await scheduler.until(lambda: sum(m.HasField("snapshot_stored") for m in scheduler.received[KEY]) == 3)
    await scheduler.until(lambda: not cluster.agents["a"].hello(0).runs)
    file = cluster.folder / "a" / "snapshots" / snapshot.sha256
    assert file.is_dir()
    scheduler.say("a", forget_snapshots=wire.ForgetSnapshots(sha256=[snapshot.sha256, "1" * 64]))
    scheduler.say("a", question=wire.NodeQuestion(ticket="q", kind="weather"))
    await scheduler.until(lambda: bool(scheduler.answers))
    assert "no questions of kind 'weather'" in scheduler.answers[0].error
    assert not file.exists()


async def test_what_the_scheduler_has_not_taken_over_is_neither_shipped_nor_deleted(cluster: Cluster) -> None:
    await cluster.agent()
    scheduler = cluster.scheduler
    scheduler.acknowledge = False
    cluster.start(KEY, allowed=1, snapshot_at=[1])
    await scheduler.until(lambda: bool(scheduler.snapshots(KEY)))
    sha256 = scheduler.snapshots(KEY)[0].sha256
    # An older attempt's snapshot has the same bytes, and no run needs it any more.
    scheduler.say("a", forget_snapshots=wire.ForgetSnapshots(sha256=[sha256]))
    scheduler.say("a", question=wire.NodeQuestion(ticket="q", kind="weather"))
    await scheduler.until(lambda: bool(scheduler.answers))
    assert cluster.store.asked == 0
    assert (cluster.folder / "a" / "snapshots" / sha256).is_dir()
    scheduler.acknowledge = True
    scheduler.drop_session("a")
    await scheduler.until(lambda: any(m.HasField("snapshot_stored") for m in scheduler.received[KEY]))
    assert sha256 in cluster.store.blobs


async def test_a_snapshot_that_the_store_refuses_stays_local_and_the_scheduler_is_told(cluster: Cluster) -> None:
    agent = await cluster.agent()
    scheduler = cluster.scheduler
    cluster.store.refuses = True
    cluster.start(KEY, allowed=1)
    await scheduler.reported(KEY, 1)
    scheduler.decide("a", KEY, wire.DECISION_SUSPEND, 1)
    snapshot = (await scheduler.ended(KEY)).snapshot
    await scheduler.until(lambda: any(m.HasField("snapshot_stored") for m in scheduler.received[KEY]))
    said = scheduler.received[KEY][-1].snapshot_stored
    assert (said.position, said.sha256) == (1, snapshot.sha256)
    assert said.error == "the blob is bigger than the test's store allows"
    assert agent.hello(0).snapshots == [snapshot.sha256]
    await scheduler.until(lambda: not agent.hello(0).runs)
