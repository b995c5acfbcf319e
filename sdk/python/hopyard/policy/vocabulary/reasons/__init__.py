"""Reasons: a code with arguments for programs, and a sentence for people.

Every state, wait, end, failure and refusal in the engine has a `Reason`. Programs should compare its code and
arguments, not its sentence, which `explain` composes and which may change.
"""

from __future__ import annotations

from hopyard.policy.vocabulary.reasons.codes import NEEDS_A_PERSON, ReasonCode
from hopyard.policy.vocabulary.reasons.reason import Argument, Reason, explain

__all__ = ["NEEDS_A_PERSON", "Argument", "Reason", "ReasonCode", "explain"]
