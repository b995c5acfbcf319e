"""How many machines a job trains on: more where machines are free, fewer where others need them (ASHA paper, section 5.2)."""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from hopyard.policy import ApplicationStat, Cluster, JobState, JobView, MachineView, Policy, RunEnd, ShareChange
from hopyard_policies.measuring import Measuring, measured
from hopyard_policies.parameters import need_whole

Left = Callable[[JobView], int]
"""How many units a job's run has before it, or would have."""

Worth = Callable[[JobView], float]
"""What a second that a job is done sooner is worth, beside the others'; all alike by default."""

EFFICIENCY: Final = 0.75
PAUSE: Final = 10.0
MOST: Final = 16
_OPTIONS: Final = ("profile", "efficiency", "pause", "most")


class Scaling:
    """How long a unit takes on so many machines, and on how many of them a job may train.

    Attributes:
        sizes: The gangs that a job may train on, rising: those of the profile that are faster than every smaller one, up to the
            largest whose efficiency is at least the wanted one. Efficiency is the machine time of a unit on the smallest gang, by that
            on this one.
    """

    def __init__(self, profile: Mapping[int, float], efficiency: float) -> None:
        self._seconds = dict(sorted(profile.items()))
        least = next(iter(self._seconds))
        sizes: list[int] = []
        for size, seconds in self._seconds.items():
            faster = not sizes or seconds < self._seconds[sizes[-1]]
            if faster and least * self._seconds[least] >= efficiency * size * seconds:
                sizes.append(size)
        self.sizes = tuple(sizes)

    def saved(self, size: int, other: int, left: float) -> float:
        """Seconds that so many units take less on another gang than on one of this size."""
        return left * (self._seconds[size] - self._seconds[other])

    def grow(self, sizes: list[int], weights: Sequence[float], spare: int) -> None:
        """Widens gangs, in place, by `spare` machines at most: each time where a further machine saves most, the first of several.

        `weights` are the units that each has left, times what its seconds are worth. Gangs whose size is none of `sizes` stay as
        they are.
        """
        following = dict(zip(self.sizes, self.sizes[1:], strict=False))
        heap: list[tuple[float, int, int]] = []

        def offer(index: int) -> None:
            wider = following.get(sizes[index])
            if wider is not None and wider - sizes[index] <= spare:
                gain = self.saved(sizes[index], wider, weights[index]) / (wider - sizes[index])
                heapq.heappush(heap, (-gain, index, wider))

        for index in range(len(sizes)):
            offer(index)
        while heap and spare > 0:
            _, index, wider = heapq.heappop(heap)
            if wider - sizes[index] <= spare:
                spare -= wider - sizes[index]
                sizes[index] = wider
                offer(index)

    def divide(self, weights: Sequence[float], machines: int) -> list[int]:
        """Gangs for jobs of such weights: each the smallest, the first first; then they are widened. 0: none."""
        least = self.sizes[0]
        served = min(len(weights), max(machines, 0) // least)
        sizes = [least] * served
        self.grow(sizes, weights, machines - served * least)
        return sizes + [0] * (len(weights) - served)


class Elastic:
    """Gives jobs gangs when they start, and moves them to others while they train.

    A job that starts gets its part of the machines that no other run of the experiment keeps: they are divided among all that wait for
    one, those that are yet to be made included, so that nobody waits where others train on several. When nobody waits, idle machines
    go to jobs that train: where the wider gang saves more than the move costs, a job is suspended at its next boundary and started
    on it. When the share becomes smaller, jobs are narrowed likewise, until they fit or are as narrow as may be; what is still too much
    the core preempts.

    Args:
        option: The parameter `elastic` of a policy: `profile`, the seconds that a unit takes by number of machines (the
            smallest is the least a job trains on), without which it is measured (`hopyard_policies.measuring`); `efficiency`, the
            least that a gang may have, in (0, 1], 0.75 by default; `pause`, the seconds that moving a job costs, 10 by default;
            `most`, the most machines of a job, 16 by default where it is measured.

    Raises:
        ValueError: The option is not as it must be.
    """

    def __init__(self, option: object) -> None:
        given = _checked(option)
        self._efficiency: float = given.get("efficiency", EFFICIENCY)
        self._pause: float = given.get("pause", PAUSE)
        most = given.get("most", MOST)
        if not _is_number(self._efficiency) or not 0 < self._efficiency <= 1:
            raise ValueError(f"elastic.efficiency is {self._efficiency!r}; it must be a number above 0, up to 1")
        if not _is_number(self._pause) or self._pause < 0:
            raise ValueError(f"elastic.pause is {self._pause!r}; it must be a number of seconds of at least 0")
        need_whole("elastic.most", most)
        self._measuring: Measuring | None = None
        if "profile" in given:
            profile: Mapping[int, float] = _profile(given["profile"])
            if "most" in given:
                profile = {size: seconds for size, seconds in profile.items() if size <= most} or profile
        else:
            self._measuring = Measuring(most, self._efficiency)
            profile = measured({})
        self._scaling = Scaling(profile, self._efficiency)
        # The attempt of a job that is to end, and on how many machines the next one is to be.
        self._moving: dict[str, tuple[int, int]] = {}

    def on_profile(self, stat: ApplicationStat) -> None:
        """A job was profiled."""
        if self._measuring is not None:
            self._measuring.took(stat)
            self._scaling = Scaling(measured(self._measuring.profile), self._efficiency)

    def on_run_end(self, run: RunEnd) -> None:
        """A run is over: perhaps one that only measured."""
        if self._measuring is not None:
            self._measuring.ended(run)

    @property
    def least(self) -> int:
        """The smallest gang that a job trains on."""
        return self._scaling.sizes[0]

    @property
    def most(self) -> int:
        """The largest."""
        return self._scaling.sizes[-1]

    def slots(self, cluster: Cluster) -> list[str]:
        """As many idle machines as jobs can start."""
        idle = cluster.idle_machines()
        return [machine.id for machine in idle[: len(idle) // self.least]]

    def first(self, jobs: Sequence[JobView]) -> list[JobView]:
        """Jobs that wait, those first that were taken off their machines to get others."""
        return sorted(jobs, key=lambda job: job.id not in self._moving)

    def start(
        self,
        cluster: Cluster,
        jobs: Sequence[JobView],
        coming: int,
        left: Left,
        begin: Callable[[JobView, tuple[str, ...]], None],
        worth: Worth = lambda _: 1.0,
    ) -> list[JobView]:
        """Starts jobs on idle machines; returns those for which there are none.

        Args:
            cluster: The moment of the up-call; nothing was started in its answer.
            jobs: Which, in order.
            coming: How many others wait for machines or will soon; they are taken to weigh as little as any of `jobs`.
            left: What each has left.
            begin: Starts one on machines, in the order of their ranks.
            worth: What its seconds are worth.
        """
        self._look(cluster, left)
        waiting: list[JobView] = []
        used: tuple[str, ...] = ()
        if jobs and self._measuring is not None:
            self._measuring.look(cluster)
            used = self._measuring.begin(cluster, jobs[0].id, len(jobs) - 1 + coming)
            waiting, jobs = ([jobs[0]], jobs[1:]) if used else ([], jobs)
        idle = [machine for machine in cluster.idle_machines() if machine.id not in used]
        if not jobs or not idle:
            return [*waiting, *jobs]
        starting = {job.id for job in jobs}
        moving = [cluster.jobs[name] for name in self._moving if name not in starting]
        kept = sum(len(job.machines) for job in cluster.live_jobs() if self._stays(job))
        room = cluster.share - kept - len(used)
        weights = [left(job) * worth(job) for job in (*jobs, *moving)]
        weights += [min(weights)] * min(coming, max(room, 0) // self.least)
        # Its own machines that are being left will be idle at their runs' boundaries: who is to have them waits for that.
        leaving = min(len(cluster.machines) - kept, room) - len(idle)
        for job, wanted in zip(jobs, self._scaling.divide(weights, room), strict=False):
            size, later = (self._fitting(min(wanted, there)) for there in (len(idle), len(idle) + max(leaving, 0)))
            if size and size == later:
                begin(job, _taken(idle, size))
            else:
                waiting.append(job)
        return waiting

    def widen(self, cluster: Cluster, left: Left, worth: Worth = lambda _: 1.0) -> None:
        """Moves jobs that train to wider gangs, with the machines that are idle: for when nobody else waits for these."""
        self._look(cluster, left)
        busy = sum(len(job.machines) for job in cluster.live_jobs())
        planned = sum(max(size - len(cluster.jobs[job].machines), 0) for job, (_, size) in self._moving.items())
        free = min(len(cluster.idle_machines()), cluster.share - busy) - planned
        jobs = [job for job in cluster.live_jobs() if self._stays(job) and not self._profiled(job)]
        while jobs and free > 0:
            before = [len(job.machines) for job in jobs]
            after = before.copy()
            self._scaling.grow(after, [left(job) * worth(job) for job in jobs], free)
            moves = [(job, size) for job, size, now in zip(jobs, after, before, strict=True) if size > now]
            vain = {job.id for job, size in moves if not self._pays(job, size, left)}
            if not vain:
                for job, size in moves:
                    self._move(cluster, job, size)
                return
            jobs = [job for job in jobs if job.id not in vain]

    def narrow(self, cluster: Cluster, left: Left) -> None:
        """Moves jobs to narrower gangs, as far as the share has become too small for all that train."""
        self._look(cluster, left)
        jobs = [job for job in cluster.live_jobs() if self._stays(job)]
        surplus = (
            sum(len(job.machines) for job in jobs) + sum(size for _, size in self._moving.values()) - cluster.share
        )
        if surplus <= 0:
            return
        moving = [cluster.jobs[name] for name in self._moving]
        sizes = self._scaling.divide([left(job) for job in (*jobs, *moving)], cluster.share)
        narrower = [(len(job.machines) - size, job, size) for job, size in zip(jobs, sizes, strict=False) if size]
        for freed, job, size in sorted(narrower, key=lambda move: -move[0]):
            if surplus <= 0 or freed <= 0:
                return
            self._move(cluster, job, size)
            surplus -= freed

    def demand(self, cluster: Cluster, waiting: int, left: Left) -> int:
        """Machines that can be of use: to who trains, as many as it would be moved to; to `waiting` others, the most for each."""
        most = max(self.most, self._measuring.room) if self._measuring is not None else self.most
        return waiting * most + sum(self._wanted(job, left) for job in cluster.live_jobs())

    # ------------------------------------------------------------------------------------------------------------ inside

    def _look(self, cluster: Cluster, left: Left) -> None:
        """Forgets those that have been moved, could not be suspended, or came to an end while they left."""
        for name, (attempt, _) in list(self._moving.items()):
            job = cluster.jobs[name]
            waits = job.state.idle and left(job) > 0
            if job.attempt != attempt or not (waits or job.state is JobState.SUSPENDING):
                del self._moving[name]

    def _fitting(self, machines: int) -> int:
        return max((size for size in self._scaling.sizes if size <= machines), default=0)

    def _stays(self, job: JobView) -> bool:
        return job.state is not JobState.SUSPENDING and job.id not in self._moving

    def _profiled(self, job: JobView) -> bool:
        return self._measuring is not None and self._measuring.holds(job.id)

    def _pays(self, job: JobView, size: int, left: Left) -> bool:
        # One that only starts would do so in vain.
        cost = self._pause * (2 if job.state is JobState.STARTING else 1)
        return self._scaling.saved(len(job.machines), size, left(job)) > cost

    def _wanted(self, job: JobView, left: Left) -> int:
        if self._moving.get(job.id, (0, 0))[0] == job.attempt:
            return self.most
        now = len(job.machines)
        if self._profiled(job) and self._measuring is not None:
            return max(now, self._measuring.room)
        if job.state is JobState.SUSPENDING or now not in self._scaling.sizes:
            return now
        return max((size for size in self._scaling.sizes if size > now and self._pays(job, size, left)), default=now)

    def _move(self, cluster: Cluster, job: JobView, size: int) -> None:
        self._moving[job.id] = job.attempt, size
        cluster.suspend_job(job.id)


class ElasticPolicy(Policy):
    """A policy whose jobs train on gangs where its parameter `elastic` says so, and otherwise on one machine each.

    Args:
        elastic: The parameter; None: it is not given.

    Raises:
        ValueError: The parameter is not as it must be.
    """

    def __init__(self, elastic: Mapping[str, Any] | None) -> None:
        self._elastic = None if elastic is None else Elastic(elastic)

    def on_profile(self, cluster: Cluster, stat: ApplicationStat) -> None:
        """How long a unit takes on some machines is known."""
        if self._elastic is not None:
            self._elastic.on_profile(stat)

    def on_run_end(self, cluster: Cluster, run: RunEnd) -> None:
        """A run is over: perhaps one that only measured."""
        if self._elastic is not None:
            self._elastic.on_run_end(run)

    def on_share_change(self, cluster: Cluster, change: ShareChange) -> None:
        """Elastic jobs make room for each other."""
        if self._elastic is not None:
            self._elastic.narrow(cluster, self._way)

    def gang(self, cluster: Cluster) -> int:
        """The machines that a job needs at least."""
        return self._elastic.least if self._elastic is not None else 1

    def _useful(self, cluster: Cluster, waiting: int) -> int:
        """Machines that can be of use to jobs that train and to so many others."""
        if self._elastic is not None:
            return self._elastic.demand(cluster, waiting, self._way)
        return cluster.busy_machines() + waiting

    def _way(self, job: JobView) -> int:
        """Units that a run of the job has before it, or would have."""
        return job.max_position - job.position


def _taken(idle: list[MachineView], size: int) -> tuple[str, ...]:
    """Takes machines for a gang, on as few nodes as can be; of nodes that have enough, the one with the fewest idle ones."""
    if size == 1:
        return (idle.pop(0).id,)
    counts = Counter(machine.node for machine in idle)

    def rank(machine: MachineView) -> tuple[bool, int, str]:
        count = counts[machine.node]
        return count < size, count if count >= size else -count, machine.node

    chosen = sorted(idle, key=rank)[:size]
    for machine in chosen:
        idle.remove(machine)
    return tuple(machine.id for machine in chosen)


def _checked(option: object) -> Mapping[str, Any]:
    if not isinstance(option, Mapping) or (strange := sorted(set(option) - set(_OPTIONS))):
        found = f"it has {', '.join(map(str, strange))}" if isinstance(option, Mapping) else repr(option)
        raise ValueError(f"elastic: found {found}; it must be a mapping, which may have {', '.join(_OPTIONS)}")
    return option


def _profile(profile: object) -> dict[int, float]:
    found: dict[int, float] = {}
    for size, seconds in profile.items() if isinstance(profile, Mapping) else ():
        number = int(size) if isinstance(size, str) and size.isdecimal() else size  # JSON has no other keys.
        if type(number) is not int or number < 1 or number in found or not _is_number(seconds) or seconds <= 0:
            raise ValueError(
                f"elastic.profile has {size!r}: {seconds!r}; it must be a number of machines, each once, with the seconds (> 0) that "
                "a unit takes on them"
            )
        found[number] = seconds
    if not found:
        raise ValueError(
            f'elastic.profile is {profile!r}; it must be seconds by number of machines, such as {{"1": 8.0, "2": 4.2}}'
        )
    return found


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and type(value) is not bool and math.isfinite(value)
