"""How experiments come to their ends: a target that is reached, time that is over, the policy's word, a failure."""

from __future__ import annotations

from hopyard.policy.vocabulary import EndExperiment, JobState, RunEndReason, RunMode
from hopyard_engine.core.actions import command_checks, phases, runs, target
from hopyard_engine.core.state.entities import Job
from hopyard_engine.core.state.experiment import Experiment, Phase
from hopyard_engine.core.state.stream import Stream


def check_target(x: Stream, job: Job, position: int, value: float, at: float) -> None:
    """Ends the experiment when a job reaches the target; that job is saved and completed, the others are terminated."""
    found = target.at(x, job, position, value) if job.member.running else None
    if found is not None:
        _reached(x, job, position, found, at)


def check_best(x: Stream, member: Experiment, at: float) -> None:
    """Ends the experiment if a result reaches the target already: the target was moved, or it was paused then."""
    if not member.running or member.best is None:
        return
    single = member.settings.target_over == 1  # Then nobody's results are better than these.
    jobs = [x.jobs[member.best[0]]] if single else [job for job in x.jobs.values() if job.member is member]
    for job in jobs:
        found = target.ever(x, job)
        if found is not None:
            _reached(x, job, *found, at)
            return


def _reached(x: Stream, job: Job, position: int, value: float, at: float) -> None:
    terms = job.terms
    mean = f" as the mean of {terms.target_over} reports" if terms.target_over > 1 else ""
    reason = f"job {job.id} reached the target {terms.target:g} with {value:g}{mean} at {position}"
    begin_end(x, job.member, Phase.COMPLETED, reason, at, job)


def end_by_policy(x: Stream, command: EndExperiment, at: float) -> None:
    """The policy ends its experiment, or one of a group.

    Raises:
        RefusedError: What stands against it.
    """
    if not command.reason.strip():
        raise command_checks.RefusedError("an experiment ends for a reason, which people see; found none")
    winner = None
    if command.winner:
        winner = command_checks.find_job(x, command.winner)
        if winner.high_water == 0:
            raise command_checks.RefusedError(f"job {winner.id!r} has reported nothing, so it cannot have won")
        if winner.state in (JobState.TERMINATED, JobState.FAILED):
            raise command_checks.RefusedError(f"job {winner.id!r} is {winner.state.value}, so it cannot have won")
        if winner.run is not None and winner.run.ending is RunEndReason.TERMINATED:
            raise command_checks.RefusedError(f"job {winner.id!r} is being terminated, so it cannot have won")
        if command.experiment not in ("", winner.member.id):
            raise command_checks.RefusedError(f"job {winner.id!r} is of experiment {winner.member.id!r}")
    name = command.experiment or (winner.member.id if winner is not None else "")
    chosen = [command_checks.find_member(x, name)] if name else list(x.members.values())
    able = [member for member in chosen if not member.phase.over and member.phase is not Phase.ENDING]
    if not able:
        raise command_checks.RefusedError("the experiment is ending")
    for member in able:
        begin_end(x, member, Phase.COMPLETED, command.reason, at, winner)


def run_out(x: Stream, member: Experiment, at: float) -> None:
    """Its time is over. Its jobs are suspended as in a pause, but within bounds, and go on if it gets more time."""
    reason = f"its time of {member.settings.max_seconds:g} s is over"
    if not member.settings.time_suspends:
        begin_end(x, member, Phase.COMPLETED, reason, at)
        return
    member.out_of_time = True
    enter_end(x, member, Phase.COMPLETED, reason, at)
    for run in phases.runs_of(x, member):
        runs.end_run(x, run, RunEndReason.SUSPENDED)
        if runs.kill_timer(run) not in x.timers:
            x.set_timer(runs.kill_timer(run), at + x.settings.kill_after)
    for job in list(x.open.values()):
        if job.member is member and job.state is JobState.CREATING:
            x.move(job, JobState.TERMINATED, reason)


def enter_end(x: Stream, member: Experiment, phase: Phase, reason: str, at: float, winner: str = "") -> None:
    """It is decided how it ends: nothing new begins."""
    if member.running_since is not None:
        phases.stop_clock(x, member, at)
    member.final = (phase, reason)
    member.winner = winner
    phases.enter(x, member, Phase.ENDING, reason)


def begin_end(x: Stream, member: Experiment, phase: Phase, reason: str, at: float, winner: Job | None = None) -> None:
    """Lets nothing new begin and ends all its runs; `advance` finishes when they are gone.

    What they have trained is saved first if others of the group train alike: they may go on from there.
    """
    alike = x.alike(member)
    enter_end(x, member, phase, reason, at, winner.id if winner is not None else "")
    for run in phases.runs_of(x, member):
        keep = winner is not None and run.job == winner.id
        if keep and run.mode is not RunMode.TRAIN:
            continue  # It ends by itself, and has nothing to save.
        lends = bool(alike) and run.mode is RunMode.TRAIN
        x.jobs[run.job].lends = lends
        runs.end_run(x, run, RunEndReason.SUSPENDED if keep or lends else RunEndReason.TERMINATED)
        if lends and runs.kill_timer(run) not in x.timers:
            x.set_timer(runs.kill_timer(run), at + x.settings.kill_after)
    for job in list(x.open.values()):
        if job.member is member and job.run is None and job is not winner:
            job.lends = bool(alike)
            x.move(job, JobState.TERMINATED, reason)
