"""Tests that a process that serves a policy ends on a signal, whichever of its threads receives it."""

from __future__ import annotations

import subprocess
import sys

from tests.timing import HANG_SECONDS

PROGRAM = """
import signal, threading, time
from hopyard._runtime.policy_process.server import PolicyServer
from hopyard.errors import Unavailable

def nowhere():
    raise Unavailable("there is no cluster")

def interrupt():
    # A system call of the main thread is not interrupted: as when the signal comes just before the main thread begins to wait.
    signal.pthread_kill(threading.get_ident(), signal.SIGINT)

server = PolicyServer("mine", lambda parameters: None, nowhere)
server.stop_on(signal.SIGINT, signal.SIGTERM)
threading.Timer(0.2, interrupt).start()
server.run()
print("ended")
"""


def test_a_signal_that_does_not_wake_the_main_thread_ends_the_process() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM], timeout=HANG_SECONDS, capture_output=True, text=True, check=True
    )
    assert ended.stdout == "ended\n"
