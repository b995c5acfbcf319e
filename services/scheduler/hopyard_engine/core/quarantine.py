"""Taking one experiment out of the core after a mistake in the core itself, so that the others go on."""

from __future__ import annotations

from hopyard_engine.core.core import Core
from hopyard_engine.core.effects import Effect, ExperimentChanged, SetTimer, WithdrawQuestion
from hopyard_engine.core.state.experiment import Phase


def quarantine(core: Core, name: str, reason: str, at: float) -> list[Effect]:
    """Fails an experiment whose state can no longer be trusted, without touching that state further than needed.

    Its machines are free again; what still runs there is displaced by the next run, or ended when its agent says hello. The
    event that led here is not in the journal, and a failed experiment is not replayed.
    """
    x = core.experiments[name]
    core.forget_pending(name)
    if name in core.cluster.tenants:
        core.cluster.leave(name)
    timers, asked = list(x.timers), list(x.asks)
    x.calls.clear()
    x.asks.clear()
    x.timers.clear()
    x.live.clear()
    x.machines.clear()
    x.vacant.clear()
    x.draining.clear()
    x.busy = 0
    x.quarantined = True
    x.in_flight = None
    for job in x.jobs.values():
        job.run = None
    x.share = 0
    failed = [member for member in x.members.values() if not member.phase.over]
    for member in failed:
        member.running_since = None
        member.ended_at = at
        member.phase = Phase.FAILED
        member.reason = reason
    return [
        *(SetTimer(name, ticket, None) for ticket in timers),
        *(WithdrawQuestion(name, ticket) for ticket in asked),
        *(ExperimentChanged(member.id) for member in failed),
    ]
