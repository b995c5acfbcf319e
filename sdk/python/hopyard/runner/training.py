"""One run in this process: a trainer driven from boundary to boundary."""

from __future__ import annotations

import os
import shutil
import sys
import threading
import time
import traceback
from contextlib import suppress
from pathlib import Path
from typing import Final

from hopyard.policy.vocabulary import RunEndReason
from hopyard.rpc.enums import DECISIONS, RUN_END_REASONS
from hopyard.rpc.values import hyperparameters_from_proto
from hopyard.runner import messages
from hopyard.runner.control import End, Restate, RunControl, Save, Train, Wait
from hopyard.runner.failures import ended_by
from hopyard.runner.following import Follower, Leave
from hopyard.runner.gang import GangBrokenError, environment
from hopyard.runner.leading import Leader
from hopyard.runner.outbox import Outbox
from hopyard.runner.program import ProgramLoader
from hopyard.snapshotfile import pack, unpack
from hopyard.trainer import Report, TrainerDriver, UserCodeError
from hopyard.v1 import application_pb2 as wire
from hopyard.v1 import common_pb2, resource_manager_pb2

PROVIDER: Final = "framework"
"""Snapshot provider of trainer mode: the trainer's own save and load."""


class TrainingRun:
    """A run between its `start` and its `ended`: the main thread executes it, another one brings commands."""

    def __init__(self, start: wire.ApplicationStart, outbox: Outbox) -> None:
        """Take a run over; commands may come from now on."""
        self._start = start
        self._outbox = outbox
        self._control = RunControl(messages.plan(start))
        self._changed = threading.Condition()
        self._snapshot: common_pb2.Snapshot | None = None
        self._iteration_began: float | None = None
        self._gang: Leader | Follower | None = None
        self._done_with: list[Path] = []
        self.broken = False
        """Whether the process should not be used for another run."""

    @property
    def position(self) -> int:
        """The last position that was reached."""
        return self._control.position

    def decide(self, command: resource_manager_pb2.DecideRun) -> None:
        """Pass a decision on to the training loop."""
        with self._changed:
            self._control.decide(DECISIONS.from_proto(command.decision), command.position, command.allowed)
            self._changed.notify_all()

    def amend(self, command: resource_manager_pb2.AmendRun) -> None:
        """Amend the run and answer whether it was in time."""
        with self._changed:
            amended = self._control.amend(command.until, command.snapshot_at)
            # Under the lock, so that the answer keeps its place among the reports.
            self._outbox.send(messages.amended(command.ticket, amended))
            self._changed.notify_all()

    def hung(self, now: float) -> bool:
        """Whether the present iteration takes longer than the run allows; `now` is monotonic."""
        began, limit = self._iteration_began, self._start.start.iteration_timeout
        return began is not None and 0 < limit < now - began

    def abandoned(self, now: float) -> bool:
        """Whether the gang broke a while ago, and the training code has not come to notice; `now` is monotonic."""
        return self._gang is not None and self._gang.abandoned(now)

    def execute(self, programs: ProgramLoader) -> resource_manager_pb2.RunEnded:
        """Make the run; whatever goes wrong in it is told in the result."""
        driver: TrainerDriver | None = None
        try:
            self._gang = gang = self._open_gang()
            with environment(self._start, gang.place if gang is not None else None):
                trainer = programs.load(Path(self._start.code_folder), self._start.start.program.trainer)
                driver = TrainerDriver(trainer, clock=time.monotonic)
                if gang is not None:
                    gang.join(self._start.gang.join_seconds)
                self._begin(driver)
                return self._follow(driver, gang) if isinstance(gang, Follower) else self._train(driver, gang)
        except Exception as error:  # noqa: BLE001 (the border between a run and its process)
            with suppress(OSError):  # no room for it on the disk: the message says what happened all the same
                traceback.print_exception(error)
            self._iteration_began = None
            ended, self.broken = ended_by(error, self._control.position, Path(self._start.scratch_folder))
            if self._gang is None:
                return ended
            self._gang.failing(ended)
            if driver is not None:
                _close(driver)
            return self._gang.verdict(ended)
        finally:
            self._iteration_began = None
            if driver is not None:
                _close(driver)
            if self._gang is not None:
                self._gang.close()

    def _open_gang(self) -> Leader | Follower | None:
        """This process's side of its gang; None: it trains alone."""
        start = self._start
        if not start.HasField("gang"):
            return None
        if start.run.rank:
            return Follower(start.gang.place, start.run.rank, self._notice)
        leader = Leader(start.start.world, start.gang.hosts[0], self._notice)
        self._outbox.send(wire.AttachRequest(gang_opened=leader.place))
        return leader

    def _notice(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def _begin(self, driver: TrainerDriver) -> None:
        start = self._start.start
        scratch = Path(self._start.scratch_folder)
        place = self._gang.place if self._gang is not None else None
        context = messages.context(self._start, scratch / "files", place)
        context.scratch.mkdir(parents=True, exist_ok=True)
        hyperparameters = hyperparameters_from_proto(start.hyperparameters)
        if start.HasField("snapshot"):
            folder = scratch / "snapshot"
            unpack(Path(self._start.snapshot_file), folder, start.snapshot.sha256, durable=False)
            driver.start(hyperparameters, context, snapshot=folder, position=start.snapshot.position)
            self._done_with.append(folder)
        else:
            driver.start(hyperparameters, context)
        with self._changed:
            self._control.started(finished=driver.finished)
        self._outbox.send(wire.AttachRequest(started=resource_manager_pb2.RunStarted(position=driver.position)))

    def _train(self, driver: TrainerDriver, gang: Leader | None) -> resource_manager_pb2.RunEnded:
        while True:
            with self._changed:
                action = self._control.next()
                while isinstance(action, Wait) and not self._done_with:
                    if gang is not None:
                        gang.check()
                    self._changed.wait()
                    action = self._control.next()
                if isinstance(action, Train):
                    self._control.began(committed=_committed(driver, action))
            match action:
                case Wait():
                    self._tidy()
                case Train(limit):
                    if gang is not None:
                        gang.step(driver.position, limit)
                    self._report(self._step(driver, limit))
                    self._tidy()
                case Restate():
                    self._report(Report(position=driver.position, metrics={}, seconds=0.0, finished=driver.finished))
                case Save():
                    self._save(driver)
                case End(reason, with_snapshot):
                    if gang is not None:
                        gang.leave(reason)
                    return self._ended(reason, with_snapshot)

    def _follow(self, driver: TrainerDriver, gang: Follower) -> resource_manager_pb2.RunEnded:
        """Train what rank 0 trains, without a word of its own."""
        while not isinstance(order := gang.next(), Leave):
            if order.position != driver.position:
                raise GangBrokenError(
                    f"it stands at position {driver.position} and rank 0 at {order.position}; allowed: every rank of a "
                    "gang trains the same number of units in each iteration",
                    user=True,
                )
            report = self._step(driver, order.limit)
            self._tidy()
            with self._changed:
                self._control.began()
                self._control.reached(report.position, finished=report.finished)
        return self._ended(order.reason, with_snapshot=False)

    def _step(self, driver: TrainerDriver, limit: int | None) -> Report:
        self._iteration_began = time.monotonic()
        report = driver.step(until=limit)
        self._iteration_began = None
        return report

    def _report(self, report: Report) -> None:
        self._outbox.wait_for_room()
        with self._changed:
            at_until = self._control.reached(report.position, finished=report.finished)
            self._outbox.send(messages.report(report, self._start.start, at_until=at_until, at=time.time()))

    def _tidy(self) -> None:
        """Delete what was needed for a moment: when nobody waits for this run. What it leaves at its end the agent deletes."""
        while self._done_with:
            shutil.rmtree(self._done_with.pop())

    def _save(self, driver: TrainerDriver) -> None:
        self._tidy()
        folder = Path(self._start.scratch_folder) / "saving"
        partial = Path(self._start.snapshot_folder) / f".{os.getpid()}.packing"
        driver.save(folder)
        info = pack(folder, partial)
        os.replace(partial, partial.with_name(info.sha256))
        self._done_with.append(folder)
        self._snapshot = common_pb2.Snapshot(
            job=self._start.run.job,
            position=driver.position,
            sha256=info.sha256,
            size_bytes=info.size,
            provider=PROVIDER,
        )
        with self._changed:
            self._control.saved()
            taken = resource_manager_pb2.SnapshotTaken(snapshot=self._snapshot)
            self._outbox.send(wire.AttachRequest(snapshot_taken=taken))

    def _ended(self, reason: RunEndReason, with_snapshot: bool) -> resource_manager_pb2.RunEnded:
        return resource_manager_pb2.RunEnded(
            reason=RUN_END_REASONS.to_proto(reason),
            position=self._control.position,
            snapshot=self._snapshot if with_snapshot else None,
        )


def _committed(driver: TrainerDriver, action: Train) -> int | None:
    """Where the iteration will end, if the trainer promises that; once it began, no `until` can lie before that."""
    trainer = driver.trainer
    if not trainer.stops_anywhere:
        return None
    end = driver.position + trainer.unit_per_iteration
    return end if action.limit is None else min(end, action.limit)


def _close(driver: TrainerDriver) -> None:
    """End the trainer; what it raises now cannot undo what was trained and saved, so it is only told."""
    try:
        driver.close()
    except UserCodeError as error:
        with suppress(OSError):  # no room for it on the disk
            sys.stderr.write(f"{error}\n{error.traceback_text}")
