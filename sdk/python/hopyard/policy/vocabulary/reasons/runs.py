"""Sentences of the reasons for the state and the end of a run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from hopyard.policy.vocabulary.reasons.codes import ReasonCode as Code
from hopyard.policy.vocabulary.reasons.template import Sentence

RUNS: Final[Mapping[Code, Sentence]] = {
    Code.RUN_MESSAGE: Sentence(
        "{message}",
        "The training process or its agent ended the run with this message.",
    ),
    Code.PROCESS_ENDED: Sentence(
        "{end}",
        "A process ended without a message; its end is one of UNTIL, SUSPENDED, PREEMPTED, LOST, FAILED, TERMINATED.",
    ),
    Code.RANK_ENDED: Sentence(
        "rank {rank:d}: {cause:reason}",
        "A process of a gang ended, and with it the run.",
    ),
    Code.NODE_LOST: Sentence(
        "node {node} is lost",
        "The lease of the node ran out, or its agent is new.",
    ),
    Code.NODE_WITHOUT_RUN: Sentence(
        "node {node} does not run it any more",
        "The node came back without the run.",
    ),
    Code.NODE_DRAINED: Sentence(
        "node {node} is drained",
        "The node was drained before the run began.",
    ),
    Code.NODE_LEAVING: Sentence(
        "the agent of node {node} is stopping",
        "The agent of the node announced that it is stopping before the run began.",
    ),
    Code.DRAIN_EXPIRED: Sentence(
        "the drain of node {node} has reached its deadline",
        "The deadline of the node's drain passed while the run was on it.",
    ),
    Code.OTHER_CLUSTER: Sentence(
        "it ran in another cluster",
        "The experiment was imported from another cluster.",
    ),
    Code.REPORT_TOO_LARGE: Sentence(
        "a report may hold {metrics:d} metrics with names of {characters:d} characters; it holds more",
        "The run reported more than the journal can hold.",
    ),
    Code.RANK_0_STARTED: Sentence(
        "rank 0 has started",
        "Rank 0 has loaded its state.",
    ),
    Code.RANK_0_REPORTED: Sentence(
        "rank 0 reports",
        "Rank 0 reported whether it waits at `until`.",
    ),
    Code.RANK_0_ENDED: Sentence(
        "rank 0 ended: {end}",
        "Rank 0 has ended.",
    ),
    Code.UNTIL_MOVED: Sentence(
        "until is {until:d} now",
        "An amendment moved the `until` of a parked run.",
    ),
    Code.GRACE_OVER: Sentence(
        "it was to leave and has not",
        "The processes are killed because they have not left in time.",
    ),
    Code.RUN_OVER: Sentence(
        "the run is over",
        "The processes are killed because the run is over.",
    ),
}
"""Sentences of the reasons for the state and the end of a run."""
