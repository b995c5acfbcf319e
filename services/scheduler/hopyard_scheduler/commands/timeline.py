"""What ran where in an experiment, told by its journal."""

from __future__ import annotations

from contextlib import aclosing
from dataclasses import replace

from hopyard.client.aio import AsyncClient
from hopyard.client.types import Experiment
from hopyard.plots.search import Run
from hopyard_scheduler.commands.source import reading
from hopyard_scheduler.core import Core
from hopyard_scheduler.core.events import ClusterEvent, Event
from hopyard_scheduler.core.messages import end_reason
from hopyard_scheduler.core.model import Run as Placement


class Timeline:
    """Gathers the runs of a stream from its events, which it re-applies to a core of its own. Times are those of the events.

    Attributes:
        runs: By experiment, in order of their start, one for each machine of a run.
    """

    def __init__(self) -> None:
        self._core = Core()
        self._live: dict[str, tuple[Placement, str, slice]] = {}
        self.runs: dict[str, list[Run]] = {}

    def take(self, event: Event) -> None:
        """Takes the stream's next event."""
        if isinstance(event, ClusterEvent):
            return
        self._core.restore(event)
        x = self._core.experiments[event.experiment]
        for job, (run, owner, places) in list(self._live.items()):
            if x.live.get(job) is not run:
                del self._live[job]
                reason = end_reason(run, run.ended).value if run.ended is not None else None
                runs = self.runs[owner]
                runs[places] = [replace(one, end=event.at, reason=reason) for one in runs[places]]
        for job, run in x.live.items():
            if job not in self._live:
                owner = x.jobs[job].member.id
                runs = self.runs.setdefault(owner, [])
                self._live[job] = run, owner, slice(len(runs), len(runs) + len(run.ranks))
                runs += [Run(machine, job, run.attempt, event.at) for machine in run.machines]


async def runs(client: AsyncClient, experiment: Experiment) -> list[Run]:
    """What ran where in an experiment: see `hopyard.plots.experiments.Timeline`."""
    timeline = Timeline()
    async with reading(client, experiment) as source, aclosing(source.read()) as events:
        async for _, event in events:
            timeline.take(event)
    return timeline.runs.get(experiment.id, [])
