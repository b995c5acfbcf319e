"""Where an experiment stands, and its clock."""

from __future__ import annotations

from hopyard_engine.core.effects import ExperimentChanged, ExperimentRevived, SetTimer
from hopyard_engine.core.state.entities import Run
from hopyard_engine.core.state.experiment import Experiment, Phase
from hopyard_engine.core.state.stream import Stream

END_TIMER = "core/end/"
"""Timers of the ends of experiments, by their ids."""

IDLE_TIMER = "core/idle/"
"""Timers of experiments that have nothing to do and are open for requests, by their ids."""


def enter(stream: Stream, member: Experiment, phase: Phase, reason: str) -> None:
    """Moves an experiment to a phase. Its idle jobs wait for it while it does not run."""
    member.phase = phase
    member.reason = reason
    if phase is Phase.RUNNING:
        back, member.withheld = list(member.withheld), {}
        for job in back:
            stream.offer(stream.jobs[job])
    else:
        for name in [job for job in stream.idle if stream.jobs[job].member is member]:
            stream.withdraw(stream.jobs[name])
            stream.offer(stream.jobs[name])
    stream.tidied = True  # What the policy asked for is not needed any more when the end is decided.
    stream.emit(ExperimentChanged(member.id))


def start_clock(stream: Stream, member: Experiment, at: float) -> None:
    """Counts the experiment's time from now on, and sets its end."""
    member.running_since = at
    if member.settings.max_seconds is not None:
        stream.set_timer(END_TIMER + member.id, at + max(member.settings.max_seconds - member.spent, 0.0))


def stop_clock(stream: Stream, member: Experiment, at: float) -> None:
    """Stops counting the experiment's time."""
    member.spent = member.running_seconds(at)
    member.running_since = None
    stream.set_timer(END_TIMER + member.id, None)


def revive(stream: Stream) -> None:
    """A stream whose experiments were all over goes on."""
    stream.demand = stream.claimed = None
    stream.gang = stream.claimed_gang = 1
    stream.nodes = stream.claimed_nodes = ()
    stream.terms_told = stream.terms
    for ticket, due in stream.timers.items():
        stream.emit(SetTimer(stream.id, ticket, due))
    stream.emit(ExperimentRevived(stream.id))


def runs_of(stream: Stream, member: Experiment) -> list[Run]:
    """Live runs of an experiment's jobs."""
    return [run for run in stream.live.values() if stream.jobs[run.job].member is member]
