"""Events that may wait a moment for others, so that they share an append: nobody waits for what follows from them."""

from __future__ import annotations

from hopyard_engine.core import Core
from hopyard_engine.core.events import Answered, Event, Reports, RunMessage, SnapshotStored, SnapshotTaken, Started
from hopyard_engine.core.state.stream import Stream


def patient(core: Core, event: Event) -> bool:
    """Whether neither a run, nor a slot, nor a person waits for what follows from an event."""
    if not isinstance(event, RunMessage | Answered):
        return False
    stream = core.streams.get(event.stream)
    if stream is None:
        return False
    if isinstance(event, Answered):
        return not stream.vacant  # A new job finds no slot anyway.
    match event.body:
        case Started() | SnapshotTaken() | SnapshotStored():
            return True
        case Reports():
            return _only_recorded(stream, event, event.body)
        case _:
            return False


def _only_recorded(stream: Stream, event: RunMessage, body: Reports) -> bool:
    """Whether the policy is not asked, and the run trains on."""
    job = stream.jobs.get(event.job)
    if job is None or job.run is None or stream.settings.statistics or stream.settings.every_iteration:
        return False
    run = job.run
    return all(run.completes if report.at_until else report.position < run.allowed for report in body.reports)
