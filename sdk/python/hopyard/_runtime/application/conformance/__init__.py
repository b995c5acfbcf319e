"""Conformance tests for training programs: start them as processes with a simulated agent and check the protocol.

The command line is `hopyard conformance app -- COMMAND`. The command must train the task described in docs/protocol.md.
"""

from hopyard._runtime.application.conformance.cases import CASES, Case
from hopyard._runtime.application.conformance.process import ClientUnderTest
from hopyard._runtime.application.conformance.suite import CaseResult, check

__all__ = ["CASES", "Case", "CaseResult", "ClientUnderTest", "check"]
