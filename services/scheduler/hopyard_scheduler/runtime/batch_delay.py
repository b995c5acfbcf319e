"""Delay of a batch: events without urgent effects wait for others to share an append."""

from __future__ import annotations

from hopyard_engine.core import Core
from hopyard_engine.core.events import Answered, Event, Reports, RunMessage, SnapshotStored, SnapshotTaken, Started
from hopyard_engine.core.state.stream import Stream


def patient(core: Core, event: Event) -> bool:
    """Returns True if an event may be delayed: no run, slot or person waits for its effects."""
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
    """Returns True if reports cause no up-call and the run continues without a decision."""
    job = stream.jobs.get(event.job)
    if job is None or job.run is None or stream.settings.statistics or stream.settings.every_iteration:
        return False
    run = job.run
    return all(run.completes if report.at_until else report.position < run.allowed for report in body.reports)
