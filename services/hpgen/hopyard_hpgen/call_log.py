"""The recorded calls that determine the state of a generator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from hopyard.generator import Result


@dataclass(frozen=True)
class CreateCall:
    """A request for a configuration.

    Attributes:
        job: The job.
        hyperparameters: The proposed configuration; None: the generator was exhausted.
    """

    job: str
    hyperparameters: Mapping[str, Any] | None


@dataclass(frozen=True)
class ReportCall:
    """An intermediate result."""

    job: str
    position: int
    metrics: Mapping[str, float]


@dataclass(frozen=True)
class ReportFinalCall:
    """A final result."""

    job: str
    result: Result


Call: TypeAlias = CreateCall | ReportCall | ReportFinalCall
"""A recorded call."""
