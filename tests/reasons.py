"""Reasons for tests."""

from __future__ import annotations

from typing import Any, Final

from hopyard.policy.vocabulary.reasons import Reason, ReasonCode
from hopyard.policy.vocabulary.reasons.reason import SENTENCES

_VALUES: Final[dict[str, Any]] = {"str": "x", "int": 2, "float": 0.5, "reason": Reason(ReasonCode.PREEMPTED)}


def said(text: str) -> Reason:
    """Return a reason with the text that a training process or its agent reported when a run ended."""
    return Reason.of(ReasonCode.RUN_MESSAGE, message=text)


def failure(text: str) -> Reason:
    """Return the reason of a failed policy."""
    return Reason.of(ReasonCode.POLICY_HOST_FAILED, error=text)


def example(code: ReasonCode) -> Reason:
    """Return a reason with an example value for every argument of its code."""
    return Reason(code, {name: _VALUES[kind] for name, kind in SENTENCES[code].arguments.items()})
