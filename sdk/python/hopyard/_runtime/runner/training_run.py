"""One run of a trainer in the runner process."""

from __future__ import annotations

import sys
import time
import traceback
from contextlib import suppress
from pathlib import Path
from typing import Final

from hopyard._net.rpc.values import hyperparameters_from_proto
from hopyard._runtime.runner import converters
from hopyard._runtime.runner.boundary import Boundary
from hopyard._runtime.runner.control import EndRun, Restate, Save, Train
from hopyard._runtime.runner.failures import ended_by
from hopyard._runtime.runner.gang.connections import GangBrokenError, environment
from hopyard._runtime.runner.gang.follower import Follower, Leave
from hopyard._runtime.runner.gang.leader import Leader
from hopyard._runtime.runner.outbox import Outbox
from hopyard._runtime.runner.program import ProgramLoader
from hopyard._runtime.runner.watchdog import EXIT_GANG_BROKEN, EXIT_HUNG, ProcessExit
from hopyard._runtime.snapshot_folder import keep, loadable, remove
from hopyard.trainer import IterationReport, Trainer, TrainerDriver, UserCodeError, data_cache
from hopyard.v1 import application_pb2 as wire
from hopyard.v1 import resource_manager_pb2

_SENT_SECONDS: Final = 5.0
_THIS_COMPUTER: Final = "127.0.0.1"
"""Maximum seconds that a run waits before training until its agent can know that it trains."""


