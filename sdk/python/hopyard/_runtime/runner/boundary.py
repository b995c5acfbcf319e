"""The boundaries of one run, where training and agent meet: what is reported, saved, waited for, and how it ends."""

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
    """What every kind of run has in common: one thread trains, another one brings the agent's commands."""

    def __init__(self, start: wire.ApplicationStart, outbox: Outbox, plan: RunPlan | None = None) -> None:
        """Take a run over; commands may come from now on. `plan`: other than what the start says."""
        self._start = start
        self._outbox = outbox
        self._control = RunControl(plan or converters.plan(start))
        self._changed = threading.Condition()
        self._snapshot: common_pb2.Snapshot | None = None
        self._arrival: wire.SnapshotArrival | None = None
        self.iteration_began: float | None = None
        """When the present iteration began, in monotonic seconds; None: none is under way."""

    @property
    def position(self) -> int:
        """The last position that was reached."""
        return self._control.position

    @property
    def free(self) -> int:
        """Reports below this position need not wait, as things stand."""
        with self._changed:
            return self._control.free

    def decide(self, command: resource_manager_pb2.DecideRun) -> None:
        """Pass a decision on to the training thread."""
        with self._changed:
            self._control.decide(DECISIONS.from_proto(command.decision), command.position, command.allowed)
            self._changed.notify_all()

    def amend(self, command: resource_manager_pb2.AmendRun) -> None:
        """Amend the run and answer whether it was in time."""
        with self._changed:
            amended = self._control.amend(command.until, command.snapshot_at)
            # Under the lock, so that the answer keeps its place among the reports.
            self._outbox.send(converters.amended(command.ticket, amended))
            self._changed.notify_all()

    def notice(self) -> None:
        """Have a thread that waits look again."""
        with self._changed:
            self._changed.notify_all()

    def snapshot_came(self, arrival: wire.SnapshotArrival) -> None:
        """Pass on what became of the snapshot that the run goes on from."""
        with self._changed:
            self._arrival = arrival
            self._changed.notify_all()

    def wait_for_snapshot(self) -> bool:
        """Wait until the snapshot that the run goes on from is where its start says, if it was not from the beginning.

        Returns:
            Whether its hash was found right a moment ago.

        Raises:
            SnapshotStateError: it did not come.
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
        """Whether the present iteration takes longer than the run allows; `now` is monotonic."""
        began, limit = self.iteration_began, self._start.start.iteration_timeout
        return began is not None and 0 < limit < now - began

    def started(self, position: int, *, finished: bool) -> None:
        """The state is loaded; `finished`: nothing is left to train."""
        with self._changed:
            self._control.started(finished=finished)
        self._outbox.send(wire.AttachRequest(started=resource_manager_pb2.RunStarted(position=position)))

    def next(
        self,
        *,
        waiting: Callable[[], None] | None = None,
        committed: Callable[[Train], int | None] | None = None,
    ) -> Train | Restate | Save | EndRun:
        """What to do now; blocks while the run is to wait. With `Train` the next iteration has begun.

        Args:
            waiting: called before each wait; what it raises ends the wait.
            committed: where the iteration that begins will end, if its trainer promises that.
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
        """Tell of a position that was reached; `savable`: a snapshot of it can be taken, `only_leaving`: if the run ends there."""
        self._outbox.wait_for_room()
        with self._changed:
            at_until = self._control.reached(
                report.position, finished=report.finished, savable=savable, only_leaving=only_leaving
            )
            said = converters.report(report, self._start.start, at_until=at_until, at=time.time())
            self._outbox.send(said, patient=isinstance(self._control.next(), Train))

    def follow(self, report: IterationReport) -> None:
        """Note a position that another rank reports."""
        with self._changed:
            self._control.began()
            self._control.reached(report.position, finished=report.finished)

    def save(self, keep: Callable[[Path], SnapshotFileInfo], provider: str = PROVIDER) -> None:
        """Take a snapshot of the present position, which `provider` can load.

        `keep` puts it where it is told, a folder or a packed file, and names it.

        Nobody waits for the disk here: what a power failure damages the hash tells, and the store, which does wait, has a copy
        a moment later.
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
        """The snapshot could not be taken: the run goes on without; `again`: the next boundary may be better."""
        with self._changed:
            self._control.unsaved(again=again)

    def ended(self, reason: RunEndReason, with_snapshot: bool) -> resource_manager_pb2.RunEnded:
        """The end of the run as the agent is told of it."""
        return resource_manager_pb2.RunEnded(
            reason=RUN_END_REASONS.to_proto(reason),
            position=self.position,
            snapshot=self._snapshot if with_snapshot else None,
        )
