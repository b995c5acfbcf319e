"""Taking one experiment out of the core after a mistake in the core itself, so that the others go on."""

from __future__ import annotations

from hopyard.policy.vocabulary import ExperimentState, StreamId
from hopyard.policy.vocabulary.reasons import Reason
from hopyard_engine.core.core import Core
from hopyard_engine.core.effects import Effect, ExperimentChanged, SetTimer, WithdrawQuestion
from hopyard_engine.core.state_machines.experiment_states import change_experiment


def quarantine(core: Core, name: StreamId, reason: Reason, at: float) -> list[Effect]:
    """Fails an experiment whose state can no longer be trusted, without touching that state further than needed.

    Its slots are free again; what still runs there is displaced by the next run, or ended when its agent says hello. The
    event that led here is not in the journal, and a failed experiment is not replayed.
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
    ]
