"""The probe policies, which together use every primitive of the policy interface; one is a real policy."""

from __future__ import annotations

from hopyard.policy import (
    CONTINUE,
    PARK,
    SUSPEND,
    TERMINATE,
    AnswerReady,
    ApplicationStat,
    Cluster,
    Decision,
    IterationFinish,
    JobState,
    JobView,
    Policy,
    PredictionReady,
    RequestMade,
    RunEnd,
    RunMode,
    ShareChange,
    SlotsChange,
    TimerFired,
)
from hopyard_policies.default import DefaultPolicy
from hopyard_policies.stage_tree.policy import StageTreePolicy


def create_enough(cluster: Cluster, wanted: int) -> None:
    """Create jobs until `wanted` jobs are CREATING."""
    coming = sum(job.state is JobState.CREATING for job in cluster.jobs.values())
    for _ in range(min(wanted - coming, cluster.experiment.jobs_left)):
        cluster.create_job()


class Predict(Policy):
    """A policy that requests a prediction at each boundary, trains on meanwhile, and terminates jobs by the answers."""

    boundary = 3

    def __init__(self) -> None:
        self.asked: dict[str, tuple[str, int]] = {}
        self.again: dict[str, int] = {}
        self.is_lost_by_held_event: set[str] = set()

    def allocate_jobs(self, cluster: Cluster) -> None:
        idle = cluster.idle_slots()
        for slot in idle:
            job = cluster.get_idle_job()
            if job is None:
                break
            cluster.start_job(job, slot.id)
        create_enough(cluster, len(cluster.idle_slots()) - len(cluster.idle_jobs()))

    def on_iteration_finish(self, cluster: Cluster, event: IterationFinish) -> Decision:
        if event.at_until:
            return CONTINUE
        if event.job in self.is_lost_by_held_event:
            return TERMINATE
        if event.position % self.boundary == 0:
            self.asked[cluster.predict(event.job)] = (event.job, event.position)
            return Decision.proceed(event.position + self.boundary)
        return CONTINUE

    def on_prediction(self, cluster: Cluster, prediction: PredictionReady) -> None:
        job, _ = self.asked.pop(prediction.ticket)
        if prediction.result is None:
            self.again[job] = self.again.get(job, 0) + 1
            if self.again[job] < 3 and not cluster.jobs[job].state.ended:
                self.asked[cluster.predict(job)] = (job, cluster.jobs[job].position)
        elif prediction.result.mean and prediction.result.mean[-1] < 0.42:
            if cluster.rng.random() < 0.5 and cluster.jobs[job].state.live:
                self.is_lost_by_held_event.add(job)
            else:
                cluster.terminate_job(job)


