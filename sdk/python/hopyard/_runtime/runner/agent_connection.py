"""The connection of a training process to its agent: sends messages, receives commands, and ends the process if the agent is gone."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from typing import Final, NoReturn, Protocol

import grpc

from hopyard._net.rpc.options import ATTACHMENT_OPTIONS
from hopyard._runtime.runner.boundary import Boundary
from hopyard._runtime.runner.outbox import Outbox
from hopyard._runtime.runner.watchdog import EXIT_AGENT_GONE, LeaseWatch, ProcessExit
from hopyard._version import __version__
from hopyard.v1 import application_pb2 as wire
from hopyard.v1 import application_pb2_grpc

SPEAKER: Final = "HOPYARD_SPEAKER"
"""Environment variable that tells child processes the process id of the attached process of their run."""

_GOODBYE_SECONDS: Final = 15.0
"""Maximum seconds to wait until the agent has read the last messages; on a loaded host it may not run for some seconds."""
_START_SECONDS: Final = 60.0
"""Maximum seconds that the agent may take to answer the first message of a script."""


class Assignment(Protocol):
    """The run that the process makes at present, as an `AgentConnection` needs it."""

    @property
    def boundary(self) -> Boundary:
        """The object that receives the agent's commands for the run."""

    def trouble(self, now: float) -> ProcessExit | None:
        """Return why the process must end immediately at the time `now` (monotonic seconds); None if it need not."""

    def end_children(self) -> None:
        """Kill those processes of the run that would continue after the exit of this process, which follows; for use in any thread."""


class AgentConnection:
    """The connection of one process to its agent (the stream `Attach`). If it breaks, the process exits.

    Args:
        agent: Address of the agent.
        token: Token that the agent gave this process.
        take: Called in a thread of the attachment with the start message of each new run; before the run begins, it must set the
            attribute `run` of this connection to the run.
        leave: Called in a thread of the attachment when no further run will come.
        refused: Called if the agent refuses the process; None: the process then exits.
        awaits_snapshots: Whether this process accepts a run before the snapshot to resume from has arrived on the node.
    """

    def __init__(
        self,
        agent: str,
        token: str,
        *,
        take: Callable[[wire.ApplicationStart], None],
        leave: Callable[[], None],
        refused: Callable[[grpc.RpcError], None] | None = None,
        awaits_snapshots: bool = False,
    ) -> None:
        self.outbox = Outbox()
        self.run: Assignment | None = None
        """The run that receives commands; `take` sets it, and the owner of the run resets it when the run is over."""
        self._take, self._leave, self._refused = take, leave, refused
        self._token = token
        self._awaits_snapshots = awaits_snapshots
        self._channel = grpc.insecure_channel(agent, options=tuple(ATTACHMENT_OPTIONS.items()))
        self._watch = LeaseWatch(time.monotonic())
        self._receiver = threading.Thread(target=self._receive, name="agent", daemon=True)
        self._spoken_to = False
        self._closing = False

    def open(self) -> None:
        """Connect to the agent and send `hello`, the first message.

        Remove the token from the environment, and set `HOPYARD_SPEAKER` to this process's id, which tells child processes that it
        is attached for their run.
        """
        if self._refused is not None:
            self._watch.renew(_START_SECONDS, time.monotonic())
        os.environ.pop("HOPYARD_TOKEN", None)
        os.environ[SPEAKER] = str(os.getpid())
        hello = wire.AttachHello(
            pid=os.getpid(),
            library=f"hopyard-python {__version__}",
            awaits_snapshots=self._awaits_snapshots,
        )
        self.outbox.send(wire.AttachRequest(hello=hello))
        self._receiver.start()
        threading.Thread(target=self._keep_watch, name="watch", daemon=True).start()

    def close(self) -> None:
        """Wait up to 15 seconds until the agent has read all messages and ended the stream, then close the connection.

        A broken stream ends the wait without an error. Safe to call twice.
        """
        self._closing = True
        self.outbox.close()
        self._receiver.join(_GOODBYE_SECONDS)
        self._channel.close()

    def _receive(self) -> None:
        """Read and dispatch the agent's messages; if the stream ends unexpectedly, end the process."""
        stub = application_pb2_grpc.ApplicationServiceStub(self._channel)
        metadata = (("authorization", f"Bearer {self._token}"),)
        try:
            for response in stub.Attach(self.outbox.requests(), metadata=metadata, wait_for_ready=True):
                self._spoken_to = True
                self._watch.heard(time.monotonic())
                self._dispatch(response)
        except grpc.RpcError as error:
            if self._refused is not None and not self._spoken_to:
                self._closing = True
                self._refused(error)
            elif not self._closing:
                self._end(ProcessExit(EXIT_AGENT_GONE, f"the attachment to the agent broke: {error}"))
        if not self._closing:
            self._end(ProcessExit(EXIT_AGENT_GONE, "the agent ended the attachment"))

    def _dispatch(self, response: wire.AttachResponse) -> None:
        run = self.run
        match response.WhichOneof("message"):
            case "start":
                self._watch.renew(response.start.lease_seconds, time.monotonic())
                self._take(response.start)
            case "decide" if run is not None:
                run.boundary.decide(response.decide)
            case "amend" if run is not None:
                run.boundary.amend(response.amend)
            case "snapshot_arrival" if run is not None:
                run.boundary.snapshot_came(response.snapshot_arrival)
            case "exit":
                self._leave()
            case _:
                pass  # A heartbeat, or a command for a run that has just ended.

    def _keep_watch(self) -> None:
        while True:
            time.sleep(self._watch.tick_seconds)
            now = time.monotonic()
            run = self.run
            if self._closing and run is None:
                return
            if self._watch.expired(now):
                self._end(ProcessExit(EXIT_AGENT_GONE, "the agent has been silent for longer than its lease"))
            if run is not None and (leaving := run.trouble(now)) is not None:
                self._end(leaving)

    def _end(self, leaving: ProcessExit) -> NoReturn:
        """End the process immediately, from any thread, with the exit code of `leaving`; its reason is written to standard error."""
        if (run := self.run) is not None:
            run.end_children()
        os.write(2, f"hopyard: process {os.getpid()} ends: {leaving.reason}\n".encode())
        os._exit(leaving.code)
