"""Quarantine: stops one stream after an error in the core, so that the other streams continue."""

from __future__ import annotations

from hopyard.policy.vocabulary import ExperimentState, StreamId
from hopyard.policy.vocabulary.reasons import Reason
from hopyard_engine.core.core import Core
from hopyard_engine.core.effects import Effect, ExperimentChanged, JobChanged, SetTimer, WithdrawQuestion
from hopyard_engine.core.state_machines.experiment_states import change_experiment


def quarantine(core: Core, name: StreamId, reason: Reason, at: float) -> list[Effect]:
    """Fail all experiments of a stream whose state may be inconsistent, and change as little of that state as possible.

    The slots of the stream become free. Its processes that still run there are replaced by the next run of the slot, or ended when the
    agent reconnects. The event that caused the error is not in the journal, and a failed experiment is not replayed.

    Args:
        core: The core with the stream.
        name: Id of the stream.
        reason: The reason that its experiments get.
        at: Time of the end in seconds since the Unix epoch.

    Returns:
        The effects that cancel the stream's timers and questions and update the rows of its experiments and unfinished jobs.
        Experiments that have ended before do not change.

    Raises:
        KeyError: The core does not have the stream.
    """
    stream = core.streams[name]
    core.forget_pending(name)
    if name in core.cluster.tenants:
        core.cluster.leave(name)
    timers, asked = list(stream.timers), list(stream.asks)
    stream.asks.clear()
    stream.timers.clear()
    stream.live.clear()
    stream.slots.clear()
    stream.vacant.clear()
    stream.draining.clear()
    stream.busy = 0
    stream.quarantined = True
    stream.conversation.end(drop_calls=True)
    for job in stream.jobs.values():
        job.run = None
    stream.share = 0
    failed = [experiment for experiment in stream.experiments.values() if not experiment.state.ended]
    for experiment in failed:
        experiment.running_since = None
        experiment.ended_at = at
        change_experiment(experiment, ExperimentState.FAILED, reason)
    return [
        *(SetTimer(name, ticket, None) for ticket in timers),
        *(WithdrawQuestion(name, ticket) for ticket in asked),
        *(ExperimentChanged(experiment.id) for experiment in failed),
        *(JobChanged(job.experiment.id, job.id) for job in stream.open.values() if job.experiment in failed),
    ]
