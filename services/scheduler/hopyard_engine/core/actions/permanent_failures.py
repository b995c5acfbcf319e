"""Detects permanent failures: a program or a job that can run nowhere, and first jobs that all fail from the same cause."""

from __future__ import annotations

from typing import Final

from hopyard.policy.vocabulary import RunMode
from hopyard.policy.vocabulary.reasons import Reason, ReasonCode
from hopyard_engine.core.actions import failures
from hopyard_engine.core.events import Ended
from hopyard_engine.core.state.entities import Job, Run
from hopyard_engine.core.state.experiment import Experiment
from hopyard_engine.core.state.stream import Stream
from hopyard_engine.core.state.timers import BackoffTimer

LEAST_FAILURES: Final = 3
"""Minimum number of failed runs before an experiment is paused because they failed from the same cause."""


def verdict(stream: Stream, job: Job, run: Run, ended: Ended) -> Reason | None:
    """Return the reason to end the experiment of a failed run, or None if the experiment continues.

    If the program could not run (`Ended.unable`), the nodes of the run are recorded in `Experiment.unable`. The experiment must end if
    its program cannot run on any node where the stream has slots. If a job of the experiment has trained before, the program is able to
    run, so the failure is handled like any other and the result is None. It is None also if the stream has no slots.
    """
    if not ended.unable:
        return None
    experiment = job.experiment
    experiment.unable.update(rank.node for rank in run.ranks)
    nodes = {slot.node for slot in stream.slots.values()}
    trained = any(other.high_water for other in stream.jobs.values() if other.experiment is experiment)
    if trained or not nodes or not nodes <= experiment.unable:
        return None
    return Reason.of(ReasonCode.PROGRAM_UNUSABLE, nodes=", ".join(sorted(nodes)), cause=ended.detail)


def repeats(stream: Stream, job: Job) -> bool:
    """Return whether every further run of a job would fail in the same way.

    That is so if a process of it has failed permanently (`Ended.permanent`) on every node where the stream has slots. On other nodes, a
    missing module may be installed.
    """
    nodes = {slot.node for slot in stream.slots.values()}
    return bool(nodes) and nodes <= job.unable


def common_cause(stream: Stream, job: Job, run: Run, ended: Ended) -> Reason | None:
    """Record the failure of a run in user code, and return why its experiment must be paused; None: it need not be paused.

    It is paused if no job has reported, and enough runs have failed from the cause of this failure: twice as many as fit in the slots
    at once, and at least `LEAST_FAILURES`. They must be runs of as many jobs, or of all jobs that there are. It is paused once for each
    cause, so it continues with its usual retries if a person resumes it. It is not paused if it is not RUNNING, if it has no work left,
    or if it is open for requests, because then a client gets each failure. Causes are compared by `Ended.fingerprint` only; a failure
    without one is not recorded.

    Args:
        stream: The stream of the run.
        job: Its job, in the state after the failure.
        run: The run.
        ended: How it ended.
    """
    experiment, cause = job.experiment, ended.fingerprint
    if experiment.first_failures is None or not cause or not ended.user_code or run.mode is not RunMode.TRAIN:
        return None
    if not experiment.running or experiment.settings.idle is not None:
        return None
    alike = experiment.first_failures.setdefault(cause, {})
    alike[job.id] = alike.get(job.id, 0) + 1
    at_once = len(stream.slots) // len(run.ranks)
    if stream.concurrency is not None:
        at_once = min(at_once, stream.concurrency)
    needed = max(2 * at_once, LEAST_FAILURES)
    there = [other for other in stream.jobs.values() if other.experiment is experiment]
    if sum(alike.values()) < needed or len(alike) < min(needed, len(there)) or cause in experiment.failed_alike:
        return None
    if experiment.jobs_left == 0 and experiment.all_ended:
        return None  # It ends as FAILED.
    experiment.failed_alike.add(cause)
    return Reason.of(
        ReasonCode.JOBS_FAIL_ALIKE,
        runs=sum(alike.values()),
        jobs=len(alike),
        cause=ended.detail,
        experiment=experiment.id,
        job=next(iter(alike)),
    )


def forget_failures(stream: Stream, experiment: Experiment) -> None:
    """Count the failures of an experiment's jobs from zero again, because a person resumes it after a pause by `common_cause`.

    Jobs in backoff may start at once. Jobs that have failed too often stay FAILED.
    """
    if experiment.first_failures is not None:
        experiment.first_failures = {}
    for job in stream.open.values():
        if job.experiment is experiment:
            job.failures = job.setbacks = 0
            if stream.due(BackoffTimer(job.id)) is not None:
                stream.set_timer(BackoffTimer(job.id), None)
                failures.end_backoff(stream, job)
