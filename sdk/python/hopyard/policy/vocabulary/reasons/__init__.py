"""Reasons: codes for programs, and sentences for people.

Every state, wait, end, failure and refusal in the engine has a `Reason`. Programs compare its code and arguments.
`explain` makes the sentence, which programs must not compare.
"""

from __future__ import annotations

from hopyard.policy.vocabulary.reasons.codes import ReasonCode
from hopyard.policy.vocabulary.reasons.reason import Argument, Reason, explain

__all__ = ["Argument", "Reason", "ReasonCode", "explain"]
