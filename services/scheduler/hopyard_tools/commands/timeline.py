"""Extracts from a journal the history of an experiment for plots: runs, labels, slots held, and the policy's estimates."""

from __future__ import annotations

from contextlib import aclosing
from dataclasses import replace

from hopyard.client.async_client import AsyncClient
from hopyard.client.types import Experiment
from hopyard.errors import InvalidInput
from hopyard.plots.model import JournalStory, PlottedRun
from hopyard_engine.core import Core
from hopyard_engine.core.effects import JobChanged
from hopyard_engine.core.events import ClusterEvent, Event
from hopyard_engine.core.handlers.run_messages import end_reason
from hopyard_engine.core.state.entities import Job
from hopyard_engine.core.state.entities import Run as Placement
from hopyard_engine.core.state.stream import Stream
from hopyard_engine.policy_host import PolicyHost
from hopyard_engine.policy_host.factory import host_of
from hopyard_engine.replay import Replay
from hopyard_scheduler.experiments.program import program_of
from hopyard_tools.commands.journal_source import reading
from hopyard_tools.commands.partition_visits import PartitionVisits

_LOOKS = 200
"""Maximum number of times that a policy is asked for its estimates."""


class Timeline:
    """Collects the history of a stream by applying its events to a new core (the state machine of the engine).

    Times are those of the events, in seconds since the Unix epoch. Call `take` for each event in order, then use the
    attributes.

    Attributes:
        told: The history by id of the experiment.
        visits: The runs on partitions of the data, and the transferred bytes.
    """

    def __init__(self) -> None:
        self._core = Core()
        self._live: dict[str, tuple[Placement, str, slice]] = {}
        self.told: dict[str, JournalStory] = {}
        self.visits = PartitionVisits()

    def take(self, event: Event) -> None:
        """Apply the next event of the stream. Events of the cluster are ignored."""
        if isinstance(event, ClusterEvent):
            return
        effects = self._core.restore(event)
        stream = self._core.streams[event.stream]
        for job, (run, owner, places) in list(self._live.items()):
            if stream.live.get(job) is not run:
                del self._live[job]
                reason = end_reason(run, run.ended).value if run.ended is not None else None
                runs = self.told[owner].runs
                runs[places] = [replace(one, end=event.at, reason=reason) for one in runs[places]]
        for job, run in stream.live.items():
            if job not in self._live:
                owner = stream.jobs[job].experiment.id
                runs = self._of(owner).runs
                self._live[job] = run, owner, slice(len(runs), len(runs) + len(run.ranks))
                runs += [PlottedRun(place, job, run.attempt, event.at, mode=run.mode.value) for place in run.slots]
        changed = {effect.job: effect.experiment for effect in effects if isinstance(effect, JobChanged)}
        for name in changed:
            if name in stream.jobs:
                self._label(stream.jobs[name], event.at)
        for owner in dict.fromkeys(changed.values()):
            self._count(stream, owner, event.at)
        self.visits.take(stream, event)

    def _of(self, experiment: str) -> JournalStory:
        return self.told.setdefault(experiment, JournalStory())

    def _label(self, job: Job, at: float) -> None:
        known = self._of(job.experiment.id).labels
        if job.priority is not None and (job.id not in known or known[job.id][-1][1] != job.priority):
            known.setdefault(job.id, []).append((at, job.priority))

    def _count(self, stream: Stream, experiment: str, at: float) -> None:
        told = self._of(experiment)
        live = [(stream.jobs[job], len(run.slots)) for job, run in stream.live.items()]
        held = [((job.priority or 0.0) > 0, slots) for job, slots in live if job.experiment.id == experiment]
        promising = sum(slots for is_promising, slots in held if is_promising)
        counted = (float(promising), float(sum(slots for _, slots in held) - promising))
        if not told.pools or told.pools[-1][1:] != counted:
            told.pools.append((at, *counted))


async def told(client: AsyncClient, experiment: Experiment, confidences: bool) -> JournalStory:
    """Return the history of an experiment up to the present (the protocol `hopyard.plots.experiments.Timeline`).

    It is empty if the journal has no event of the experiment.

    Args:
        client: A client of the cluster.
        experiment: The experiment.
        confidences: Replay the policy too, and add its estimates of the probability that a job reaches the policy's
            goal, such as the target.

    Raises:
        InvalidInput: `confidences` is True, and the policy cannot be created on this computer.
    """
    timeline = Timeline()
    driven = Replay(Core(), lambda stream: host_of(program_of(stream.founder.payload).spec)) if confidences else None
    chances: list[tuple[float, int, tuple[float, ...]]] = []
    async with reading(client, experiment) as source, aclosing(source.read()) as events:
        step = max(await source.length() // _LOOKS, 1)
        async for number, event in events:
            timeline.take(event)
            if driven is not None:
                driven.take(event)
                if number % step == 0:
                    chances += _look(driven, experiment, event.at)
    return replace(
        timeline.told.get(experiment.id, JournalStory()),
        confidences=chances,
        visits=timeline.visits.told.get(experiment.id, []),
        held=list(timeline.visits.held.values()),
        moved=timeline.visits.moved,
    )


def _look(driven: Replay, experiment: Experiment, at: float) -> list[tuple[float, int, tuple[float, ...]]]:
    """Return the policy's estimates, after the last replayed event, that jobs reach its goal, such as the target.

    Args:
        driven: The replay.
        experiment: The experiment whose jobs are selected.
        at: The time of the event, in seconds since the Unix epoch.

    Returns:
        One tuple of the time, the share in slots, and the descending probabilities, one for each job; empty: the policy
        has no estimates or was not called yet, or the stream has no share of the cluster.

    Raises:
        InvalidInput: The policy cannot be created on this computer.
    """
    stream, host = driven.experiment, driven.host
    if stream is None or host is None or stream.share == 0:
        return []
    if not isinstance(host, PolicyHost):
        raise InvalidInput(
            f"{experiment.id}: its policy cannot be made here, so it cannot be asked what it thought; go where its module lies"
        )
    found = host.confidences(stream, at)
    own = sorted((p for job, p in found.items() if stream.jobs[job].experiment.id == experiment.id), reverse=True)
    return [(at, stream.share, tuple(own))] if own else []
