"""A run of a program that the runner starts as a child process.

The program is a log program, whose metrics are read from its output, or a script whose processes are dumped and restored.
With the setting `snapshot: {provider: auto}`, a checkpoint that the script passes with a report replaces a dump.
"""

from __future__ import annotations

import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from hopyard._runtime.criu import AUTO, PROVIDER
from hopyard._runtime.criu.errors import DumpFailedError, DumpRefusedError, ProcessSnapshotError
from hopyard._runtime.job_log import LOG_POSITION, LogPosition
from hopyard._runtime.runner import converters
from hopyard._runtime.runner.boundary import Boundary
from hopyard._runtime.runner.command.metrics import TrainingCommandError, ends_with_permanent_error
from hopyard._runtime.runner.command.process_backends import DumpableProcesses, PlainProcesses, ProgramProcesses
from hopyard._runtime.runner.command.progress_sources import FileTail, Mailbox, OutputMetrics, ProgressSource, Reported
from hopyard._runtime.runner.control import EndRun, Restate, RunPlan, Save, Train
from hopyard._runtime.runner.failures import ended_by
from hopyard._runtime.runner.outbox import Outbox
from hopyard._runtime.runner.watchdog import CRASHES, EXIT_AGENT_GONE, ProcessExit, die_with
from hopyard._runtime.snapshot_file import SnapshotFileInfo, SnapshotRefusedError, pack_entry
from hopyard.policy.vocabulary import RunEndReason
from hopyard.v1 import application_pb2 as wire
from hopyard.v1 import common_pb2, resource_manager_pb2

_LOOK_SECONDS: Final = 0.02
_LOOK_SOON_SECONDS: Final = 0.005
"""Interval in seconds between two reads of a script's reports, because the script may wait for an answer."""
_TIDY_SECONDS: Final = 10.0
"""Maximum seconds that a script may take to clean up after its run has ended."""


