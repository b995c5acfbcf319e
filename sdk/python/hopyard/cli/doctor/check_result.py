"""What a look at something found."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Health(enum.Enum):
    """How it is: `MISSING` is what one may want and can add, `PROBLEM` what will not work as it is."""

    OK = "ok"
    MISSING = "missing"
    PROBLEM = "problem"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing, how it is, and what to do.

    Attributes:
        name: What was looked at.
        health: How it is.
        detail: What was found, in words.
        advice: What to do; empty: nothing.
        needed: Whether nothing works without it, so that the command fails unless it is ok.
    """

    name: str
    health: Health
    detail: str
    advice: str = ""
    needed: bool = False

    @property
    def fails(self) -> bool:
        """Whether something that is needed is not as it must be."""
        return self.needed and self.health is not Health.OK


def ok(name: str, detail: str, advice: str = "", *, needed: bool = False) -> Finding:
    """It is as it should be."""
    return Finding(name, Health.OK, detail, advice, needed)


def missing(name: str, detail: str, advice: str, *, needed: bool = False) -> Finding:
    """It is not there."""
    return Finding(name, Health.MISSING, detail, advice, needed)


def problem(name: str, detail: str, advice: str, *, needed: bool = False) -> Finding:
    """It is there and will not do."""
    return Finding(name, Health.PROBLEM, detail, advice, needed)
