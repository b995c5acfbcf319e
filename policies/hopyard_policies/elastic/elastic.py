"""Divides slots among elastic jobs: wider gangs while slots are idle, narrower ones when other jobs need slots.

The width of a gang is its number of slots. A *kind* of host is the hardware of a slot (`SlotView.hardware`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from hopyard.policy import ENDLESS, Cluster, JobState, JobView, RunEnd
from hopyard.policy.vocabulary import ApplicationStat
from hopyard_policies.base.parameters import need_whole
from hopyard_policies.elastic.config import MOST_SLOTS, checked, is_number, profile_of
from hopyard_policies.elastic.gang_pool import GangPool, kind_of
from hopyard_policies.elastic.profiling import ProfileBuilder
from hopyard_policies.elastic.scaling import Scaling

Left = Callable[[JobView], int]
"""Takes a job. Returns the units (positions) that its run has still to train, or would have if it started now."""

Worth = Callable[[JobView], float]
"""Takes a job. Returns the value of finishing it a second earlier, relative to other jobs."""

EFFICIENCY: Final = 0.75
PAUSE: Final = 10.0
MOST: Final = 16


class Elastic:
    """Assigns gangs to jobs when they start, and moves running jobs to wider or narrower gangs (ASHA paper, section 5.2).

    A starting job gets its part of the slots that no continuing run uses. These slots are divided among all
    waiting jobs, including jobs yet to be created, so that no job waits while others train on several slots. When no
    job waits, running jobs get the idle slots: if a wider gang saves more time than the move costs, the job is
    suspended at its next boundary and started on the wider gang. When the share shrinks, jobs move to narrower gangs
    until they fit or have the smallest permitted gang; the engine preempts the rest.

    All slots of a gang belong to one kind of host. Each measured kind has its own profile: the seconds of a unit by number of
    slots. Slots are divided by the profile of the kind that the experiment has most of. A gang mixes kinds only if no kind
    has enough slots for the smallest permitted gang. A unit is one position of training.

    Args:
        option: The parameter `elastic` of a policy, a mapping with these optional keys. `profile`: seconds of a unit by number
            of slots; the smallest number is the smallest permitted gang. Without it the times of earlier experiments are used,
            and missing ones are measured (`hopyard_policies.elastic.profiling`). `anew`: measure all times, even if earlier
            experiments have measured them; False by default; not with `profile`. `efficiency`: the least efficiency of a gang,
            in (0, 1], 0.75 by default; the efficiency is the slot time of a unit (seconds times slots) on the smallest gang of
            the profile, divided by that on this gang. `pause`: the seconds that moving a job costs, 10 by default. `most`: the
            most slots of a job; by default 16, or with `profile` its largest number.

    Raises:
        ValueError: The option is invalid.
    """

    def __init__(self, option: object) -> None:
        given = checked(option)
        self._efficiency: float = given.get("efficiency", EFFICIENCY)
        self._pause: float = given.get("pause", PAUSE)
        most, anew = given.get("most", MOST), given.get("anew", False)
        if not is_number(self._efficiency) or not 0 < self._efficiency <= 1:
            raise ValueError(f"elastic.efficiency is {self._efficiency!r}; it must be a number above 0, up to 1")
        if not is_number(self._pause) or self._pause < 0:
            raise ValueError(f"elastic.pause is {self._pause!r}; it must be a number of seconds of at least 0")
        need_whole("elastic.most", most)
        if most > MOST_SLOTS:
            raise ValueError(f"elastic.most is {most}; it must be at most {MOST_SLOTS}")
        if type(anew) is not bool or (anew and "profile" in given):
            raise ValueError(
                f"elastic.anew is {anew!r}; it may be true where there is no profile, which is measured then"
            )
        self._measuring: ProfileBuilder | None = None
        self._scalings: dict[str, Scaling] = {}  # Measured scaling by kind of host.
        profile: Mapping[int, float] = {1: 1.0}  # One slot until something is measured.
        if "profile" in given:
            profile = profile_of(given["profile"])
            if "most" in given:
                if most < min(profile):
                    raise ValueError(f"elastic.most is {most}; with this profile it must be at least {min(profile)}")
                profile = {size: seconds for size, seconds in profile.items() if size <= most}
        else:
            self._measuring = ProfileBuilder(most, self._efficiency, anew=anew)
        self._given = Scaling(profile, self._efficiency)
        # By job that is moving to another gang: the attempt that ends, and the size of the next gang.
        self._moving: dict[str, tuple[int, int]] = {}
        self._begun = 0  # Number of jobs started in this up-call.

    def on_profile(self, stat: ApplicationStat) -> None:
        """Record the time of a unit that a profiling run has measured.

        Args:
            stat: The report of the profiling run. A report of any other job is ignored.
        """
        if self._measuring is not None:
            self._measuring.took(stat)
            self._learn(self._measuring)

    def on_run_end(self, run: RunEnd) -> None:
        """Record the end of a run if it was a profiling run (which measures the time of a unit); ignore other runs."""
        if self._measuring is not None:
            self._measuring.ended(run)

    @property
    def least(self) -> int:
        """The size, in slots, of the smallest gang that a job may train on: the smallest number in `profile`; 1 without a profile."""
        return self._given.sizes[0]

    def slots(self, cluster: Cluster) -> list[str]:
        """Return the ids of idle slots, one for each job that can start now on a gang of the smallest size (`least`).

        The result is empty if too few slots are idle or the limit on concurrent jobs is reached.
        """
        idle = cluster.idle_slots()
        return [slot.id for slot in idle[: min(len(idle) // self.least, self._places(cluster))]]

    def first(self, jobs: Sequence[JobView]) -> list[JobView]:
        """Sort waiting jobs so that those that were suspended to move to another gang come first; otherwise the order remains."""
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
        """Start jobs on gangs of idle slots; return the jobs that must wait.

        A job waits if no gang is free for it or if the limit on concurrent jobs is reached. For the first job a profiling run may be
        started instead, a short run that measures the time of a unit; the job is then among the returned jobs.

        Slots are divided by the weights of the jobs: the units that a job has left, times its `worth`.

        Args:
            cluster: The view of the up-call, in which no job has been started yet.
            jobs: The jobs to start, in order.
            coming: Number of other jobs that wait or will wait soon. For each, slots are reserved as for the job with the least weight.
            left: Returns the units of training (positions) that a job has left.
            begin: Is called with each job to start and the ids of its slots, in the order of ranks; submits the start.
            worth: Returns the value of finishing a job a second earlier, relative to other jobs.
        """
        self._look(cluster, left)
        places = self._places(cluster)
        waiting, jobs = list(jobs[places:]), jobs[:places]
        coming = min(coming, places - len(jobs))
        used: tuple[str, ...] = ()
        if jobs and self._measuring is not None:
            self._measuring.look(cluster)
            used = self._measuring.begin(cluster, jobs[0].id, len(jobs) - 1 + coming)
            waiting, jobs = ([jobs[0], *waiting], jobs[1:]) if used else (waiting, jobs)
            self._begun = int(bool(used))
        idle = [slot for slot in cluster.idle_slots() if slot.id not in used]
        if not jobs or not idle:
            return [*jobs, *waiting]
        starting = {job.id for job in jobs}
        moving = [cluster.jobs[name] for name in self._moving if name not in starting]
        staying = [job for job in cluster.live_jobs() if self._stays(job)]
        # A rank that has left the gang before the others has released its slot.
        kept = {*used, *(slot for job in staying for slot in job.slots)} - {slot.id for slot in idle}
        room = cluster.share - len(kept)
        weights = [left(job) * worth(job) for job in (*jobs, *moving)]
        weights += [min(weights)] * min(coming, max(room, 0) // self.least)
        yard = GangPool(cluster, idle, kept, room)
        kinds = {kind: self._of(kind) for kind in yard.kinds}
        sizes = self._main(cluster).divide(weights, room)
        for job, size in zip(moving, sizes[len(jobs) :], strict=False):
            self._moving[job.id] = job.attempt, size or self.least  # Its size in this division.
        late: list[JobView] = []
        for job, wanted in zip(jobs, sizes, strict=False):
            gang = yard.take(wanted, kinds, self.least)
            if gang:
                self._begun += 1
                begin(job, gang)
            else:
                late.append(job)
        return [*late, *waiting]

    def widen(self, cluster: Cluster, others: int, left: Left, worth: Worth = lambda _: 1.0) -> None:
        """Move running jobs to wider gangs on idle slots, unless other waiting jobs can use these slots.

        Call it right after `start`, in the same up-call.

        Args:
            cluster: The view of the up-call.
            others: The number of jobs that wait for slots.
            left: Returns the units of training (positions) that a job has left.
            worth: Returns the value of finishing a job a second earlier, relative to other jobs.
        """
        if others and self._places(cluster) > self._begun:
            return
        live = cluster.live_jobs()
        slots = cluster.slots
        planned = {job: max(size - len(cluster.jobs[job].slots), 0) for job, (_, size) in self._moving.items()}
        room = cluster.share - sum(len(job.slots) for job in live) - sum(planned.values())
        idle = Counter(slot.hardware for slot in cluster.idle_slots())
        for job, more in planned.items():
            kind = kind_of(slots, cluster.jobs[job].slots)
            # A job that has left its slots may get slots of any kind.
            idle.subtract(dict.fromkeys(idle if kind is None else (kind,), more))
        able = [job for job in live if self._stays(job) and not self._profiled(job)]
        for kind in sorted(idle):
            alike = [job for job in able if kind_of(slots, job.slots) == kind]
            room -= self._widen_alike(cluster, alike, self._of(kind), min(idle[kind], room), left, worth)

    def _widen_alike(
        self, cluster: Cluster, jobs: list[JobView], scaling: Scaling, free: int, left: Left, worth: Worth
    ) -> int:
        """Move running jobs whose slots are of one kind of host to wider gangs, if the saved time is worth the move.

        Args:
            cluster: The view of the up-call; receives the commands.
            jobs: The jobs.
            scaling: The time of a unit by gang size on this kind of host.
            free: The number of slots by which all gangs together may grow.
            left: Returns the units of training (positions) that a job has left.
            worth: Returns the value of finishing a job a second earlier, relative to other jobs.

        Returns:
            The number of slots by which the gangs will grow.
        """
        while jobs and free > 0:
            before = [len(job.slots) for job in jobs]
            after = before.copy()
            scaling.grow(after, [left(job) * worth(job) for job in jobs], free)
            moves = [(job, size) for job, size, now in zip(jobs, after, before, strict=True) if size > now]
            vain = {job.id for job, size in moves if not self._pays(scaling, job, size, left)}
            if not vain:
                for job, size in moves:
                    self._move(cluster, job, size)
                return sum(after) - sum(before)
            jobs = [job for job in jobs if job.id not in vain]
        return 0

    def narrow(self, cluster: Cluster, left: Left) -> None:
        """Move running jobs to narrower gangs if they have more slots than the share.

        If more jobs run than the limit on concurrent jobs allows, those with the highest priority, then the oldest, continue; the
        others are suspended.

        Args:
            cluster: The view of the up-call.
            left: Returns the units of training (positions) that a job has left.
        """
        self._look(cluster, left)
        limit = cluster.experiment.concurrency
        jobs = [job for job in cluster.live_jobs() if self._stays(job)]
        if limit is not None and len(jobs) + len(self._moving) > limit:
            ranked = sorted(jobs, key=lambda job: (-(job.priority or 0.0), job.ordinal))
            staying = max(limit - len(self._moving), 0)
            for job in ranked[staying:]:
                cluster.suspend_job(job.id)
            jobs = sorted(ranked[:staying], key=lambda job: job.ordinal)
        planned = sum(size for _, size in self._moving.values())
        above = sum(len(job.slots) for job in jobs) + planned - cluster.share
        if above <= 0:
            return
        moving = [cluster.jobs[name] for name in self._moving]
        sizes = self._main(cluster).divide([left(job) for job in (*jobs, *moving)], cluster.share)
        narrower = [(len(job.slots) - size, job, size) for job, size in zip(jobs, sizes, strict=False) if size]
        for freed, job, size in sorted(narrower, key=lambda move: -move[0]):
            if above <= 0 or freed <= 0:
                return
            self._move(cluster, job, size)
            above -= freed

    def demand(self, cluster: Cluster, waiting: int, left: Left) -> int:
        """Return the number of slots that the jobs can use.

        For a running job it is the size of the gang to which it would move if enough slots were idle, or its present size if no
        move is worth its cost. For a waiting job it is the size of the largest allowed gang.

        Args:
            cluster: The view of the up-call.
            waiting: The number of waiting jobs; those beyond the limit on concurrent jobs need no slots.
            left: Returns the units of training (positions) that a job has left.
        """
        self._know(cluster)
        slots = cluster.slots
        kinds = {slot.hardware for slot in slots.values()}
        most = max(self._most(kinds), self._measuring.room(kinds) if self._measuring is not None else 0)
        live = cluster.live_jobs()
        limit = cluster.experiment.concurrency
        waiting = waiting if limit is None else min(waiting, max(limit - len(live), 0))
        return waiting * most + sum(self._wanted(job, kind_of(slots, job.slots), most, left) for job in live)

    # ----------------------------------------------------------------------------------------------------------- helpers

    def _know(self, cluster: Cluster) -> None:
        """Load the measurements of earlier experiments on the first call."""
        if self._measuring is not None:
            self._measuring.know(cluster.scaling)
            if len(self._scalings) < len(self._measuring.profiles):
                self._learn(self._measuring)

    def _learn(self, measuring: ProfileBuilder) -> None:
        self._scalings = {kind: Scaling(profile, self._efficiency) for kind, profile in measuring.profiles.items()}

    def _look(self, cluster: Cluster, left: Left) -> None:
        """Prepare an up-call: update which jobs are moving to another gang, which they do by suspending and starting again.

        A job is no longer moving if it has started on its new gang, did not suspend, has ended, has no units left, is HELD, or is in
        backoff.

        Args:
            cluster: The view of the up-call.
            left: Returns the units of training (positions) that a job has left.
        """
        self._know(cluster)
        self._begun = 0
        for name, (attempt, _) in list(self._moving.items()):
            job = cluster.jobs[name]
            waits = job.state.idle and left(job) > 0 and cluster.experiments[job.experiment].running
            waits = waits and not cluster.backs_off(name)
            if job.attempt != attempt or not (waits or job.state is JobState.SUSPENDING):
                del self._moving[name]

    def _places(self, cluster: Cluster) -> int:
        """Return how many more jobs the limit on concurrent jobs allowed to train at the start of the up-call; `ENDLESS`: no limit."""
        limit = cluster.experiment.concurrency
        return ENDLESS if limit is None else max(limit - len(cluster.live_jobs()), 0)

    def _of(self, kind: str | None) -> Scaling:
        """Return the time of a unit by gang size on a kind of host; None: for gangs of mixed kinds.

        For mixed kinds and a kind that was not measured, it is the given `profile`; without one, only one slot is allowed.
        """
        return self._scalings.get(kind, self._given) if kind is not None else self._given

    def _main(self, cluster: Cluster) -> Scaling:
        """Return the time of a unit by gang size on the kind of host of which the experiment has most slots.

        Before any kind is measured, the result is the profile with which this object was created.
        """
        if not self._scalings:
            return self._given
        counts = Counter(slot.hardware for slot in cluster.slots.values())
        return self._of(min(counts, key=lambda kind: (-counts[kind], kind), default=None))

    def _most(self, kinds: Iterable[str]) -> int:
        """Return the size of the largest allowed gang on any of these kinds of host; if `kinds` is empty, on any measured kind."""
        there = [self._of(kind) for kind in kinds] or [*self._scalings.values()] or [self._given]
        return max(scaling.sizes[-1] for scaling in there)

    def _stays(self, job: JobView) -> bool:
        return job.state is not JobState.SUSPENDING and job.id not in self._moving

    def _profiled(self, job: JobView) -> bool:
        return self._measuring is not None and self._measuring.holds(job.id)

    def _pays(self, scaling: Scaling, job: JobView, size: int, left: Left) -> bool:
        # Moving a job that is still starting costs twice: its start is lost, too.
        cost = self._pause * (2 if job.state is JobState.STARTING else 1)
        return scaling.saved(len(job.slots), size, left(job)) > cost

    def _wanted(self, job: JobView, kind: str | None, most: int, left: Left) -> int:
        if self._moving.get(job.id, (0, 0))[0] == job.attempt:
            return self._most([] if kind is None else [kind])
        now, scaling = len(job.slots), self._of(kind)
        if self._profiled(job):
            return max(now, most)
        if job.state is JobState.SUSPENDING or now not in scaling.sizes:
            return now
        return max((size for size in scaling.sizes if size > now and self._pays(scaling, job, size, left)), default=now)

    def _move(self, cluster: Cluster, job: JobView, size: int) -> None:
        self._moving[job.id] = job.attempt, size
        cluster.suspend_job(job.id)
