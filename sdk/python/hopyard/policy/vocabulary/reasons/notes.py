"""Sentences of notes (reasons with which an event is shown to people, such as why a snapshot was deleted) and of refused requests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from hopyard.policy.vocabulary.reasons.codes import ReasonCode as Code
from hopyard.policy.vocabulary.reasons.template import Sentence

NOTES: Final[Mapping[Code, Sentence]] = {
    Code.REPORT_DIFFERS: Sentence(
        "position {position:d} was trained again and differs: {recorded} then {found}",
        "A repeated report differs from the recorded one.",
    ),
    Code.SNAPSHOT_NOT_STORED: Sentence(
        "the snapshot at {position:d} is not stored: {error}",
        "An upload was given up.",
    ),
    Code.DECISION_IGNORED: Sentence(
        "up-call {up_call:d} takes no decision; {decision} was ignored",
        "A policy returned a decision where none is needed.",
    ),
    Code.SNAPSHOTS_GIVEN_UP: Sentence(
        "gave up {snapshots:snapshot|snapshots} ({bytes:d} bytes): {seconds:.3g} s of training would recreate them",
        "The store needed room.",
    ),
    Code.QUOTA_EXCEEDED: Sentence(
        "snapshots take {bytes:d} bytes, {excess:d} more than snapshot.quota; all of them are still "
        "needed, so none is deleted",
        "The quota of the experiment is too small.",
    ),
    Code.JOB_STAYS_COMPLETED: Sentence(
        "job {job} stays COMPLETED: the snapshot from which it would continue was deleted",
        "An extended experiment cannot continue a job.",
    ),
    Code.MESSAGE_REFUSED: Sentence(
        "refused {message} of old attempt {attempt:d} (now {present:d})",
        "A process of an older attempt sent a message.",
    ),
    Code.COMMAND_REFUSED: Sentence(
        "refused {command}: {cause:reason}",
        "A command of a person was refused.",
    ),
    Code.REQUEST_REFUSED: Sentence(
        "refused the request: {cause:reason}",
        "A request of a client was refused.",
    ),
    Code.RESERVATION_REFUSED: Sentence(
        "refused the reservation: {cause:reason}",
        "A reservation of a client was refused.",
    ),
    Code.PAUSE_REFUSED: Sentence(
        "refused to pause: {cause:reason}",
        "A job cannot be paused.",
    ),
    Code.RESUME_REFUSED: Sentence(
        "refused to resume: {cause:reason}",
        "A job cannot be resumed.",
    ),
    Code.UPDATE_REFUSED: Sentence(
        "refused to change the terms: the experiment cannot continue: {cause:reason}",
        "The terms of a quarantined experiment cannot change.",
    ),
    Code.METRIC_REPORTED: Sentence(
        "job {job} has reported {metric}, and decisions depend on it: a search by another metric needs a new experiment",
        "The metric cannot change, because reports contain it.",
    ),
    Code.METRIC_NOT_REPORTED: Sentence(
        "no report contains {metric}; reported are {reported}",
        "The metric cannot change to one that no report contains.",
    ),
    Code.METRIC_LEARNED: Sentence(
        "the generator of {experiment} has proposed configurations from results without {metric}: a search by another metric "
        "needs a new experiment",
        "The metric cannot change, because the generator has used results.",
    ),
    Code.RETRY_REFUSED: Sentence(
        "refused to retry: {cause:reason}",
        "A job cannot be retried.",
    ),
}
"""Sentences of notes on events and of refused requests."""
