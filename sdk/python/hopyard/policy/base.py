"""The base class of scheduling policies, and functions that call a policy.

docs/policies.md describes how to write a policy.
"""

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
    """Base class of policies: decides, during training, which jobs run where, and which wait, fork or end.

    The engine (the scheduler's state machine) creates one instance for each stream and calls its methods one at a time
    (up-calls of HyperDrive, section 4.2, and others). Each method gets the view `cluster`, whose methods give commands (down-calls).

    A policy must be deterministic given its up-calls. It takes the time only from `cluster.now` and random numbers only
    from `cluster.rng`. It keeps its state in ordinary attributes, stores nothing and does no I/O. Therefore the cluster
    can rebuild it after a crash by making the same up-calls again, the simulator can run it in virtual time, and a
    replay can check its decisions.

    Parameters in the `policy` block of the experiment file are passed as keyword arguments to `__init__`.

    Example:
        class Shortest(Policy):
            def allocate_jobs(self, cluster: Cluster) -> None:
                for slot in cluster.idle_slots():
                    waiting = sorted(cluster.idle_jobs(), key=lambda job: job.position)
                    if waiting:
                        cluster.start_job(waiting[0].id, slot.id, until=waiting[0].position + 1)
                    elif cluster.experiment.jobs_left:
                        cluster.create_job()

    Attributes:
        every_iteration: Whether `on_iteration_finish` is called after each iteration. Defaults to True for a class that
            overrides this method. If False, it is called only where the run waits for the decision: at or after the
            run's `allowed` position, and at its `until` position (`StartJob`). Reports below `allowed` then cost almost
            nothing.
        ends_jobs: Whether `on_iteration_finish` is called for a run that has trained its job to the end. Defaults to
            True for a class that overrides this method. If False, the run saves and ends without a decision, and
            `on_run_end` reports it.
        forks: Whether `allocate_jobs` is also called when a snapshot requested with `snapshot_at` is available. Another
            job can start from it while the job continues to train.
        forks_newest: Whether the policy forks only from the newest requested snapshot of a job. Older ones can then be
            deleted.
        rebuilds: Whether the policy retrains requested snapshots that are missing when it needs to start from them. The
            quota may then also delete requested snapshots, starting with those that are the quickest to retrain.
        copies: Whether the policy, as a tuner of another policy, continues with changed copies of jobs (`fork_job`).
            The jobs are then saved where the policy stops them.
        evaluates: Whether a job that has trained to its end is evaluated at that position. The job waits in the state
            SUSPENDED until the policy completes it with its own results: `answer_job(job, job, position)`.
        shares: Whether the policy's jobs can continue from the results of other jobs with the same training. Its
            trainings are then recorded in the search plan.
        scales: Whether the policy chooses on how many slots a job trains. `Cluster.scaling` then contains earlier
            measurements, and the results of its profiling runs (`RunMode.PROFILE`) are stored for later experiments.
            `demand` must then not count slots for more jobs than may train at a time (`ExperimentView.concurrency`);
            for other policies the engine applies this limit.
        generator: The name of the generator of experiments whose file names none; empty: `random`.
        needs_data: Whether the policy sends jobs to partitioned data. Experiments that name no data (`data: NAME`) or
            have no trainer are then rejected. If False, experiments that name data are rejected.
        ship_every: Number of the experiment's units between two snapshots that are sent to the store, for experiments that do not set
            `snapshot.ship_every`; 0: only the last snapshot of a job.
        version: The version of the policy's decisions. Change it when the same up-calls lead to other decisions. The
            journal records the version with which an experiment began, and a replay reports a difference.

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
        """Set `every_iteration` and `ends_jobs` to True in a class that overrides `on_iteration_finish`, unless it sets them itself."""
        super().__init_subclass__(**options)
        for name in ("every_iteration", "ends_jobs"):
            if "on_iteration_finish" in cls.__dict__ and name not in cls.__dict__:
                setattr(cls, name, True)

    @abc.abstractmethod
    def allocate_jobs(self, cluster: Cluster) -> None:
        """Start jobs on idle slots. Every policy must define this method.

        It is called when slots of the experiment's share are idle and something changed since its last call: a job or
        slot became idle, or the share grew. With `forks`, it is also called when a requested snapshot is available.
        """

    def application_stat(self, cluster: Cluster, stat: ApplicationStat) -> None:
        """Handle a report of a job at a position above its high-water mark (the highest position reported before).

        It is called only for policies that override it, before `on_iteration_finish` for the same report.
        """

    def on_profile(self, cluster: Cluster, stat: ApplicationStat) -> None:
        """Handle the only report of a run with mode PROFILE: the seconds that an iteration takes, as the metric `seconds`.

        On a gang whose ranks have one partition each, and whose program trains on all of them at once
        (`Trainer.gathers_partitions`), the report also has the metric `partitions`, their number.
        """

    def on_iteration_finish(self, cluster: Cluster, event: IterationFinish) -> Decision:
        """Decide how the run of `event.job` continues after an iteration. By default it trains to its `until` position and ends there.

        `every_iteration` and `ends_jobs` determine when it is called.
        """
        return CONTINUE if event.at_until else Decision.proceed(cluster.experiment.max_position)

    def on_run_end(self, cluster: Cluster, run: RunEnd) -> None:
        """Handle the end of a run, for any reason. The slots of the run are idle again or have been lost."""

    def on_job_created(self, cluster: Cluster, created: JobCreated) -> None:
        """Handle a created or forked job that has its configuration and is idle. `allocate_jobs` is called next if slots are idle."""

    def on_generator_exhausted(self, cluster: Cluster, exhausted: GeneratorExhausted) -> None:
        """Handle a job that could not be created because the generator has no more configurations.

        `cluster.experiment.jobs_left`, the number of jobs that may still be created, is now 0.
        """

    def on_prediction(self, cluster: Cluster, prediction: PredictionReady) -> None:
        """Handle the answer to `Cluster.predict`: a prediction or an error."""

    def on_answer(self, cluster: Cluster, answer: AnswerReady) -> None:
        """Handle the answer to `Cluster.ask` or `Cluster.amend_run`: a result or an error."""

    def on_request(self, cluster: Cluster, request: RequestMade) -> None:
        """Handle a client's request to train a configuration to a position. The job `request.job` has been created for it.

        If the policy does not override this method, the scheduler refuses requests: the client gets the error `Conflict`.
        """

    def on_share_change(self, cluster: Cluster, change: ShareChange) -> None:
        """Handle a new share: the number of slots that the experiment may use.

        If `change.deadline` is set, the experiment has more slots than its new share. The policy can suspend runs of
        its choice before the deadline; after that, the engine suspends runs.
        """

    def on_slots_change(self, cluster: Cluster, change: SlotsChange) -> None:
        """Handle slots that were added to the experiment or removed from it, or a change of the nodes that have its partitions."""

    def on_experiment_change(self, cluster: Cluster, change: ExperimentChange) -> None:
        """Handle a change of an experiment: it was extended, paused or resumed, or has a new target.

        In a group, it is also called when an experiment joins or ends.
        """

    def on_timer(self, cluster: Cluster, timer: TimerFired) -> None:
        """Handle a timer: the time requested with `Cluster.wake_at` has come."""

    def on_refused(self, cluster: Cluster, verdict: Verdict) -> None:
        """Handle a command of an earlier answer that the engine refused, because the state had changed since the policy's view.

        It is called once for each refused command, immediately before the next up-call. The commands that it gives are
        part of the answer to that up-call. The default does nothing.

        Args:
            cluster: The view for the next up-call.
            verdict: The refused command, and the reason.
        """

    def demand(self, cluster: Cluster) -> int | None:
        """Return how many slots the policy could use now, including those in use, or None (the default) for no limit.

        It is called after each up-call, with a view of the same moment that does not show the commands of the answer.
        It must not give commands.
        """
        return None

    def nodes(self, cluster: Cluster) -> Collection[str] | None:
        """Return the names of the nodes (at least one) on which slots would be useful now, or None (the default) for any node.

        The experiment gets no slots on other nodes. Slots that it holds there are taken back as soon as they are idle
        and not reserved; if necessary their runs are suspended at a boundary first. It gets slots on useful nodes
        instead, within its share. The method is called after each up-call, with the same view as `demand`, and must not
        give commands.
        """
        return None

    def gang(self, cluster: Cluster) -> int:
        """Return the number of slots (>= 1, by default 1) that the policy needs at the same time, such as the smallest permitted gang.

        The share of the experiment is a multiple of this number, possibly 0. Remaining slots are left to other
        experiments, so that two experiments never wait for each other's slots. `demand` should also return a multiple.
        The method is called after each up-call, with the same view as `demand`, and must not give commands.
        """
        return 1

    def review(self, terms: ExperimentView) -> str:
        """Check before an experiment begins whether the policy can serve it.

        It is called when the experiment is created, on an instance that is discarded after the call.

        Args:
            terms: What the policy will know about the experiment; `jobs_left` is the maximum number of all its jobs.

        Returns:
            A note that is shown to the user with the created experiment, or an empty text.

        Raises:
            ValueError: The policy cannot serve this experiment. The message says what to change.
        """
        return ""

    def pauses(self, terms: ExperimentView) -> Mapping[int, int] | None:
        """Return at which positions the policy suspends jobs to continue them later, and how many jobs it continues from each.

        `hopyard run` and `hopyard plan` use it for programs that save no checkpoint: each such job trains up to that position again. It
        is called before the experiment begins, on an instance that is discarded after the call.

        Args:
            terms: What the policy will know about the experiment; `jobs_left` is the maximum number of all its jobs.

        Returns:
            The expected number of jobs by position; empty, the default: the policy suspends no job on its own decision; None: it
                suspends jobs, and the positions are unknown.
        """
        return {}

    def rungs(self, cluster: Cluster) -> tuple[Rung, ...] | None:
        """Return the rungs (positions at which successive halving compares jobs) with their jobs, for `hopyard rungs`.

        The method must not give commands.

        Returns:
            The rungs ordered by bracket number (a bracket is a sequence of rungs through which a set of jobs passes), in
            each bracket from the lowest position; empty if no job is on a rung yet, None if the policy has no rungs.
        """
        return None

    def stages(self, cluster: Cluster) -> tuple[StageView, ...] | None:
        """Return the stages of the stage tree (parts of trainings that several trials share), for `hopyard tree`.

        The method must not give commands.

        Returns:
            The stages, parents before children; empty if there are no trials yet, None if the policy trains every trial
            separately.
        """
        return None

    def confidences(self, cluster: Cluster) -> Mapping[str, float]:
        """Return for jobs, by id, the probability in [0, 1] that they reach the target, for `hopyard plot --kind slots`.

        Without a target, it is the probability of the value that the policy aims for. A job that is missing in the result has no
        known probability. The method must not give commands. The default is empty.
        """
        return {}


def capabilities_of(policy: Policy) -> PolicyCapabilities:
    """Return what a policy decides and needs (`PolicyCapabilities`), from its attributes and the methods that it overrides.

    Raises:
        InvalidInput: An attribute has a wrong type; the message names it.
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
    """Return whether a policy overrides `application_stat` and therefore must get an up-call for each report."""
    return type(policy).application_stat is not Policy.application_stat


