"""Tests of scripts and log-mode programs on a real agent: the user's own processes, from start to end."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from hopyard._net.rpc.values import hyperparameters_to_proto
from hopyard._runtime import bundle
from hopyard.policy.vocabulary import RunKey, StreamId
from hopyard.v1 import common_pb2
from hopyard.v1 import resource_manager_pb2 as wire
from tests.integration.nodeagent.cluster import Cluster, gone
from tests.integration.nodeagent.test_process import start_agent
from tests.plugins.processes import is_running
from tests.timing import HANG_SECONDS, scaled

KEY = RunKey(StreamId("e1"), "j1", 1, 0)

SCRIPT = """
import json, os, pathlib, random, sys, hopyard

given = hopyard.checkpoint()
rng = random.Random(hopyard.seed())
x = 0.0
if given:
    x, (version, internal, gauss) = json.loads(given.read_text())
    rng.setstate((version, tuple(internal), gauss))
print("begins from", given and given.name)
while True:
    x += float(sys.argv[1]) * rng.gauss(0.0, 1.0)
    pathlib.Path("state.json").write_text(json.dumps([x, rng.getstate()]))
    hopyard.report(x=x, pid=os.getpid(), checkpoint="state.json")
"""

PRINTS = r"""
import os, sys, time
print("pid", os.getpid(), flush=True)
for i in range(int(sys.argv[1])):
    print("loss=%g" % (1 / (i + 1)))
    sys.stdout.write("\r50%% acc=0\r100%% acc=%g\n" % i)
    sys.stdout.flush()
