"""Builds the scheduling problem from the policy's view, and translates between names and indices."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from hopyard.policy import Cluster, Data, JobView
from hopyard_policies.mop.schedule.dispatch import Following, Rule
from hopyard_policies.mop.schedule.estimates import Estimates
from hopyard_policies.mop.schedule.problem import Placed, TrainingUnit, VisitProblem, VisitSchedule
from hopyard_policies.mop.schedule.replanning import Online
from hopyard_policies.mop.visit_history import VisitHistory, size

Step = tuple[str, str, str]
"""A unit of a plan: slot, job, partition."""


class Round:
    """The remaining units of some jobs in their present epochs. A round is used until something unexpected happens.

    Args:
        cluster: The view with the slots.
        data: The partitions and their nodes.
        jobs: Jobs with remaining units.
        goals: The position at which the present epoch of each job ends.
        wanted: The position up to which each job is wanted, as far as known.
        visits: The history of visits, with running units.
        estimates: Estimates of costs and speeds; the round adds measurements.
        make: Creates the scheduler's rule.

    Attributes:
        jobs: The names of the jobs, by index.
        slots: The names of the slots, by index.
        partitions: The names of the partitions, by index.
    """

    def __init__(
        self,
        cluster: Cluster,
        data: Data,
        jobs: Sequence[JobView],
        goals: Mapping[str, int],
        wanted: Mapping[str, int],
        visits: VisitHistory,
        estimates: Estimates,
        make: Callable[[VisitProblem], Rule],
    ) -> None:
        self._visits = visits
        self._estimates = estimates
        self.partitions = [each.name for each in data.train]
        self._numbers = {name: number for number, name in enumerate(self.partitions)}
        self.slots = list(cluster.slots)
        self.jobs = [job.id for job in jobs]
        self._goals = [goals[job.id] for job in jobs]
        self._held = {each.name for each in data.train if each.nodes}
        sizes = [size(each, data.train) for each in data.train]
        mean = math.fsum(sizes) / len(sizes)
        sizes = [each / mean for each in sizes]
        holders = [
            [number for number, slot in enumerate(cluster.slots.values()) if slot.node in each.nodes]
            for each in data.train
        ]
        costs, speeds = estimates.of(self.jobs, self.slots)
        usual = math.fsum(1.0 / speed for speed in speeds) / max(len(speeds), 1)
        configs, slots = [0.0] * len(jobs), [0.0] * len(speeds)
        running: dict[int, TrainingUnit] = {}
        for number, job in enumerate(self.jobs):
            unit = visits.running.get(job)
            places = zip(unit.slots, unit.partitions, strict=True) if unit is not None else ()
            gone = cluster.now - unit.began if unit is not None else 0.0
            for name, partition in places:
                if name in cluster.slots:
                    slot, part = self.slots.index(name), self._numbers[partition]
                    running[slot] = TrainingUnit(number, part)
                    slots[slot] = max(costs[number] * sizes[part] / speeds[slot] - gone, 0.0)
                    configs[number] = max(configs[number], slots[slot])
        problem = VisitProblem(
            costs,
            sizes,
            speeds,
            holders,
            done=[self._done(job, goal) for job, goal in zip(jobs, self._goals, strict=True)],
            config_free=configs,
            slot_free=slots,
            config_after=[
                cost * usual * max(wanted[job.id] - goal, 0)
                for cost, job, goal in zip(costs, jobs, self._goals, strict=True)
            ],
        )
        self._online = Online(problem, make, estimates, self.jobs, self.slots, running)

    def goes_on(
        self, slots: Collection[str], jobs: Sequence[JobView], goals: Mapping[str, int], able: Collection[str]
    ) -> bool:
        """Return whether everything is as expected; if so, mark the jobs that may start a unit.

        Args:
            slots: All slots.
            jobs: Jobs with remaining units.
            goals: The position at which the present epoch of each job ends.
            able: Jobs that may start a unit.
        """
        if list(slots) != self.slots or [job.id for job in jobs] != self.jobs:
            return False
        if [goals[job.id] for job in jobs] != self._goals:
            return False
        online = self._online
        busy = {unit.config for unit in online.running.values()}
        for number, (job, goal) in enumerate(zip(jobs, self._goals, strict=True)):
            if online.visited[number] != self._done(job, goal) or (number in busy) != (job.id in self._visits.running):
                return False
            if number in online.idle and job.id not in able:
                return False
            if job.id in able and number not in online.idle:
                online.free(number)
        return True

    def start(self, idle: Sequence[str], now: float) -> Iterator[tuple[str, str, str]]:
        """Yield the units that start now: slot, job, partition.

        Args:
            idle: Idle slots.
            now: The time.
        """
        numbers = [number for number, slot in enumerate(self.slots) if slot in idle]
        for slot, unit in self._online.start(numbers, now) if numbers else ():
            yield self.slots[slot], self.jobs[unit.config], self.partitions[unit.partition]

    def ended(self, slot: str, seconds: float) -> bool:
        """Record the end of a unit and its seconds; return whether it was expected."""
        number = self.slots.index(slot) if slot in self.slots else -1
        if number not in self._online.running:
            return False
        self._online.ended(number, seconds)
        return True

    @property
    def known(self) -> bool:
        """Whether all jobs and slots have measurements."""
        return self._estimates.know(self.jobs, self.slots)

    @property
    def follows(self) -> bool:
        """Whether the round follows a plan given to `follow`."""
        return self._online.follows

    def left(self, now: float) -> VisitProblem:
        """Return the remaining problem."""
        return self._online.left(now)

    def schedule(self, steps: Sequence[Step]) -> VisitSchedule:
        """Return a plan in the indices of this round, without unknown jobs and slots. Times only express the order."""
        jobs, slots = ({name: number for number, name in enumerate(names)} for names in (self.jobs, self.slots))
        return VisitSchedule(
            tuple(
                Placed(TrainingUnit(jobs[job], self._numbers[partition]), slots[slot], float(order), float(order))
                for order, (slot, job, partition) in enumerate(steps)
                if job in jobs and slot in slots
            )
        )

    def follow(self, plan: VisitSchedule, now: float) -> None:
        """Follow a plan with all remaining units, until times differ too much from the expected ones."""
        self._online.follow(Following(self._online.left(now), plan))

    def _done(self, job: JobView, goal: int) -> frozenset[int]:
        """Return the partitions that a job must not be trained on in its epoch, or is being trained on.

        A job that was set back trains the same partition as before at its position, if a node holds it.
        """
        running = self._visits.running.get(job.id)
        done = self._visits.visited(job, (goal - 1) // len(self.partitions) * len(self.partitions))
        again = self._visits.again(job)
        if len(again) == 1 and running is None and self._held.issuperset(again):
            return frozenset(range(len(self.partitions))) - {self._numbers[again[0]]}
        done |= set(running.partitions) if running is not None else set()
        return frozenset(self._numbers[name] for name in done)
