"""Whether a training process keeps its side of the contract: tried from outside, with an agent that is played.

`hopyard conformance app -- COMMAND` is this from the command line. The command trains the task that docs/protocol.md gives.
"""

from hopyard._runtime.application.conformance.cases import CASES, Case
from hopyard._runtime.application.conformance.process import ClientUnderTest
from hopyard._runtime.application.conformance.suite import CaseResult, check

__all__ = ["CASES", "Case", "CaseResult", "ClientUnderTest", "check"]
