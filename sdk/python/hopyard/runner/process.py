"""The runner process: one attachment to the agent, run after run on its main thread."""

from __future__ import annotations

import os
import queue
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Final, NoReturn

import grpc

import hopyard
from hopyard.runner.failures import ended_by
from hopyard.runner.outbox import Outbox
from hopyard.runner.program import ProgramLoader
from hopyard.runner.training import TrainingRun
from hopyard.runner.watch import EXIT_AGENT_GONE, EXIT_GANG_BROKEN, EXIT_HUNG, LeaseWatch
from hopyard.v1 import application_pb2 as wire
from hopyard.v1 import application_pb2_grpc

_CHANNEL_OPTIONS: Final = (
    ("grpc.enable_http_proxy", 0),
    ("grpc.max_receive_message_length", 64 * 1024 * 1024),
    ("grpc.max_send_message_length", 64 * 1024 * 1024),
)
_GOODBYE_SECONDS: Final = 5.0


class RunnerProcess:
    """Everything that lives as long as the process does."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        """Read where the agent is.

        Raises:
            KeyError: a variable that the agent sets is missing: the process was not started by one.
        """
        self._token = environment["HOPYARD_TOKEN"]
        self._channel = grpc.insecure_channel(environment["HOPYARD_AGENT"], options=_CHANNEL_OPTIONS)
        self._outbox = Outbox()
        self._starts: queue.SimpleQueue[TrainingRun | None] = queue.SimpleQueue()
        self._run: TrainingRun | None = None
        self._log_files: dict[TrainingRun, str] = {}
        self._watch = LeaseWatch(time.monotonic())
        self._leaving = False

    def serve(self) -> None:
        """Take run after run until the agent says that no further one comes."""
        hello = wire.AttachHello(pid=os.getpid(), library=f"hopyard-python {hopyard.__version__}")
        self._outbox.send(wire.AttachRequest(hello=hello))
        receiver = threading.Thread(target=self._receive, name="agent", daemon=True)
        receiver.start()
        threading.Thread(target=self._keep_watch, name="watch", daemon=True).start()
        programs = ProgramLoader()
        own_output = os.dup(1), os.dup(2)
        while (run := self._starts.get()) is not None:
            try:
                _redirect_output(self._log_files.pop(run))
            except OSError as error:  # a full disk, for instance
                ended, _ = ended_by(error, run.position)
            else:
                ended = run.execute(programs)
                _restore_output(own_output)
            self._run = None
            self._outbox.send(wire.AttachRequest(ended=ended))
            if run.broken:
                break
        self._leaving = True
        self._outbox.close()
        # The agent ends the stream once it has read the last word.
        receiver.join(_GOODBYE_SECONDS)
        self._channel.close()

    def _receive(self) -> None:
        """Take over what the agent says; without it, leave at once, whatever the main thread does."""
        stub = application_pb2_grpc.ApplicationServiceStub(self._channel)
        metadata = (("authorization", f"Bearer {self._token}"),)
        try:
            for response in stub.Attach(self._outbox.requests(), metadata=metadata, wait_for_ready=True):
                self._watch.heard(time.monotonic())
                self._dispatch(response)
        except grpc.RpcError as error:
            if not self._leaving:
                _leave(EXIT_AGENT_GONE, f"the attachment to the agent broke: {error}")
        if not self._leaving:
            _leave(EXIT_AGENT_GONE, "the agent ended the attachment")

    def _dispatch(self, response: wire.AttachResponse) -> None:
        run = self._run
        match response.WhichOneof("message"):
            case "start":
                start = response.start
                self._watch.renew(start.lease_seconds, time.monotonic())
                self._run = run = TrainingRun(start, self._outbox)
                self._log_files[run] = start.log_file
                self._starts.put(run)
            case "decide" if run is not None:
                run.decide(response.decide)
            case "amend" if run is not None:
                run.amend(response.amend)
            case "exit":
                self._starts.put(None)
            case _:
                pass  # a heartbeat, or a command to a run that has just ended

    def _keep_watch(self) -> None:
        while True:
            time.sleep(self._watch.tick_seconds)
            now = time.monotonic()
            run = self._run
            if self._watch.expired(now):
                _leave(EXIT_AGENT_GONE, "the agent has been silent for longer than its lease")
            if run is not None and run.hung(now):
                _leave(EXIT_HUNG, "an iteration took longer than the experiment's iteration time-out")
            if run is not None and run.abandoned(now):
                _leave(EXIT_GANG_BROKEN, "another rank of its gang is gone, and its code does not notice")


def _leave(code: int, reason: str) -> NoReturn:
    """End the process from any thread, whatever the others do."""
    os.write(2, f"hopyard runner {os.getpid()} ends: {reason}\n".encode())
    os._exit(code)


def _redirect_output(log_file: str) -> None:
    """Let everything that this process writes land in the run's log."""
    handle = os.open(log_file, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
    _flush()
    os.dup2(handle, 1)
    os.dup2(handle, 2)
    os.close(handle)


def _restore_output(own: tuple[int, int]) -> None:
    _flush()
    os.dup2(own[0], 1)
    os.dup2(own[1], 2)


def _flush() -> None:
    """Write what is buffered; what finds no room on the disk waits for the next time."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError):
            stream.flush()
