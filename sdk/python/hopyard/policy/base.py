"""The base class of scheduling policies."""

from __future__ import annotations

import abc
from collections.abc import Collection, Mapping
from dataclasses import fields, replace
from typing import Any, Final

from hopyard.errors import InvalidInput
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
    PolicyCapabilities,
    PredictionReady,
    RequestMade,
    RunEnd,
    RunMode,
    ShareChange,
    SlotsChange,
    TimerFired,
    Verdict,
)
from hopyard.predictor.base import Prediction
from hopyard.predictor.wire import prediction_from_wire


class Policy(abc.ABC):
    """Decides, during training, which jobs run where, and which wait, fork or end.

    The methods are the up-calls of HyperDrive (section 4.2), plus those that the other three systems need. A policy
    must be deterministic given its up-calls. It takes the time only from `cluster.now` and random numbers only from
    `cluster.rng`. It keeps its state in ordinary attributes, stores nothing and does no I/O. Therefore the cluster can
    rebuild it after a crash by making the same up-calls again, the simulator can run it in virtual time, and a replay
    can check its decisions.

    Parameters in the `policy` block of the experiment file are passed as keyword arguments to `__init__`.

    Attributes:
        every_iteration: Whether `on_iteration_finish` is called after each iteration. Defaults to True for a class that
            overrides this method. If False, it is called only where the run waits for the decision: at or after
            `allowed`, and at `until`. Reports below `allowed` then cost almost nothing.
        ends_jobs: Whether `on_iteration_finish` is called for a run that has trained its job to the end. Defaults to
            True for a class that overrides this method. If False, the run saves and ends without asking, and
            `on_run_end` reports it.
        forks: Whether `allocate_jobs` is also called when a snapshot requested with `snapshot_at` is available. Another
            job can start from it while the job continues to train.
        forks_newest: Whether it forks only from the newest requested snapshot of a job, so that older ones can be
            deleted.
        rebuilds: Whether it retrains requested snapshots that are missing when it wants to start from them. The quota
            may then also delete requested snapshots, starting with those that are the quickest to retrain.
        copies: Whether, as a tuner of another policy, it continues with changed copies of jobs (`fork_job`). The jobs
            are then saved where it stops them.
        evaluates: Whether a job that has trained to its end is evaluated there. The job waits in the state SUSPENDED
            until the policy completes it with its own results: `answer_job(job, job, position)`.
        shares: Whether its jobs can continue from the results of other jobs with the same training. Its trainings are
            then recorded in the search plan.
        scales: Whether it chooses on how many slots a job trains. `Cluster.scaling` then contains earlier
            measurements, and what it profiles (`RunMode.PROFILE`) is kept for later experiments. Only its `demand` then
            determines how many slots are useful for the jobs that may train at a time
            (`ExperimentView.concurrency`).
        generator: The generator of experiments that name none; empty: the usual default.
        needs_data: Whether it sends jobs to partitioned data. It then rejects experiments that name no data (`data:
            NAME`) or have no trainer. Policies with the value False reject experiments that name data.
        ship_every: Number of units between two snapshots that are sent to the store, for experiments that do not set
            `snapshot.ship_every`; 0: only the last snapshot of a job.
        version: The version of its decisions. Raise it when the same up-calls lead to other decisions. The journal
            keeps the version with which an experiment began, and a replay reports a difference.

    All attributes are read when the experiment is created.
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
    version: str = "1"

    def __init_subclass__(cls, **options: object) -> None:
        """Set `every_iteration` and `ends_jobs` for a class that overrides `on_iteration_finish` and does not set them."""
        super().__init_subclass__(**options)
        for name in ("every_iteration", "ends_jobs"):
            if "on_iteration_finish" in cls.__dict__ and name not in cls.__dict__:
                setattr(cls, name, True)

    @abc.abstractmethod
    def allocate_jobs(self, cluster: Cluster) -> None:
        """Start jobs. Called when slots of the experiment's share are idle, and again when new jobs become idle."""

    def application_stat(self, cluster: Cluster, stat: ApplicationStat) -> None:
        """Handle statistics of a job at a position above its high-water mark. Called only for policies that override it."""

    def on_profile(self, cluster: Cluster, stat: ApplicationStat) -> None:
        """Handle the report of a run with mode PROFILE: the duration of an iteration, as the metric `seconds`. The run then ends.

        If the ranks of a program train on one partition each as a single pass, the report also has `partitions`, the
        number of partitions trained at once.
        """

    def on_iteration_finish(self, cluster: Cluster, event: IterationFinish) -> Decision:
        """Decide how a run continues after an iteration. By default it trains on to its `until` and ends there."""
        return CONTINUE if event.at_until else Decision.proceed(cluster.experiment.max_position)

    def on_run_end(self, cluster: Cluster, run: RunEnd) -> None:
        """Handle the end of a run. Its slots are idle again or have been lost."""

    def on_job_created(self, cluster: Cluster, created: JobCreated) -> None:
        """Handle a created or forked job that has its configuration and is idle. `allocate_jobs` follows if slots are idle."""

    def on_generator_exhausted(self, cluster: Cluster, exhausted: GeneratorExhausted) -> None:
        """Handle the failed creation of a job because the generator has no further configuration. No more jobs can be created."""

    def on_prediction(self, cluster: Cluster, prediction: PredictionReady) -> None:
        """Handle a prediction or its error."""

    def on_answer(self, cluster: Cluster, answer: AnswerReady) -> None:
        """Handle the answer to an `ask` or `amend_run`."""

    def on_request(self, cluster: Cluster, request: RequestMade) -> None:
        """Handle a client's request to train a configuration. Only policies that override this method accept requests."""

    def on_share_change(self, cluster: Cluster, change: ShareChange) -> None:
        """Handle a new share. With a deadline, the policy can choose runs to suspend before the core does."""

    def on_slots_change(self, cluster: Cluster, change: SlotsChange) -> None:
        """Handle slots that were added to the experiment or removed from it."""

    def on_experiment_change(self, cluster: Cluster, change: ExperimentChange) -> None:
        """Handle an experiment that was extended, retargeted, paused or resumed, or in a group also one that joined or ended."""

    def on_timer(self, cluster: Cluster, timer: TimerFired) -> None:
        """Handle the time of a `wake_at`."""

    def on_refused(self, cluster: Cluster, verdict: Verdict) -> None:
        """Handle a command that the core refused, because its state had changed since the policy's view. The default does nothing."""

    def demand(self, cluster: Cluster) -> int | None:
        """Return how many slots the policy could use now, or None for as many as possible.

        Called after each up-call, with a view of the same moment that does not show the commands of the answer.
        """
        return None

    def nodes(self, cluster: Cluster) -> Collection[str] | None:
        """Return the nodes on which slots would be useful now, or None for any. Called after each up-call, as `demand` is.

        The experiment gets no slots on other nodes. Those that it holds there are taken back as soon as they are
        idle and not reserved. It gets others instead, within its share, if necessary after their runs have left them at
        a boundary.
        """
        return None

    def gang(self, cluster: Cluster) -> int:
        """Return the smallest number of slots (>= 1) that the policy can use together. Called after each up-call.

        The share of the experiment is a multiple of this number. Remaining slots are left to other experiments, so
        that two experiments never wait for each other's slots. `demand` should also return a multiple.
        """
        return 1

    def review(self, terms: ExperimentView) -> str:
        """Check the terms of an experiment before it begins. Return a note for the user, or an empty text.

        Called when the experiment is created, on an instance that serves no experiment. `jobs_left` is the number of
        all its jobs.

        Raises:
            ValueError: The policy cannot serve this experiment. The message says what to change.
        """
        return ""

    def rungs(self, cluster: Cluster) -> tuple[Rung, ...] | None:
        """Return the jobs on each rung for `hopyard rungs`, by bracket and from the bottom. It must not give commands.

        Returns:
            The rungs; empty if no job is on one yet, None if the policy has no rungs.
        """
        return None

    def stages(self, cluster: Cluster) -> tuple[StageView, ...] | None:
        """Return the shared stages of the trials for `hopyard tree`, parents before children. It must not give commands.

        Returns:
            The stages; empty if there are no trials yet, None if the policy trains every trial separately.
        """
        return None

    def confidences(self, cluster: Cluster) -> Mapping[str, float]:
        """Return the probability that jobs reach the goal, for `hopyard plot --kind slots`. It must not give commands."""
        return {}


