"""Explains how the jobs of an ended experiment ended.

Jobs that an experiment left untrained keep their state (`SUSPENDED`, `PENDING`, `HELD`) in the engine, so that they can continue if the
experiment is extended. Clients see them as TERMINATED, with the reason that this module computes (decision 28).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from hopyard.policy.vocabulary import JobState
from hopyard.policy.vocabulary.reasons import Reason, ReasonCode
from hopyard_engine.core.actions.experiment_end import stop_reason
from hopyard_engine.core.state.entities import Job
from hopyard_engine.core.state.experiment import Experiment

_BY_POLICY = frozenset([ReasonCode.NOTHING_LEFT, ReasonCode.ALL_JOBS_ENDED])
"""Reasons of the end of an experiment whose policy has finished its work. After these ends the rung explains why a job stopped."""


def shown_end(job: Job) -> tuple[JobState, Reason | None]:
    """Return the state of a job that people see, and its reason.

    While the experiment has not ended, these are the job's own. In an ended experiment every job has ended: one that could still be
    trained is TERMINATED. If successive halving left the job on a rung, or ended it there, the reason names the rung.
    """
    experiment = job.experiment
    if not experiment.state.ended or experiment.reason is None:
        return job.state, job.reason
    by_policy = job.reason is not None and job.reason.code is ReasonCode.TERMINATED
    if job.state.ended and not by_policy:
        return job.state, job.reason
    if job.rung is not None and experiment.reason.code in _BY_POLICY:
        rung, rungs = job.rung
        code = ReasonCode.STOPPED_AT_RUNG
        return JobState.TERMINATED, Reason.of(code, rung=rung, rungs=rungs, position=job.reached)
    return JobState.TERMINATED, job.reason if job.state.ended else stop_reason(job, experiment.reason)


def shown_counts(experiment: Experiment) -> Mapping[JobState, int]:
    """Return the number of an experiment's jobs in each state that people see (`shown_end`). States without jobs are left out."""
    found: Counter[JobState] = Counter()
    for state, count in experiment.states.items():
        found[JobState.TERMINATED if experiment.state.ended and not state.ended else state] += count
    return {state: count for state, count in found.items() if count}
