"""Reasons: codes for programs, and the sentences that people read.

Every state, wait, end, failure and refusal in the engine has a `Reason`. Its code and arguments are what programs compare, and
`explain` makes the sentence. No program compares the sentence.
"""

from __future__ import annotations

from hopyard.policy.vocabulary.reasons.codes import ReasonCode
from hopyard.policy.vocabulary.reasons.reason import Argument, Reason, explain

__all__ = ["Argument", "Reason", "ReasonCode", "explain"]
