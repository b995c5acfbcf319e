"""Sentences of the reasons for which a policy failed. They are causes of the reason POLICY_ERROR."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from hopyard.policy.vocabulary.reasons.codes import ReasonCode as Code
from hopyard.policy.vocabulary.reasons.template import Sentence

POLICIES: Final[Mapping[Code, Sentence]] = {
    Code.POLICY_RAISED: Sentence(
        "{policy} on up-call {up_call:d} {call}: {error}[ ({place})]",
        "The policy raised an exception.",
    ),
    Code.POLICY_ANSWER_INVALID: Sentence(
        "policy {policy} on up-call {up_call:d} {call}: {error}",
        "The process of the policy answered with an error, or with an answer that cannot be taken.",
    ),
    Code.POLICY_TOO_SLOW: Sentence(
        "policy {policy} took longer than {seconds:g} s on up-call {up_call:d} {call}[, restored from {source}]",
        "The policy did not answer in time and was given up.",
    ),
    Code.POLICY_CREATION_TOO_SLOW: Sentence(
        "policy {policy} took longer than {seconds:g} s to be made[, restored from {source}]",
        "The policy could not be made in time.",
    ),
    Code.POLICY_UNANSWERED: Sentence(
        "the policy did not answer",
        "The policy ended without an answer.",
    ),
    Code.POLICY_ELSEWHERE: Sentence(
        "policy {policy} runs in a separate process, which is not available here",
        "A replay without the process of the policy.",
    ),
    Code.POLICY_UNAVAILABLE: Sentence(
        "{error}",
        "The policy cannot be loaded or made.",
    ),
    Code.POLICY_HOST_FAILED: Sentence(
        "{error}",
        "The host of the policy failed.",
    ),
    Code.POLICY_BACKLOG: Sentence(
        "the policy has not answered up-call {up_call:d} while {events:d} events came",
        "Too many events wait for the answer of the policy.",
    ),
    Code.POLICY_NOT_RESTORED: Sentence(
        "the policy cannot be restored from the journal: {error}",
        "The policy was given up, and the recorded up-calls cannot be repeated.",
    ),
    Code.POLICY_PROCESS_NOT_RESTORED: Sentence(
        "policy {policy} cannot be restored from the journal: {error}",
        "The recorded up-calls cannot be repeated on the process of the policy.",
    ),
    Code.POLICY_DIVERGED: Sentence(
        "it decides differently than recorded: event {event:d} ({call}): recorded is {recorded}; now it "
        "is {computed}; resume it to continue from the recorded decisions",
        "A replay of the recorded up-calls found another answer.",
    ),
    Code.POLICY_RESTLESS: Sentence(
        "it does not stop: {up_calls:d} up-calls followed from one event and its own requests[; the "
        "last refusal: {refusal:reason}]",
        "The requests of the policy cause further up-calls without end.",
    ),
    Code.POLICY_UNDECIDED: Sentence(
        "the policy gave no decision on job {job} at {position:d}",
        "The answer to an iteration finish has no decision.",
    ),
    Code.POLICY_PROCESS_ABSENT: Sentence(
        "policy {policy}: {absent} (waited {seconds:g} s); then: {then}",
        "No process served the policy in time.",
    ),
    Code.POLICY_PROCESS_AWAITED: Sentence(
        "{absent} (since {waited:.0f} s; the experiment is paused after {seconds:g} s)",
        "No process serves the policy now.",
    ),
    Code.POLICY_PROCESS_FAILED: Sentence(
        "policy {policy}: {error}; after fixing it: {then}",
        "The process of the policy cannot be started.",
    ),
    Code.POLICY_PROCESS_LOST: Sentence(
        "policy {policy}: its process ended {losses:d} times during up-call {up_call:d} {call}[; its last output: {output}]",
        "The process of the policy ended repeatedly during one up-call.",
    ),
    Code.POLICY_PROCESS_CONFUSED: Sentence(
        "policy {policy}: found {found}, expected the answer to up-call {up_call:d}",
        "The process of the policy sent another message than the answer.",
    ),
    Code.POLICY_PROCESS_ERROR: Sentence(
        "{error}",
        "The policy raised an exception in the process that the scheduler started for it.",
    ),
    Code.POLICY_UP_CALL_TOO_LARGE: Sentence(
        "policy {policy}: up-call {up_call:d} {call} has {found_bytes:d} bytes, at most {most_bytes:d} are allowed; "
        "fewer jobs or shorter reports make it smaller",
        "An up-call does not fit into a message to the process of the policy.",
    ),
}
"""Sentences of policy failures, which are causes of POLICY_ERROR."""
