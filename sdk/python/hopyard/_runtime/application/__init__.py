"""The agent's side of the protocol for training programs in any language (docs/protocol.md).

`hopyard._runtime.application.conformance` tests whether a program follows the protocol.
"""
