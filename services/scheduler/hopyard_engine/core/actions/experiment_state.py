"""State changes of an experiment, and its clock."""

from __future__ import annotations

from hopyard.policy.vocabulary import ExperimentState
from hopyard.policy.vocabulary.reasons import Reason
from hopyard_engine.core.effects import ExperimentChanged, SetTimer, StreamRevived
from hopyard_engine.core.state.entities import Run
from hopyard_engine.core.state.experiment import Experiment
from hopyard_engine.core.state.stream import Stream
from hopyard_engine.core.state.timers import EndTimer
from hopyard_engine.core.state_machines.experiment_states import change_experiment


def enter(stream: Stream, experiment: Experiment, state: ExperimentState, reason: Reason | None) -> None:
    """Changes the state of an experiment. Its idle jobs leave the queue unless it is RUNNING."""
    change_experiment(experiment, state, reason)
    if state is ExperimentState.RUNNING:
        back, experiment.paused_jobs = list(experiment.paused_jobs), {}
        for job in back:
            stream.offer(stream.jobs[job])
    else:
        for name in [job for job in stream.idle if stream.jobs[job].experiment is experiment]:
            stream.withdraw(stream.jobs[name])
            stream.offer(stream.jobs[name])
    stream.tidied = True  # Requested snapshots are not needed in ENDING.
    stream.emit(ExperimentChanged(experiment.id))


def start_clock(stream: Stream, experiment: Experiment, at: float) -> None:
    """Starts the experiment's clock and sets the timer of its end."""
    experiment.running_since = at
    if experiment.settings.max_seconds is not None:
        stream.set_timer(EndTimer(experiment.id), at + max(experiment.settings.max_seconds - experiment.spent, 0.0))


def stop_clock(stream: Stream, experiment: Experiment, at: float) -> None:
    """Stops the experiment's clock and cancels the timer of its end."""
    experiment.spent = experiment.running_seconds(at)
    experiment.running_since = None
    stream.set_timer(EndTimer(experiment.id), None)


def revive(stream: Stream) -> None:
    """Revives a stream whose experiments had all ended: resets its demand, sets its timers again, and requests slots."""
    stream.demand = stream.claimed = None
    stream.gang = stream.claimed_gang = 1
    stream.nodes = stream.claimed_nodes = ()
    stream.terms_told = stream.terms
    for ticket, due in stream.timers.items():
        stream.emit(SetTimer(stream.id, ticket, due))
    stream.emit(StreamRevived(stream.id))


def runs_of(stream: Stream, experiment: Experiment) -> list[Run]:
    """Returns the live runs of an experiment's jobs."""
    return [run for run in stream.live.values() if stream.jobs[run.job].experiment is experiment]
