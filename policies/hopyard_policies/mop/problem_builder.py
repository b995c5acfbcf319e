"""Builds the scheduling problem of an epoch, and translates between names and the indices of the problem.

The problem is when and on which slot each remaining training unit, one configuration on one partition of the data, should run.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from hopyard.policy import Cluster, Data, JobView
from hopyard_policies.mop.schedule.dispatch import PlanFollower, Rule
from hopyard_policies.mop.schedule.estimates import Estimates
from hopyard_policies.mop.schedule.problem import ScheduledUnit, TrainingUnit, VisitProblem, VisitSchedule
from hopyard_policies.mop.schedule.replanning import Online
from hopyard_policies.mop.visit_history import VisitHistory, size

Step = tuple[str, str, str]
"""A unit of a plan: slot, job, partition."""


class Round:
    """A schedule of the remaining units of some jobs in their present epochs.

    It is used until jobs, slots, ends of units or measured times differ from those that it expects; then the caller makes
    a new one.

    Args:
        cluster: The view with the slots.
        data: The partitions and their nodes.
        jobs: Jobs with remaining units.
        goals: The position at which the present epoch of each job ends.
        wanted: The position up to which the tuner wants each job trained, as far as known.
        visits: The history of visits, with running units.
        estimates: Estimates of costs and speeds; measured times are added.
        make: Creates the scheduler's rule for a problem.

    Attributes:
        jobs: The ids of the jobs, by index.
        slots: The ids of the slots, by index.
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
        """Return whether this schedule can still be used; if so, mark the jobs that have become able to start a unit.

        It can be used if jobs, slots, epoch ends, and visited and running partitions are as it expects.

        Args:
            slots: All slots.
            jobs: Jobs with remaining units.
            goals: The position at which the present epoch of each job ends.
            able: The ids of the jobs that may start a unit.
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
            idle: The ids of the idle slots.
            now: The time in seconds (`Cluster.now`).
        """
        numbers = [number for number, slot in enumerate(self.slots) if slot in idle]
        for slot, unit in self._online.start(numbers, now) if numbers else ():
            yield self.slots[slot], self.jobs[unit.config], self.partitions[unit.partition]

    def ended(self, slot: str, seconds: float) -> bool:
        """Record the end of a unit.

        Args:
            slot: The id of the slot.
            seconds: The duration of the unit.

        Returns:
            True if a unit was running on this slot by this schedule; False: nothing is recorded.
        """
        number = self.slots.index(slot) if slot in self.slots else -1
        if number not in self._online.running:
            return False
        self._online.ended(number, seconds)
        return True

    @property
    def known(self) -> bool:
        """Whether times have been measured for all jobs and slots of this schedule."""
        return self._estimates.know(self.jobs, self.slots)

    @property
    def follows(self) -> bool:
        """Whether units start as the plan given to `follow` says."""
        return self._online.follows

    def left(self, now: float) -> VisitProblem:
        """Return the problem with the units that remain at the time `now`, in seconds (`Cluster.now`)."""
        return self._online.left(now)

    def schedule(self, steps: Sequence[Step]) -> VisitSchedule:
        """Convert a plan to the indices of this object. A unit whose job or slot is not in this object is left out.

        Args:
            steps: The units of the plan, in order of start; a partition that is not in this object raises `KeyError`.

        Returns:
            A schedule whose times are the places of the units in that order, not seconds.
        """
        jobs, slots = ({name: number for number, name in enumerate(names)} for names in (self.jobs, self.slots))
        return VisitSchedule(
            tuple(
                ScheduledUnit(
                    TrainingUnit(jobs[job], self._numbers[partition]), slots[slot], float(order), float(order)
                )
                for order, (slot, job, partition) in enumerate(steps)
                if job in jobs and slot in slots
            )
        )

    def follow(self, plan: VisitSchedule, now: float) -> None:
        """Start units as a plan says, until the ratio of two estimated costs or speeds has changed by the factor `UNEXPECTED` (2).

        Then, or when a slot fails, units are chosen by a rule again, which is made by the argument `make` of the constructor.

        Args:
            plan: A schedule that contains all remaining units.
            now: The time in seconds (`Cluster.now`).
        """
        self._online.follow(PlanFollower(self._online.left(now), plan))

    def _done(self, job: JobView, goal: int) -> frozenset[int]:
        """Return the indices of the partitions that a job must not start on in its present epoch.

        These are the partitions that it was trained on or is being trained on. A job that returned to an earlier snapshot repeats
        the partition that it trained at its position before, if a node holds it: then all other partitions are returned.

        Args:
            job: The job.
            goal: The position at which its present epoch ends.
        """
        running = self._visits.running.get(job.id)
        done = self._visits.visited(job, (goal - 1) // len(self.partitions) * len(self.partitions))
        again = self._visits.again(job)
        if len(again) == 1 and running is None and self._held.issuperset(again):
            return frozenset(range(len(self.partitions))) - {self._numbers[again[0]]}
        done |= set(running.partitions) if running is not None else set()
        return frozenset(self._numbers[name] for name in done)
