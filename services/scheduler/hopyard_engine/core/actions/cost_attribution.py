"""Who pays for slots: the time of a run, from its start to its end, is its experiment's.

In a group a policy may say who else wants what a run trains (`BillRun`). Then those who want it at a position have equal parts of the
time up to there; whoever is over pays for nothing more but its own runs. What is there already costs nobody anything. So the bills of a
group add up to the time of its runs.
"""

from __future__ import annotations

from collections.abc import Sequence

from hopyard.policy.vocabulary import BillRun, ExperimentId, Report
from hopyard_engine.core.actions import command_checks
from hopyard_engine.core.effects import ExperimentChanged
from hopyard_engine.core.state.entities import Run
from hopyard_engine.core.state.stream import Stream


def bill(stream: Stream, command: BillRun) -> None:
    """From its next report on a run is billed to those who want what it trains.

    Raises:
        RefusedError: There is no such run, or no such experiment.
    """
    run = command_checks.run_of(stream, command.job)
    for name, _ in command.wanted:
        if name not in stream.experiments:
            raise command_checks.RefusedError(command_checks.no_experiment(stream, name))
    run.wanted = command.wanted


def reported(stream: Stream, run: Run, reports: Sequence[Report], at: float) -> None:
    """Bills the time up to some reports that came together, by what each of them took."""
    whole = sum(report.seconds for report in reports)
    since = at - run.accounted
    for report in reports:
        share = report.seconds / whole if whole > 0 else 1 / len(reports)
        _charge(stream, run, report.position, since * share)
    run.accounted = at


def over(stream: Stream, run: Run, at: float) -> None:
    """Bills the time since a run's last report: it has left its slots."""
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
