"""State changes of an experiment, and the clock that measures its running time."""

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
    """Change the state of an experiment. In RUNNING its idle jobs are in the idle queue, in other states among its paused jobs.

    `reason` is recorded as the reason of the new state; None: the state needs no explanation.

    Raises:
        IllegalTransitionError: The transition table does not permit the change.
    """
    change_experiment(experiment, state, reason)
    if state is ExperimentState.RUNNING:
        back, experiment.paused_jobs = list(experiment.paused_jobs), {}
        for job in back:
            stream.offer(stream.jobs[job])
    else:
        for name in [job for job in stream.idle if stream.jobs[job].experiment is experiment]:
            stream.withdraw(stream.jobs[name])
            stream.offer(stream.jobs[name])
    stream.snapshots_changed = True  # Requested snapshots are not needed in ENDING.
    stream.emit(ExperimentChanged(experiment.id))


def start_clock(stream: Stream, experiment: Experiment, at: float) -> None:
    """Start the experiment's clock, and set the timer that ends the experiment after `max_seconds` of running time.

    No timer is set if `max_seconds` is None. `at` is the start time in seconds since the Unix epoch.
    """
    experiment.running_since = at
    if experiment.settings.max_seconds is not None:
        stream.set_timer(EndTimer(experiment.id), at + max(experiment.settings.max_seconds - experiment.spent, 0.0))


def stop_clock(stream: Stream, experiment: Experiment, at: float) -> None:
    """Stop the experiment's clock, and cancel the timer that ends the experiment. A stopped clock stays as it is.

    `at` is the stop time in seconds since the Unix epoch.
    """
    experiment.spent = experiment.running_seconds(at)
    experiment.running_since = None
    stream.set_timer(EndTimer(experiment.id), None)


def reopen(stream: Stream, experiment: Experiment) -> None:
    """Make an ended experiment RUNNING again. Its stream becomes active again if all its experiments had ended."""
    over = stream.state.ended
    for job in stream.jobs.values():
        if job.experiment is experiment and (job.rung is not None or not job.state.ended):
            stream.changed(job)  # It is not shown as stopped any more (`core.job_ends`).
    experiment.final = experiment.ended_at = None
    experiment.winner = ""
    experiment.wound_up = experiment.out_of_time = False
    enter(stream, experiment, ExperimentState.RUNNING, None)
    stream.conversation.listen()
    if over:
        revive(stream)


def revive(stream: Stream) -> None:
    """Make a stream whose experiments had all ended active again.

    Its demand becomes "as many slots as possible" until the policy states it again. The timers that are recorded in `Stream.timers` are
    set again, each with its recorded time, and slots are requested.
    """
    stream.demand = stream.claimed = None
    stream.gang = stream.claimed_gang = 1
    stream.nodes = stream.claimed_nodes = ()
    stream.terms_sent = stream.terms
    for ticket, due in stream.timers.items():
        stream.emit(SetTimer(stream.id, ticket, due))
    stream.emit(StreamRevived(stream.id))


def runs_of(stream: Stream, experiment: Experiment) -> list[Run]:
    """Return the live runs of an experiment's jobs. A run is live until all its processes have left their slots."""
    return [run for run in stream.live.values() if stream.jobs[run.job].experiment is experiment]
