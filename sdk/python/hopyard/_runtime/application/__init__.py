"""The agent's side of the protocol between node agents and training programs in any language (docs/protocol.md).

`hopyard._runtime.application.conformance` tests whether a program follows the protocol.
"""
