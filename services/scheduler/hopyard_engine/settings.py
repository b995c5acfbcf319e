"""Converts the specification of an experiment to the settings of the core.

The specification (`hopyard.spec`) defines the default of each setting. Live and simulated experiments get their settings from here, so
they have the same defaults.
"""

from __future__ import annotations

from hopyard.errors import InvalidInput
from hopyard.policy import ENDLESS
from hopyard.spec import ExperimentSpec
from hopyard_engine.core.types import Settings


def settings_of(spec: ExperimentSpec) -> Settings:
    """Return the settings of an experiment, in the form in which the core (the state machine of the engine) uses them.

    Raises:
        InvalidInput: The specification combines a trainer with the snapshot provider `criu`.
    """
    whole = spec.snapshot.provider == "criu"
    if whole and spec.trainer is not None:
        raise InvalidInput(
            "snapshot.provider: criu is for commands (command: or log:); a trainer saves and loads its own state: use auto or framework"
        )
    # An image of a process is larger than the state that a program saves, so it is saved only on request.
    every = spec.snapshot.every or (0 if whole or spec.log is not None else 1)
    return Settings(
        metric=spec.metric.name,
        metric_every=spec.metric.every,
        mode=spec.metric.mode,
        max_position=spec.stop.max_iterations or ENDLESS,
        jobs=ENDLESS if spec.stop.jobs is None else spec.stop.jobs,
        target=spec.metric.target,
        target_over=spec.metric.target_over,
        kill_threshold=spec.metric.kill_threshold,
        low=spec.metric.min,
        high=spec.metric.max,
        max_seconds=spec.stop.max_time,
        idle=spec.stop.idle,
        max_failures=spec.stop.max_failures,
        snapshot_every=every,
        ship_every=1 if spec.snapshot.ship_every is None else spec.snapshot.ship_every,
        keep_latest=spec.snapshot.keep_latest,
        keep_best=spec.snapshot.keep_best,
        snapshot_quota=spec.snapshot.quota,
        slots=spec.resources.slots,
        concurrency=spec.resources.concurrency,
        weight=spec.weight,
        seed=spec.generator.seed,
        cpus=spec.resources.per_job.cpus,
        gpus=spec.resources.per_job.gpus,
        keeps_failed=True,
        displaced_first=True,
        space=spec.space.to_dict(),
        constraints=tuple(spec.constraints),
    )
