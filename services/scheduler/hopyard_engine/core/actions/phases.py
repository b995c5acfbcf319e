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


def enter(x: Stream, member: Experiment, phase: Phase, reason: str) -> None:
    """Moves an experiment to a phase. Its idle jobs wait for it while it does not run."""
    member.phase = phase
    member.reason = reason
    if phase is Phase.RUNNING:
        back, member.withheld = list(member.withheld), {}
        for job in back:
            x.offer(x.jobs[job])
    else:
        for name in [job for job in x.idle if x.jobs[job].member is member]:
            x.withdraw(x.jobs[name])
            x.offer(x.jobs[name])
    x.tidied = True  # What the policy asked for is not needed any more when the end is decided.
    x.emit(ExperimentChanged(member.id))


def start_clock(x: Stream, member: Experiment, at: float) -> None:
    """Counts the experiment's time from now on, and sets its end."""
    member.running_since = at
    if member.settings.max_seconds is not None:
        x.set_timer(END_TIMER + member.id, at + max(member.settings.max_seconds - member.spent, 0.0))


def stop_clock(x: Stream, member: Experiment, at: float) -> None:
    """Stops counting the experiment's time."""
    member.spent = member.running_seconds(at)
    member.running_since = None
    x.set_timer(END_TIMER + member.id, None)


def revive(x: Stream) -> None:
    """A stream whose experiments were all over goes on."""
    x.demand = x.claimed = None
    x.gang = x.claimed_gang = 1
    x.nodes = x.claimed_nodes = ()
    x.terms_told = x.terms
    for ticket, due in x.timers.items():
        x.emit(SetTimer(x.id, ticket, due))
    x.emit(ExperimentRevived(x.id))


def runs_of(x: Stream, member: Experiment) -> list[Run]:
    """Live runs of an experiment's jobs."""
    return [run for run in x.live.values() if x.jobs[run.job].member is member]