def capabilities_of(policy: Policy) -> PolicyCapabilities:
    """The capabilities of a policy, as its attributes and methods say them.

    Raises:
        InvalidInput: An attribute has another type; names it.
    """
    derived: dict[str, Any] = {"statistics": hears_statistics(policy), "requests": serves_requests(policy)}
    said = {one.name: getattr(policy, one.name) for one in fields(PolicyCapabilities) if one.name not in derived}
    for one in fields(PolicyCapabilities):
        needed, found = type(one.default), said.get(one.name, one.default)
        if not isinstance(found, needed) or isinstance(found, bool) is not (needed is bool):
            place = f"{type(policy).__name__}.{one.name}"
            raise InvalidInput(f"{place}: found {found!r:.120}, needed is {_TYPES[needed]}")
    return PolicyCapabilities(**said, **derived)


_TYPES: Final = {bool: "True or False", int: "a whole number", str: "a text"}


def hears_statistics(policy: Policy) -> bool:
    """Return whether a policy overrides `application_stat` and therefore needs its calls."""
    return type(policy).application_stat is not Policy.application_stat


def serves_requests(policy: Policy) -> bool:
    """Return whether a policy accepts requests from clients, which it does if it overrides `on_request`."""
    return type(policy).on_request is not Policy.on_request


def useful_nodes(policy: Policy, cluster: Cluster) -> tuple[str, ...]:
    """Return the nodes on which a policy can use slots, ordered by name; empty for all.

    Raises:
        TypeError: `nodes` returned a value that is not allowed.
    """
    nodes = policy.nodes(cluster)
    if nodes is None:
        return ()
    if isinstance(nodes, str) or not nodes or not all(isinstance(node, str) for node in nodes):
        raise TypeError(f"nodes must return None or the names of nodes, at least one, found {nodes!r}")
    return tuple(sorted(set(nodes)))


def make_up_call(policy: Policy, cluster: Cluster, call: Call) -> Decision | None:
    """Make one up-call on a policy.

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
        case SlotsChange():
            policy.on_slots_change(cluster, call)
        case ExperimentChange():
            policy.on_experiment_change(cluster, call)
        case TimerFired():
            policy.on_timer(cluster, call)
    return None


def _with_prediction(call: PredictionReady) -> PredictionReady:
    """Convert the plain data of a journal to the type that policies receive."""
    if call.result is None or isinstance(call.result, Prediction):
        return call
    return replace(call, result=prediction_from_wire(call.result))
