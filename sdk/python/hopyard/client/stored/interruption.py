"""How experiments and jobs are shown when their cluster has ended: nothing runs, and a job is at its newest snapshot.

The rows of AppStat say what was true when the cluster ended. A cluster that starts again finds that the runs are lost.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

from hopyard._net.rpc.enums import JOB_STATES
from hopyard._net.rpc.reasons import set_reason
from hopyard.policy.vocabulary import JobState
from hopyard.policy.vocabulary.reasons import Reason, ReasonCode
from hopyard.v1 import common_pb2, experiment_pb2

_LIVE: Final = frozenset(JOB_STATES.to_proto(state) for state in JobState if state.live)
_LIVE_NAMES: Final = frozenset(state.value for state in JobState if state.live)

_GOING: Final = frozenset((experiment_pb2.EXPERIMENT_STATE_RUNNING, experiment_pb2.EXPERIMENT_STATE_ENDING))
"""States in which an experiment continues by itself when its cluster starts again."""


def has_live_jobs(experiment: experiment_pb2.Experiment) -> bool:
    """Return whether jobs of an experiment had slots when the cluster ended, by its numbers of jobs in each state."""
    return any(experiment.jobs.get(name) for name in _LIVE_NAMES)


def show_experiment(
    experiment: experiment_pb2.Experiment, resume: str, jobs: Iterable[experiment_pb2.Job] | None
) -> None:
    """Change the message of an experiment of a cluster that has ended, in place, to what clients show.

    It has no slots. A running or ending experiment gets the reason INTERRUPTED, by which clients show it as INTERRUPTED. A
    pausing one becomes PAUSED. The reason of one that a person paused, as Ctrl-C does, contains the command, too.

    Args:
        experiment: The experiment as AppStat stores it.
        resume: The command that continues it.
        jobs: Its jobs after `show_job`, from which jobs by state are counted again; used only if `has_live_jobs` is true. None: they
            cannot be read, and the counts stay as they were.
    """
    experiment.slots = experiment.share = 0
    if jobs is not None and has_live_jobs(experiment):
        counts: Mapping[str, int] = Counter(JOB_STATES.from_proto(job.state).value for job in jobs)
        experiment.jobs.clear()
        experiment.jobs.update(counts)
    if experiment.state in _GOING:
        set_reason(experiment, Reason.of(ReasonCode.INTERRUPTED, command=resume))
        return
    pausing = experiment.state == experiment_pb2.EXPERIMENT_STATE_PAUSING
    if pausing or experiment.reason_code == common_pb2.REASON_CODE_PAUSED_BY_PERSON:
        experiment.state = experiment_pb2.EXPERIMENT_STATE_PAUSED
        set_reason(experiment, Reason.of(ReasonCode.PAUSED_BY_PERSON, command=resume))


def show_job(job: experiment_pb2.Job) -> None:
    """Change the message of a job of a cluster that has ended, in place, to what clients show.

    A job that had slots has none now, and the state with which a restarted cluster continues it: SUSPENDED if it has a snapshot, else
    PENDING. Other jobs stay unchanged.
    """
    if job.state not in _LIVE:
        return
    del job.slots[:]
    saved = max((snapshot.position for snapshot in job.snapshots), default=0)
    job.state = common_pb2.JOB_STATE_SUSPENDED if job.snapshots else common_pb2.JOB_STATE_PENDING
    args = {"position": saved} if job.snapshots else {}
    set_reason(job, Reason.of(ReasonCode.RUN_INTERRUPTED, **args))
