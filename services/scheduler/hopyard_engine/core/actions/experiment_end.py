"""The end of an experiment: by a reached target, by `max_seconds`, by the policy, or by a failure."""

from __future__ import annotations

from typing import Final

from hopyard.policy.vocabulary import EndExperiment, ExperimentId, ExperimentState, JobState, RunEndReason, RunMode
from hopyard.policy.vocabulary.reasons import Reason, ReasonCode
from hopyard_engine.core.actions import command_checks, experiment_state, runs, target
from hopyard_engine.core.state.entities import Job
from hopyard_engine.core.state.experiment import Experiment
from hopyard_engine.core.state.stream import Stream


def check_target(stream: Stream, job: Job, position: int, value: float, at: float) -> None:
    """End the experiment of a job if a new report of the job reaches the experiment's target.

    The job is saved and completed. The other jobs of the experiment are terminated.

    Args:
        stream: The stream of the experiment.
        job: The job.
        position: Position of the report.
        value: The experiment's metric at this position.
        at: Time of the event in seconds since the Unix epoch.
    """
    found = target.at(stream, job, position, value) if job.experiment.running else None
    if found is not None:
        _reached(stream, job, position, found, at)


def check_best(stream: Stream, experiment: Experiment, at: float) -> None:
    """End a RUNNING experiment if a recorded report of one of its jobs reaches its target, as `check_target` does for a new report.

    Does nothing if the experiment is in another state or has no target.

    To be called when the target has changed, when the experiment is resumed, and when a job got results of another experiment.
    `at` is the time of the event in seconds since the Unix epoch.
    """
    if experiment.running:
        end_by_target(stream, experiment, at)


def end_by_target(stream: Stream, experiment: Experiment, at: float) -> bool:
    """End an experiment in any state before ENDING if a recorded report of one of its jobs reaches its target.

    `at` is the time of the event in seconds since the Unix epoch.

    Returns:
        Whether the experiment is ended. False: no report reaches the target, or there is no target.
    """
    if experiment.best is None:
        return False
    single = experiment.settings.target_over == 1  # Then the best job has the best result.
    jobs = (
        [stream.jobs[experiment.best[0]]]
        if single
        else [job for job in stream.jobs.values() if job.experiment is experiment]
    )
    for job in jobs:
        found = target.ever(stream, job)
        if found is not None:
            _reached(stream, job, *found, at)
            return True
    return False


def _reached(stream: Stream, job: Job, position: int, value: float, at: float) -> None:
    terms = job.terms
    reason = Reason.of(
        ReasonCode.TARGET_REACHED,
        job=job.id,
        target=terms.target,
        value=value,
        reports=terms.target_over if terms.target_over > 1 else None,
        position=position,
    )
    begin_end(stream, job.experiment, ExperimentState.COMPLETED, reason, at, job)


def end_by_policy(stream: Stream, command: EndExperiment, at: float) -> None:
    """End the experiments that a command of the policy selects.

    These are the experiment that the command names, else the experiment of the winner that it names, else all experiments of the stream
    that are neither ENDING nor ended.

    The final state is COMPLETED. The winner is the job that the policy declares the result: it is saved, not terminated. `at` is
    the time of the event in seconds since the Unix epoch.

    Raises:
        RefusedError: The reason is empty, the winner is no job of the stream, has no results, is or will be TERMINATED, is FAILED, or
            belongs to another experiment than the named one, the named experiment is unknown, ENDING or ended, or no experiment is
            named and all are ENDING or ended.
    """
    if not command.reason.strip():
        raise command_checks.RefusedError(Reason(ReasonCode.END_REASON_MISSING))
    winner = None
    if command.winner:
        winner = command_checks.find_job(stream, command.winner)
        if obstacle := _not_won(winner, ExperimentId(command.experiment)):
            raise command_checks.RefusedError(obstacle)
    name = command.experiment or (winner.experiment.id if winner is not None else "")
    chosen = [command_checks.find_experiment(stream, name)] if name else list(stream.experiments.values())
    able = [
        experiment
        for experiment in chosen
        if not experiment.state.ended and experiment.state is not ExperimentState.ENDING
    ]
    if not able:
        raise command_checks.RefusedError(Reason(ReasonCode.EXPERIMENT_ENDING))
    reason = Reason.of(ReasonCode.ENDED_BY_POLICY, text=command.reason)
    for experiment in able:
        begin_end(stream, experiment, ExperimentState.COMPLETED, reason, at, winner)


def _not_won(winner: Job, experiment: ExperimentId) -> Reason | None:
    """Return why a job cannot be the winner of `experiment` (empty: of the job's own experiment), or None if it can.

    It cannot if it has no results, is or will be TERMINATED, is FAILED, or belongs to another experiment.
    """
    if winner.high_water == 0:
        return Reason.of(ReasonCode.WINNER_UNREPORTED, job=winner.id)
    if winner.state in (JobState.TERMINATED, JobState.FAILED):
        return Reason.of(ReasonCode.WINNER_ENDED, job=winner.id, state=winner.state.value)
    if winner.run is not None and winner.run.ending is RunEndReason.TERMINATED:
        return Reason.of(ReasonCode.WINNER_TERMINATING, job=winner.id)
    if experiment not in ("", winner.experiment.id):
        return Reason.of(ReasonCode.WINNER_ELSEWHERE, job=winner.id, experiment=winner.experiment.id)
    return None


