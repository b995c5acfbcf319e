"""Failures that no other try heals: a program that cannot run on any node where its experiment has slots."""

from __future__ import annotations

from hopyard.policy.vocabulary.reasons import Reason, ReasonCode
from hopyard_engine.core.events import Ended
from hopyard_engine.core.state.entities import Job, Run
from hopyard_engine.core.state.stream import Stream


def verdict(stream: Stream, job: Job, run: Run, ended: Ended) -> Reason | None:
    """Takes note of a run that failed; answers why its experiment is to end by that, None: it is not.

    Where something was trained already it is the node that has changed, or the moment: such failures are counted as others are.
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
