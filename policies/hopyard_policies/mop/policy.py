"""Model hopper parallelism: the data stay where they are, and the models hop from machine to machine."""

from __future__ import annotations

import importlib.util
from collections.abc import Collection, Mapping
from typing import Any, Final

from hopyard.policy import (
    ENDLESS,
    AnswerReady,
    ApplicationStat,
    Cluster,
    Data,
    ExperimentChange,
    ExperimentView,
    GeneratorExhausted,
    JobCreated,
    JobState,
    JobView,
    MachinesChange,
    Policy,
    PredictionReady,
    RunEnd,
    RunEndReason,
    RunMode,
    TimerFired,
    Verdict,
)
from hopyard.policy.compatibility import NEEDS_DATA
from hopyard.policy.rungs import Rung
from hopyard.policy.vocabulary import MOST_SECONDS, AnswerJob, Call, StartJob, TerminateJob
from hopyard_policies.base.parameters import need_part, need_seconds, need_whole
from hopyard_policies.mop.gangs import Gangs
from hopyard_policies.mop.milp_plans import Exact
from hopyard_policies.mop.node_demand import Places
from hopyard_policies.mop.pilot import Pilot
from hopyard_policies.mop.schedule.estimates import Estimates
from hopyard_policies.mop.tuner_slots import TunerSlots
from hopyard_policies.mop.unit_dispatch import Training
from hopyard_policies.mop.visit_history import VisitHistory

SCHEDULERS: Final = ("longest", "randomized", "milp")