class Rungs(Policy):
    """A policy of asynchronous halving: it suspends or parks jobs at rungs, and promotes them from a snapshot or in memory."""

    positions = (2, 4, 8)

    def __init__(self) -> None:
        self.values: dict[int, dict[str, float]] = {rung: {} for rung in self.positions}
        self.promoted: dict[int, set[str]] = {rung: set() for rung in self.positions}
        self.goal: dict[str, int] = {}
        self.parked: dict[str, str] = {}
        self.amends: dict[str, str] = {}
        self.too_late = 0

    def allocate_jobs(self, cluster: Cluster) -> None:
        self._promote_idle(cluster)
        for slot in cluster.idle_slots():
            ready = [j for j in cluster.idle_jobs() if j.position < self.goal.setdefault(j.id, self.positions[0])]
            if not ready:
                break
            job = ready[0]
            goal = self.goal[job.id]
            if cluster.snapshots(job.id):
                cluster.resume_job(job.id, slot.id, until=goal)
            else:
                cluster.start_job(job.id, slot.id, until=goal, allowed=goal)
        waiting = [j for j in cluster.idle_jobs() if j.position < self.goal.get(j.id, self.positions[0])]
        create_enough(cluster, len(cluster.idle_slots()) - len(waiting))
        self._finish(cluster)

    def _promotable(self, job: str, rung: int) -> bool:
        ranked = sorted(self.values[rung], key=lambda name: (-self.values[rung][name], name))
        return rung != self.positions[-1] and job in ranked[: (len(ranked) + 1) // 2] and job not in self.promoted[rung]

    def _promote(self, job: str, rung: int) -> int:
        self.promoted[rung].add(job)
        self.goal[job] = self.positions[self.positions.index(rung) + 1]
        return self.goal[job]

    def _promote_idle(self, cluster: Cluster) -> None:
        for job in cluster.idle_jobs():
            rung = self.goal.get(job.id, 0)
            if rung in self.values and job.id in self.values[rung] and self._promotable(job.id, rung):
                self._promote(job.id, rung)

    def on_iteration_finish(self, cluster: Cluster, event: IterationFinish) -> Decision:
        if not event.at_until:
            return CONTINUE
        job, rung = event.job, event.position
        if rung not in self.values:
            return SUSPEND
        self.values[rung].setdefault(job, event.report.metrics["score"])
        if rung == self.positions[-1]:
            return CONTINUE
        if self._promotable(job, rung) or self.goal[job] > rung:
            until = self.goal[job] if self.goal[job] > rung else self._promote(job, rung)
            self.amends[cluster.amend_run(job, until=until)] = job
            return Decision.proceed(until)
        self._promote_parked(cluster)
        if len(self.parked) == 0:
            self.parked[job] = cluster.wake_at(cluster.now + 6.0)
            return PARK
        return CONTINUE if cluster.rng.random() < 0.5 else SUSPEND

    def _promote_parked(self, cluster: Cluster) -> None:
        for job in list(self.parked):
            rung = self.goal[job]
            if cluster.jobs[job].parked and self._promotable(job, rung):
                del self.parked[job]
                until = self._promote(job, rung)
                self.amends[cluster.amend_run(job, until=until, snapshot_at=[rung + 1])] = job

    def on_answer(self, cluster: Cluster, answer: AnswerReady) -> None:
        job = self.amends.pop(answer.ticket, None)
        if job is not None and not answer.result["accepted"]:
            self.too_late += 1

    def on_timer(self, cluster: Cluster, timer: TimerFired) -> None:
        for job, ticket in list(self.parked.items()):
            if ticket == timer.ticket:
                del self.parked[job]
                if cluster.jobs[job].state.live:
                    cluster.suspend_job(job)

    def on_run_end(self, cluster: Cluster, run: RunEnd) -> None:
        self.parked.pop(run.job, None)
        if cluster.jobs[run.job].state.ended:
            for rung in self.positions:  # A failed job does not block others.
                self.promoted[rung].add(run.job)
        self._promote_parked(cluster)

    def _finish(self, cluster: Cluster) -> None:
        if cluster.experiment.jobs_left or any(
            j.state.live or j.state is JobState.CREATING for j in cluster.jobs.values()
        ):
            return
        waiting = cluster.idle_jobs()
        if all(j.position >= self.goal.get(j.id, self.positions[0]) for j in waiting):
            for job in waiting:
                cluster.terminate_job(job.id)


class Tree(Policy):
    """A policy that forks jobs from snapshots which it requests of running jobs, and answers jobs from the results of others."""

    def __init__(self) -> None:
        self.wanted: dict[str, tuple[str, int]] = {}
        self.forked: set[tuple[str, int]] = set()
        self.children = 0
        self.answered = 0
        self.to_answer: list[str] = []

    def allocate_jobs(self, cluster: Cluster) -> None:
        for slot in cluster.idle_slots():
            job = cluster.get_idle_job()
            if job is None:
                break
            until = cluster.jobs[job].max_position
            cluster.start_job(job, slot.id, until=until, allowed=2, snapshot_at=[cluster.jobs[job].position + 2])
        create_enough(cluster, len(cluster.idle_slots()) - len(cluster.idle_jobs()))

    def on_iteration_finish(self, cluster: Cluster, event: IterationFinish) -> Decision:
        self._fork(cluster, event.job)
        if event.at_until:
            return CONTINUE
        if event.position in (1, 3):
            ahead = cluster.rng.choice([0, 1, 2])
            self._save(cluster, event.job, event.position + ahead)
            return Decision.proceed(event.position + 3)
        return CONTINUE

    def _save(self, cluster: Cluster, job: str, position: int) -> None:
        self.wanted[cluster.amend_run(job, snapshot_at=[position])] = (job, position)

    def on_answer(self, cluster: Cluster, answer: AnswerReady) -> None:
        job, position = self.wanted.pop(answer.ticket)
        if not answer.result["accepted"] and cluster.jobs[job].state is JobState.RUNNING and position < 6:
            self._save(cluster, job, answer.result["position"] + 2)

    def _fork(self, cluster: Cluster, parent: str) -> None:
        view = cluster.jobs[parent]
        for position in cluster.snapshots(parent):
            here = (parent, position)
            if here in self.forked or self.children >= 12 or position <= view.fork_position or view.state.ended:
                continue
            self.forked.add(here)
            for number in range(2):
                self.children += 1
                lr = int(view.hyperparameters["lr"]) + 1000 * (number + 1) + position
                child = cluster.fork_job(parent, position, {"lr": lr})
                cluster.label_job(child, float(position))

    def on_run_end(self, cluster: Cluster, run: RunEnd) -> None:
        done = cluster.jobs[run.job]
        if done.state is JobState.COMPLETED and self.answered < 3:
            # An answered job gets the reports as its own, so it must have the same training, and may not be of another experiment.
            idle = [job for job in cluster.idle_jobs() if job.experiment == done.experiment]
            twins = [job for job in idle if job.attempt == 0 and job.fork_position <= done.high_water]
            if twins:
                self.answered += 1
                cluster.answer_job(twins[0].id, done.id, min(done.high_water, twins[0].max_position))
        elif not done.state.ended:
            self._fork(cluster, run.job)

    def on_request(self, cluster: Cluster, request: RequestMade) -> None:
        cluster.label_job(request.job, 1.0)
        cluster.create_job({"lr": 4243}, experiment=cluster.jobs[request.job].experiment, limit=request.position - 1)


class Hops(Policy):
    """A policy of model hops: units are not preemptible, evaluations are by parts, and some units train on a gang."""

    partitions = ("p0", "p1", "p2")
    gang_every = 4

    def __init__(self) -> None:
        self.done: dict[tuple[str, int], set[str]] = {}
        self.reserved: list[str] = []
        self.patience = ""
        self.alone = False

    def _parts_left(self, cluster: Cluster, job: JobView) -> list[str]:
        if job.position == 0 or job.position % 3 or job.position not in cluster.snapshots(job.id):
            return []
        done = self.done.get((job.id, job.position), set())
        return [part for part in self.partitions if part not in done]

    def allocate_jobs(self, cluster: Cluster) -> None:
        self.reserved = [m for m in self.reserved if m in cluster.slots and cluster.slots[m].idle]
        for job in cluster.idle_jobs():
            idle = [m.id for m in cluster.idle_slots()]
            if not idle and not self.reserved:
                break
            unit = job.position + 1
            gang = unit % self.gang_every == 0 and not self._parts_left(cluster, job)
            if gang and cluster.share >= 2 and len(cluster.slots) >= 2 and not self.alone:
                self._gang(cluster, job, idle)
            elif idle:
                self._single(cluster, job, idle[0])
        create_enough(cluster, len(cluster.idle_slots()) - len(cluster.idle_jobs()))

    def _gang(self, cluster: Cluster, job: JobView, idle: list[str]) -> None:
        slots = (self.reserved + idle)[:2]
        if len(slots) == 2:
            self.reserved = self.reserved[2:]
            inputs = {slots[0]: "p0", slots[1]: "p1"}
            cluster.start_job(job.id, slots, until=job.position + 1, inputs=inputs, preemptible=False)
        elif not self.reserved:
            slot = cluster.reserve_idle_machine()
            if slot is not None:
                self.reserved = [slot]
                self.patience = cluster.wake_at(cluster.now + 8.0)

    def _single(self, cluster: Cluster, job: JobView, slot: str) -> None:
        parts = self._parts_left(cluster, job)
        if parts:
            inputs = {slot: parts[0]}
            cluster.start_job(job.id, slot, mode=RunMode.EVALUATE, inputs=inputs, parts=len(self.partitions))
        else:
            part = self.partitions[job.position % 3]
            until = job.position + 1
            cluster.start_job(job.id, slot, until=until, inputs={slot: part}, preemptible=False)

    def application_stat(self, cluster: Cluster, stat: ApplicationStat) -> None:
        if stat.mode is RunMode.EVALUATE:
            self.done.setdefault((stat.job, stat.report.position), set()).add(stat.report.part)

    def on_iteration_finish(self, cluster: Cluster, event: IterationFinish) -> Decision:
        return CONTINUE

    def on_timer(self, cluster: Cluster, timer: TimerFired) -> None:
        if timer.ticket == self.patience:
            self.alone = bool(self.reserved)
            self._release(cluster)

    def _release(self, cluster: Cluster) -> None:
        for slot in self.reserved:
            if slot in cluster.slots and cluster.slots[slot].idle:
                cluster.release_machine(slot)
        self.reserved = []

    def on_run_end(self, cluster: Cluster, run: RunEnd) -> None:
        self.alone = False

    def on_slots_change(self, cluster: Cluster, change: SlotsChange) -> None:
        self.reserved = [m for m in self.reserved if m in cluster.slots]

    def on_share_change(self, cluster: Cluster, change: ShareChange) -> None:
        if change.slots < 2:
            self._release(cluster)


class Pairs(Policy):
    """A policy that trains each job on two slots, a stretch at a time.

    Some runs are not preemptible, and some continue at the end of a stretch.
    """

    stretch = 3

    def allocate_jobs(self, cluster: Cluster) -> None:
        create_enough(cluster, len(cluster.idle_slots()) // 2 - len(cluster.idle_jobs()))
        for job in cluster.idle_jobs():
            idle = [slot.id for slot in cluster.idle_slots()]
            if len(idle) < 2:
                return
            until = min(job.position + self.stretch, job.max_position)
            cluster.start_job(job.id, idle[:2], until=until, allowed=until - 1, preemptible=job.ordinal % 3 > 0)

    def on_iteration_finish(self, cluster: Cluster, event: IterationFinish) -> Decision:
        further = event.position + 2
        if event.at_until and event.position % 2 and further <= cluster.jobs[event.job].max_position:
            cluster.amend_run(event.job, until=further)
        return CONTINUE

    def demand(self, cluster: Cluster) -> int:
        return 2 * (len(cluster.open_jobs()) + cluster.experiment.jobs_left)

    def gang(self, cluster: Cluster) -> int:
        return 2


class Barrier(DefaultPolicy):
    """The default policy with barriers, a demand that is often 0, and no job ended early."""

    def __init__(self) -> None:
        super().__init__(barrier=True, epoch=2)


class Stages(StageTreePolicy):
    """A stage tree: it trains common prefixes of sequences once, and serves requests of clients."""

    ends_jobs = False

    def __init__(self) -> None:
        super().__init__(save_every=2)


PROBES: dict[str, type[Policy]] = {
    "predict": Predict,
    "rungs": Rungs,
    "tree": Tree,
    "hops": Hops,
    "pairs": Pairs,
    "barrier": Barrier,
    "stages": Stages,
}

CONTENT_AT_THE_END = frozenset({"predict", "pairs", "barrier"})
"""Probes that make no decision about a run at the end of its job, so that the run can end by itself."""
