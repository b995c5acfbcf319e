"""The contract with training processes of any language (docs/protocol.md), as agents keep it.

`hopyard._runtime.application.conformance` tries whether a process keeps its side.
"""
