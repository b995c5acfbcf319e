"""The argument of an objective function: a configuration, with the functions of the job that trains it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hopyard import script
from hopyard.trainer.validation import MetricValue


class Trial(dict[str, Any]):
    """The configuration of a job as a dict, with the functions of the job: what `Client.search` passes to an objective function.

    A function that needs only its configuration can use it as a plain dict. Without a cluster, reports are printed.

    Example:
        def objective(trial: Trial) -> float:
            loss = 4.0
            for epoch in range(10):
                loss *= 1.0 - trial["lr"]
                trial.report(loss)
            return loss

        objective(Trial(lr=0.1))

    Args:
        values: The hyperparameters by name.
        metric: Name of the metric whose value `report` gets and the function returns.
        **more: Further hyperparameters by name; they replace those of the same name in `values`.
    """

    def __init__(self, values: Mapping[str, Any] | None = None, /, *, metric: str = "value", **more: Any) -> None:
        super().__init__(values or {}, **more)
        self._metric = metric

    @property
    def hyperparameters(self) -> dict[str, Any]:
        """The hyperparameters by name, as a new dict."""
        return dict(self)

    @property
    def metric(self) -> str:
        """Name of the metric that the search optimizes."""
        return self._metric

    @property
    def seed(self) -> int:
        """The job's training seed, which is equal for equal configurations; see `hopyard.seed`."""
        return script.seed()

    @property
    def job(self) -> str:
        """Id of the job; empty without a cluster."""
        return os.environ.get("HOPYARD_JOB", "")

    def report(
        self,
        value: MetricValue | None = None,
        /,
        *,
        position: int | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
        **more: MetricValue,
    ) -> None:
        """Report the value of the metric after an iteration; returns when the function may continue to train.

        If the run ends here (it reached its end position, or is suspended or terminated), SystemExit is raised. Do not catch it.

        Args:
            value: The value of the metric that the search optimizes, a number or a tensor with one number; None: it is in `more`, or
                not known at this position.
            position: How far the job has trained; None: one more than at the last report.
            checkpoint: A file or folder with the training state; see `hopyard.report`.
            **more: Further metrics by name.

        Raises:
            ValueError: As for `hopyard.report`, or the metric is given twice.
            SystemExit: The run ends here.
        """
        if value is not None and self._metric in more:
            raise ValueError(f"trial.report(): {self._metric} is given twice; allowed: as the value or by its name")
        own = {} if value is None else {self._metric: value}
        script.report(own, position=position, checkpoint=checkpoint, **more)

    def checkpoint(self) -> Path | None:
        """Return the checkpoint from which the function must continue; None: it begins from scratch. See `hopyard.checkpoint`."""
        return script.checkpoint()
