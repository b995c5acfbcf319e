"""The result of one check of `hopyard doctor`."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Health(enum.Enum):
    """The outcome of a check.

    OK: no problem. MISSING: something is not installed or not available, but can be added. PROBLEM: something will not work.
    """

    OK = "ok"
    MISSING = "missing"
    PROBLEM = "problem"


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check.

    Attributes:
        name: Name of the check.
        health: The outcome.
        detail: What was found, as text.
        advice: What the user can do about it, as text; empty: no advice.
        needed: Whether Hopyard needs the outcome OK, so that the command `doctor` fails otherwise.
    """

    name: str
    health: Health
    detail: str
    advice: str = ""
    needed: bool = False

    @property
    def fails(self) -> bool:
        """Whether Hopyard needs the outcome OK and the outcome is another one."""
        return self.needed and self.health is not Health.OK


def ok(name: str, detail: str, advice: str = "", *, needed: bool = False) -> Finding:
    """Return a finding with the outcome OK. The arguments are the attributes of `Finding`."""
    return Finding(name, Health.OK, detail, advice, needed)


def missing(name: str, detail: str, advice: str, *, needed: bool = False) -> Finding:
    """Return a finding with the outcome MISSING. The arguments are the attributes of `Finding`."""
    return Finding(name, Health.MISSING, detail, advice, needed)


def problem(name: str, detail: str, advice: str, *, needed: bool = False) -> Finding:
    """Return a finding with the outcome PROBLEM. The arguments are the attributes of `Finding`."""
    return Finding(name, Health.PROBLEM, detail, advice, needed)
