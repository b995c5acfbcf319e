"""Changes of a stream's share. Slots above the share are returned when idle, freed by the policy, or taken by preemption."""

from __future__ import annotations

from hopyard.policy.vocabulary import RunEndReason, ShareChange
from hopyard_engine.core.actions import runs
from hopyard_engine.core.effects import ExperimentChanged
from hopyard_engine.core.events import ShareSet
from hopyard_engine.core.state.entities import Run
from hopyard_engine.core.state.stream import Stream
from hopyard_engine.core.state.timers import ShareTimer


def set_share(stream: Stream, event: ShareSet) -> None:
    """Apply a new share and inform the policy. Idle slots above the share are returned immediately.

    If the stream still has more slots than its share, the policy gets a deadline (`Settings.grace`) to free them; then runs are
    preempted. A further reduction before the deadline does not move it. A further reduction after it sets a new deadline.
    """
    grown, shrunk = event.slots > stream.share, event.slots < stream.share
    if (event.slots == 0) != (stream.share == 0):
        stream.share_at = event.at
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
    """Preempt as many runs as needed to free the slots above the share, those of jobs with the lowest priority first.

    At equal priority, the runs that would lose the least training come first, then those of the newest jobs.

    Runs that are not preemptible continue until they end, and so do those that would lose their training once more
    (`Stream.must_finish`): otherwise turns that are shorter than a job would repeat its beginning for ever. `lifecycle.advance` calls
    this after each event from the deadline until the stream is within its share, because the set of preemptible runs may change.
    """
    leaving = sum(_counted(stream, run) for run in stream.live.values() if run.ending is not None)
    surplus = stream.granted - stream.share - leaving
    victims = sorted(
        (run for run in stream.live.values() if run.ending is None and run.preemptible and not stream.must_finish(run)),
        key=stream.precedence,
    )
    for run in victims:
        if surplus <= 0:
            return
        runs.end_run(stream, run, RunEndReason.PREEMPTED, displaces=True)
        surplus -= _counted(stream, run)


def _counted(stream: Stream, run: Run) -> int:
    """Return the number of a run's slots that are counted against the share.

    Slots in `Stream.draining`, which are returned when the run has left, are not counted.
    """
    return sum(slot not in stream.draining for slot in run.slots)
