"""A share that changes: what is above it goes back when it is idle, when the policy frees it, or when the deadline has passed."""

from __future__ import annotations

from hopyard.policy.vocabulary import RunEndReason, ShareChange
from hopyard_engine.core.actions import runs
from hopyard_engine.core.effects import ExperimentChanged
from hopyard_engine.core.events import ShareSet
from hopyard_engine.core.state.entities import Run
from hopyard_engine.core.state.stream import Stream
from hopyard_engine.core.state.timers import ShareTimer

"""The timer of what is above the share."""


def set_share(stream: Stream, event: ShareSet) -> None:
    """The share changed: idle slots above it go at once, busy ones when the policy or the deadline frees them.

    While the experiment is above its share the earliest deadline holds; when that has passed, a still smaller share sets
    a new one.
    """
    grown, shrunk = event.slots > stream.share, event.slots < stream.share
    stream.share = event.slots
    stream.shed()
    deadline = None
    if stream.granted > stream.share:
        set_before = stream.due(ShareTimer())
        deadline = event.at if set_before is None else set_before
        if set_before is None and (shrunk or not stream.overdue):
            deadline = event.at + stream.settings.grace
            stream.overdue = False
            stream.set_timer(ShareTimer(), deadline)
    if grown:
        stream.wake()
    stream.call(ShareChange(event.slots, deadline))
    for experiment in stream.experiments.values():
        if not experiment.state.ended:
            stream.emit(ExperimentChanged(experiment.id))


def preempt(stream: Stream) -> None:
    """The deadline of a smaller share has passed: the core suspends what the policy did not.

    Runs of the lowest priority first, then those that would lose least, then those of the newest jobs; runs that may not be
    preempted stay until they end.
    Asked with each event until the experiment is within its share, since what is left to leave may change.
    """
    leaving = sum(_counted(stream, run) for run in stream.live.values() if run.ending is not None)
    surplus = stream.granted - stream.share - leaving
    victims = sorted(
        (run for run in stream.live.values() if run.ending is None and run.preemptible),
        key=stream.precedence,
    )
    for run in victims:
        if surplus <= 0:
            return
        runs.end_run(stream, run, RunEndReason.PREEMPTED)
        surplus -= _counted(stream, run)


def _counted(stream: Stream, run: Run) -> int:
    """Slots of a run that count against the share."""
    return sum(slot not in stream.draining for slot in run.slots)
