"""Drives one trainer through one run. The checks and errors are the same on a cluster and on a single computer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from types import MappingProxyType
from typing import Any

from hopyard.sequences import Schedule, SequenceError
from hopyard.trainer.base import Trainer, TrainerContext
from hopyard.trainer.errors import DriverUsageError, GangError, SnapshotStateError, TrainerPhase, UserCodeError
from hopyard.trainer.snapshot_header import HEADER_NAME, STATE_FOLDER, SnapshotHeader, read_header, write_header
from hopyard.trainer.validation import (
    changed_names,
    checked_examples,
    checked_metrics,
    frozen_hyperparameters,
    is_whole,
    joined_metrics,
)


@dataclass(frozen=True, slots=True)
class IterationReport:
    """The result of one iteration, one evaluation or one profile measurement.

    Attributes:
        position: The job's position afterwards, in the experiment's unit.
        metrics: Metrics by name. NaN and infinite values are allowed.
        seconds: Duration in seconds on the driver's clock, evaluation included.
        examples: Number of examples behind the metrics of `evaluate()`; None: the trainer does not set it.
        finished: Whether the trainer has declared that nothing is left to train.
        in_force: The hyperparameters that the training actually uses. Set in the first report after a start or a change;
            None in all other reports.
    """

    position: int
    metrics: Mapping[str, float]
    seconds: float
    examples: int | None = None
    finished: bool = False
    in_force: Mapping[str, Any] | None = None


class _State(Enum):
    NEW = "not started"
    READY = "started"
    FAILED = "failed"
    CLOSED = "closed"


class TrainerDriver:
    """Calls the methods of a user's trainer in the order that `Trainer` documents. One driver serves one run.

    `start` creates the trainer, each `step` trains one iteration, and `close` ends the run. The only files that the
    driver itself reads or writes are the headers of snapshots (`hopyard.json`, see `snapshot_header`). It uses no
    threads, and no clock except the one passed to it. An exception in the user's code is raised as `UserCodeError`
    (except KeyboardInterrupt and GeneratorExit). After that, the driver accepts only `close()`.

    Args:
        trainer_class: A concrete subclass of `Trainer`.
        clock: Function that returns seconds and never goes backwards, such as `time.monotonic`.

    Raises:
        DriverUsageError: `trainer_class` is not a subclass of `Trainer`.
    """

    def __init__(self, trainer_class: type[Trainer], *, clock: Callable[[], float]) -> None:
        given: object = trainer_class
        if not (isinstance(given, type) and issubclass(given, Trainer)):
            raise DriverUsageError(f"{given!r} is not a trainer; allowed: a subclass of hopyard.trainer.Trainer")
        self._class = trainer_class
        self._name = trainer_class.__qualname__
        self._clock = clock
        self._state = _State.NEW
        self._trainer: Trainer | None = None
        self._position = 0
        self._echo = True

    @property
    def trainer(self) -> Trainer:
        """The object of the user's class. Available between `start` and `close`; DriverUsageError otherwise."""
        if self._trainer is None:
            raise DriverUsageError(f"the driver of {self._name} is {self._state.value}: call start() first")
        return self._trainer

    @property
    def position(self) -> int:
        """The number of units of the experiment (such as epochs) that the job has trained."""
        return self._position

    @property
    def finished(self) -> bool:
        """Whether the trainer has declared that nothing is left to train. `step` then raises DriverUsageError."""
        return self._trainer is not None and self._trainer._finished

    def start(
        self,
        hyperparameters: Mapping[str, Any],
        context: TrainerContext,
        *,
        snapshot: Path | None = None,
        position: int | None = None,
    ) -> None:
        """Create the trainer, set it up, and continue from `snapshot` if one is given.

        Args:
            hyperparameters: The configuration as JSON values; sequences are in written form.
            context: The environment of the run.
            snapshot: Directory that `save` wrote; None: train from the beginning.
            position: The position that the snapshot must have; None: any. Without a snapshot it must be 0 or None.

        Raises:
            UserCodeError: `__init__`, `build`, `setup` or `load` failed.
            SnapshotStateError: The snapshot is incomplete, or its position is not the expected one.
            DriverUsageError: The method was called twice; a hyperparameter is an invalid sequence or not a JSON value; it is a
                sequence that counts optimizer steps, which the trainer class does not support; or `position` is not 0 and
                there is no snapshot.
        """
        self._require(_State.NEW, "start()")
        schedule = self._scheduled(hyperparameters)
        if snapshot is None and position not in (None, 0):
            raise DriverUsageError(f"start() at position {position} needs a snapshot; without one only 0 is allowed")
        header = self._read(snapshot, position) if snapshot is not None else None
        with self._user(TrainerPhase.CREATE):
            trainer = self._class()
        trainer._context = context
        # Build with the values of position 0 in every case. `load` and `setup` then apply all later changes.
        given = frozen_hyperparameters(schedule.at(0))
        trainer._schedule, trainer._hyperparameters = schedule, given
        self._trainer = trainer
        with self._user(TrainerPhase.BUILD):
            trainer.build(given)
        with self._user(TrainerPhase.SETUP):
            trainer.setup(given, frozenset(given))
        self._check_interval()
        self._state = _State.READY
        if snapshot is not None and header is not None:
            self._take_up(snapshot, header)

    def step(self, *, until: int | None = None) -> IterationReport:
        """Train one iteration. In mode `evaluate` evaluate once, and in mode `profile` profile once, without advancing.

        Args:
            until: The position at which the run is to stop, greater than the current one; None: no such position. A trainer
                with `stops_anywhere` ends the iteration there. Any other trainer completes its iteration and may end after it.

        Raises:
            UserCodeError: A method of the trainer failed.
            DriverUsageError: The driver is not started, the trainer has finished, or `until` is not ahead.
        """
        self._require(_State.READY, "step()")
        trainer = self.trainer
        if trainer.context.mode == "evaluate":
            return self._evaluate_only(trainer)
        if trainer.context.mode == "profile":
            return self._profile(trainer)
        if trainer._finished:
            raise DriverUsageError(f"step(): {self._name} finished at position {self._position}: nothing is left")
        if until is not None and until <= self._position:
            raise DriverUsageError(f"step(until={until}) at position {self._position}; allowed: a position ahead of it")
        with self._user(TrainerPhase.SETUP):
            self._echo |= bool(trainer.follow(self._position))
        trainer._units = self._planned(until)
        trainer._advance = None
        began = self._clock()
        with self._user(TrainerPhase.TRAIN):
            returned = trainer.train()
            metrics = checked_metrics(returned, trainer=self._name, phase=TrainerPhase.TRAIN, position=self._position)
        self._position += trainer._advanced()
        trainer._position = self._position
        examples: int | None = None
        if trainer.evaluate_after_train and self._class.evaluate is not Trainer.evaluate:
            evaluated, examples = self._evaluated(trainer)
            with self._user(TrainerPhase.EVALUATE):
                metrics = joined_metrics(metrics, evaluated, trainer=self._name, position=self._position)
        return self._report(trainer, metrics, self._clock() - began, examples)

    def committed(self, until: int | None) -> int | None:
        """Return the position at which `step(until=until)` will end.

        None: it is not known, because the trainer class does not set `stops_anywhere`: its `train()` may train another number of
        units than planned.
        """
        return self._position + self._planned(until) if self.trainer.stops_anywhere else None

    def _planned(self, until: int | None) -> int:
        """Return the number of units that the next iteration must train if the run is to stop at `until` (None: nowhere)."""
        trainer = self.trainer
        self._check_interval()
        units = trainer.unit_per_iteration
        if trainer.stops_anywhere:
            end = self._position + units
            end = end if until is None else min(end, until)
            if trainer._schedule is not None and not trainer.follows_sequences:
                end = trainer._schedule.next_change(self._position, end)
            units = end - self._position
        return units

    def set_hyperparameters(self, hyperparameters: Mapping[str, Any]) -> frozenset[str]:
        """Apply a new configuration from the current position on, and return the names of the hyperparameters that changed.

        `Trainer.setup` is called only if one changed.

        Raises:
            UserCodeError: `setup` failed.
            DriverUsageError: The driver is not started; or a hyperparameter is an invalid sequence or not a JSON value; it is a
                sequence that counts optimizer steps, which the trainer class does not support.
        """
        self._require(_State.READY, "set_hyperparameters()")
        trainer = self.trainer
        trainer._schedule = self._scheduled(hyperparameters)
        given = frozen_hyperparameters(trainer._schedule.at(self._position, trainer.steps))
        changed = changed_names(trainer._hyperparameters, given)
        self._set_up(given, changed)
        return changed

    def save(self, directory: Path) -> SnapshotHeader:
        """Write a snapshot of the current state into `directory`, and return its header.

        Args:
            directory: The folder, which must be missing or empty. After a failure it is an incomplete snapshot, which `load`
                rejects.

        Raises:
            UserCodeError: `Trainer.save` failed.
            DriverUsageError: The driver is not started, the run does not train, or the directory is not empty.
        """
        self._require(_State.READY, "save()")
        trainer = self.trainer
        if trainer.context.mode != "train":
            raise DriverUsageError(f"save() in a run with mode {trainer.context.mode!r}: it has no state to save")
        directory.mkdir(parents=True, exist_ok=True)
        if any(directory.iterdir()):
            raise DriverUsageError(f"save(): {directory} is not empty")
        state = directory / STATE_FOLDER
        state.mkdir()
        with self._user(TrainerPhase.SAVE):
            trainer.save(state)
        header = SnapshotHeader(self._position, trainer._hyperparameters, trainer._finished)
        write_header(directory, header)
        return header

    def load(self, directory: Path, *, position: int | None = None) -> None:
        """Load the snapshot in `directory` into the started trainer, then apply the current hyperparameters.

        Args:
            directory: The snapshot.
            position: The position that it must have; None: any.

        Raises:
            UserCodeError: `Trainer.load` or `setup` failed.
            SnapshotStateError: The snapshot is incomplete, or has another position.
            DriverUsageError: The driver is not started.
        """
        self._require(_State.READY, "load()")
        self._take_up(directory, self._read(directory, position))

    def close(self) -> None:
        """End the run. It calls `Trainer.close` if the trainer was created. Safe to call twice and after a failure."""
        if self._state is _State.CLOSED:
            return
        self._state = _State.CLOSED
        trainer, self._trainer = self._trainer, None
        if trainer is not None:
            with self._user(TrainerPhase.CLOSE):
                trainer.close()

    def _read(self, snapshot: Path, position: int | None) -> SnapshotHeader:
        header = read_header(snapshot)
        if position is not None and header.position != position:
            raise SnapshotStateError(
                f"{snapshot / HEADER_NAME} is of position {header.position}, but position {position} was asked for"
            )
        return header

    def _take_up(self, snapshot: Path, header: SnapshotHeader) -> None:
        trainer = self.trainer
        self._position = header.position
        trainer._position = header.position
        trainer._finished = header.finished
        with self._user(TrainerPhase.LOAD):
            trainer.load(snapshot / STATE_FOLDER)
        assert trainer._schedule is not None  # `start` has set it.
        values = trainer._schedule.at(self._position, trainer.steps)
        # Evaluate with the values with which the state was trained. The values of the next unit apply only when training continues.
        if trainer.context.mode == "evaluate":
            for name in {dotted.partition(".")[0] for dotted in trainer._schedule.sequences}:
                values[name] = header.hyperparameters.get(name, values[name])
        given = frozen_hyperparameters(values)
        # The state in the snapshot uses the values of its header. Everything else uses the values of the last `setup`
        # call.
        changed = changed_names(header.hyperparameters, given) | changed_names(trainer._hyperparameters, given)
        self._set_up(given, changed)

    def _set_up(self, given: Mapping[str, Any], changed: frozenset[str]) -> None:
        self._echo = True
        self.trainer._hyperparameters = given
        if not changed:
            return
        with self._user(TrainerPhase.SETUP):
            self.trainer.setup(given, changed)
        self._check_interval()

    def _scheduled(self, hyperparameters: Mapping[str, Any]) -> Schedule:
        try:
            schedule = Schedule(frozen_hyperparameters(hyperparameters))
        except SequenceError as error:
            raise DriverUsageError(f"hyperparameter {error}") from error
        if schedule.per_step and not self._class.follows_sequences:
            raise DriverUsageError(
                f"hyperparameter {schedule.per_step[0]} changes in every optimizer step (per: step), which {self._name} "
                "does not follow; leave per out, or let train() call self.follow() and say follows_sequences = True"
            )
        return schedule

    def _evaluated(self, trainer: Trainer) -> tuple[dict[str, float], int | None]:
        trainer.examples = None
        with self._user(TrainerPhase.EVALUATE):
            returned = trainer.evaluate()
            metrics = checked_metrics(
                returned, trainer=self._name, phase=TrainerPhase.EVALUATE, position=self._position
            )
            return metrics, checked_examples(trainer.examples, trainer=self._name, position=self._position)

    def _evaluate_only(self, trainer: Trainer) -> IterationReport:
        began = self._clock()
        metrics, examples = self._evaluated(trainer)
        return self._report(trainer, metrics, self._clock() - began, examples)

    def _profile(self, trainer: Trainer) -> IterationReport:
        began = self._clock()
        with self._user(TrainerPhase.PROFILE):
            returned = {"seconds": trainer.profile()}
            metrics = checked_metrics(returned, trainer=self._name, phase=TrainerPhase.PROFILE, position=self._position)
        context = trainer.context
        if self._class.gathers_partitions and context.inputs is not None and context.world_size > 1:
            metrics["partitions"] = float(context.world_size)
        return self._report(trainer, metrics, self._clock() - began, None)

    def _report(
        self, trainer: Trainer, metrics: dict[str, float], seconds: float, examples: int | None
    ) -> IterationReport:
        in_force: Mapping[str, Any] | None = None
        if self._echo:
            with self._user(TrainerPhase.SETUP):
                in_force = frozen_hyperparameters(trainer.in_force)
            self._echo = False
        return IterationReport(
            position=self._position,
            metrics=MappingProxyType(metrics),
            seconds=seconds,
            examples=examples,
            finished=trainer._finished,
            in_force=in_force,
        )

    def _check_interval(self) -> None:
        interval = self.trainer.unit_per_iteration
        if not is_whole(interval, least=1):
            self._state = _State.FAILED
            raise UserCodeError(
                trainer=self._name,
                phase=TrainerPhase.SETUP,
                position=self._position,
                reason=f"unit_per_iteration is {interval!r}; allowed: a whole number, 1 or more",
            )

    def _require(self, state: _State, call: str) -> None:
        if self._state is not state:
            raise DriverUsageError(
                f"{call}: the driver of {self._name} is {self._state.value}; allowed only when it is {state.value}"
            )

    @contextmanager
    def _user(self, phase: TrainerPhase) -> Iterator[None]:
        """Return a context manager for calls of the user's code, which marks the driver as failed after an exception.

        Exceptions are converted to `UserCodeError` with `phase`, the method that is called. Errors about an unusable snapshot
        or a gang keep their type.
        """
        try:
            yield
        except (UserCodeError, SnapshotStateError, GangError):
            self._fail()
            raise
        except (Exception, SystemExit) as error:
            # sys.exit() in a trainer must not end the runner, which serves further runs.
            self._fail()
            raise UserCodeError.wrapping(
                error, trainer=self._name, phase=phase, position=self._position, caller_file=__file__
            ) from error

    def _fail(self) -> None:
        if self._state is not _State.CLOSED:
            self._state = _State.FAILED
