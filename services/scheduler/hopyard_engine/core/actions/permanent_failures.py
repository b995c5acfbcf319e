"""Detects permanent failures: a program that cannot run on any node where its experiment has slots."""

from __future__ import annotations

from hopyard.policy.vocabulary.reasons import Reason, ReasonCode
from hopyard_engine.core.events import Ended
from hopyard_engine.core.state.entities import Job, Run
from hopyard_engine.core.state.stream import Stream


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
