"""Tests of the scheduler as a process: its options, and how it stops."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from hopyard._net.auth import CallerKind, new_token
from tests.timing import HANG_SECONDS

RUN = "import typer; from hopyard_scheduler.command import command; typer.run(command)"
NOBODY = "127.0.0.1:1"


def scheduler(*more: str) -> list[str]:
    return [sys.executable, "-c", RUN, "--appstat", NOBODY, "--hpgen", NOBODY, *more]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_it_ends_when_told_to_while_it_waits_for_appstat(number: signal.Signals, code: int) -> None:
    with_token = {**os.environ, "HOPYARD_SERVICE_TOKEN": new_token(CallerKind.SERVICE).text}
    with subprocess.Popen(scheduler(), stderr=subprocess.PIPE, text=True, env=with_token) as process:
        try:
            assert process.stderr is not None
            assert any("appstat is unavailable or slow" in line for line in process.stderr)
            process.send_signal(number)
            _, log = process.communicate(timeout=HANG_SECONDS)
        finally:
            process.kill()
    assert process.returncode == code, log
    assert "Traceback" not in log


@pytest.mark.parametrize(
    ("option", "given", "message"),
    [
        ("--lease", "nan", "--lease: needs 0.1 to 86400 seconds, found nan"),
        ("--lease", "-3", "--lease: needs 0.1 to 86400 seconds, found -3"),
        ("--heartbeat", "0", "--heartbeat: needs 0.1 to 86400 seconds, found 0"),
        ("--heartbeat", "10", "--heartbeat: needs less than half of --lease (10 s), found 10 s"),
    ],
)
def test_times_that_would_lose_every_agent_are_refused(option: str, given: str, message: str) -> None:
    done = subprocess.run(scheduler(option, given), capture_output=True, text=True, timeout=HANG_SECONDS, check=False)
    assert done.returncode == 2, done.stderr
    assert message in done.stderr
    assert "Traceback" not in done.stderr
