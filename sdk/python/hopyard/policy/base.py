"""The base class of scheduling policies."""

from __future__ import annotations

import abc
from collections.abc import Collection, Mapping
from dataclasses import replace

from hopyard.policy.cluster import Cluster
from hopyard.policy.rungs import Rung
from hopyard.policy.stages import StageView
from hopyard.policy.views import ExperimentView
from hopyard.policy.vocabulary import (
    CONTINUE,
    AllocateJobs,
    AnswerReady,
    ApplicationStat,
    Call,
    Decision,
    ExperimentChange,
    GeneratorExhausted,
    IterationFinish,
    JobCreated,
    MachinesChange,
    PredictionReady,
    RequestMade,
    RunEnd,
    RunMode,
    ShareChange,
    TimerFired,
    Verdict,
)
from hopyard.predictor.base import Prediction
from hopyard.predictor.wire import prediction_from_wire


class Policy(abc.ABC):
    """Decides, while jobs train, which runs where, which waits, which forks and which dies.

    The methods are the up-calls of HyperDrive (section 4.2) and what the other three systems need beside them. A policy is
    deterministic given its up-calls: it takes time from `cluster.now` and chance from `cluster.rng` only, keeps its state in
    ordinary attributes, persists nothing and does no I/O. That is what lets the live cluster rebuild it after a crash by
    making the same up-calls again, the simulator run it in virtual time, and a replay show that it decides the same.

    Parameters of the experiment file's `policy` block arrive as keyword arguments of `__init__`.

    Attributes:
        every_iteration: Whether `on_iteration_finish` is called after each iteration; so it is for a class that overrides it
            and does not say otherwise. False: only where the run waits for the decision, at or beyond its `allowed` and at
            its `until`; then reports below `allowed` cost next to nothing.
        ends_jobs: Whether `on_iteration_finish` is called for a run that has trained its job to the end; so it is, likewise, for
            a class that overrides it. False: the run saves and ends by itself, and `on_run_end` tells of it.
        forks: Whether `allocate_jobs` is called also when a snapshot is there that was asked for with `snapshot_at`: another job
            may start from it, while its own trains on.
        forks_newest: Whether it forks from the newest of the snapshots of a job that it asked for alone, so that older ones are let go.
        rebuilds: Whether it has trained again what it asked to be saved, wants to start from, and finds gone. Then the quota may
            give up snapshots that it asked for, too: those first that are the quickest to train again.
        copies: Whether, as a tuner of another policy, it goes on with changed copies of jobs (`fork_job`): then these are saved where
            it stops them.
        evaluates: Whether a job that has trained to its end is evaluated there: it waits, SUSPENDED, until the policy completes it by
            `answer_job` with its own results (`answer_job(job, job, position)`).
        shares: Whether it has jobs go on from what others trained, where their trainings are the same. Then what they train is
            noted in the search plan.
        scales: Whether it chooses on how many machines a job trains. Then `Cluster.scaling` has what earlier experiments measured, and
            what it has profiled (`RunMode.PROFILE`) is kept for later ones. Its `demand` alone says how many machines are of use to
            as many jobs as may train at a time (`ExperimentView.concurrency`).
        generator: The generator of experiments that name none; empty: the usual one.
        needs_data: Whether it sends jobs to partitioned data: experiments that name none (`data: NAME`), or have no trainer, are
            refused. So are, by policies that do not say it, experiments that name some.
        ship_every: Units between two snapshots that go to the store, in experiments that do not say (`snapshot.ship_every`);
            0: only what is left when a job ends.

    All are read when the experiment is created.
    """

    every_iteration: bool = False
    ends_jobs: bool = False
    forks: bool = False
    forks_newest: bool = False
    rebuilds: bool = False
    copies: bool = False
    evaluates: bool = False
    shares: bool = False
    scales: bool = False
    generator: str = ""
    needs_data: bool = False
    ship_every: int = 1

    def __init_subclass__(cls, **options: object) -> None:
        """Whoever decides after iterations wants to hear of all of them, unless the same class says that it does not."""
        super().__init_subclass__(**options)
        for name in ("every_iteration", "ends_jobs"):
            if "on_iteration_finish" in cls.__dict__ and name not in cls.__dict__:
                setattr(cls, name, True)

    @abc.abstractmethod
    def allocate_jobs(self, cluster: Cluster) -> None:
        """Machines are idle within the experiment's share, or jobs are idle that were not."""

    def application_stat(self, cluster: Cluster, stat: ApplicationStat) -> None:
        """A job reported statistics at a position above its high-water mark. Called only for policies that override it."""

    def on_profile(self, cluster: Cluster, stat: ApplicationStat) -> None:
        """A run with mode PROFILE reported how long an iteration would take, as the metric `seconds`; its end follows.

        A program whose ranks each train on a partition of their own, as one, reports `partitions`, too: on how many it trained at once.
        """

    def on_iteration_finish(self, cluster: Cluster, event: IterationFinish) -> Decision:
        """A job finished an iteration: what shall its run do? By default it trains on to its `until`, and ends there."""
        return CONTINUE if event.at_until else Decision.proceed(cluster.experiment.max_position)

    def on_run_end(self, cluster: Cluster, run: RunEnd) -> None:
        """A run is over; its machines are idle again, or gone."""

    def on_job_created(self, cluster: Cluster, created: JobCreated) -> None:
        """A created or forked job has its configuration and is idle; `allocate_jobs` follows if machines are idle."""

    def on_generator_exhausted(self, cluster: Cluster, exhausted: GeneratorExhausted) -> None:
        """The generator has no configuration for a job that was to be created; no further one can be."""

    def on_prediction(self, cluster: Cluster, prediction: PredictionReady) -> None:
        """A prediction arrived, or failed."""

    def on_answer(self, cluster: Cluster, answer: AnswerReady) -> None:
        """An `ask` or an `amend_run` was answered."""

    def on_request(self, cluster: Cluster, request: RequestMade) -> None:
        """A client asks for a configuration at a position; called only for policies that override it: others take no requests."""

    def on_share_change(self, cluster: Cluster, change: ShareChange) -> None:
        """The share changed. With a deadline, the policy may choose which runs to suspend; then the core does."""

    def on_machines_change(self, cluster: Cluster, change: MachinesChange) -> None:
        """Machines of the experiment came or went."""

    def on_experiment_change(self, cluster: Cluster, change: ExperimentChange) -> None:
        """The experiment was extended, retargeted, paused or resumed; in a group one of them was, or joined or ended."""

    def on_timer(self, cluster: Cluster, timer: TimerFired) -> None:
        """The time of a `wake_at` has come."""

    def on_refused(self, cluster: Cluster, verdict: Verdict) -> None:
        """The core refused a command of an earlier answer, because its own state had moved on. By default nothing is done."""

    def demand(self, cluster: Cluster) -> int | None:
        """How many machines the policy could use now; None: as many as it can get.

        Read after each up-call, on a view of the same moment: commands of the answer do not show in it.
        """
        return None

    def nodes(self, cluster: Cluster) -> Collection[str] | None:
        """On which nodes machines would be of use now; None: on any. Read after each up-call, as `demand` is.

        Machines on others are not given to the experiment, and those that it holds there go back as soon as they are idle and not
        reserved: within its share it gets others instead, if need be after their holders have left them at a boundary.
        """
        return None

    def gang(self, cluster: Cluster) -> int:
        """How many machines the policy needs at once, at least (>= 1). Read after each up-call.

        The experiment's share is a whole number of gangs: machines that would not do for one are left to others, so that two
        experiments never wait for each other's. `demand` should be a whole number of gangs, too.
        """
        return 1

    def review(self, terms: ExperimentView) -> str:
        """Looks at the terms of an experiment before it begins: what should a person know? Empty: nothing.

        Asked when the experiment is created, of an instance that serves no experiment. `jobs_left` are all its jobs.

        Raises:
            ValueError: It cannot serve such an experiment; the message says what to change.
        """
        return ""

    def rungs(self, cluster: Cluster) -> tuple[Rung, ...] | None:
        """Who stands where, for those who look (`hopyard rungs`): by bracket, from the bottom. It may only look.

        Returns:
            Empty: nobody does yet. None: the policy has no rungs.
        """
        return None

    def stages(self, cluster: Cluster) -> tuple[StageView, ...] | None:
        """What trials have in common, for those who look (`hopyard tree`): parents before their children. It may only look.

        Returns:
            Empty: there are no trials yet. None: the policy trains every trial for itself.
        """
        return None

    def confidences(self, cluster: Cluster) -> Mapping[str, float]:
        """How likely jobs reach what is looked for, in [0, 1], for those who look (`hopyard plot --kind slots`). It may only look."""
        return {}


