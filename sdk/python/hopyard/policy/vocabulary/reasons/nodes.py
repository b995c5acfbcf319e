"""Sentences of the reasons for the state of a node."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from hopyard.policy.vocabulary.reasons.codes import ReasonCode as Code
from hopyard.policy.vocabulary.reasons.template import Sentence

NODES: Final[Mapping[Code, Sentence]] = {
    Code.DRAINED_BY_PERSON: Sentence(
        "drained by a person[; the runs that are left end in {seconds:d} s]",
        "A person drained the node.",
    ),
    Code.AGENT_STOPPING: Sentence(
        "its agent is stopping",
        "The agent of the node is stopping.",
    ),
    Code.AGENT_STOPPED: Sentence(
        "its agent was stopped[, with the only copies of {snapshots:snapshot|snapshots} of {experiments}]",
        "The agent of the node has stopped.",
    ),
    Code.AGENT_SILENT: Sentence(
        "its agent is silent beyond its lease[; it had the only copies of {snapshots:snapshot|snapshots} of {experiments}]",
        "The agent of the node sent no message for longer than its lease.",
    ),
    Code.AGENT_NOT_CONNECTED: Sentence(
        "its agent has not connected since the scheduler started",
        "The agent of the node has not connected since the scheduler started.",
    ),
}
"""Sentences of the reasons for the state of a node."""
