"""Services as processes, each with its own options, which a test starts and stops as `hopyard up` does."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from types import TracebackType
from typing import Self

from hopyard.client.local_cluster.processes import ServiceProcess, ServiceSpec
from tests.e2e.harness import REPOSITORY
from tests.timing import HANG_SECONDS


class Services:
    """Services that are started one by one; all are stopped at the end, the last started first."""

    def __init__(self, data: Path) -> None:
        self.data = data
        self.running: dict[str, ServiceProcess] = {}
        os.environ["PYTHONPATH"] = str(REPOSITORY)

    async def start(self, name: str, service: str, *arguments: str, **environment: str) -> str:
        """Start a service (such as "scheduler") in the folder `name`; return its address once it serves.

        An agent passes the variables `environment` to its jobs.
        """
        folder = self.data / name
        folder.mkdir(parents=True, exist_ok=True)
        address = "agent" if service == "nodeagent" else service
        passed = [f"--pass-env={variable}" for variable in environment] if service == "nodeagent" else []
        made = ServiceSpec(
            name, f"hopyard_{service}", ("--data", str(folder), *arguments, *passed), folder, address, environment
        )
        process = self.running[name] = ServiceProcess(made, self.data / "logs")
        await process.start()
        return await process.ready(HANG_SECONDS)

    def send(self, name: str, number: signal.Signals) -> None:
        """Send a signal to a service."""
        os.kill(self.pid(name), number)

    def pid(self, name: str) -> int:
        """Return the process id of a service."""
        pid = self.running[name].pid
        assert pid is not None
        return pid

    def said(self, name: str) -> str:
        """Return the log of a service, including earlier starts."""
        return (self.data / "logs" / f"{name}.log").read_text()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for name in reversed(list(self.running)):
            process = self.running[name]
            if process.running:
                self.send(name, signal.SIGCONT)
            await process.stop(60)
