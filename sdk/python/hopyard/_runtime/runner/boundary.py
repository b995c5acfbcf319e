"""The boundaries of one run: points after a report, at which the run saves, waits for the agent's commands, or ends."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from hopyard._net.rpc.enums import DECISIONS, RUN_END_REASONS
from hopyard._runtime.runner import converters
from hopyard._runtime.runner.control import EndRun, Restate, RunControl, RunPlan, Save, Train, Wait
from hopyard._runtime.runner.outbox import Outbox
from hopyard._runtime.snapshot_file import SnapshotFileInfo
from hopyard._runtime.snapshot_folder import remove, settle
from hopyard.policy.vocabulary import RunEndReason
from hopyard.trainer import IterationReport, SnapshotStateError
from hopyard.v1 import application_pb2 as wire
from hopyard.v1 import common_pb2, resource_manager_pb2

PROVIDER: Final = "framework"
"""Snapshot provider of programs that save and load their state themselves."""


class Boundary:
    """Connects the training thread of a run with the agent: reports positions and applies the agent's commands.

    All kinds of runs use it. The training thread calls `next` for its next action and `report` after each iteration; another thread
    calls `decide`, `amend` and `snapshot_came` with the agent's messages. The actions follow from `control.RunControl`.

    It accepts commands as soon as it is created.

    Args:
        start: Start message of the run.
        outbox: Queue of messages to the agent.
        plan: Settings of the run (`control.RunPlan`); None: those of `start`.
    """

    def __init__(self, start: wire.ApplicationStart, outbox: Outbox, plan: RunPlan | None = None) -> None:
        self._start = start
        self._outbox = outbox
        self._control = RunControl(plan or converters.plan(start))
        self._changed = threading.Condition()
        self._snapshot: common_pb2.Snapshot | None = None
        self._arrival: wire.SnapshotArrival | None = None
        self.iteration_began: float | None = None
        """Monotonic time at which the present iteration began; None: none is in progress."""

    @property
    def position(self) -> int:
        """The last position that the run has reached; before the end of the first iteration, its start position."""
        return self._control.position

    @property
    def free(self) -> int:
        """The first position (exclusive bound) whose report may need a command: at all earlier positions the run continues at once.

        It follows from the commands received so far, and changes with further ones.

        If a command orders the run to end, it is the present position.
        """
        with self._changed:
            return self._control.free

    def decide(self, command: resource_manager_pb2.DecideRun) -> None:
        """Apply `command`, a decision of the agent, and wake the training thread."""
        with self._changed:
            self._control.decide(DECISIONS.from_proto(command.decision), command.position, command.allowed)
            self._changed.notify_all()

    def amend(self, command: resource_manager_pb2.AmendRun) -> None:
        """Apply the amendment `command`, and reply to the agent whether it was in time.

        An amendment moves the run's end, or adds positions at which the run must save.
        """
        with self._changed:
            amended = self._control.amend(command.until, command.snapshot_at)
            # The lock keeps the order of the reply and the reports.
            self._outbox.send(converters.amended(command.ticket, amended))
            self._changed.notify_all()

    def notice(self) -> None:
        """Wake a training thread that waits in `next`, so that it calls `waiting` and determines its next action again.

        Called when the gang of the run breaks, which `waiting` reports as an exception.
        """
        with self._changed:
            self._changed.notify_all()

    def snapshot_came(self, arrival: wire.SnapshotArrival) -> None:
        """Record `arrival`, whether the snapshot that the run resumes from has arrived or failed, and wake the training thread."""
        with self._changed:
            self._arrival = arrival
            self._changed.notify_all()

    def wait_for_snapshot(self) -> bool:
        """Wait until the snapshot that the run resumes from is at the path in the start message.

        It returns immediately if the snapshot was there at the start.

        Returns:
            Whether the agent has just verified the snapshot's hash.

        Raises:
            SnapshotStateError: The snapshot could not be fetched.
        """
        if not self._start.snapshot_awaited:
            return self._start.snapshot_verified
        with self._changed:
            while (arrival := self._arrival) is None:
                self._changed.wait()
        if arrival.error:
            raise SnapshotStateError(f"the snapshot did not come: {arrival.error}")
        return arrival.verified

    def hung(self, now: float) -> bool:
        """Return whether the present iteration exceeds the run's time limit at `now` (monotonic seconds).

        False between iterations, and if the run has no limit.
        """
        began, limit = self.iteration_began, self._start.start.iteration_timeout
        return began is not None and 0 < limit < now - began

    def started(self, position: int, *, finished: bool) -> None:
        """Report to the agent that the run's state is loaded.

        Args:
            position: Start position of the run.
            finished: Whether nothing is left to train.
        """
        with self._changed:
            self._control.started(finished=finished)
        self._outbox.send(wire.AttachRequest(started=resource_manager_pb2.RunStarted(position=position)))

    def next(
        self,
        *,
        waiting: Callable[[], None] | None = None,
        committed: Callable[[Train], int | None] | None = None,
    ) -> Train | Restate | Save | EndRun:
        """Return the next action, after waiting for decisions if the run must wait. With `Train`, the next iteration has begun.

        Args:
            waiting: Called before each wait; an exception from it propagates, and the wait does not begin. None: nothing is called.
            committed: Returns the position where the new iteration will end, or None if the trainer does not guarantee
                one.

        Returns:
            `Train`: train an iteration. `Restate`: report the position without metrics, because nothing is left to train. `Save`:
            take a snapshot. `EndRun`: end the run.
        """
        with self._changed:
            action = self._control.next()
            while isinstance(action, Wait):
                if waiting is not None:
                    waiting()
                self._changed.wait()
                action = self._control.next()
            if isinstance(action, Train):
                self._control.began(committed=committed(action) if committed is not None else None)
            return action

    def report(self, report: IterationReport, *, savable: bool = True, only_leaving: bool = False) -> None:
        """Report a position to the agent. Blocks while the outbox is full.

        Args:
            report: The report.
            savable: Whether a snapshot of this position can be taken.
            only_leaving: Take a snapshot here only if the run ends here and the job continues later.
        """
        self._outbox.wait_for_room()
        with self._changed:
            at_until = self._control.reached(
                report.position, finished=report.finished, savable=savable, only_leaving=only_leaving
            )
            said = converters.report(report, self._start.start, at_until=at_until, at=time.time())
            self._outbox.send(said, patient=isinstance(self._control.next(), Train))

    def follow(self, report: IterationReport) -> None:
        """Record, without reporting it, that an iteration has ended: on ranks other than 0, whose positions rank 0 reports."""
        with self._changed:
            self._control.began()
            self._control.reached(report.position, finished=report.finished)

    def save(self, keep: Callable[[Path], SnapshotFileInfo], provider: str = PROVIDER) -> None:
        """Take a snapshot of the present position and announce it to the agent.

        The snapshot is not flushed to disk: the hash reveals damage by a power failure, and the store, which does
        flush, soon has a copy.

        Args:
            keep: Writes the snapshot, a folder or a packed file, to the given path and returns its hash and size.
            provider: Name of the snapshot provider, which decides how the snapshot can be loaded.

        Raises:
            Exception: `keep` failed; nothing is announced.
        """
        partial = Path(self._start.snapshot_folder) / f".{os.getpid()}.saving"
        remove(partial)
        info = keep(partial)
        settle(partial, partial.with_name(info.sha256))
        self._snapshot = common_pb2.Snapshot(
            job=self._start.run.job,
            position=self.position,
            sha256=info.sha256,
            size_bytes=info.size,
            provider=provider,
        )
        with self._changed:
            self._control.saved()
            taken = resource_manager_pb2.SnapshotTaken(snapshot=self._snapshot)
            self._outbox.send(wire.AttachRequest(snapshot_taken=taken))

    def unsaved(self, *, again: bool = True) -> None:
        """Record that the snapshot at this boundary failed: the run continues without it.

        Args:
            again: Whether to try again at the next boundary.
        """
        with self._changed:
            self._control.unsaved(again=again)

    def ended(self, reason: RunEndReason, with_snapshot: bool) -> resource_manager_pb2.RunEnded:
        """Return the message about the end of the run.

        Args:
            reason: Why it ends.
            with_snapshot: Whether the message names the last snapshot of this run, if there is one, from which the job can resume.
        """
        return resource_manager_pb2.RunEnded(
            reason=RUN_END_REASONS.to_proto(reason),
            position=self.position,
            snapshot=self._snapshot if with_snapshot else None,
        )
