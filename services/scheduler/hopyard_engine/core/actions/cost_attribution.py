"""Cost attribution: bills the slot time of each run to experiments.

By default the time of a run is billed to the experiment of its job. In a group the policy can state which experiments need what a run
trains, each up to a position (`BillRun`). The time up to a position is divided equally between the experiments that need it and have
not ended. Reused results cost nothing. So the bills of a group add up to the time of its runs.
"""

from __future__ import annotations

from collections.abc import Sequence

from hopyard.policy.vocabulary import BillRun, ExperimentId, Report
from hopyard_engine.core.actions import command_checks
from hopyard_engine.core.effects import ExperimentChanged
from hopyard_engine.core.state.entities import Run
from hopyard_engine.core.state.stream import Stream


def bill(stream: Stream, command: BillRun) -> None:
    """Set the experiments that are billed for a run from its next report on.

    Args:
        stream: The stream of the run.
        command: The id of the job whose current run is billed, and the experiments, each with the position up to which it needs
            the run. Without experiments, the run is billed to the experiment of its job.

    Raises:
        RefusedError: The job has no live run, or an experiment is not in the stream. An ended experiment is accepted, but not billed.
    """
    run = command_checks.run_of(stream, command.job)
    for name, _ in command.wanted:
        if name not in stream.experiments:
            raise command_checks.RefusedError(command_checks.no_experiment(stream, name))
    run.wanted = command.wanted


def reported(stream: Stream, run: Run, reports: Sequence[Report], at: float) -> None:
    """Bill the slot time of a run since its last bill.

    The time is divided between the new reports in proportion to their training times. Each part is billed, in equal shares, to the
    experiments that have not ended and that the policy named in `BillRun` as needing the run at least up to the position of the report.
    Without such experiments it is billed to the experiment of the job.

    Args:
        stream: The stream of the run.
        run: The run.
        reports: The new reports of the run; at least one.
        at: Time of the message with the reports, in seconds since the Unix epoch.
    """
    whole = sum(report.seconds for report in reports)
    since = at - run.accounted
    for report in reports:
        share = report.seconds / whole if whole > 0 else 1 / len(reports)
        _charge(stream, run, report.position, since * share)
    run.accounted = at


def over(stream: Stream, run: Run, at: float) -> None:
    """Bill the remaining slot time of a run that has left its slots: from its last bill to `at`, in seconds since the Unix epoch."""
    _charge(stream, run, run.position, at - run.accounted)
    run.accounted = at


def _charge(stream: Stream, run: Run, position: int, seconds: float) -> None:
    own = stream.jobs[run.job].experiment
    payers = [stream.experiments[ExperimentId(name)] for name, until in run.wanted if until >= position]
    payers = [experiment for experiment in payers if not experiment.state.ended] or [own]
    for experiment in payers:
        experiment.slot_seconds += seconds * len(run.ranks) / len(payers)
        if experiment is not own:
            stream.emit(ExperimentChanged(experiment.id))
