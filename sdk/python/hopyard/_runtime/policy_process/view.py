"""The view that a policy in a separate process has of its experiment: the received state plus the commands of the present answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property

from typing_extensions import override

from hopyard._runtime.policy_process.state import MirroredState
from hopyard.policy.command_buffer import CollectingView
from hopyard.policy.views import CommandError, CurvePoint, ExperimentView, Incumbent, JobView, SlotView
from hopyard.policy.vocabulary import CreateJob, Data, JobState


class RemoteView(CollectingView):
    """The view of its experiment that a policy has during one up-call, in a policy process.

    It answers the policy's queries from the received state. Commands that the policy has given in this up-call are taken into account:
    for example, a started job is no longer idle.

    Args:
        state: Copy of the experiment's state.
        number: Number of the up-call in the experiment, counted from 1.
        at: Time of the up-call in seconds since the Unix epoch.
        seed: Seed of the random numbers that the policy may draw in this up-call.
    """

    def __init__(self, state: MirroredState, number: int, at: float, seed: int) -> None:
        self._state = state
        super().__init__(number, at, seed, state.made, state.slots, state.earlier)

    @property
    @override
    def experiment(self) -> ExperimentView:
        members = self._state.experiments
        created = sum(isinstance(c, CreateJob) and c.limit is None for c in self.commands)
        left = max(sum(m.jobs_left for m in members.values()) - created, 0)
        live = [m for name, m in members.items() if name not in self._state.over] or list(members.values())[:1]
        top = max(m.max_position for m in live)
        running = any(m.running for m in live)
        limits = [m.concurrency for m in [m for m in members.values() if m.running] or members.values()]
        jobs = None if None in limits else sum(limit for limit in limits if limit is not None)
        return replace(live[0], jobs_left=left, max_position=top, running=running, concurrency=jobs)

    @property
    @override
    def experiments(self) -> Mapping[str, ExperimentView]:
        return self._state.experiments

    @property
    @override
    def share(self) -> int:
        return self._state.share

    @property
    @override
    def jobs(self) -> Mapping[str, JobView]:
        return self._state.jobs

    @property
    @override
    def earlier(self) -> Mapping[str, JobView]:
        return {name: one.job for name, one in self._state.earlier.items()}

    @property
    @override
    def scaling(self) -> Mapping[str, Mapping[int, float]]:
        return self._state.scaling

    @property
    @override
    def slots(self) -> Mapping[str, SlotView]:
        return dict(sorted(self._state.slots.items()))

    @property
    @override
    def data(self) -> Data | None:
        return self._state.data

    @override
    def idle_slots(self) -> Sequence[SlotView]:
        room = self._state.share - self._placed - len(self._used_slots)
        if room <= 0:
            return []
        kept = self._state.reserved - self._released | self._used_slots
        return [slot for name, slot in self.slots.items() if slot.idle and name not in kept][:room]

    @property
    def _placed(self) -> int:
        slots, draining = self._state.slots, self._state.draining
        return sum(not slot.idle and name not in draining for name, slot in slots.items())

    @cached_property
    def _queue(self) -> list[str]:
        jobs, places = self._state.jobs, self._state.queued
        return sorted(places, key=lambda name: (-(jobs[name].priority or 0.0), places[name]))

    @override
    def idle_jobs(self) -> Sequence[JobView]:
        return [self._state.jobs[job] for job in self._queue if job not in self._started]

    @override
    def waits(self, job: str) -> bool:
        return job in self._state.queued and job not in self._started

    @override
    def backs_off(self, job: str) -> bool:
        found = self._state.jobs.get(job)
        if found is None or not found.state.idle or job in self._state.queued:
            return False
        return self._state.experiments[found.experiment].running

    @override
    def get_idle_job(self) -> str | None:
        return next((job for job in self._queue if job not in self._started), None)

    @override
    def count(self, *states: JobState) -> int:
        return sum(self._state.states[state] for state in states)

    @override
    def queued(self) -> int:
        return len(self._state.queued)

    @override
    def busy_slots(self) -> int:
        return sum(not slot.idle for slot in self._state.slots.values())

    @override
    def live_jobs(self) -> Sequence[JobView]:
        return sorted((self._state.jobs[job] for job in self._state.live), key=lambda job: job.ordinal)

    @override
    def open_jobs(self) -> Sequence[JobView]:
        return sorted((self._state.jobs[job] for job in self._state.open), key=lambda job: job.ordinal)

    @override
    def curve(self, job: str) -> Sequence[CurvePoint]:
        if job in self._state.earlier:
            return list(self._state.earlier[job].points)
        if job not in self._state.jobs:
            raise CommandError(f"curve: there is no job {job!r}")
        return list(self._state.curves.get(job, {}).values())

    @override
    def snapshots(self, job: str) -> Sequence[int]:
        if job in self._state.earlier:
            return list(self._state.earlier[job].snapshots)
        found = self._state.jobs.get(job)
        if found is None:
            raise CommandError(f"snapshots: there is no job {job!r}")
        own = self._state.snapshots[job]
        if own or found.fork_position not in self._state.snapshots.get(found.parent, ()):
            return list(own)
        return [found.fork_position]

    @property
    @override
    def incumbent(self) -> Incumbent | None:
        return self._state.incumbent
