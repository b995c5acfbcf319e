"""Tests of the process of a service: signals and exit codes, seen from outside."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import textwrap
from collections.abc import Sequence

import pytest

from tests.timing import HANG_SECONDS

PROGRAM = """
import asyncio, sys
from hopyard.errors import Conflict, InvalidInput
from hopyard._net.server import LogFormat, Server, run_service

async def main(stop):
    how = sys.argv[1]
    if how == "wrong":
        raise InvalidInput("--port: found -1")
    if how == "conflict":
        raise Conflict("the port is taken")
    if how == "bug":
        raise KeyError("bug")
    if how == "done":
        return
    if how == "serving":
        await Server("svc").start()
    sys.stdout.write("up\\n")
    sys.stdout.flush()
    await stop.wait()
    sys.stdout.write("stopping\\n")
    sys.stdout.flush()
    if how in ("stuck", "serving"):
        await asyncio.Event().wait()

sys.exit(run_service(main, name="svc", log_format=LogFormat(sys.argv[2])))
"""


def start(how: str, log_format: str = "text", launcher: Sequence[str] = ()) -> subprocess.Popen[str]:
    command = [*launcher, sys.executable, "-c", textwrap.dedent(PROGRAM), how, log_format]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize(
    ("how", "code", "said"),
    [
        ("done", 0, ""),
        ("wrong", 2, "svc: --port: found -1\n"),
        ("conflict", 1, "svc: the port is taken\n"),
        ("bug", 1, "KeyError: 'bug'\n"),
    ],
)
def test_exit_codes(how: str, code: int, said: str) -> None:
    process = start(how)
    _, log = process.communicate(timeout=HANG_SECONDS)
    assert process.returncode == code
    assert log.endswith(said)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130), (signal.SIGHUP, 0)])
def test_a_signal_stops_it_in_order(number: signal.Signals, code: int) -> None:
    process = start("wait")
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    process.send_signal(number)
    out, log = process.communicate(timeout=HANG_SECONDS)
    assert (out, process.returncode) == ("stopping\n", code)
    assert f"svc stops on {number.name}" in log


@pytest.mark.parametrize("how", ["stuck", "serving"])
def test_a_second_signal_ends_it_at_once(how: str) -> None:
    process = start(how, "json")
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    process.send_signal(signal.SIGTERM)
    assert process.stdout.readline() == "stopping\n"
    process.send_signal(signal.SIGTERM)
    _, log = process.communicate(timeout=HANG_SECONDS)
    assert process.returncode == 130
    entries = [json.loads(line) for line in log.splitlines()]
    assert [entry["level"] for entry in entries][-2:] == ["INFO", "WARNING"]
    assert entries[0]["service"] == "svc"


def test_several_hangups_do_not_interrupt_the_stop() -> None:
    process = start("stuck", "json")
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    process.send_signal(signal.SIGHUP)
    assert process.stdout.readline() == "stopping\n"
    process.send_signal(signal.SIGHUP)
    process.send_signal(signal.SIGTERM)
    _, log = process.communicate(timeout=HANG_SECONDS)
    entries = [json.loads(line)["message"] for line in log.splitlines()]
    assert entries == [
        "svc stops on SIGHUP; a second signal ends it at once",
        "svc is cancelled by a second signal",  # SIGTERM
    ]


def test_an_ignored_hangup_stays_ignored() -> None:
    process = start("wait", launcher=["nohup"])
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    process.send_signal(signal.SIGHUP)
    process.send_signal(signal.SIGTERM)
    _, log = process.communicate(timeout=HANG_SECONDS)
    assert process.returncode == 0
    assert "svc stops on SIGTERM" in log
