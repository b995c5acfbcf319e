"""Runs services as child processes: starts them, waits until they serve, stops them, and reports how they ended."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from hopyard._common.private_files import FOLDER_MODE, open_private
from hopyard._net.rpc import channel
from hopyard.client.address import read_address
from hopyard.errors import HopyardError, TimedOut, Unavailable

START_SECONDS: Final = 60.0
"""Maximum time in seconds until a service serves requests. It is long, since a start from a cold disk is slow."""

STOP_SECONDS: Final = 20.0
"""Seconds that a service may take to exit before it is killed."""

LOCK_SECONDS: Final = 30.0
"""Seconds for which a new cluster waits for the services of a killed one to exit."""

_POLL_SECONDS: Final = 0.02
_TAIL_LINES: Final = 15
_FULL_BYTES: Final = 65536


@dataclass(frozen=True, slots=True)
class ServiceSpec:
    """How to start a service: its command, its environment and its address file.

    Attributes:
        name: Name of the service in messages, and of its log file.
        module: The module that `python -m` runs.
        arguments: The arguments of the module.
        data: The directory into which the service writes its address file.
        address_name: Name of the address file without its suffix.
        environment: Environment variables in addition to those of this process.
    """

    name: str
    module: str
    arguments: tuple[str, ...]
    data: Path
    address_name: str
    environment: dict[str, str] = field(default_factory=dict)


class ServiceProcess:
    """The child process of a service. `start` starts it, `ready` waits until it serves requests, `stop` or `kill` ends it.

    After it has ended, it may be started again.

    Args:
        service: The service to run.
        logs: The directory of its log file, to which the process appends.
        inherit: File descriptors that the child inherits.

    Attributes:
        address: Address of the service after `ready`; None before.
        log: The log file.
    """

    def __init__(self, service: ServiceSpec, logs: Path, inherit: Sequence[int] = ()) -> None:
        self.service = service
        self.log = logs / f"{service.name}.log"
        self.address: str | None = None
        self._inherit = tuple(inherit)
        self._process: asyncio.subprocess.Process | None = None
        self._log_start = 0

    @property
    def pid(self) -> int | None:
        """The process id; None before the start."""
        return self._process.pid if self._process else None

    @property
    def running(self) -> bool:
        """Whether the process was started and has not exited."""
        return self._process is not None and self._process.returncode is None

    async def start(self, extra: Sequence[str] = ()) -> None:
        """Start the process without waiting until it serves requests. `extra` is appended to its arguments.

        Call it only if the process is not running.
        """
        service = self.service
        self.log.parent.mkdir(FOLDER_MODE, parents=True, exist_ok=True)
        # A stale address file would name a port that another process may use now.
        (service.data / f"{service.address_name}.address").unlink(missing_ok=True)
        with os.fdopen(open_private(self.log, os.O_WRONLY | os.O_APPEND), "ab") as log:
            self._log_start = log.tell()
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                *("-m", "hopyard.client.local_cluster.die_with_parent", str(os.getpid()), service.module),
                *service.arguments,
                *extra,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, **service.environment},
                pass_fds=self._inherit,
                # Ctrl-C in a terminal must reach only the command that started the service, which then stops it in order.
                start_new_session=True,
            )

    async def ready(self, limit: float = START_SECONDS) -> str:
        """Wait until the service has written its address file and serves requests, and return its address.

        Raises:
            Unavailable: The process exited first. The message ends with the last lines of its log.
            TimedOut: It took longer than `limit` seconds. The message ends with the last lines of its log.
        """
        end = time.monotonic() + limit
        while time.monotonic() < end:
            if not self.running:
                raise Unavailable(self.exit_message())
            address = read_address(self.service.data, self.service.address_name)
            if address is not None and await is_serving(address):
                self.address = address
                return address
            await asyncio.sleep(_POLL_SECONDS)
        raise TimedOut(f"{self.service.name} did not serve within {limit:g} s{self._last_words()}")

    async def wait(self) -> int:
        """Wait until the process has exited, and return its exit code (negative: the number of the signal that killed it).

        Raises:
            RuntimeError: The process was never started.
        """
        if self._process is None:
            raise RuntimeError(f"{self.service.name} was not started")
        return await self._process.wait()

    async def stop(self, grace: float = STOP_SECONDS) -> None:
        """Send SIGTERM, and kill the process if it has not exited after `grace` seconds. Safe to call twice."""
        process = self._process
        if process is None or process.returncode is not None:
            return
        with suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(grace):
                await process.wait()
        except TimeoutError:
            self.kill()
            await process.wait()

    def kill(self) -> None:
        """Kill the process and its session immediately."""
        if self._process is not None and self._process.returncode is None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def exit_message(self) -> str:
        """Return a message with the exit code or signal of the process, which must have exited, and the last lines of its log."""
        code = self._process.returncode if self._process else None
        how = f"signal {signal.Signals(-code).name}" if code is not None and code < 0 else f"exit code {code}"
        return f"{self.service.name} ended ({how}){self._last_words()}"

    def _last_words(self) -> str:
        try:
            with self.log.open("rb") as log:
                log.seek(self._log_start)
                lines = log.read()[-16384:].decode(errors="replace").splitlines()
        except FileNotFoundError:
            return ""
        tail = "\n".join(f"  {line}" for line in lines[-_TAIL_LINES:])
        if tail:
            return f"; the end of {self.log}:\n{tail}"
        full = shutil.disk_usage(self.log.parent).free < _FULL_BYTES
        return f"; {self.log} is empty{': no space left on its disk' if full else ''}"


async def is_serving(address: str, within: float = 1.0) -> bool:
    """Return whether the server at `address` reports that it serves (gRPC health check) within `within` seconds."""
    # Encoded by hand (an empty request, a response whose field 1 is 1), so that the client needs no health package.
    try:
        async with channel(address, token=None, timeout=within) as opened:
            check = opened.unary_unary(
                "/grpc.health.v1.Health/Check", request_serializer=bytes, response_deserializer=bytes
            )
            return bool(await check(b"") == b"\x08\x01")
    except HopyardError:
        return False