sys.stdout.write("the end, without a line break acc=99")
"""


def begin(
    cluster: Cluster,
    key: RunKey,
    code: Mapping[str, str],
    *arguments: str,
    metrics: Mapping[str, str] | None = None,
    program: Mapping[str, Any] | None = None,
    node: str = "a",
    hyperparameters: Mapping[str, Any] | None = None,
    **fields: Any,
) -> None:
    """Start a run of a command with the files `code` in its folder; with `metrics` in log mode, with the metric acc."""
    folder = cluster.folder / f"code-{key.job}-{key.attempt}"
    folder.mkdir()
    for name, text in code.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(textwrap.dedent(text))
        (folder / name).chmod(0o755)
    command = wire.CommandLine(arguments=arguments)
    found = wire.RunProgram(bundle=cluster.store.add(bundle.pack(folder).data), **(program or {}))
    if metrics is None:
        found.command.CopyFrom(command)
    else:
        found.log.CopyFrom(wire.LogProgram(command=command, metrics=metrics, metric="acc"))
    start = wire.StartRun(
        slot=f"{node}/0",
        hyperparameters=hyperparameters_to_proto(hyperparameters or {"step": 0.5}),
        seed=7,
        world=1,
        program=found,
        **fields,
    )
    cluster.scheduler.send(node, key, start=start)


async def test_a_script_is_suspended_and_goes_on_bit_identically_in_a_process_and_folder_of_its_own(
    cluster: Cluster,
) -> None:
    await cluster.agent()
    scheduler = cluster.scheduler
    whole = RunKey(StreamId("e1"), "whole", 1, 0)
    begin(cluster, whole, {"train.py": SCRIPT}, "python", "train.py", "{step}", until=6, allowed=6)
    scheduler.decide("a", whole, wire.DECISION_CONTINUE, (await scheduler.reported(whole, 6)).position)
    assert (await scheduler.ended(whole)).reason == common_pb2.RUN_END_REASON_UNTIL
    begin(cluster, KEY, {"train.py": SCRIPT}, "python", "train.py", "{step}")
    scheduler.decide("a", KEY, wire.DECISION_CONTINUE, (await scheduler.reported(KEY, 1)).position, allowed=3)
    scheduler.decide("a", KEY, wire.DECISION_SUSPEND, (await scheduler.reported(KEY, 3)).position)
    ended = await scheduler.ended(KEY)
    assert (ended.reason, ended.position, ended.snapshot.position) == (common_pb2.RUN_END_REASON_SUSPENDED, 3, 3)
    assert [m.WhichOneof("body") for m in scheduler.received[KEY]][:2] == ["started", "reports"]
    second = RunKey(StreamId("e1"), "j1", 2, 0)
    code = {"train.py": SCRIPT}
    begin(cluster, second, code, "python", "train.py", "{step}", until=6, allowed=6, snapshot=ended.snapshot)
    await scheduler.reported(second, 6)
    expected = {r.position: r.metrics["x"] for r in scheduler.reports(whole)}
    assert {r.position: r.metrics["x"] for key in (KEY, second) for r in scheduler.reports(key)} == expected
    pids = {r.metrics["pid"] for key in (whole, KEY, second) for r in scheduler.reports(key)}
    assert len(pids) == 3
    assert "begins from state.json" in cluster.log("a", KEY)
    scheduler.decide("a", second, wire.DECISION_TERMINATE, 6)
    assert (await scheduler.ended(second)).reason == common_pb2.RUN_END_REASON_TERMINATED
    # The folder is deleted after the end of the run, which does not wait for it.
    await scheduler.until(lambda: not any((cluster.folder / "a" / "scratch").iterdir()))


async def test_a_script_that_ends_by_itself_has_finished_its_job(cluster: Cluster) -> None:
    await cluster.agent()
    code = "import hopyard\nfor x in range(3):\n    hopyard.report(x=x)\n"
    begin(cluster, KEY, {"train.py": code}, "python", "train.py", allowed=99)
    ended = await cluster.scheduler.ended(KEY)
    assert (ended.reason, ended.position, ended.finished) == (common_pb2.RUN_END_REASON_UNTIL, 3, True)
    assert [r.position for r in cluster.scheduler.reports(KEY)] == [1, 2, 3]


SCRIPT_FAILURES = [
    ("print('nothing else')", "the program ended (exit code 0) and reported nothing; needs a call such as"),
    (
        "import hopyard\nhopyard.report(x=1)\nraise ValueError('bad')",
        "the program ended with exit code 1; its last lines",
    ),
    ("import os, hopyard\nhopyard.report(x=1)\nos.abort()", "the training process was killed by signal SIGABRT"),
    (
        "import os\nprint('nothing else')\nos._exit(3)",
        "the program ended with exit code 3; its last lines:\nnothing else",
    ),
]


async def test_a_script_that_fails_says_how(cluster: Cluster) -> None:
    await cluster.agent()
    for number, (code, message) in enumerate(SCRIPT_FAILURES):
        key = RunKey(StreamId("e1"), f"j{number}", 1, 0)
        begin(cluster, key, {"train.py": code}, "python", "train.py", allowed=99)
        ended = await cluster.scheduler.ended(key)
        assert (ended.reason, ended.failure) == (common_pb2.RUN_END_REASON_FAILED, common_pb2.FAILURE_CLASS_USER_CODE)
        assert message in ended.message
        assert "bad" not in code or ended.message.endswith("ValueError: bad")


async def test_a_command_that_is_none_fails_in_words(cluster: Cluster) -> None:
    await cluster.agent()
    begin(cluster, KEY, {"x": ""}, "./no-such-program")
    ended = await cluster.scheduler.ended(KEY)
    assert ended.reason == common_pb2.RUN_END_REASON_FAILED
    assert "command: ./no-such-program cannot be started in " in ended.message
    logged = RunKey(StreamId("e1"), "j2", 1, 0)
    begin(cluster, logged, {"x": ""}, "./no-such-program", metrics={"acc": "(.*)"})
    assert "./no-such-program cannot be started in " in (await cluster.scheduler.ended(logged)).message


async def test_a_script_finds_its_environment_and_its_folder_below_a_shell(cluster: Cluster) -> None:
    await cluster.agent()
    code = """
    import json, os, pathlib, hopyard
    assert hopyard.hyperparameters() == {"step": 0.5} == json.loads(os.environ["HOPYARD_HYPERPARAMETERS"])
    assert hopyard.seed() == 7 and os.environ["HOPYARD_JOB"] == "j1" and os.environ["HOPYARD_EXPERIMENT"] == "e1"
    assert os.environ["COLOUR"] == "blue" and os.environ["OMP_NUM_THREADS"] == "1"
    assert pathlib.Path.cwd().name == "inner" and pathlib.Path("../data.txt").read_text() == "data"
    pathlib.Path("../data.txt").write_text("changed")  # it has a copy of its own
    hopyard.report(x=1)
    """
    files = {
        "inner/train.py": code,
        "run.sh": "#!/bin/sh\npython train.py && echo after && exit 0\n",
        "data.txt": "data",
    }
    program = {"environment": {"COLOUR": "blue"}, "working_directory": "inner", "interpreter": sys.executable}
    begin(cluster, KEY, files, "../run.sh", program=program)
    scheduler = cluster.scheduler
    await scheduler.reported(KEY, 1)
    scheduler.decide("a", KEY, wire.DECISION_CONTINUE, 1)
    ended = await scheduler.ended(KEY)
    assert (ended.reason, ended.position, ended.finished) == (common_pb2.RUN_END_REASON_UNTIL, 1, True), ended.message
    assert cluster.log("a", KEY).endswith("after\n")


async def test_a_killed_script_and_all_that_it_started_are_gone(cluster: Cluster) -> None:
    await cluster.agent()
    code = """
    import os, subprocess, time, hopyard
    child = subprocess.Popen(["sleep", "600"])
    hopyard.report(pid=os.getpid(), child=child.pid)
    time.sleep(600)
    """
    begin(cluster, KEY, {"train.py": code}, "python", "train.py", allowed=9)
    scheduler = cluster.scheduler
    report = await scheduler.reported(KEY, 1)
    scheduler.send("a", KEY, kill=wire.KillRun(reason="a test wants it"))
    assert (await scheduler.ended(KEY)).reason == common_pb2.RUN_END_REASON_TERMINATED
    await gone(int(report.metrics["pid"]))
    await gone(int(report.metrics["child"]))


async def test_metrics_are_read_from_output_and_the_program_stops_while_it_waits(cluster: Cluster) -> None:
    await cluster.agent()
    scheduler = cluster.scheduler
    metrics = {"acc": "acc=([0-9.]+)", "loss": "loss=([0-9.e-]+)"}
    endless = r"""
    import os, time
    i = 0
    while True:
        print("acc=%d" % i, flush=True)
        i += 1
        time.sleep(0.05)
    """
    begin(cluster, KEY, {"p.py": endless}, "python", "p.py", metrics={"acc": "acc=([0-9]+)"})
    await scheduler.reported(KEY, 1)
    async with asyncio.timeout(HANG_SECONDS):
        while _states(cluster) != {"T"}:  # noqa: ASYNC110 (no event to wait for)
            await asyncio.sleep(0.02)
    scheduler.decide("a", KEY, wire.DECISION_CONTINUE, 1)
    scheduler.decide("a", KEY, wire.DECISION_SUSPEND, (await scheduler.reported(KEY, 2)).position)
    ended = await scheduler.ended(KEY)
    assert (ended.reason, ended.position, ended.HasField("snapshot")) == (common_pb2.RUN_END_REASON_SUSPENDED, 2, False)
    assert _states(cluster) == set()
    whole = RunKey(StreamId("e1"), "j2", 1, 0)
    begin(cluster, whole, {"p.py": PRINTS}, "python", "p.py", "3", metrics=metrics, allowed=99)
    ended = await scheduler.ended(whole)
    assert (ended.reason, ended.position, ended.finished) == (common_pb2.RUN_END_REASON_UNTIL, 4, True), ended.message
    assert [dict(r.metrics) for r in scheduler.reports(whole)] == [
        {"loss": 1.0, "acc": 0.0},
        {"loss": 0.5, "acc": 1.0},
        {"loss": 0.333333, "acc": 2.0},
        {"loss": 0.333333, "acc": 99.0},
    ]


async def test_a_log_program_that_needs_no_decision_at_its_end_ends_there_by_itself(cluster: Cluster) -> None:
    await cluster.agent()
    acc, prints = {"acc": r"acc=(\d+)"}, {"prints.py": PRINTS}
    begin(cluster, KEY, prints, "python", "prints.py", "9", metrics=acc, until=2, allowed=2, completes=True)
    ended = await cluster.scheduler.ended(KEY)
    assert (ended.reason, ended.position) == (common_pb2.RUN_END_REASON_UNTIL, 2)


def _states(cluster: Cluster) -> set[str]:
    """Return the states of the processes that run p.py, as letters of /proc/PID/stat."""
    found = set()
    for process in Path("/proc").iterdir():
        if not process.name.isdigit():
            continue
        try:
            if b"p.py" not in (process / "cmdline").read_bytes().split(b"\0") or not is_running(int(process.name)):
                continue
            if (process / "cwd").resolve().is_relative_to(cluster.folder):
                found.add((process / "stat").read_text().rpartition(")")[2].split()[0])
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
    return found


ACC = {"acc": "acc=(.*)"}
LOG_FAILURES: list[tuple[str, Mapping[str, str], str]] = [
    ("print('accuracy 0.5')", ACC, "no line of its output matched the pattern of acc ('acc=(.*)'); the last"),
    (
        "print('acc=1')",
        {"acc": "acc=(.*)", "f1": "f1=(.*)"},
        "the program ended, and no line of its output matched the pattern of f1 ('f1=(.*)'); the last lines read:\nacc=1",
    ),
    ("", ACC, "it printed nothing"),
    ("print('acc=high')", ACC, "holds 'high'; allowed: a number such as 0.93"),
    ("print('acc=1'); raise SystemExit('bad')", ACC, "exit code 1; the last lines read:\nacc=1\nbad"),
    ("import os; os.abort()", ACC, "the program was killed by signal 6"),
]


async def test_a_log_program_that_fails_says_how(cluster: Cluster) -> None:
    await cluster.agent()
    for number, (code, metrics, message) in enumerate(LOG_FAILURES):
        key = RunKey(StreamId("e1"), f"j{number}", 1, 0)
        begin(cluster, key, {"p.py": code}, "python", "p.py", metrics=metrics, allowed=9)
        ended = await cluster.scheduler.ended(key)
        assert (ended.reason, ended.failure) == (common_pb2.RUN_END_REASON_FAILED, common_pb2.FAILURE_CLASS_USER_CODE)
        assert message in ended.message


async def test_a_metric_that_does_not_show_up_in_time_is_an_error(cluster: Cluster) -> None:
    await cluster.agent()
    # Enough for a shell to print a line; Python takes longer to start.
    limit = scaled(6.0)
    code = "echo warming up\nsleep 600\n"
    begin(cluster, KEY, {"p.py": code}, "sh", "p.py", metrics=ACC, iteration_timeout=limit)
    ended = await cluster.scheduler.ended(KEY)
    assert ended.reason == common_pb2.RUN_END_REASON_FAILED
    assert ended.message.startswith(
        f"an iteration took longer than {limit:g} s and was ended: no line of its output matched"
    )
    assert ended.message.endswith("the last lines read:\nwarming up")
    assert _states(cluster) == set()


@pytest.mark.parametrize("how", ["kill", "agent dies"])
async def test_a_log_program_never_outlives_its_run(cluster: Cluster, how: str) -> None:
    process = await start_agent(cluster)
    scheduler = cluster.scheduler
    code = "import time\nprint('acc=1', flush=True)\ntime.sleep(600)\n"
    # Started by a shell, so that it is no direct child of the runner.
    begin(cluster, KEY, {"p.py": code}, "sh", "-c", "python3 p.py; true", metrics=ACC, allowed=9)
    await scheduler.reported(KEY, 1)
    assert len(_states(cluster)) == 1
    if how == "kill":
        scheduler.send("a", KEY, kill=wire.KillRun(reason="a test wants it"))
        await scheduler.ended(KEY)
    else:
        os.kill(process.pid, signal.SIGKILL)
        await process.wait()
    async with asyncio.timeout(HANG_SECONDS):
        while _states(cluster):  # noqa: ASYNC110 (no event to wait for)
            await asyncio.sleep(0.02)
    if how == "kill":
        process.send_signal(signal.SIGTERM)
        assert await process.wait() == 0


async def test_a_script_that_has_not_attached_is_ended_by_the_next_agent(cluster: Cluster) -> None:
    process = await start_agent(cluster)
    code = "import time\ntime.sleep(600)\n"
    begin(cluster, KEY, {"p.py": code}, "python", "p.py", allowed=9)
    async with asyncio.timeout(HANG_SECONDS):
        while not _states(cluster):  # noqa: ASYNC110 (no event to wait for)
            await asyncio.sleep(0.02)
    process.kill()
    await process.wait()
    again = await start_agent(cluster, sessions=2)
    assert _states(cluster) == set()
    again.send_signal(signal.SIGTERM)
    assert await again.wait() == 0


async def test_a_commands_memory_is_limited_with_all_that_it_starts(cluster: Cluster) -> None:
    await cluster.agent()
    grow = "import time\nx = b'x' * (400 << 20)\nprint('acc=1', flush=True)\ntime.sleep(600)\n"
    program = {"memory_bytes": 200 << 20}
    begin(cluster, KEY, {"p.py": grow}, "python", "p.py", metrics=ACC, program=program, allowed=9)
    assert "out of memory: used " in (await cluster.scheduler.ended(KEY)).message
    script = RunKey(StreamId("e1"), "j2", 1, 0)
    begin(cluster, script, {"p.py": grow}, "sh", "-c", "python3 p.py; true", program=program, allowed=9)
    assert "out of memory: used " in (await cluster.scheduler.ended(script)).message
    assert _states(cluster) == set()
