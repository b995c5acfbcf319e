"""The policy of model hopper parallelism: partitions of the data stay on their nodes, and models move from slot to slot.

A *tuner* is an inner policy that decides up to which epoch each configuration is trained; `MopPolicy` schedules that training. The
*target* of a job is the position up to which its tuner wants it trained now. Positions count training units.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Collection, Mapping
from typing import Any, Final

from hopyard._common.extras import install_command
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
    Policy,
    PredictionReady,
    RunEnd,
    RunEndReason,
    RunMode,
    SlotsChange,
    TimerFired,
    Verdict,
)
from hopyard.policy.compatibility import NEEDS_DATA
from hopyard.policy.rungs import Rung
from hopyard.policy.vocabulary import MOST_SECONDS, AnswerJob, Call, StartJob, TerminateJob
from hopyard_policies.base.parameters import need_part, need_seconds, need_whole
from hopyard_policies.inner_policy.factory import version_with
from hopyard_policies.mop.gangs import Gangs
from hopyard_policies.mop.milp_plans import MilpPlans
from hopyard_policies.mop.node_demand import NodeDemand
from hopyard_policies.mop.pilot import Pilot
from hopyard_policies.mop.schedule.estimates import Estimates
from hopyard_policies.mop.tuner_slots import TunerSlots
from hopyard_policies.mop.unit_dispatch import Training
from hopyard_policies.mop.visit_history import VisitHistory

SCHEDULERS: Final = ("longest", "randomized", "milp")


class MopPolicy(Policy):
    """Model hopper parallelism (Cerebro): each configuration visits each partition of the data once in an epoch.

    A training unit trains one configuration on one partition. It is a run that advances the job by one position, on a slot
    whose node holds the partition; then the model moves to a slot with another partition. A configuration trains one unit at
    a time, a slot trains one unit at a time, and no unit is interrupted. An epoch has as many positions as there are training
    partitions, so `max_iterations` is epochs * partitions.

    With few configurations, several units of one configuration are trained at the same time: data-parallel, on a gang
    with a partition for each rank.

    After each epoch a configuration is evaluated on each partition of the evaluation data, on nodes that hold them, and
    the results are combined, weighted by the numbers of examples. A fully trained configuration is complete when it has
    been evaluated.

    A tuner decides for how many epochs each configuration is trained. It is another policy. Its view of the cluster has one
    slot for each configuration that may train at a time, and its positions are epochs. It receives the report of an epoch
    after the evaluation.

    A lost unit is trained again, on another node that holds the partition, or when such a node returns. A job whose
    newest snapshot was lost trains the same partitions again in the same order, as long as nodes hold them.

    Args:
        scheduler: The rule for idle slots. `longest`: slots choose in order of largest remaining load; each takes, among the
            configurations that need its partition, the one with the longest remaining time; costs of configurations and
            speeds of slots are estimated from finished units. `randomized`: Cerebro's Algorithm 1. `milp`: like `longest`,
            until a mixed-integer linear program, solved in another process, has a better plan for the epoch; requires
            the barrier.
        configurations: The number of configurations that train at a time, at least 1, effectively at most 1000; None:
            all of the experiment, up to 256; with a tuner twice the number of training partitions.
        barrier: Start an epoch only when all configurations have finished and been evaluated on the previous one, and
            the tuner has the reports; None: only with `milp`.
        tuner: The name of a policy, or a mapping with `name` and its parameters; None: all configurations are trained
            to their maximum position.
        pilot: Before the first unit of each configuration, run it on a few examples and discard the result, to measure
            training times. This requires a program of `hopyard.model_hopper`, or a trainer class that defines
            the method `profile`.
        plan_seconds: Time limit in seconds for a plan of `milp` (> 0), also limited to a quarter of the epoch's minimum duration.
        gang_below: Use gangs if fewer configurations train than this fraction of the slots with partitions, in 0..1:
            each configuration in turn trains on all these slots, data-parallel. 0: never. Programs that cannot train on
            several partitions at a time continue with one unit at a time.

    Raises:
        ValueError: An argument is out of range.
    """

    evaluates = True
    needs_data = True

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
        self._exact = MilpPlans(plan_seconds) if scheduler == "milp" else None
        self._barrier = scheduler == "milp" if barrier is None else barrier
        self._search = TunerSlots(tuner, configurations, MopPolicy)
        self.version = version_with(self, self._search.tuner)
        self.generator = self._search.tuner.generator
        self.forks_newest = self._search.copies
        self._visits = VisitHistory()
        self._estimates = Estimates()
        self._gangs = Gangs(gang_below)
        self._training = Training(scheduler == "randomized", self._exact, self._gangs, self._visits, self._estimates)
        self._pilot = Pilot(self._estimates) if pilot else None
        self._places = NodeDemand(self._open, self._left)
        self._goals: dict[str, int] = {}  # The end position of the present epoch of each job, or of its latest one.
        self._under_way = False  # Whether some jobs are within an epoch.
        self._evaluating: dict[str, str] = {}
        self._epochs = 0  # How often an epoch began.

    # ---------------------------------------------------------------------------------------------------------- up-calls

    def allocate_jobs(self, cluster: Cluster) -> None:
        """Start evaluations and training units on idle slots, and create missing configurations.

        Raises:
            ValueError: The experiment has no training partitions.
        """
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
        """Pass the creation to the tuner (the inner policy) and carry out the tuner's decisions."""
        self._hear(cluster, created)

    def on_generator_exhausted(self, cluster: Cluster, exhausted: GeneratorExhausted) -> None:
        """Pass the exhaustion of the generator to the tuner (the inner policy), and carry out the tuner's decisions."""
        self._hear(cluster, exhausted)

    def on_prediction(self, cluster: Cluster, prediction: PredictionReady) -> None:
        """Pass the prediction to the tuner (the inner policy) and start the work that the tuner then requests."""
        self._hear_and_begin(cluster, prediction)

    def on_answer(self, cluster: Cluster, answer: AnswerReady) -> None:
        """Pass the answer to the tuner if the tuner made the request, otherwise store the schedule that the solver has found.

        The solver is used with the scheduler `milp` only. An answer of the solver without a schedule, or to an outdated request, is
        ignored. After an answer to the tuner, start the work that the tuner then requests.
        """
        if self._search.owns(answer.ticket):
            self._hear_and_begin(cluster, answer)
        elif self._exact is not None:
            self._exact.heard(answer)

    def on_profile(self, cluster: Cluster, stat: ApplicationStat) -> None:
        """Record the training time that a pilot run measured, or whether the program trained on a gang in its test run.

        A pilot run trains a configuration on a few examples; a test run is the first run of a program on a gang. The training of
        both is discarded.

        Args:
            cluster: The view of the up-call.
            stat: The report of the pilot run or test run.
        """
        if self._gangs.trying(stat.job):
            self._gangs.told(stat)
        elif self._pilot is not None and cluster.data is not None:
            self._pilot.told(cluster.data, stat)

    def on_timer(self, cluster: Cluster, timer: TimerFired) -> None:
        """Pass the timer to the tuner (the inner policy) and start the work that the tuner then requests."""
        self._hear_and_begin(cluster, timer)

    def on_run_end(self, cluster: Cluster, run: RunEnd) -> None:
        """Record the end of a unit, an evaluation, a pilot run or a test run. If the run was lost, its work remains to be done.

        A pilot run measures the training time of a configuration on a few examples. A test run finds out whether the program can
        train on a gang. The training of both is discarded.
        """
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
        # Give the tuner the report at once, so that it has all reports before it makes its next decisions.
        if cluster.data is not None and (self._look(cluster, cluster.data) or not cluster.jobs[run.job].state.idle):
            self._turn(cluster, cluster.data)

    def on_refused(self, cluster: Cluster, verdict: Verdict) -> None:
        """Discard the record of a run that the engine refused to start, and replan; pass other refusals to the tuner.

        Refused completions and terminations of jobs are not passed to the tuner, because they are commands of this policy. Nothing
        is passed while the data are unknown.
        """
        if isinstance(verdict.command, StartJob):
            self._visits.forget(verdict.command.job)
            self._evaluating.pop(verdict.command.job, None)
            self._gangs.forget(verdict.command.job)
            if self._pilot is not None:
                self._pilot.forget(verdict.command.job)
            self._training.anew()
        elif cluster.data is not None and not isinstance(verdict.command, AnswerJob | TerminateJob):
            self._search.hear(verdict, cluster.data)

    def on_slots_change(self, cluster: Cluster, change: SlotsChange) -> None:
        """Discard the schedule of training units, because slots with other partitions may be available now.

        The next `allocate_jobs` computes a new one. The nodes on which slots are useful (`nodes`) are updated at once.
        """
        self._training.anew()
        if cluster.data is not None:
            self._places.look(cluster, cluster.data)

    def on_experiment_change(self, cluster: Cluster, change: ExperimentChange) -> None:
        """Discard the schedule of training units, because maximum positions may have changed, and pass the change to the tuner.

        The next `allocate_jobs` computes a new schedule.
        """
        self._training.anew()
        self._hear(cluster, change)

    def demand(self, cluster: Cluster) -> int | None:
        """Return the number of slots that the policy can use: 0 without work, otherwise at least all present slots.

        Each partition that no present slot's node holds adds one slot. None means no limit: the data are not known yet, or every
        partition is on some present node.
        """
        if cluster.data is None:
            return None
        if self._idles(cluster, cluster.data):
            return 0
        nodes = {slot.node for slot in cluster.slots.values()}
        apart = sum(not nodes.intersection(each.nodes) for each in (*cluster.data.train, *cluster.data.evaluate))
        return len(cluster.slots) + apart if apart else None

    def nodes(self, cluster: Cluster) -> Collection[str] | None:
        """Return the nodes on which slots are useful, or None for any node.

        These are the nodes that hold data. If the present slots do not cover all partitions, these are only the nodes whose partitions
        jobs must still be trained or evaluated on in their present epochs. None is returned if the data are not known, if any
        node can fetch some partition when it needs it, or if no known node has data.
        """
        return self._places.nodes(cluster)

    def review(self, terms: ExperimentView) -> str:
        """Return the tuner's remarks on an experiment, and a warning if its last epoch is incomplete; empty: no remarks.

        Raises:
            ValueError: There are no partitions, the tuner rejects the experiment, or `scheduler` is `milp` and scipy is not installed.
        """
        if self._exact is not None and importlib.util.find_spec("scipy") is None:
            raise ValueError(f"scheduler milp needs scipy where the scheduler runs: {install_command('mop')}")
        if not terms.partitions:
            raise ValueError(f"mop {NEEDS_DATA}")
        left = terms.max_position % terms.partitions if terms.max_position < ENDLESS else 0
        short = (
            f"stop.max_iterations is {terms.max_position}, and an epoch here is {terms.partitions} units: the last epoch visits {left} "
            f"of {terms.partitions} partitions"
        )
        return "; ".join(said for said in (self._search.review(terms), short if left else "") if said)

    def rungs(self, cluster: Cluster) -> tuple[Rung, ...] | None:
        """Return the rungs of the tuner (the inner policy), with positions in units; None: it has none.

        The result is empty while the data are unknown.
        """
        return self._search.rungs(cluster, cluster.data) if cluster.data is not None else ()

    # -------------------------------------------------------------------------------------------------------- the tuner

    def _hear(self, cluster: Cluster, call: Call) -> None:
        """Pass an up-call to the tuner (the inner policy) and carry out the tuner's decisions.

        While the partitions are unknown, nothing is done: the tuner never receives this up-call.
        """
        if cluster.data is not None and cluster.data.train:
            self._search.hear(call, cluster.data)
            self._turn(cluster, cluster.data)

    def _hear_and_begin(self, cluster: Cluster, call: Call) -> None:
        """Pass an up-call to the tuner (the inner policy) and allocate idle slots at once, because no other up-call may follow."""
        if cluster.data is not None:
            self._search.hear(call, cluster.data)
        self.allocate_jobs(cluster)

    def _turn(self, cluster: Cluster, data: Data) -> None:
        """Let the tuner process its queued up-calls and decide. With a barrier, do nothing while any job has work left in its epoch.

        Args:
            cluster: The view of the up-call.
            data: The partitions and their nodes.
        """
        if not (self._barrier and self._under_way):
            told: set[str] = set()
            # End jobs before the tuner creates new ones, so that a generator that learns from results has theirs.
            self._search.turn(cluster, data, lambda: self._end(cluster, data, told))

    def _idles(self, cluster: Cluster, data: Data) -> bool:
        """Return whether the policy has no work now, and neither jobs in creation nor the tuner can lead to further work.

        Args:
            cluster: The view of the up-call.
            data: The partitions and their nodes.
        """
        if cluster.count(JobState.CREATING):
            return False
        if any(self._busy(job, data) and not cluster.backs_off(job.id) for job in self._open(cluster)):
            return False
        waits = (job for job in cluster.idle_jobs() if self._search.wanted(job, len(data.train)) > job.position)
        return next(waits, None) is None and self._search.idles(cluster, data)

    # ------------------------------------------------------------------------------------------------------------ epochs

    def _look(self, cluster: Cluster, data: Data) -> bool:
        """Update whether some jobs have work left in their epochs, and record finished epochs for the tuner.

        Args:
            cluster: The view of the up-call.
            data: The partitions and their nodes.

        Returns:
            True if any job has finished an epoch, including its evaluation, since the last call.
        """
        self._under_way = new = False
        for job in self._open(cluster):
            goal = self._goals.get(job.id, 0)
            if job.position < goal:  # Perhaps it returned to an earlier epoch, because its snapshots were lost.
                self._goals[job.id] = goal = min(goal, _end_of_epoch(job, len(data.train)))
            if self._busy(job, data):
                self._under_way = True
            elif goal and job.position >= goal:
                new = self._search.passes(job.id, goal) or new
        return new

    def _busy(self, job: JobView, data: Data) -> bool:
        """Return whether a job has work left in its present epoch: training that the tuner wants, a run, or an evaluation.

        Args:
            job: The job.
            data: The partitions and their nodes.
        """
        goal = self._goals.get(job.id, 0)
        trains = job.position < min(goal, self._search.wanted(job, len(data.train)))
        return trains or job.state.live or bool(self._parts_left(job, data))

    def _end(self, cluster: Cluster, data: Data, told: set[str]) -> None:
        """Complete or terminate the jobs that the tuner has ended.

        A job that the tuner completed is completed once it is fully trained and evaluated; until then it continues.

        Args:
            cluster: The view of the up-call.
            data: The partitions and their nodes.
            told: Jobs that an earlier call in this turn has ended; they are skipped, and newly ended jobs are added.
        """
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
        """Begin the next epoch of each job that has finished its epoch and that the tuner wants trained further.

        The position at which that epoch ends is recorded in `_goals`, so that `_train` starts the job's units up to it. With a barrier,
        nothing is done while any job has work left in its epoch.

        Args:
            cluster: The view of the up-call.
            data: The partitions and their nodes.
        """
        if self._barrier and (self._under_way or cluster.count(JobState.CREATING)):
            return
        epoch, before = len(data.train), dict(self._goals)
        for job in self._open(cluster):
            wanted = self._search.wanted(job, epoch)
            if not job.state.live and wanted > job.position and not self._parts_left(job, data):
                self._goals[job.id] = _end_of_epoch(job, epoch)
        self._epochs += self._goals != before

    def _open(self, cluster: Cluster) -> list[JobView]:
        """Return the jobs that have not ended, are created and not HELD, and belong to running experiments."""
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
        """Return the idle jobs that the tuner wants trained beyond their present positions.

        Args:
            cluster: The view of the up-call.
            data: The partitions and their nodes.
        """
        return [job for job in cluster.idle_jobs() if self._search.wanted(job, len(data.train)) > job.position]

    def _left(self, job: JobView, data: Data) -> Collection[str]:
        """Return the names of the partitions that a job still needs in its present epoch.

        While the job must be trained further in the epoch, these are the partitions to train on; afterwards those to be evaluated on.

        Args:
            job: The job.
            data: The partitions and their nodes.
        """
        names, epoch = {each.name for each in data.train if each.nodes}, len(data.train)
        if job.position >= min(self._goals.get(job.id, 0), self._search.wanted(job, epoch)):
            return self._parts_left(job, data)
        again = self._visits.again(job)
        if again and names.issuperset(again) and not job.state.live:
            return again
        return names - self._visits.visited(job, job.position // epoch * epoch)

    # -------------------------------------------------------------------------------------------------------- evaluation

    def _parts_left(self, job: JobView, data: Data) -> list[str]:
        """Return the names of the partitions on which a job must still be evaluated; empty unless it is at the end of its epoch.

        Args:
            job: The job.
            data: The partitions and their nodes.
        """
        if job.position == 0 or job.position != self._goals.get(job.id):
            return []
        done = self._visits.evaluated(job)
        return [each.name for each in data.evaluate if each.name not in done]

    def _evaluate(self, cluster: Cluster, data: Data) -> None:
        """Start an evaluation on each idle slot whose node holds a partition that an idle job must be evaluated on.

        The caller does this before it starts training units, because evaluations are short and the tuner waits for their results.

        Args:
            cluster: The view of the up-call.
            data: The partitions and their nodes.
        """
        if not data.evaluate:
            return
        holders = {each.name: each.nodes for each in data.evaluate}
        waiting = {job.id: parts for job in cluster.idle_jobs() if (parts := self._parts_left(job, data))}
        for slot in cluster.idle_slots():
            for job, parts in waiting.items():
                part = next((name for name in parts if slot.node in holders[name]), None)
                if part is not None:
                    self._evaluating[job] = part
                    inputs, count = {slot.id: part}, len(data.evaluate)
                    cluster.start_job(job, slot.id, mode=RunMode.EVALUATE, inputs=inputs, parts=count)
                    del waiting[job]
                    break

    # ---------------------------------------------------------------------------------------------------------- training

    def _train(self, cluster: Cluster, data: Data) -> None:
        """Start training units on idle slots: on gangs if few configurations train, otherwise by the scheduler's rule.

        Args:
            cluster: The view of the up-call.
            data: The partitions and their nodes.
        """
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
    """Return the position at which the job's present epoch ends, for epochs of `epoch` units; at most its maximum position.

    For a job at the end of an epoch, it is the end of the next one.
    """
    return min((job.position // epoch + 1) * epoch, job.max_position)
