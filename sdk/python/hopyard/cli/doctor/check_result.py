"""The result of a check."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Health(enum.Enum):
    """The outcome of a check: OK, MISSING (not installed or not available, but it can be added), or PROBLEM (it will not work)."""

    OK = "ok"
    MISSING = "missing"
    PROBLEM = "problem"


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check, with advice.

    Attributes:
        name: Name of the check.
        health: The outcome.
        detail: What was found, as text.
        advice: How to fix it; empty: no advice.
        needed: Whether Hopyard needs it, so that the command fails unless the outcome is OK.
    """

    name: str
    health: Health
    detail: str
    advice: str = ""
    needed: bool = False

    @property
    def fails(self) -> bool:
        """Whether a needed check is not OK."""
        return self.needed and self.health is not Health.OK


def ok(name: str, detail: str, advice: str = "", *, needed: bool = False) -> Finding:
    """Return a finding with the outcome OK."""
    return Finding(name, Health.OK, detail, advice, needed)


def missing(name: str, detail: str, advice: str, *, needed: bool = False) -> Finding:
    """Return a finding with the outcome MISSING."""
    return Finding(name, Health.MISSING, detail, advice, needed)


def problem(name: str, detail: str, advice: str, *, needed: bool = False) -> Finding:
    """Return a finding with the outcome PROBLEM."""
    return Finding(name, Health.PROBLEM, detail, advice, needed)
