"""What is to be trained now, as the policy sees it: names become a problem's numbers, and a scheduler's choices names again."""

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
"""A unit of a plan: machine, job, partition."""


class Round:
    """The units that some jobs have left in their present epochs. It serves until something happens that it did not expect.

    Args:
        cluster: Which machines there are.
        data: Which of them hold what.
        jobs: Those that have units left.
        goals: Where the present epoch of each ends.
        wanted: Where each is to get in the end, as far as is known.
        visits: What they have visited, and what they are trained on now.
        estimates: What is known of costs and speeds; the round adds what it sees.
        make: Makes the scheduler.

    Attributes:
        jobs: The names of those that have units left, by number.
        machines: The same of machines.
        partitions: The same of partitions.
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
        self.machines = list(cluster.machines)
        self.jobs = [job.id for job in jobs]
        self._goals = [goals[job.id] for job in jobs]
        self._held = {each.name for each in data.train if each.nodes}
        sizes = [size(each, data.train) for each in data.train]
        mean = math.fsum(sizes) / len(sizes)
        sizes = [each / mean for each in sizes]
        holders = [
            [number for number, machine in enumerate(cluster.machines.values()) if machine.node in each.nodes]
            for each in data.train
        ]
        costs, speeds = estimates.of(self.jobs, self.machines)
        usual = math.fsum(1.0 / speed for speed in speeds) / max(len(speeds), 1)
        configs, machines = [0.0] * len(jobs), [0.0] * len(speeds)
        running: dict[int, TrainingUnit] = {}
        for number, job in enumerate(self.jobs):
            unit = visits.running.get(job)
            places = zip(unit.machines, unit.partitions, strict=True) if unit is not None else ()
            gone = cluster.now - unit.began if unit is not None else 0.0
            for name, partition in places:
                if name in cluster.machines:
                    machine, part = self.machines.index(name), self._numbers[partition]
                    running[machine] = TrainingUnit(number, part)
                    machines[machine] = max(costs[number] * sizes[part] / speeds[machine] - gone, 0.0)
                    configs[number] = max(configs[number], machines[machine])
        problem = VisitProblem(
            costs,
            sizes,
            speeds,
            holders,
            done=[self._done(job, goal) for job, goal in zip(jobs, self._goals, strict=True)],
            config_free=configs,
            machine_free=machines,
            config_after=[
                cost * usual * max(wanted[job.id] - goal, 0)
                for cost, job, goal in zip(costs, jobs, self._goals, strict=True)
            ],
        )
        self._online = Online(problem, make, estimates, self.jobs, self.machines, running)

    def goes_on(
        self, machines: Collection[str], jobs: Sequence[JobView], goals: Mapping[str, int], able: Collection[str]
    ) -> bool:
        """Whether all is as expected; then it takes note of the jobs that may start a unit now.

        Args:
            machines: All that there are.
            jobs: Those that have units left.
            goals: Where the present epoch of each ends.
            able: Those that may start one.
        """
        if list(machines) != self.machines or [job.id for job in jobs] != self.jobs:
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
        """Which machine trains which job on which partition from now on.

        Args:
            idle: Machines that may start something.
            now: The time.
        """
        numbers = [number for number, machine in enumerate(self.machines) if machine in idle]
        for machine, unit in self._online.start(numbers, now) if numbers else ():
            yield self.machines[machine], self.jobs[unit.config], self.partitions[unit.partition]

    def ended(self, machine: str, seconds: float) -> bool:
        """Takes note of a unit that ended after so many seconds; whether it was expected to."""
        number = self.machines.index(machine) if machine in self.machines else -1
        if number not in self._online.running:
            return False
        self._online.ended(number, seconds)
        return True

    @property
    def known(self) -> bool:
        """Whether the costs and speeds of all that takes part have been seen."""
        return self._estimates.know(self.jobs, self.machines)

    @property
    def follows(self) -> bool:
        """Whether it follows a plan that was given to it."""
        return self._online.follows

    def left(self, now: float) -> VisitProblem:
        """What is still to be started."""
        return self._online.left(now)

    def schedule(self, steps: Sequence[Step]) -> VisitSchedule:
        """A plan in the round's numbers, without what the round has not; times are no more than the order."""
        jobs, machines = ({name: number for number, name in enumerate(names)} for names in (self.jobs, self.machines))
        return VisitSchedule(
            tuple(
                Placed(TrainingUnit(jobs[job], self._numbers[partition]), machines[machine], float(order), float(order))
                for order, (machine, job, partition) in enumerate(steps)
                if job in jobs and machine in machines
            )
        )

    def follow(self, plan: VisitSchedule, now: float) -> None:
        """Follows a plan that has all that is left, until times turn out to be quite others than expected."""
        self._online.follow(Following(self._online.left(now), plan))

    def _done(self, job: JobView, goal: int) -> frozenset[int]:
        """The partitions that a job is not to be trained on any more in its epoch, or that it is trained on now.

        One that was thrown back is to train what it trained there before, if that can be.
        """
        running = self._visits.running.get(job.id)
        done = self._visits.visited(job, (goal - 1) // len(self.partitions) * len(self.partitions))
        again = self._visits.again(job)
        if len(again) == 1 and running is None and self._held.issuperset(again):
            return frozenset(range(len(self.partitions))) - {self._numbers[again[0]]}
        done |= set(running.partitions) if running is not None else set()
        return frozenset(self._numbers[name] for name in done)
