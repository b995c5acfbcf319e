"""What is to be trained now, as the policy sees it: names become a problem's numbers, and a scheduler's choices names again."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from hopyard.policy import Cluster, Data, JobView
from hopyard_policies.mop.books import Visits, size
from hopyard_policies.mop.dispatch import Rule
from hopyard_policies.mop.estimates import Estimates
from hopyard_policies.mop.online import Online
from hopyard_policies.mop.problem import Problem, Unit


class Round:
    """The units that some jobs have left in their present epochs. It serves until something happens that it did not expect.

    Args:
        cluster: Which machines there are.
        data: Which of them hold what.
        jobs: Those that have units left.
        goals: Where the present epoch of each ends.
        visits: What they have visited, and what they are trained on now.
        estimates: What is known of costs and speeds; the round adds what it sees.
        make: Makes the scheduler.
    """

    def __init__(
        self,
        cluster: Cluster,
        data: Data,
        jobs: Sequence[JobView],
        goals: Mapping[str, int],
        visits: Visits,
        estimates: Estimates,
        make: Callable[[Problem], Rule],
    ) -> None:
        self._visits = visits
        self._names = [each.name for each in data.train]
        self._partitions = {name: number for number, name in enumerate(self._names)}
        self._machines = list(cluster.machines)
        self._jobs = [job.id for job in jobs]
        self._goals = [goals[job.id] for job in jobs]
        self._held = {each.name for each in data.train if each.nodes}
        sizes = [size(each, data.train) for each in data.train]
        mean = math.fsum(sizes) / len(sizes)
        sizes = [each / mean for each in sizes]
        holders = [
            [number for number, machine in enumerate(cluster.machines.values()) if machine.node in each.nodes]
            for each in data.train
        ]
        costs, speeds = estimates.of(self._jobs, self._machines)
        usual = math.fsum(1.0 / speed for speed in speeds) / max(len(speeds), 1)
        configs, machines = [0.0] * len(jobs), [0.0] * len(speeds)
        running: dict[int, Unit] = {}
        for number, job in enumerate(self._jobs):
            unit = visits.running.get(job)
            if unit is not None and unit.machine in cluster.machines:
                machine, partition = self._machines.index(unit.machine), self._partitions[unit.partition]
                running[machine] = Unit(number, partition)
                end = unit.began + costs[number] * sizes[partition] / speeds[machine]
                configs[number] = machines[machine] = max(end - cluster.now, 0.0)
        problem = Problem(
            costs,
            sizes,
            speeds,
            holders,
            done=[self._done(job, goal) for job, goal in zip(jobs, self._goals, strict=True)],
            config_free=configs,
            machine_free=machines,
            config_after=[
                cost * usual * (job.max_position - goal)
                for cost, job, goal in zip(costs, jobs, self._goals, strict=True)
            ],
        )
        self._online = Online(problem, make, estimates, self._jobs, self._machines, running)

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
        if list(machines) != self._machines or [job.id for job in jobs] != self._jobs:
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
        numbers = [number for number, machine in enumerate(self._machines) if machine in idle]
        for machine, unit in self._online.start(numbers, now) if numbers else ():
            yield self._machines[machine], self._jobs[unit.config], self._names[unit.partition]

    def ended(self, machine: str, seconds: float) -> bool:
        """Takes note of a unit that ended after so many seconds; whether it was expected to."""
        number = self._machines.index(machine) if machine in self._machines else -1
        if number not in self._online.running:
            return False
        self._online.ended(number, seconds)
        return True

    def _done(self, job: JobView, goal: int) -> frozenset[int]:
        """The partitions that a job is not to be trained on any more in its epoch, or that it is trained on now.

        One that was thrown back is to train what it trained there before, if that can be.
        """
        running = self._visits.running.get(job.id)
        done = self._visits.visited(job, (goal - 1) // len(self._names) * len(self._names))
        again = self._visits.again(job)
        if again in self._held and running is None:
            return frozenset(range(len(self._names))) - {self._partitions[again]}
        done |= {running.partition} if running is not None else set()
        return frozenset(self._partitions[name] for name in done)
