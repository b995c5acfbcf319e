"""Tests that `benchmarks/damage.py` notices commands that do not stop and processes that are left, with scripts as commands."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from damage_cases import cluster
from damage_cases.cluster import CaseCluster, Way
from damage_cases.verdict import Observation, Verdict, judge

from tests.timing import HANG_SECONDS

UP = """
import signal, sys, time

if sys.argv[1:] == ["stubborn"]:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
print("the cluster is up", flush=True)
try:
    time.sleep(600)
except KeyboardInterrupt:
    sys.exit(0)
"""


class Scripted(CaseCluster):
    """A case whose `hopyard up` is a script that serves nothing."""

    script: tuple[str, ...] = (UP,)

    def up(self) -> subprocess.Popen[str]:
        with (self.folder / "up.txt").open("w") as output:
            return self.start([sys.executable, "-c", *self.script], stdout=output, stderr=subprocess.STDOUT)


def test_an_up_that_does_not_stop_is_a_hang(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "STOP_SECONDS", 0.2)
    stubborn = Scripted("stubborn", tmp_path)
    stubborn.script = (UP, "stubborn")
    attempt = stubborn.finish(Way.UP, HANG_SECONDS)
    assert (attempt.hung, attempt.crashes, attempt.left) == (True, [], [])
    assert judge(Observation(attempt.crashes, attempt.hung, attempt.refused), None, {}) is Verdict.HANG
    assert stubborn.processes.running() == []
    assert any("did not stop within 0.2 s after SIGINT" in text for text in stubborn.said)


def test_an_up_that_stops_is_none(tmp_path: Path) -> None:
    attempt = Scripted("obedient", tmp_path).finish(Way.UP, HANG_SECONDS)
    assert (attempt.hung, attempt.crashes, attempt.left) == (False, [], [])


def test_what_a_command_leaves_is_named_and_killed(tmp_path: Path) -> None:
    case = CaseCluster("leaves", tmp_path)
    left = case.start([sys.executable, "-c", UP])
    (said,) = case.processes.left(0.0)
    assert said.startswith(f"process {left.pid} ({sys.executable} -c")
    left.wait(HANG_SECONDS)
    assert case.processes.left(0.0) == []
