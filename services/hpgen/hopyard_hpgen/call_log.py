"""The calls that make a generator what it is, as they are recorded and made again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from hopyard.generator import Result


@dataclass(frozen=True)
class CreateCall:
    """A proposal was asked for.

    Attributes:
        job: whose.
        hyperparameters: what was proposed; None: the generator was exhausted.
    """

    job: str
    hyperparameters: Mapping[str, Any] | None


@dataclass(frozen=True)
class ReportCall:
    """An intermediate result was told."""

    job: str
    position: int
    metrics: Mapping[str, float]


@dataclass(frozen=True)
class ReportFinalCall:
    """A final result was told."""

    job: str
    result: Result


Call: TypeAlias = CreateCall | ReportCall | ReportFinalCall
"""One recorded call."""
