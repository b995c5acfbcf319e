"""Tests of adopted processes, control groups and families, on real processes and on files like the kernel's."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from hopyard._runtime.processes.process_family import MARK, ProcessFamily, mark_of
from hopyard_nodeagent.runs import control_group
from hopyard_nodeagent.runs.adopted_processes import AdoptedProcesses
from hopyard_nodeagent.runs.control_group import ControlGroup, ControlGroups, writable_root
from tests.timing import HANG_SECONDS


class Sleeper:
    """A process in a session of its own that has a mark, or none."""

    def __init__(self, mark: str = "", command: str = "echo; exec sleep 600") -> None:
        environment = {MARK: mark, "PATH": os.environ["PATH"]} if mark else {"PATH": os.environ["PATH"]}
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(["sh", "-c", command], env=environment, start_new_session=True, stdout=pipe)
        assert self.process.stdout is not None
        self.line = self.process.stdout.readline().decode().strip()
        self.pid = self.process.pid

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()


def looks(adopted: AdoptedProcesses, times: int = 3) -> list[int]:
    return [pid for _ in range(times) for pid in adopted.look()]


def test_an_adopted_process_ends_when_the_leader_with_its_mark_has_ended() -> None:
    child = Sleeper("m")
    try:
        leaders = {1 << 22: "m"}
        adopted = AdoptedProcesses(leaders, lambda: [child.pid])
        assert adopted.any()
        assert looks(adopted, 9) == []
        del leaders[1 << 22]
        assert looks(adopted, 1) == [child.pid]
        assert child.process.wait(HANG_SECONDS) == -signal.SIGKILL
    finally:
        child.close()


def test_one_without_a_mark_ends_when_no_leader_is_left_to_which_it_may_belong() -> None:
    child = Sleeper()
    try:
        leaders = {1 << 22: "a", (1 << 22) + 1: "b"}
        adopted = AdoptedProcesses(leaders, lambda: [child.pid])
        assert looks(adopted) == []
        leaders[(1 << 22) + 2] = "c"  # It was started later, so the process is not its child.
        del leaders[1 << 22]
        assert looks(adopted) == []
        del leaders[(1 << 22) + 1]
        assert looks(adopted, 1) == [child.pid]
    finally:
        child.close()


def test_leaders_and_new_processes_and_those_of_the_own_session_are_left_alone() -> None:
    leader, new = Sleeper("m"), Sleeper("x")
    with subprocess.Popen(["sleep", "600"]) as tool:
        try:
            adopted = AdoptedProcesses({leader.pid: "m"}, lambda: [leader.pid, new.pid, tool.pid])
            assert looks(adopted, 2) == []
            assert looks(adopted, 1) == [new.pid], "it is not new any more"
            new.process.wait(HANG_SECONDS)
            assert looks(adopted, 9) == []
            assert leader.process.poll() is None
            adopted = AdoptedProcesses({}, lambda: [tool.pid])
            assert not adopted.any()
            assert looks(adopted, 9) == []
        finally:
            tool.kill()
            leader.close()
            new.close()


def test_an_adopted_process_that_has_ended_is_reaped_and_one_that_is_waited_for_at_once_is_not() -> None:
    dead = subprocess.Popen(["true"], start_new_session=True)
    os.waitid(os.P_PID, dead.pid, os.WEXITED | os.WNOWAIT)
    adopted = AdoptedProcesses({}, lambda: [dead.pid])
    assert looks(adopted, 2) == []
    assert Path(f"/proc/{dead.pid}").exists()
    adopted.look()
    assert not Path(f"/proc/{dead.pid}").exists()
    dead.wait()


def test_a_family_ends_with_what_has_left_its_session_and_with_what_has_its_mark() -> None:
    leader = Sleeper("m", "env -i setsid -w sleep 600 & echo $!; wait")
    marked, other = Sleeper("m"), Sleeper("n")
    try:
        family = ProcessFamily(leader.pid, "m")
        assert mark_of(marked.pid) == "m"
        assert {leader.pid, marked.pid} < set(family.members())
        assert family.orphans() == [marked.pid]
        assert family.end_orphans(HANG_SECONDS) == []
        assert leader.process.poll() is None
        family.kill()  # Now the leader and its descendants, of which one has no mark.
        assert leader.process.wait(HANG_SECONDS) == -signal.SIGKILL
        assert family.end(HANG_SECONDS) == []
        assert other.process.poll() is None
    finally:
        for each in (leader, marked, other):
            each.close()


def test_a_process_is_found_by_its_mark_while_it_executes_another_program(tmp_path: Path) -> None:
    script = tmp_path / "again"
    script.write_text('#!/bin/sh\nexec "$0"\n')
    script.chmod(0o755)
    process = subprocess.Popen([str(script)], env={MARK: "m"})
    try:
        assert {mark_of(process.pid) for _ in range(3000)} == {"m"}
    finally:
        process.kill()
        process.wait()


def test_a_process_without_environment_has_no_mark() -> None:
    process = subprocess.Popen(["sleep", "600"], env={})
    try:
        assert mark_of(process.pid) == ""
    finally:
        process.kill()
        process.wait()


def test_the_groups_of_an_earlier_agent_are_deleted(tmp_path: Path) -> None:
    for name in ("hopyard-home-12", "hopyard-home2-13", "hopyard-home2-14", "another"):
        (tmp_path / name).mkdir()
    os.utime(tmp_path / "hopyard-home2-14", (0, 0))
    os.utime(tmp_path / "another", (0, 0))
    groups = ControlGroups("home", tmp_path)
    assert groups.available
    assert {path.name for path in tmp_path.iterdir()} == {"hopyard-home2-13", "another"}
    assert groups.add(14) is None, "this folder is not in a file system of control groups"
    assert {path.name for path in tmp_path.iterdir()} == {"hopyard-home2-13", "another"}
    assert ControlGroups("home", None).add(14) is None


def test_a_process_that_stays_in_a_group_does_not_count_as_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(control_group, "_GONE_SECONDS", 0.0)
    members = iter(([12, 13], [13], [13]))
    monkeypatch.setattr(ControlGroup, "members", lambda group: next(members))
    (tmp_path / "hopyard-home-12").mkdir()
    ControlGroups("home", tmp_path)
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("WARNING", "ended 1 processes that an earlier agent left in a control group: [12]"),
        (
            "ERROR",
            "1 processes that an earlier agent left in a control group still run 0 s after they were killed: [13]",
        ),
    ]


def test_a_group_that_cannot_be_made_is_no_error(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    groups = ControlGroups("home", tmp_path / "missing")
    assert groups.add(14) is None
    assert "no control group for process 14: No such file or directory" in caplog.text
    group = ControlGroup(tmp_path / "missing" / "x")
    group.kill()
    group.delete()
    assert group.members() == []


@pytest.mark.parametrize(
    ("mount", "own", "kills", "found"),
    [
        ("31 25 0:27 / {} rw - cgroup2 cgroup rw", "0::/", True, True),
        ("31 25 0:27 / {} rw - cgroup2 cgroup rw", "8:pids:/x\n0::/", True, True),
        ("31 25 0:27 / {} rw - cgroup2 cgroup rw", "0::/", False, False),
        ("31 25 0:27 / {} rw - cgroup2 cgroup rw", "0::/a", True, False),  # The group has no cgroup.procs.
        ("31 25 0:27 / {} ro - cgroup2 cgroup ro", "0::/", True, False),
        ("31 25 0:27 / {} rw - cgroup cgroup rw,pids", "0::/", True, False),
        ("31 25 0:27 / {} rw - cgroup2 cgroup rw", "8:pids:/", True, False),
    ],
)
def test_a_group_is_found_only_where_it_is_writable_and_can_be_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mount: str, own: str, kills: bool, found: bool
) -> None:
    monkeypatch.setattr(control_group, "_can_kill", lambda folder: kills)  # Only the kernel can create cgroup.kill.
    root = tmp_path / "root"
    (root / "a").mkdir(parents=True)
    (root / "cgroup.procs").touch()
    (tmp_path / "mountinfo").write_text(mount.format(root))
    (tmp_path / "cgroup").write_text(own)
    assert writable_root(tmp_path / "mountinfo", tmp_path / "cgroup") == (root if found else None)
