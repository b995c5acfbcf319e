"""Delay of a batch: an event for whose effects nothing waits is delayed a few milliseconds, to share a journal append with others."""

from __future__ import annotations

from hopyard_engine.core import Core
from hopyard_engine.core.events import Answered, Event, Reports, RunMessage, SnapshotStored, SnapshotTaken, Started
from hopyard_engine.core.state.stream import Stream


def patient(core: Core, event: Event) -> bool:
    """Return True if the event may wait a few milliseconds for other events, because nothing waits for its effects.

    That is, no run waits for a decision, no slot becomes idle, and no person waits for a result. The result is False if
    the stream of the event is not in the core.

    Args:
        core: The state machine of the engine, before it handles the event.
        event: The event.
    """
    if not isinstance(event, RunMessage | Answered):
        return False
    stream = core.streams.get(event.stream)
    if stream is None:
        return False
    if isinstance(event, Answered):
        return not stream.vacant  # A new job would find no free slot.
    match event.body:
        case Started() | SnapshotTaken() | SnapshotStored():
            return True
        case Reports():
            return _only_recorded(stream, event, event.body)
        case _:
            return False


def _only_recorded(stream: Stream, event: RunMessage, body: Reports) -> bool:
    """Return True if the reports cause no up-call and their run continues without a decision of the policy.

    Args:
        stream: The stream of the event.
        event: The message of the run that contains the reports.
        body: The reports.
    """
    job = stream.jobs.get(event.job)
    if job is None or job.run is None or stream.settings.statistics or stream.settings.every_iteration:
        return False
    run = job.run
    return all(run.completes if report.at_until else report.position < run.allowed for report in body.reports)
