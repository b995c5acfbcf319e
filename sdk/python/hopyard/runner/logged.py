"""One run of log mode: a program started as a child, and its metrics read from the log that it writes to."""

from __future__ import annotations

import os
import signal
import subprocess
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Final

from hopyard.runner import messages
from hopyard.runner.attachment import SPEAKER
from hopyard.runner.boundary import Boundary
from hopyard.runner.control import End, RunPlan
from hopyard.runner.failures import ended_by
from hopyard.runner.metrics import CommandError, Lines, MetricReader
from hopyard.runner.outbox import Outbox
from hopyard.runner.watch import CRASHES, EXIT_AGENT_GONE, Leaving, die_with
from hopyard.trainer import Report
from hopyard.v1 import application_pb2 as wire
from hopyard.v1 import common_pb2, resource_manager_pb2

_LOOK_SECONDS: Final = 0.02
_READ_BYTES: Final = 1024 * 1024
_OURS: Final = ("HOPYARD_AGENT", "HOPYARD_AGENT_PID", SPEAKER)


class LoggedRun:
    """A run between its `start` and its `ended`; the main thread executes it, and no code of the user's runs in this process."""

    broken = False
    """Whether the process should not be used for another run."""

    def __init__(
        self,
        start: wire.ApplicationStart,
        outbox: Outbox,
        agent_pid: int,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Take a run over; commands may come from now on."""
        plan = messages.plan(start)
        # Such a program has no state to go on from: it always begins at the beginning.
        scratch = RunPlan(until=plan.until, allowed=plan.allowed, completes=plan.completes)
        self.boundary = Boundary(start, outbox, scratch)
        self._start = start
        self._agent_pid = agent_pid
        self._clock = clock
        log = start.start.program.log
        self._metrics = MetricReader(log.metrics, log.metric)
        self._child: subprocess.Popen[bytes] | None = None
        self._stopped = False
        self._began = 0.0

    def trouble(self, now: float) -> Leaving | None:
        """Nothing: the run itself looks whether its program hangs."""

    def forsake(self) -> None:
        """This process ends now: the program does too."""
        self._signal(signal.SIGKILL)

    def execute(self) -> resource_manager_pb2.RunEnded:
        """Make the run; whatever goes wrong in it is told in the result."""
        try:
            with self._dying_with_the_agent(), Path(self._start.log_file).open("rb") as log:
                log.seek(0, os.SEEK_END)
                self._child = self._spawn()
                self._began = self._clock()
                self.boundary.started(0, finished=False)
                self.boundary.next()
                return self._follow(self._child, log)
        except Exception as error:  # noqa: BLE001 (the border between a run and its process)
            if not isinstance(error, CommandError):
                traceback.print_exception(error)
            ended, self.broken = ended_by(error, self.boundary.position, Path(self._start.scratch_folder))
            return ended
        finally:
            self._signal(signal.SIGKILL)
            if self._child is not None:
                self._child.wait()

    @contextmanager
    def _dying_with_the_agent(self) -> Iterator[None]:
        """Have the agent's death end the program as well as this process."""
        before = signal.signal(signal.SIGTERM, self._end)
        die_with(self._agent_pid, signal.SIGTERM)
        try:
            yield
        finally:
            die_with(self._agent_pid)
            signal.signal(signal.SIGTERM, before)

    def _end(self, number: int, frame: object) -> None:
        self.forsake()
        os._exit(EXIT_AGENT_GONE)

    def _spawn(self) -> subprocess.Popen[bytes]:
        command, folder = list(self._start.command.arguments), self._start.working_folder
        try:
            # A group of its own, to be stopped while this process goes on. Its output is this process's: the run's log.
            return subprocess.Popen(
                command,
                cwd=folder,
                env=program_environment(os.environ, self._start.environment),
                stdin=subprocess.DEVNULL,
                process_group=0,
            )
        except OSError as error:
            raise CommandError(f"{command[0]} cannot be started in {folder}: {error.strerror}") from error

    def _follow(self, child: subprocess.Popen[bytes], log: BinaryIO) -> resource_manager_pb2.RunEnded:
        lines = Lines()
        while True:
            # Asked before the last look at its output, so that none of it is missed.
            running = child.poll() is None
            while data := log.read(_READ_BYTES):
                for line in lines.feed(data):
                    if (ended := self._take(line)) is not None:
                        return ended
            if not running:
                break
            self._need_progress()
            time.sleep(_LOOK_SECONDS)
        for line in lines.rest():
            if (ended := self._take(line)) is not None:
                return ended
        return self._over(child.returncode)

    def _take(self, line: str) -> resource_manager_pb2.RunEnded | None:
        """Take a line in; returns the run's end if it ends here."""
        if not self._metrics.read(line):
            return None
        boundary = self.boundary
        seconds = self._clock() - self._began
        boundary.report(Report(boundary.position + 1, dict(self._metrics.values), seconds), savable=False)
        action = boundary.next(waiting=self._stop)
        if isinstance(action, End):
            return boundary.ended(action.reason, action.snapshot)
        if self._stopped:
            self._stopped = False
            self._signal(signal.SIGCONT)
        self._began = self._clock()
        return None

    def _stop(self) -> None:
        """It must not run ahead while the run waits."""
        if not self._stopped:
            self._stopped = True
            self._signal(signal.SIGSTOP)

    def _need_progress(self) -> None:
        limit = self._start.start.iteration_timeout
        if 0 < limit < self._clock() - self._began:
            says = self._metrics.missing() or self._metrics.last_lines()
            raise CommandError(f"an iteration took longer than {limit:g} s and was ended: {says}")

    def _over(self, code: int) -> resource_manager_pb2.RunEnded:
        """The program has ended by itself."""
        if code < 0:
            name = signal.strsignal(-code) or str(-code)
            says = f"the program was killed by signal {-code} ({name}); {self._metrics.last_lines()}"
            raise CommandError(says, user=-code in CRASHES)
        if code:
            raise CommandError(f"the program ended with exit code {code}; {self._metrics.last_lines()}")
        if missing := self._metrics.missing():
            raise CommandError(f"the program ended, and {missing}")
        return resource_manager_pb2.RunEnded(
            reason=common_pb2.RUN_END_REASON_UNTIL, position=self.boundary.position, finished=True
        )

    def _signal(self, number: signal.Signals) -> None:
        """Send a signal to the program and what it has started."""
        if self._child is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._child.pid, number)


def program_environment(inherited: Mapping[str, str], added: Mapping[str, str]) -> dict[str, str]:
    """The environment of the program: it speaks to nobody, so it gets nothing that says to whom."""
    return {name: value for name, value in inherited.items() if name not in _OURS} | dict(added)


__all__ = ["LoggedRun", "program_environment"]