def run_out(stream: Stream, experiment: Experiment, at: float) -> None:
    """End an experiment whose `max_seconds` have passed. The final state is COMPLETED.

    Its idle jobs stay idle and can continue if the experiment gets more time. Its runs are suspended at their next boundary, and killed
    if they do not end within `kill_after` seconds. `at` is the time of the event in seconds since the Unix epoch.
    """
    reason = Reason.of(ReasonCode.TIME_OVER, seconds=experiment.settings.max_seconds)
    experiment.out_of_time = True
    enter_end(stream, experiment, ExperimentState.COMPLETED, reason, at)
    for run in experiment_state.runs_of(stream, experiment):
        runs.end_run(stream, run, RunEndReason.SUSPENDED)
        if stream.due(runs.kill_timer(run)) is None:
            stream.set_timer(runs.kill_timer(run), at + stream.settings.kill_after)
    for job in list(stream.open.values()):
        if job.experiment is experiment and job.state is JobState.CREATING:
            stream.move(job, JobState.TERMINATED, stop_reason(job, reason))


def enter_end(
    stream: Stream, experiment: Experiment, state: ExperimentState, reason: Reason, at: float, winner: str = ""
) -> None:
    """Make an experiment ENDING, record its final state, and stop its clock. No further job or run starts. Live runs are not changed.

    Args:
        stream: The stream of the experiment.
        experiment: The experiment.
        state: The final state that it will have.
        reason: The reason of the end.
        at: Time of the event in seconds since the Unix epoch.
        winner: Id of the job that ended the experiment; empty: none did.
    """
    if experiment.running_since is not None:
        experiment_state.stop_clock(stream, experiment, at)
    if experiment.generator_failed:
        stream.drop_generator_questions(experiment)
    experiment.final = (state, reason)
    experiment.winner = winner
    experiment_state.enter(stream, experiment, ExperimentState.ENDING, reason)


def begin_end(
    stream: Stream, experiment: Experiment, state: ExperimentState, reason: Reason, at: float, winner: Job | None = None
) -> None:
    """Make an experiment ENDING and end its runs and jobs, except the winner, which is saved.

    `lifecycle.advance` completes the end when all runs have left their slots. Training runs are suspended instead of terminated if
    other experiments of the group with the same search plan may resume from their snapshots.

    Args:
        stream: The stream of the experiment.
        experiment: The experiment.
        state: The final state that it will have.
        reason: The reason of the end.
        at: Time of the event in seconds since the Unix epoch.
        winner: The job that ended the experiment; None: none did.
    """
    alike = stream.alike(experiment)
    enter_end(stream, experiment, state, reason, at, winner.id if winner is not None else "")
    for run in experiment_state.runs_of(stream, experiment):
        keep = winner is not None and run.job == winner.id
        if keep and run.mode is not RunMode.TRAIN:
            continue  # It ends by itself and has no state to save.
        lends = bool(alike) and run.mode is RunMode.TRAIN
        stream.jobs[run.job].lends = lends
        ending = RunEndReason.SUSPENDED if keep or lends else RunEndReason.TERMINATED
        runs.end_run(stream, run, ending, stop_reason(stream.jobs[run.job], reason))
        if lends and stream.due(runs.kill_timer(run)) is None:
            stream.set_timer(runs.kill_timer(run), at + stream.settings.kill_after)
    for job in list(stream.open.values()):
        if job.experiment is experiment and job.run is None and job is not winner:
            job.lends = bool(alike)
            stream.move(job, JobState.TERMINATED, stop_reason(job, reason))


WITH_EXPERIMENT: Final = frozenset(
    [ReasonCode.NOT_STARTED, ReasonCode.STOPPED_BY_TARGET, ReasonCode.STOPPED_WITH_EXPERIMENT]
)
"""Codes of the reasons of jobs that ended because their experiment ended (`stopped`)."""

_LONG: Final = 60
"""Length in characters above which the reason of an experiment's end is not repeated in the reasons of its jobs."""


def stop_reason(job: Job, reason: Reason) -> Reason:
    """Return the reason of a job that has not ended by itself when its experiment ends.

    Args:
        job: The job.
        reason: The reason of the experiment's end.
    """
    winner = reason.args["job"] if reason.code is ReasonCode.TARGET_REACHED else None
    cause = reason if winner is None and len(str(reason)) <= _LONG else None
    if not job.attempt and not job.reached:
        return Reason.of(ReasonCode.NOT_STARTED, job=winner, cause=cause)
    if winner is not None:
        return Reason.of(ReasonCode.STOPPED_BY_TARGET, job=winner)
    return Reason.of(ReasonCode.STOPPED_WITH_EXPERIMENT, position=job.reached, cause=cause)
