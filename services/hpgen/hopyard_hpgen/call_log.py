"""The recorded calls of a generator. Repeating them in order on a new instance restores the generator's state.

This service stores none: its caller records the calls (the scheduler in its journal) and sends them when it opens the generator.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from hopyard.generator import Result


@dataclass(frozen=True)
class CreateCall:
    """A recorded request for the configuration of a job.

    Attributes:
        job: Id of the job.
        hyperparameters: The configuration that the generator proposed; None: it had none left.
    """

    job: str
    hyperparameters: Mapping[str, Any] | None


@dataclass(frozen=True)
class ReportCall:
    """A recorded intermediate result of a job.

    Attributes:
        job: Id of the job.
        position: Position of the job's report.
        metrics: The metrics of the report, by name.
    """

    job: str
    position: int
    metrics: Mapping[str, float]


@dataclass(frozen=True)
class ReportFinalCall:
    """A recorded final result of a job.

    Attributes:
        job: Id of the job.
        result: How the job ended, with the metrics of its best report.
    """

    job: str
    result: Result


Call: TypeAlias = CreateCall | ReportCall | ReportFinalCall
"""A recorded call."""