def hears_statistics(policy: Policy) -> bool:
    """Whether a policy wants `application_stat`: it overrides it."""
    return type(policy).application_stat is not Policy.application_stat


def serves_requests(policy: Policy) -> bool:
    """Whether a policy serves what clients ask for: it overrides `on_request`."""
    return type(policy).on_request is not Policy.on_request


def useful_nodes(policy: Policy, cluster: Cluster) -> tuple[str, ...]:
    """What a policy says of the nodes where machines are of use, in order of name; empty: all are.

    Raises:
        TypeError: It says nothing that it may.
    """
    nodes = policy.nodes(cluster)
    if nodes is None:
        return ()
    if isinstance(nodes, str) or not nodes or not all(isinstance(node, str) for node in nodes):
        raise TypeError(f"nodes must return None or the names of nodes, at least one, found {nodes!r}")
    return tuple(sorted(set(nodes)))


def make_up_call(policy: Policy, cluster: Cluster, call: Call) -> Decision | None:
    """Makes one up-call on a policy.

    Returns:
        The decision for an `IterationFinish`, otherwise None.
    """
    match call:
        case AllocateJobs():
            policy.allocate_jobs(cluster)
        case ApplicationStat(mode=RunMode.PROFILE):
            policy.on_profile(cluster, call)
        case ApplicationStat():
            policy.application_stat(cluster, call)
        case IterationFinish():
            return policy.on_iteration_finish(cluster, call)
        case RunEnd():
            policy.on_run_end(cluster, call)
        case JobCreated():
            policy.on_job_created(cluster, call)
        case GeneratorExhausted():
            policy.on_generator_exhausted(cluster, call)
        case PredictionReady():
            policy.on_prediction(cluster, _with_prediction(call))
        case AnswerReady():
            policy.on_answer(cluster, call)
        case RequestMade():
            policy.on_request(cluster, call)
        case ShareChange():
            policy.on_share_change(cluster, call)
        case MachinesChange():
            policy.on_machines_change(cluster, call)
        case ExperimentChange():
            policy.on_experiment_change(cluster, call)
        case TimerFired():
            policy.on_timer(cluster, call)
    return None


def _with_prediction(call: PredictionReady) -> PredictionReady:
    """What a journal has as plain data, as policies get it."""
    if call.result is None or isinstance(call.result, Prediction):
        return call
    return replace(call, result=prediction_from_wire(call.result))