def serves_requests(policy: Policy) -> bool:
    """Return whether a policy accepts requests from clients, which it does if it overrides `on_request`."""
    return type(policy).on_request is not Policy.on_request


def useful_nodes(policy: Policy, cluster: Cluster) -> tuple[str, ...]:
    """Return the names of the nodes on which a policy can use slots now (`Policy.nodes`), sorted; empty for all nodes.

    Raises:
        TypeError: `Policy.nodes` returned an empty collection or something that is not a collection of texts.
    """
    nodes = policy.nodes(cluster)
    if nodes is None:
        return ()
    if isinstance(nodes, str) or not nodes or not all(isinstance(node, str) for node in nodes):
        raise TypeError(f"nodes must return None or the names of nodes, at least one, found {nodes!r}")
    return tuple(sorted(set(nodes)))


def make_up_call(policy: Policy, cluster: Cluster, call: Call) -> Decision | None:
    """Call the method of a policy that handles an up-call.

    Args:
        policy: The policy.
        cluster: The view of the moment of the up-call; it collects the policy's commands.
        call: The up-call.

    Returns:
        The decision for an `IterationFinish`, otherwise None.

    Raises:
        Exception: Any exception of the policy.
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
    """Return the up-call with its result as a `Prediction`: a result that is plain data from a journal is converted.

    An up-call without a result (None, an error) is returned unchanged.
    """
    if call.result is None or isinstance(call.result, Prediction):
        return call
    return replace(call, result=prediction_from_wire(call.result))