class LoggedRun:
    """A run of a program in a child process. The main thread calls `execute`; no user code runs in this process.

    It accepts commands of the agent as soon as it is created.

    Args:
        start: Start message of the run.
        outbox: Queue of messages to the agent.
        agent_pid: Process id of the agent.
        clock: Returns monotonic seconds.
    """

    broken = False
    """Whether the process must not be used for another run."""

    def __init__(
        self,
        start: wire.ApplicationStart,
        outbox: Outbox,
        agent_pid: int,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        plan = converters.plan(start)
        self._dumpable = start.HasField("process")
        if not self._dumpable:  # The program's state cannot be saved, so it always starts from scratch.
            plan = RunPlan(until=plan.until, allowed=plan.allowed, completes=plan.completes)
        self.boundary = Boundary(start, outbox, plan)
        self._start = start
        self._agent_pid = agent_pid
        self._clock = clock
        log = start.start.program.log
        self._reported = None if start.start.program.HasField("log") else Reported()
        self._open = self._reported is not None and start.start.program.snapshot_provider == AUTO
        self._dumped = False
        """Whether the last snapshot is a dump of the processes."""
        self._source: ProgressSource = self._reported or OutputMetrics(log.metrics, log.metric)
        self._body: ProgramProcesses | None = None
        self._mailbox: Mailbox | None = None
        self._output: FileTail | None = None
        self._stopped = False
        self._began = 0.0

    def trouble(self, now: float) -> ProcessExit | None:
        """Return None, whatever `now` is: the run itself checks whether its program hangs."""

    def end_children(self) -> None:
        """Kill the program, because this process is about to exit."""
        if self._body is not None:
            self._body.kill()

    def execute(self) -> resource_manager_pb2.RunEnded:
        """Make the run, and return the message about its end; an error becomes an end with a failure."""
        try:
            with self._dying_with_the_agent():
                return self._execute()
        except Exception as error:  # noqa: BLE001 (the border between a run and its process)
            ended, self.broken = ended_by(error, self.boundary.position, Path(self._start.scratch_folder))
            if not isinstance(error, TrainingCommandError | ProcessSnapshotError | SnapshotRefusedError):
                traceback.print_exception(error)
            return ended

    def _execute(self) -> resource_manager_pb2.RunEnded:
        body = self._body = DumpableProcesses(self._start) if self._dumpable else PlainProcesses(self._start)
        try:
            self._begin(body)
            self.boundary.started(self.boundary.position, finished=False)
            return self._go_on() or self._follow(body)
        finally:
            body.close()
            for tail in (self._output, self._mailbox.reports if self._mailbox is not None else None):
                if tail is not None:
                    tail.close()

    @contextmanager
    def _dying_with_the_agent(self) -> Iterator[None]:
        """Within the context, let the death of the agent end the program and then this process."""
        before = signal.signal(signal.SIGTERM, self._end)
        die_with(self._agent_pid, signal.SIGTERM)
        try:
            yield
        finally:
            die_with(self._agent_pid)
            signal.signal(signal.SIGTERM, before)

    def _end(self, number: int, frame: object) -> None:
        self.end_children()
        os._exit(EXIT_AGENT_GONE)

    def _begin(self, body: ProgramProcesses) -> None:
        """Start or restore the program as `body`, and open its output."""
        if isinstance(body, PlainProcesses):
            start = body.output.stat().st_size
            position = LogPosition(Path(self._start.scratch_folder) / LOG_POSITION, start)
            self._output = FileTail(body.output, start=start, position=position)
            body.begin()
        elif isinstance(body, DumpableProcesses):
            box = Mailbox(body.folder) if self._reported is not None else None
            kept = body.begin()
            self._stopped = body.stopped
            if kept is not None:
                self._source.recall(kept)
                spent = body.job.timings
                _tell(
                    f"restored at position {self.boundary.position}: unpacked in {spent.unpack:.3f} s, restored in "
                    f"{spent.restore:.3f} s"
                )
            # The log of the former node contains the output that was echoed before the dump, so it is not echoed again.
            echoed = 0 if kept is None else kept["echoed"]
            body.output.touch()
            self._output = FileTail(body.output, start=0, echo=sys.stdout.buffer, echoed=echoed, frees=True)
            if box is not None:
                box.open()
                self._mailbox = box
        self._began = self._clock()

    def _follow(self, body: ProgramProcesses) -> resource_manager_pb2.RunEnded:
        while True:
            # Polled before the last read of the output, so that no output is missed.
            running = body.poll() is None
            if (ended := self._look()) is not None:
                return ended
            if not running:
                break
            self._need_progress()
            if self._mailbox is not None:
                self._mailbox.say(go=self.boundary.position, free=self.boundary.free)
            time.sleep(_LOOK_SECONDS if self._mailbox is None else _LOOK_SOON_SECONDS)
        assert self._output is not None
        for line in self._output.rest():
            if self._mailbox is None and (ended := self._take(line)) is not None:
                return ended
        code = body.poll()
        assert code is not None
        return self._over(code)

    def _look(self) -> resource_manager_pb2.RunEnded | None:
        """Process new output of the program.

        Returns:
            The message about the end of the run, if the run ends at one of the reports; None: it continues.
        """
        output = self._output
        assert output is not None
        output.read()
        if self._mailbox is not None and self._reported is not None:
            while (line := output.line()) is not None:
                self._reported.printed(line)
            output = self._mailbox.reports
            output.read()
        while (line := output.line()) is not None:
            if (ended := self._take(line)) is not None:
                return ended
        return None

    def _take(self, line: str) -> resource_manager_pb2.RunEnded | None:
        """Process a line of the program's output or reports.

        Returns:
            The message about the end of the run, if the run ends at the report in this line; None: it continues.
        """
        report = self._source.take(line, self.boundary.position, self._clock() - self._began)
        if report is None:
            return None
        # With `auto`, the user did not ask for dumps, so they are taken only to preserve progress that would be lost.
        self.boundary.report(report, savable=self._dumpable, only_leaving=self._open and self._checkpoint() is None)
        return self._go_on()

    def _go_on(self) -> resource_manager_pb2.RunEnded | None:
        """Execute the next actions of the run (restate, save, end) until the next iteration begins, or until the run ends.

        While no decision allows an action, wait with the program stopped.

        Returns:
            The message about the end of the run; None: the next iteration has begun.
        """
        boundary = self.boundary
        while True:
            match boundary.next(waiting=self._stop):
                case Train():
                    self._proceed()
                    return None
                case Restate():
                    boundary.report(converters.restatement(boundary.position, finished=False), savable=self._dumpable)
                case Save():
                    self._save()
                case EndRun(reason, with_snapshot):
                    return self._leave(reason, with_snapshot)

    def _stop(self) -> None:
        """Stop the program's processes while the run waits for a decision. A script waits by itself and is not stopped."""
        if self._body is not None and self._mailbox is None and not self._stopped:
            self._stopped = True
            self._body.stop()

    def _proceed(self) -> None:
        if self._mailbox is not None:
            self._mailbox.say(go=self.boundary.position, free=self.boundary.free)
        if self._body is not None and self._stopped:
            self._stopped = False
            self._body.proceed()
        self._began = self._clock()

    def _checkpoint(self) -> tuple[str, str] | None:
        """Return the name, for the snapshot's member, and the path of the checkpoint that the script passed with its last report.

        None: the script passed none, or the snapshot provider is not `auto`.
        """
        return self._reported.checkpoint if self._open and self._reported is not None else None

    def _save(self) -> None:
        """Save the script's checkpoint or dump the processes; if the dump fails, the processes continue without a snapshot.

        Raises:
            TrainingCommandError: The dump ended the processes.
        """
        body, output = self._body, self._output
        assert isinstance(body, DumpableProcesses)
        assert output is not None
        if (given := self._checkpoint()) is not None:
            name, place = given
            self.boundary.save(lambda file: pack_entry(body.outside(place), file, name=name, durable=False))
            self._dumped = False
            return

        def dump(file: Path) -> SnapshotFileInfo:
            kept = {**self._source.keep(), "echoed": output.echoed}
            pending = {body.output.name: output.offset} | (self._mailbox.pending if self._mailbox is not None else {})
            return body.dump(file, kept, pending)

        try:
            self.boundary.save(dump, PROVIDER)
        except (DumpRefusedError, DumpFailedError) as error:
            if body.poll() is not None:
                raise TrainingCommandError(f"taking a snapshot ended the processes: {error}", user=False) from error
            _tell(f"no snapshot at position {self.boundary.position}: {error}")
            self.boundary.unsaved(again=not (self._open and isinstance(error, DumpRefusedError)))
        else:
            self._stopped = self._dumped = True
            spent = body.job.timings
            _tell(
                f"snapshot at position {self.boundary.position}: {spent.raw} bytes dumped in {spent.dump:.3f} s, packed into "
                f"{spent.packed} in {spent.pack:.3f} s"
            )

    def _leave(self, reason: RunEndReason, with_snapshot: bool) -> resource_manager_pb2.RunEnded:
        """End the run, and return the message about its end.

        A script whose processes will not be restored receives an order to end, and gets up to 10 seconds to clean up.

        Args:
            reason: Why the run ends.
            with_snapshot: Whether the message names the last snapshot of this run, from which the job can resume.
        """
        ended = self.boundary.ended(reason, with_snapshot)
        if self._mailbox is not None and self._body is not None and not (with_snapshot and self._dumped):
            self._mailbox.say(go=0, free=0, leave=reason)
            if self._stopped:
                self._body.proceed()
            until = self._clock() + _TIDY_SECONDS
            while self._body.poll() is None and self._clock() < until:
                time.sleep(_LOOK_SECONDS)
            if self._output is not None:
                self._output.read()
        return ended

    def _need_progress(self) -> None:
        limit = self._start.start.iteration_timeout
        if 0 < limit < self._clock() - self._began:
            says = self._source.missing() or self._source.last_lines()
            raise TrainingCommandError(f"an iteration took longer than {limit:g} s and was ended: {says}")

    def _over(self, code: int) -> resource_manager_pb2.RunEnded:
        """Return the message about the end of the run after the program has exited with `code` (negative: killed by a signal).

        Raises:
            TrainingCommandError: The program failed, or its output lacks a metric of the experiment, or the script made no report.
        """
        if code < 0:
            name = signal.strsignal(-code) or str(-code)
            says = f"the program was killed by signal {-code} ({name}); {self._source.last_lines()}"
            raise TrainingCommandError(says, user=-code in CRASHES)
        if code:
            lines = self._source.last_lines()
            permanent = ends_with_permanent_error(code, lines)
            raise TrainingCommandError(f"the program ended with exit code {code}; {lines}", permanent=permanent)
        if missing := self._source.missing():
            raise TrainingCommandError(missing if self._mailbox is not None else f"the program ended, and {missing}")
        return resource_manager_pb2.RunEnded(
            reason=common_pb2.RUN_END_REASON_UNTIL, position=self.boundary.position, finished=True
        )


def _tell(what: str) -> None:
    sys.stderr.write(f"hopyard: {what}\n")
    sys.stderr.flush()


__all__ = ["LoggedRun"]