class TrainingRun:
    """A run of a trainer in this process. The main thread calls `execute`; another thread delivers the agent's commands.

    It accepts commands of the agent as soon as it is created.

    Args:
        start: Start message of the run.
        outbox: Queue of messages to the agent.
    """

    def __init__(self, start: wire.ApplicationStart, outbox: Outbox) -> None:
        self.boundary = Boundary(start, outbox)
        self._start = start
        self._outbox = outbox
        self._gang: Leader | Follower | None = None
        self._done_with: list[Path] = []
        self._trainer: Trainer | None = None
        """The trainer, kept until this run is deleted so that its end is sent before the model's memory is freed, which is slow."""
        self.broken = False
        """Whether the process must not be used for another run."""

    def trouble(self, now: float) -> ProcessExit | None:
        """Return why the process must end immediately: an iteration hangs, or the gang broke and the code continues. None: no reason.

        Args:
            now: The present time in monotonic seconds.
        """
        if self.boundary.hung(now):
            return ProcessExit(EXIT_HUNG, "an iteration took longer than the experiment's iteration time-out")
        if self._gang is not None and self._gang.abandoned(now):
            return ProcessExit(EXIT_GANG_BROKEN, "another rank of its gang is gone, and its code does not notice")
        return None

    def end_children(self) -> None:
        """Do nothing: no part of the run outlives the process."""

    def execute(self, programs: ProgramLoader) -> resource_manager_pb2.RunEnded:
        """Make the run, and return the message about its end. An error does not propagate: the message describes the failure.

        Args:
            programs: Loads the trainer class.
        """
        driver: TrainerDriver | None = None
        try:
            self._gang = gang = self._open_gang()
            with environment(self._start, gang.place if gang is not None else None):
                trainer = programs.load(
                    Path(self._start.code_folder), self._start.start.program.trainer, Path(self._start.working_folder)
                )
                driver = TrainerDriver(trainer, clock=time.monotonic)
                if gang is not None:
                    gang.join(self._start.gang.join_seconds)
                data_cache().budget = converters.data_budget(self._start.start.program)
                self._begin(driver)
                return self._follow(driver, gang) if isinstance(gang, Follower) else self._train(driver, gang)
        except Exception as error:  # noqa: BLE001 (the border between a run and its process)
            with suppress(OSError):  # The disk is full; the result contains the message anyway.
                traceback.print_exception(error)
            self.boundary.iteration_began = None
            ended, self.broken = ended_by(error, self.boundary.position, Path(self._start.scratch_folder))
            if self._gang is None:
                return ended
            self._gang.failing(ended)
            if driver is not None:
                _close(driver)
            return self._gang.verdict(ended)
        finally:
            self.boundary.iteration_began = None
            if driver is not None:
                _close(driver)
            if self._gang is not None:
                self._gang.close()

    def _open_gang(self) -> Leader | Follower | None:
        """Create and return this process's part of the run's gang; None if the run has one rank.

        On rank 0, it opens the gang's socket and ports, and announces them to the agent.

        Raises:
            OSError: No port is available.
        """
        start = self._start
        if not start.HasField("gang"):
            return None
        if start.run.rank:
            return Follower(start.gang.place, start.run.rank, self.boundary.notice)
        hosts = start.gang.hosts
        # Agents that listen on Unix sockets have this host. Their ranks meet in the folder of rank 0's run.
        folder = Path(start.scratch_folder) if set(hosts) == {_THIS_COMPUTER} else None
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
        leader = Leader(start.start.world, hosts[0], self.boundary.notice, folder=folder)
        self._outbox.send(wire.AttachRequest(gang_opened=leader.place))
        return leader

    def _begin(self, driver: TrainerDriver) -> None:
        start = self._start.start
        scratch = Path(self._start.scratch_folder)
        place = self._gang.place if self._gang is not None else None
        context = converters.context(self._start, scratch / "files", place)
        context.scratch.mkdir(parents=True, exist_ok=True)
        hyperparameters = hyperparameters_from_proto(start.hyperparameters)
        driver.start(hyperparameters, context)
        self._trainer = driver.trainer
        if start.HasField("snapshot"):  # The snapshot may arrive while the trainer is set up.
            verified, unpacked = self.boundary.wait_for_snapshot(), scratch / "snapshot"
            folder = loadable(Path(self._start.snapshot_file), start.snapshot.sha256, unpacked, verified=verified)
            driver.load(folder, position=start.snapshot.position)
            self._done_with.append(unpacked)
        self.boundary.started(driver.position, finished=driver.finished)
        if start.iteration_timeout:
            # Training code may block all threads of this process; the agent can detect that once it has these messages.
            self._outbox.wait_until_sent(_SENT_SECONDS)

    def _train(self, driver: TrainerDriver, gang: Leader | None) -> resource_manager_pb2.RunEnded:
        boundary = self.boundary

        def waiting() -> None:
            self._tidy()
            if gang is not None:
                gang.check()

        while True:
            action = boundary.next(waiting=waiting, committed=lambda train: _committed(driver, train))
            match action:
                case Train(limit):
                    if gang is not None:
                        gang.step(driver.position, limit)
                    boundary.report(self._step(driver, limit))
                    self._tidy()
                case Restate():
                    boundary.report(converters.restatement(driver.position, finished=driver.finished))
                case Save():
                    self._save(driver)
                case EndRun(reason, with_snapshot):
                    if gang is not None:
                        gang.leave(reason)
                    return boundary.ended(reason, with_snapshot)

    def _follow(self, driver: TrainerDriver, gang: Follower) -> resource_manager_pb2.RunEnded:
        """Train the iterations that rank 0 orders, without reporting, and return the message about the end of the run.

        Args:
            driver: Calls the trainer.
            gang: This rank's part of the gang, which receives the orders.

        Raises:
            GangBrokenError: The gang broke, or this rank is at another position than rank 0.
        """
        while not isinstance(order := gang.next(), Leave):
            if order.position != driver.position:
                raise GangBrokenError(
                    f"it stands at position {driver.position} and rank 0 at {order.position}; allowed: every rank of a "
                    "gang trains the same number of units in each iteration",
                    user=True,
                )
            report = self._step(driver, order.limit)
            self._tidy()
            self.boundary.follow(report)
        return self.boundary.ended(order.reason, with_snapshot=False)

    def _step(self, driver: TrainerDriver, limit: int | None) -> IterationReport:
        self.boundary.iteration_began = time.monotonic()
        report = driver.step(until=limit)
        self.boundary.iteration_began = None
        return report

    def _tidy(self) -> None:
        """Delete temporary folders of finished loads and saves, between iterations; after the run the agent deletes the rest."""
        while self._done_with:
            remove(self._done_with.pop())

    def _save(self, driver: TrainerDriver) -> None:
        self._tidy()
        folder = Path(self._start.scratch_folder) / "saving"
        driver.save(folder)
        self.boundary.save(lambda target: keep(folder, target))
        self._done_with.append(folder)


def _committed(driver: TrainerDriver, action: Train) -> int | None:
    """Return the position at which the iteration of `action` will end; None if the trainer of `driver` does not guarantee one.

    While an iteration with a known end is in progress, amendments that name a position not beyond this end are refused.
    """
    return driver.committed(action.limit)


def _close(driver: TrainerDriver) -> None:
    """Close the trainer of `driver`. An error of its code is only printed, because it cannot affect what was trained and saved."""
    try:
        driver.close()
    except UserCodeError as error:
        with suppress(OSError):  # The disk is full.
            sys.stderr.write(f"{error}\n{error.traceback_text}")
