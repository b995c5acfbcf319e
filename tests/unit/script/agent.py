"""A simulated agent that a test controls, and scripts that attach to it from their own processes."""

from __future__ import annotations

import os
import queue
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc

from hopyard._net.rpc.values import hyperparameters_to_proto
from hopyard.v1 import application_pb2 as wire
from hopyard.v1 import application_pb2_grpc, common_pb2, resource_manager_pb2
from tests.timing import HANG_SECONDS

PATIENCE = HANG_SECONDS


class FakeAgent(application_pb2_grpc.ApplicationServiceServicer):
    """Serves attachments on loopback. The test sends commands by its methods; `said` contains all messages of the processes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.said: list[wire.AttachRequest] = []
        self._changed = threading.Condition()
        self._answers: queue.SimpleQueue[wire.AttachResponse | None] = queue.SimpleQueue()
        self._attached = False
        self._server = grpc.server(ThreadPoolExecutor(4))
        application_pb2_grpc.add_ApplicationServiceServicer_to_server(self, self._server)
        self._port = self._server.add_insecure_port("127.0.0.1:0")
        self._server.start()
        for name in ("snapshots", "scratch"):
            (folder / name).mkdir()

    def Attach(
        self, request_iterator: Iterator[wire.AttachRequest], context: grpc.ServicerContext
    ) -> Iterator[wire.AttachResponse]:
        if ("authorization", "Bearer secret") not in context.invocation_metadata():
            context.abort(grpc.StatusCode.UNAUTHENTICATED, "no such token")
        if self._attached:
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, "process 7 is attached already")
        self._attached = True
        threading.Thread(target=self._hear, args=(request_iterator,), daemon=True).start()
        while (answer := self._answers.get()) is not None:
            yield answer

    def _hear(self, requests: Iterator[wire.AttachRequest]) -> None:
        try:
            for request in requests:
                with self._changed:
                    if not request.HasField("heartbeat"):
                        self.said.append(request)
                    self._changed.notify_all()
        except grpc.RpcError:
            pass  # the process is gone
        self._answers.put(None)

    def stop(self) -> None:
        """End all attachments, and stop the server."""
        self._answers.put(None)
        self._server.stop(grace=None).wait()

    def script(self, code: str, **environment: str) -> subprocess.Popen[str]:
        """Start a script as a process of this agent."""
        file = self.folder / "train.py"
        file.write_text("import hopyard\n" + textwrap.dedent(code))
        return self.program(sys.executable, str(file), **environment)

    def program(self, *command: str, **environment: str) -> subprocess.Popen[str]:
        """Start a program as a process of this agent."""
        variables = {
            "HOPYARD_AGENT": f"127.0.0.1:{self._port}",
            "HOPYARD_TOKEN": "secret",
            "HOPYARD_AGENT_PID": str(os.getpid()),
        }
        return subprocess.Popen(
            command,
            env={**os.environ, **variables, **environment},
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def start(self, *, snapshot: common_pb2.Snapshot | None = None, lease: float = HANG_SECONDS, **fields: Any) -> None:
        """Send the attached process its run."""
        start = resource_manager_pb2.StartRun(hyperparameters=hyperparameters_to_proto({"lr": 0.1}), seed=7, **fields)
        if snapshot is not None:
            start.snapshot.CopyFrom(snapshot)
        file = self.folder / "snapshots" / snapshot.sha256 if snapshot is not None else ""
        message = wire.ApplicationStart(
            run=common_pb2.RunRef(experiment="e", job="j", attempt=1),
            start=start,
            snapshot_file=str(file),
            snapshot_folder=str(self.folder / "snapshots"),
            scratch_folder=str(self.folder / "scratch"),
            lease_seconds=lease,
        )
        self._answers.put(wire.AttachResponse(start=message))

    def again(self) -> None:
        """Let another process attach; the messages so far are deleted."""
        self.said.clear()
        self._attached = False

    def decide(self, decision: resource_manager_pb2.Decision.ValueType, position: int, allowed: int = 0) -> None:
        """Send the decision on a report."""
        decided = resource_manager_pb2.DecideRun(decision=decision, position=position, allowed=allowed)
        self._answers.put(wire.AttachResponse(decide=decided))

    def suspended(self, position: int) -> resource_manager_pb2.RunEnded:
        """Start the attached process, continue it after each report, suspend it at a position, and return the end of its run."""
        self.start()
        for one in range(1, position + 1):
            self.reported(one)
            on = one < position
            self.decide(resource_manager_pb2.DECISION_CONTINUE if on else resource_manager_pb2.DECISION_SUSPEND, one)
        return self.ended()

    def amend(self, **fields: Any) -> None:
        """Send an amendment of the run."""
        self._answers.put(wire.AttachResponse(amend=resource_manager_pb2.AmendRun(**fields)))

    def reports(self) -> list[common_pb2.Report]:
        """Return the reports so far."""
        with self._changed:
            said = [
                [request.report] if request.HasField("report") else request.reports.reports for request in self.said
            ]
            return [report for reports in said for report in reports]

    def reported(self, position: int) -> common_pb2.Report:
        """Wait for the report of a position, and return it."""
        self.until(lambda: any(report.position == position for report in self.reports()))
        return next(report for report in self.reports() if report.position == position)

    def ended(self) -> resource_manager_pb2.RunEnded:
        """Wait for the end of the run, and return it."""
        self.until(lambda: any(request.HasField("ended") for request in self.said))
        return next(request.ended for request in self.said if request.HasField("ended"))

    def until(self, condition: Callable[[], bool]) -> None:
        """Wait until the messages so far fulfil a condition."""
        with self._changed:
            assert self._changed.wait_for(condition, PATIENCE), f"it said only {self.said}"


def over(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    """Wait for the end of a process. Return its exit code, its output and its standard error."""
    output, errors = process.communicate(timeout=PATIENCE)
    return process.returncode, output, errors