class MopPolicy(Policy):
    """Model hopper parallelism (Cerebro): each configuration visits each partition of the data once an epoch.

    A training unit is a run of one position on a machine whose node holds its partition; then the model hops to another one. No
    configuration is trained twice at once, no machine trains two, and no unit is interrupted. An epoch is as many positions as
    there are partitions to train on, so `max_iterations` is epochs x partitions.

    With few configurations several units of one are trained at once: data-parallel, on a gang whose ranks have a partition each.

    After each epoch a configuration is evaluated on each partition of the evaluation data, where these lie, and the results are
    combined by their numbers of examples. One that has trained to its end is complete when it has been evaluated.

    Which configurations are wanted for how many epochs, a tuner says: a policy like any other, which sees a machine for each
    configuration that may train at a time, and epochs where others see units. It hears of an epoch when that is evaluated.

    A unit that was lost is trained again, on another node that holds the partition, or when one does. A job whose newest snapshot
    was lost trains the same partitions again as before, in the same order, as long as somebody holds them.

    Args:
        scheduler: Who runs where. `longest`: idle machines choose in order of largest remaining load, each takes the
            configuration with the longest remaining time that still needs it; costs of configurations and speeds of machines are
            estimated from the units that ended. `randomized`: Cerebro's Algorithm 1. `milp`: as `longest`, until a mixed integer linear
            program, solved beside the scheduler, says something better about the epoch; it needs the barrier.
        configurations: How many configurations train at a time, at least 1, of which 1000 count at most; None: all of the experiment,
            up to 256, and with a tuner twice as many as there are partitions to train on.
        barrier: Whether none begins an epoch before all have been through the one before, evaluation included, and the tuner
            has heard of all of them; None: with `milp`.
        tuner: The name of a policy, or a mapping of `name` and its parameters; None: all are trained to their ends.
        pilot: Whether a few examples of each configuration are trained before its first unit, and thrown away, so that it is known how
            long units take. Programs of `hopyard.model_hopper` can do that, and others that have `profile`.
        plan_seconds: How long `milp` may think about a plan (> 0); a quarter of what the epoch takes at most.
        gang_below: With fewer configurations that train than this part of the machines that hold partitions, 0 .. 1, each of them
            trains on all these at once, data-parallel, by turns; 0: never. Programs that cannot do that go on hopping.

    Raises:
        ValueError: An argument is out of range.
    """

    evaluates = True
    needs_data = True
    ship_every = 0

    def __init__(
        self,
        scheduler: str = "longest",
        configurations: int | None = None,
        barrier: bool | None = None,
        tuner: str | Mapping[str, Any] | None = None,
        pilot: bool = False,
        plan_seconds: float = 60.0,
        gang_below: float = 0.5,
    ) -> None:
        if scheduler not in SCHEDULERS:
            raise ValueError(f"scheduler is {scheduler!r}; it must be one of {', '.join(SCHEDULERS)}")
        if configurations is not None:
            need_whole("configurations", configurations)
        if barrier is not None and type(barrier) is not bool:
            raise ValueError(f"barrier is {barrier!r}; it must be true or false")
        if scheduler == "milp" and barrier is False:
            raise ValueError(
                "barrier is false; milp plans an epoch of all configurations, which needs it: leave barrier out"
            )
        if type(pilot) is not bool:
            raise ValueError(f"pilot is {pilot!r}; it must be true or false")
        need_seconds("plan_seconds", plan_seconds, MOST_SECONDS)
        need_part("gang_below", gang_below)
        self._exact = Exact(plan_seconds) if scheduler == "milp" else None
        self._barrier = scheduler == "milp" if barrier is None else barrier
        self._search = TunerSlots(tuner, configurations, MopPolicy)
        self.generator = self._search.tuner.generator
        self.forks_newest = self._search.copies
        self._visits = VisitHistory()
        self._estimates = Estimates()
        self._gangs = Gangs(gang_below)
        self._training = Training(scheduler == "randomized", self._exact, self._gangs, self._visits, self._estimates)
        self._pilot = Pilot(self._estimates) if pilot else None
        self._places = Places(self._open, self._left)
        self._goals: dict[str, int] = {}  # Where the present epoch of each job ends, or ended.
        self._under_way = False  # Whether some are in the midst of an epoch.
        self._evaluating: dict[str, str] = {}
        self._epochs = 0  # How often some began one.

    # ---------------------------------------------------------------------------------------------------------- up-calls

    def allocate_jobs(self, cluster: Cluster) -> None:
        """Starts evaluations and training units on idle machines, and creates the configurations that there are to be."""
        data = cluster.data
        if data is None or not data.train:
            raise ValueError(f"mop {NEEDS_DATA}")
        self._look(cluster, data)
        self._turn(cluster, data)
        self._begin(cluster, data)
        self._places.look(cluster, data)
        self._evaluate(cluster, data)
        if self._pilot is None or not self._pilot.start(cluster, data, self._waiting(cluster, data)):
            self._train(cluster, data)

    def on_job_created(self, cluster: Cluster, created: JobCreated) -> None:
        """The tuner hears of it."""
        self._hear(cluster, created)

    def on_generator_exhausted(self, cluster: Cluster, exhausted: GeneratorExhausted) -> None:
        """The tuner hears of it."""
        self._hear(cluster, exhausted)

    def on_prediction(self, cluster: Cluster, prediction: PredictionReady) -> None:
        """The tuner hears of it, and what it wants begins."""
        self._hear_and_begin(cluster, prediction)

    def on_answer(self, cluster: Cluster, answer: AnswerReady) -> None:
        """The tuner hears of what it asked, and what it wants begins. Else it is a plan, or word that there is none."""
        if self._search.owns(answer.ticket):
            self._hear_and_begin(cluster, answer)
        elif self._exact is not None:
            self._exact.heard(answer)

    def on_profile(self, cluster: Cluster, stat: ApplicationStat) -> None:
        """A pilot has told how long a unit takes; or the program, tried on a gang, whether it can train there."""
        if self._gangs.trying(stat.job):
            self._gangs.told(stat)
        elif self._pilot is not None and cluster.data is not None:
            self._pilot.told(cluster.data, stat)

    def on_timer(self, cluster: Cluster, timer: TimerFired) -> None:
        """The tuner hears of it, and what it wants begins."""
        self._hear_and_begin(cluster, timer)

    def on_run_end(self, cluster: Cluster, run: RunEnd) -> None:
        """A unit or an evaluation is over; one that was lost is still to be done."""
        if run.mode is RunMode.EVALUATE:
            part = self._evaluating.pop(run.job, "")
            if run.reason is RunEndReason.UNTIL:
                self._visits.evaluate(run.job, run.position, part)
        elif run.mode is RunMode.PROFILE:
            if self._gangs.trying(run.job):
                self._gangs.ended(run)
            elif self._pilot is not None:
                self._pilot.ended(run)
        else:
            self._training.ended(run, cluster.now)
        if cluster.jobs[run.job].state.ended:
            self._forget(run.job)
        if cluster.data is not None and (
            self._look(cluster, cluster.data) or not cluster.jobs[run.job].state.idle
        ):  # The tuner knows what there is to know whenever it is asked what it wants.
            self._turn(cluster, cluster.data)

    def on_refused(self, cluster: Cluster, verdict: Verdict) -> None:
        """What did not start is looked at anew."""
        if isinstance(verdict.command, StartJob):
            self._visits.forget(verdict.command.job)
            self._evaluating.pop(verdict.command.job, None)
            self._gangs.forget(verdict.command.job)
            if self._pilot is not None:
                self._pilot.forget(verdict.command.job)
            self._training.anew()
        elif cluster.data is not None and not isinstance(verdict.command, AnswerJob | TerminateJob):
            self._search.hear(verdict, cluster.data)

    def on_machines_change(self, cluster: Cluster, change: MachinesChange) -> None:
        """Partitions may lie elsewhere now."""
        self._training.anew()
        if cluster.data is not None:
            self._places.look(cluster, cluster.data)

    def on_experiment_change(self, cluster: Cluster, change: ExperimentChange) -> None:
        """Jobs may go on further than before."""
        self._training.anew()
        self._hear(cluster, change)

    def demand(self, cluster: Cluster) -> int | None:
        """All machines while there is something to do, and more as long as one that holds a partition is not among them."""
        if cluster.data is None:
            return None
        if self._idles(cluster, cluster.data):
            return 0
        nodes = {machine.node for machine in cluster.machines.values()}
        apart = sum(not nodes.intersection(each.nodes) for each in (*cluster.data.train, *cluster.data.evaluate))
        return len(cluster.machines) + apart if apart else None

    def nodes(self, cluster: Cluster) -> Collection[str] | None:
        """Those that hold data; with fewer machines than hold all of it, those with what jobs are still to visit in their epochs."""
        return self._places.nodes(cluster)

    def review(self, terms: ExperimentView) -> str:
        """What the tuner says of the terms, and whether the last epoch is a whole one.

        Raises:
            ValueError: There is nothing to visit, the tuner cannot serve the terms, or what the scheduler needs is not installed.
        """
        if self._exact is not None and importlib.util.find_spec("scipy") is None:
            raise ValueError("scheduler milp needs scipy where the scheduler runs: pip install 'hopyard[mop]'")
        if not terms.partitions:
            raise ValueError(f"mop {NEEDS_DATA}")
        left = terms.max_position % terms.partitions if terms.max_position < ENDLESS else 0
        short = (
            f"stop.max_iterations is {terms.max_position}, and an epoch here is {terms.partitions} units: the last epoch visits {left} "
            f"of {terms.partitions} partitions"
        )
        return "; ".join(said for said in (self._search.review(terms), short if left else "") if said)

    def rungs(self, cluster: Cluster) -> tuple[Rung, ...] | None:
        """The tuner's."""
        return self._search.rungs(cluster, cluster.data) if cluster.data is not None else ()

    # -------------------------------------------------------------------------------------------------------- the tuner

    def _hear(self, cluster: Cluster, call: Call) -> None:
        """Something that concerns the tuner happened."""
        if cluster.data is not None and cluster.data.train:
            self._search.hear(call, cluster.data)
            self._turn(cluster, cluster.data)

    def _hear_and_begin(self, cluster: Cluster, call: Call) -> None:
        """The same, and machines may have been idle for long: nothing else may have those used that it wants used now."""
        if cluster.data is not None:
            self._search.hear(call, cluster.data)
        self.allocate_jobs(cluster)

    def _turn(self, cluster: Cluster, data: Data) -> None:
        """Lets the tuner decide; with a barrier only when all have been through their epoch."""
        if not (self._barrier and self._under_way):
            told: set[str] = set()
            # Who has ended leaves before the tuner asks for others: a generator that learns proposes these with it in mind.
            self._search.turn(cluster, data, lambda: self._end(cluster, data, told))

    def _idles(self, cluster: Cluster, data: Data) -> bool:
        """Whether nothing is to be done now, nor will be by what is there."""
        if cluster.count(JobState.CREATING) or any(self._busy(job, data) for job in self._open(cluster)):
            return False
        waits = (job for job in cluster.idle_jobs() if self._search.wanted(job, len(data.train)) > job.position)
        return next(waits, None) is None and self._search.idles(cluster, data)

    # ------------------------------------------------------------------------------------------------------------ epochs

    def _look(self, cluster: Cluster, data: Data) -> bool:
        """Notes who has been through an epoch, and who is still in one; whether somebody has that had not before."""
        self._under_way = new = False
        for job in self._open(cluster):
            goal = self._goals.get(job.id, 0)
            if job.position < goal:  # It may have been thrown back into an epoch before.
                self._goals[job.id] = goal = min(goal, _end_of_epoch(job, len(data.train)))
            if self._busy(job, data):
                self._under_way = True
            elif goal and job.position >= goal:
                new = self._search.passes(job.id, goal) or new
        return new

    def _busy(self, job: JobView, data: Data) -> bool:
        """Whether a job is in the midst of an epoch that it is wanted for, or still to be evaluated at its end."""
        goal = self._goals.get(job.id, 0)
        trains = job.position < min(goal, self._search.wanted(job, len(data.train)))
        return trains or job.state.live or bool(self._parts_left(job, data))

    def _end(self, cluster: Cluster, data: Data, told: set[str]) -> None:
        """Completes those that have trained to their ends, and ends those that the tuner has ended, but those that were `told` so."""
        for name, ended in self._search.ended():
            if name in told or not cluster.waits(name):
                continue
            job = cluster.jobs[name]
            through = job.position >= job.max_position and not self._parts_left(job, data)
            if ended is JobState.TERMINATED:
                cluster.terminate_job(name)
            elif ended is JobState.COMPLETED and through:
                cluster.answer_job(name, name, job.position)
            else:
                continue
            told.add(name)
            self._forget(name)

    def _begin(self, cluster: Cluster, data: Data) -> None:
        """Lets those that are wanted further begin their next epoch; with a barrier all of them together."""
        if self._barrier and (self._under_way or cluster.count(JobState.CREATING)):
            return
        epoch, before = len(data.train), dict(self._goals)
        for job in self._open(cluster):
            wanted = self._search.wanted(job, epoch)
            if not job.state.live and wanted > job.position and not self._parts_left(job, data):
                self._goals[job.id] = _end_of_epoch(job, epoch)
        self._epochs += self._goals != before

    def _open(self, cluster: Cluster) -> list[JobView]:
        """Jobs that train or wait to, of experiments that run."""
        running = {name for name, experiment in cluster.experiments.items() if experiment.running}
        return [
            job
            for job in cluster.open_jobs()
            if job.experiment in running and job.state not in (JobState.CREATING, JobState.HELD)
        ]

    def _forget(self, job: str) -> None:
        self._goals.pop(job, None)
        self._visits.forget(job)
        self._search.forget(job)
        self._gangs.forget(job)
        if self._pilot is not None:
            self._pilot.forget(job)

    def _waiting(self, cluster: Cluster, data: Data) -> list[JobView]:
        """Jobs that wait for a machine and are wanted further."""
        return [job for job in cluster.idle_jobs() if self._search.wanted(job, len(data.train)) > job.position]

    def _left(self, job: JobView, data: Data) -> Collection[str]:
        """What a job is still to be trained or evaluated on in its epoch, as things are."""
        names, epoch = {each.name for each in data.train if each.nodes}, len(data.train)
        if job.position >= min(self._goals.get(job.id, 0), self._search.wanted(job, epoch)):
            return self._parts_left(job, data)
        again = self._visits.again(job)
        if again and names.issuperset(again) and not job.state.live:
            return again
        return names - self._visits.visited(job, job.position // epoch * epoch)

    # -------------------------------------------------------------------------------------------------------- evaluation

    def _parts_left(self, job: JobView, data: Data) -> list[str]:
        """Where a job that stands at the end of its epoch is still to be evaluated."""
        if job.position == 0 or job.position != self._goals.get(job.id):
            return []
        done = self._visits.evaluated(job)
        return [each.name for each in data.evaluate if each.name not in done]

    def _evaluate(self, cluster: Cluster, data: Data) -> None:
        """Evaluates those that have been through their epoch: they hold up others, and it takes little time."""
        if not data.evaluate:
            return
        holders = {each.name: each.nodes for each in data.evaluate}
        waiting = {job.id: parts for job in cluster.idle_jobs() if (parts := self._parts_left(job, data))}
        for machine in cluster.idle_machines():
            for job, parts in waiting.items():
                part = next((name for name in parts if machine.node in holders[name]), None)
                if part is not None:
                    self._evaluating[job] = part
                    inputs, count = {machine.id: part}, len(data.evaluate)
                    cluster.start_job(job, machine.id, mode=RunMode.EVALUATE, inputs=inputs, parts=count)
                    del waiting[job]
                    break

    # ---------------------------------------------------------------------------------------------------------- training

    def _train(self, cluster: Cluster, data: Data) -> None:
        """Starts units on idle machines, as the scheduler says."""
        wanted = {job.id: self._search.wanted(job, len(data.train)) for job in self._open(cluster)}
        jobs = [job for job in self._open(cluster) if job.position < min(self._goals.get(job.id, 0), wanted[job.id])]

        def saves(job: str, position: int) -> bool:
            return self._search.stops_at(job, position, len(data.train))

        if self._gangs.wanted(cluster, data, self._search.busy + cluster.count(JobState.CREATING)):
            ends = {job.id: min(self._goals[job.id], wanted[job.id]) for job in jobs}
            self._training.start_together(cluster, data, jobs, ends, lambda job: self._left(job, data), saves)
        else:
            self._training.start(cluster, data, jobs, self._goals, wanted, self._epochs, saves)


def _end_of_epoch(job: JobView, epoch: int) -> int:
    """Where the epoch ends that a job is in."""
    return min((job.position // epoch + 1) * epoch, job.max_position)
