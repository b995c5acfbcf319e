"""Trains with a trainer in this process, without a cluster. The checks and errors are the same as on a cluster."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from hopyard.trainer import IterationReport, Trainer, TrainerContext, TrainerDriver

_FOLDER: Final = re.compile(r"position-(\d{12,})")


def fit(
    trainer_class: type[Trainer],
    hyperparameters: Mapping[str, Any],
    *,
    until: int,
    seed: int = 0,
    snapshot_directory: str | os.PathLike[str] | None = None,
    snapshot_every: int = 1,
    on_report: Callable[[IterationReport], None] | None = None,
    inputs: str | os.PathLike[str] | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> list[IterationReport]:
    """Train one configuration up to a position, or until the trainer finishes.

    With a `snapshot_directory`, the newest snapshot is stored there, and a later call, in this process or another, continues
    from it, without a check that the seed and the data are the same. If the call is interrupted (Ctrl-C), the training since the
    last snapshot is lost.

    Args:
        trainer_class: The trainer.
        hyperparameters: The configuration as JSON values.
        until: The position to train to (inclusive), in the trainer's units.
        seed: The seed in the trainer's context.
        snapshot_directory: Folder for snapshots, which is created if it is missing; None: no snapshots.
        snapshot_every: Number of iterations between snapshots, 1 or more. The last iteration is always followed by one.
        on_report: Called with the report of each iteration.
        inputs: Path of the data partition in the trainer's context; None: no partition.
        clock: Function that returns seconds, with which iterations are timed.

    Returns:
        The reports of this call, in order; empty if the snapshot was already at `until` or beyond.

    Raises:
        UserCodeError: The trainer failed.
        SnapshotStateError: The newest snapshot cannot be read.
        ValueError: `snapshot_every` is less than 1.
    """
    if snapshot_every < 1:
        raise ValueError(f"snapshot_every is {snapshot_every}; allowed: 1 or more")
    store = None if snapshot_directory is None else Path(snapshot_directory)
    driver = TrainerDriver(trainer_class, clock=clock)
    reports: list[IterationReport] = []
    with tempfile.TemporaryDirectory(prefix="hopyard-") as scratch:
        context = TrainerContext(seed=seed, scratch=Path(scratch), inputs=None if inputs is None else Path(inputs))
        try:
            driver.start(hyperparameters, context, snapshot=None if store is None else _newest(store))
            while driver.position < until and not driver.finished:
                report = driver.step(until=until)
                reports.append(report)
                last = report.finished or report.position >= until
                if store is not None and (last or len(reports) % snapshot_every == 0):
                    _keep(driver, store)
                if on_report is not None:
                    on_report(report)
        finally:
            driver.close()
    return reports


def verify_resume(
    trainer_class: type[Trainer], hyperparameters: Mapping[str, Any], *, until: int, seed: int = 0
) -> None:
    """Check that a trainer that continues from a snapshot trains exactly as without an interruption. Meant for a trainer's tests.

    The function trains up to `until` once without an interruption, and once with a new trainer object and a snapshot for each
    iteration, and compares all metrics.

    Args:
        trainer_class: The trainer.
        hyperparameters: The configuration as JSON values.
        until: The position to train to, in the trainer's units.
        seed: The seed in the trainer's context.

    Raises:
        AssertionError: A metric differs. The message names it, its position and both values.
        UserCodeError: The trainer failed.
    """
    straight = fit(trainer_class, hyperparameters, until=until, seed=seed)
    resumed: list[IterationReport] = []
    with tempfile.TemporaryDirectory(prefix="hopyard-") as folder:
        for report in straight:
            resumed += fit(trainer_class, hyperparameters, until=report.position, seed=seed, snapshot_directory=folder)
    for one, other in zip(straight, resumed, strict=True):
        if one.metrics.keys() != other.metrics.keys():
            raise AssertionError(
                f"position {one.position}: metrics {sorted(one.metrics)} without a break, {sorted(other.metrics)} with"
            )
        for key, value in one.metrics.items():
            again = other.metrics[key]
            if value != again and not (value != value and again != again):  # NaN equals NaN here
                raise AssertionError(
                    f"position {one.position}: {key} is {value!r} without a break, {again!r} when resumed; "
                    f"does {trainer_class.__qualname__}.save() keep everything that changes while it trains?"
                )


def _newest(store: Path) -> Path | None:
    """Return the folder of the snapshot with the highest position in `store`, or None if there is no snapshot."""
    if not store.exists():
        return None
    found = [(int(match[1]), path) for path in store.iterdir() if (match := _FOLDER.fullmatch(path.name))]
    return max(found)[1] if found else None


def _keep(driver: TrainerDriver, store: Path) -> None:
    """Save a snapshot of the driver's trainer as a new folder in `store`, then remove the other snapshots in `store`.

    If saving fails, the new folder does not exist and the other snapshots remain.
    """
    store.mkdir(parents=True, exist_ok=True)
    target = store / f"position-{driver.position:012d}"
    partial = Path(tempfile.mkdtemp(dir=store, prefix=".saving-"))
    try:
        driver.save(partial)
        os.rename(partial, target)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    for path in store.iterdir():
        if path != target and _FOLDER.fullmatch(path.name):
            shutil.rmtree(path)
