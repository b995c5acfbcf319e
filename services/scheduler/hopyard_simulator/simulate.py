"""The function `simulate`, which runs a complete search with a policy on a workload in virtual time."""

from __future__ import annotations

import inspect
import json
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from hopyard._common.plugins import parameter_names
from hopyard.errors import InvalidInput
from hopyard.generator import Generator
from hopyard.generator import Result as Outcome
from hopyard.policy import Policy, capabilities_of
from hopyard.policy.vocabulary import StreamId
from hopyard.policy.vocabulary.reasons import explain
from hopyard.predictor import Predictor
from hopyard.solver import Solver
from hopyard.solver.invoke import new_solver, solved
from hopyard.space import Space
from hopyard.spec.models import DEFAULT_PREDICTOR
from hopyard_engine.core.actions.prediction_requests import PREDICT
from hopyard_engine.core.effects import AskOutside
from hopyard_engine.core.types import EarlierTrial, PlacedData, Settings
from hopyard_engine.policy_host.factory import new_policy, policy_class, review
from hopyard_simulator.conditions import Costs, Faults, Fleet
from hopyard_simulator.group import JoiningExperiment, arrivals, results
from hopyard_simulator.metrics import POOLS, Result
from hopyard_simulator.parameters import PREDICTOR, Parameters, experiment_settings, resolve
from hopyard_simulator.partitions import PartitionedWorkload, Partitions
from hopyard_simulator.predictions import PredictionCache, SimulatedPredictions
from hopyard_simulator.prior_results import trained
from hopyard_simulator.workload import Workload
from hopyard_simulator.world import NAME, World


def simulate(
    workload: Workload,
    policy: str | type[Policy] | Callable[..., Policy],
    *,
    slots: int | None = None,
    fleet: Fleet | None = None,
    parameters: Mapping[str, Any] | None = None,
    target: float | None = None,
    max_time: float | None = None,
    jobs: int | None = None,
    seed: int = 0,
    order_seed: int | None = None,
    costs: Costs | None = None,
    faults: Faults | None = None,
    generator: Generator | None = None,
    space: Space | None = None,
    predictor: str | Predictor | None = DEFAULT_PREDICTOR,
    foreseen: PredictionCache | None = None,
    from_scratch: bool = False,
    data: Partitions | None = None,
    details: bool = False,
    speedup: Callable[[int], float] = float,
    group: Sequence[JoiningExperiment] = (),
    earlier: Sequence[EarlierTrial] = (),
    watch: Callable[[World], None] | None = None,
) -> Result:
    """Simulate a complete search in virtual time, with the engine and the policy of a live search.

    Equal arguments produce equal results.

    Args:
        workload: The configurations and their training.
        policy: A policy's name as in an experiment file, its class, or a function that creates one.
        slots: The number of equal slots, one on each node. Exactly one of `slots` and `fleet` must be given.
        fleet: The slots and their nodes, instead of `slots`.
        parameters: By name: parameters of the policy, terms of the experiment (settings such as `kill_threshold`, listed
            in `hopyard_simulator.parameters`), and, as `predictor.NAME`, parameters of the predictor. `policy.NAME` and
            `experiment.NAME` name a parameter and a term that have the same name, which is ambiguous alone.
        target: The search ends when a report is at least as good. With the term `target_over` above 1, the mean of a job's last
            `target_over` reports is compared instead. None: no target.
        max_time: The search ends after this many virtual seconds; None: no limit.
        jobs: The maximum number of jobs; None: one for each configuration of the workload.
        seed: Seed of the policy and the faults.
        order_seed: Seed of the order of the configurations; None: the workload's order.
        costs: The duration of operations; None: they take no time.
        faults: Random faults; None: no faults.
        generator: Proposes the configurations, which the workload must know; None: the workload provides them.
        space: The search space, for policies that change hyperparameters; None: no such policy is used.
        predictor: Answers requests for predictions of learning curves: a name as in an experiment file (default: the
            default there), or a predictor. None: every request is answered with an error.
        foreseen: A cache of predictions, which several simulations may share; None: a new one.
        from_scratch: True if a resumed job first repeats all its training (ASHA, appendix A.1).
        data: Partitions of the data on the nodes. Each position of the workload is then an epoch, a position of a job
            is a unit, and the maximum position is multiplied by the number of training partitions. None: no partitions.
        details: Include every run, report and label, and the policy's estimates in the result.
        speedup: Returns the factor (> 0) by which a given number of slots trains a job faster than one; default: the
            number of slots.
        group: Further experiments that join this one, with one policy and one set of slots. Not allowed with a
            generator.
        earlier: Trials of earlier searches of the same program (`Result.trained`). Policies that share training reuse
            them.
        watch: Called with the simulation once for every few thousand actions; None: no calls.

    Returns:
        The measurements and the outcome of the search.

    Raises:
        InvalidInput: An argument is invalid, the policy rejects the experiment, or it trains a configuration that the
            workload does not know.
        SimulationError: The policy failed, or no further event can happen although the search has not ended.
    """
    if (slots is None) == (fleet is None):
        raise InvalidInput("give either slots or a fleet")
    hosts = fleet if fleet is not None else Fleet(slots or 0)
    made, name, given = _policy(policy, parameters or {})
    if given.predictor and not isinstance(predictor, str):
        raise InvalidInput(
            f"{PREDICTOR}{', '.join(given.predictor)}: say whose they are: give the predictor by its name"
        )
    terms = given.terms
    if made.needs_data and data is None:
        raise InvalidInput(
            f"policy {name} sends jobs to partitioned data: say how they lie, such as --data train=8 (`data`)"
        )
    placed = None
    if data is not None:
        placed = data.placed([node for node, _ in hosts.nodes()])
        workload = PartitionedWorkload(workload, data.train)
    configurations = workload.configurations(order_seed) if generator is None else ()
    most = jobs if jobs is not None else len(configurations)
    if group and generator is not None:
        raise InvalidInput("group: its experiments have the configurations that are given, so leave out the generator")
    if jobs is None and generator is not None:
        raise InvalidInput("how many jobs: with a generator, `jobs` must be given")
    if most < 1:
        raise InvalidInput(f"jobs must be at least 1, found {most}")
    if target is not None and not math.isfinite(target):
        raise InvalidInput(f"target must be a finite number, found {target!r}")
    if target is None and terms.get("target_over", 1) > 1:
        raise InvalidInput(f"target_over is {terms['target_over']}: it needs a target, which is not given")
    if max_time is not None and not 0 < max_time < math.inf:
        raise InvalidInput(f"max_time must be a number of seconds > 0, found {max_time!r}")
    settings = replace(
        experiment_settings(
            workload,
            capabilities_of(made),
            terms,
            jobs=most,
            target=target,
            max_time=max_time,
            seed=seed,
            space=space,
        ),
        plan=NAME if made.shares else "",
        lasting=made.shares,
        generator_reads=generator.reads if generator is not None else "nothing",
    )
    note = _reviewed(policy, name, given.policy, settings, space, placed)
    seen = foreseen if foreseen is not None else PredictionCache()
    proposed = {NAME: configurations, **{f"{NAME}-{number}": one.configurations for number, one in enumerate(group, 2)}}
    questions = _Questions(
        proposed, generator, SimulatedPredictions(_predictor(predictor, given.predictor, seen), seen)
    )
    world = World(
        workload,
        made,
        settings,
        hosts,
        costs or Costs(),
        faults or Faults(),
        seed=seed,
        answer=questions.answer,
        from_scratch=from_scratch,
        details=details,
        data=placed,
        speedup=speedup,
        arrivals=list(arrivals(StreamId(NAME), settings, group)),
        earlier=tuple(earlier),
    )
    questions.world = world
    for _ in world.run():
        if watch is not None:
            watch(world)
    who = type(predictor).__name__ if isinstance(predictor, Predictor) else predictor
    asked = who if questions.asked else None
    return _result(world, name, given.shown(), hosts.slots, seed, order_seed, target, asked, questions, note, placed)


def _predictor(
    given: str | Predictor | None, parameters: Mapping[str, Any], foreseen: PredictionCache
) -> Callable[[], Predictor] | None:
    """Return a function that returns the predictor; None: the simulation has none.

    A named predictor is created at once, so that its errors are raised before the simulation. Only the default
    predictor without parameters is created on first use.

    Args:
        given: The name of the predictor, or the predictor; None: the simulation has none.
        parameters: The parameters of a named predictor.
        foreseen: Creates and stores named predictors.

    Raises:
        InvalidInput: The predictor does not exist, or rejects the parameters.
    """
    if given is None:
        return None
    if isinstance(given, Predictor):
        return lambda: given
    if given != DEFAULT_PREDICTOR or parameters:
        foreseen.predictor(given, parameters)
    return lambda: foreseen.predictor(given, parameters)


def _result(
    world: World,
    policy: str,
    parameters: Mapping[str, Any],
    slots: int,
    seed: int,
    order_seed: int | None,
    target: float | None,
    predictor: str | None,
    questions: _Questions,
    note: str,
    data: PlacedData | None,
) -> Result:
    measure, stream, now = world.measure, world.experiment, world.timeline.now
    capacity, started = measure.closed(now)
    best = stream.best
    return Result(
        policy=policy,
        parameters=parameters,
        predictor=predictor,
        metric=world.workload.metric,
        mode=world.workload.mode,
        R=world.max_position,
        slots=slots,
        seed=seed,
        order_seed=order_seed,
        target=target,
        time_to_target=measure.time_to_target,
        best=best[2] if best is not None else None,
        best_job=best[0] if best is not None else None,
        time=now,
        job_seconds=measure.job_seconds,
        jobs_started=started,
        jobs_terminated=measure.terminated or 0,
        suspends=measure.suspends,
        iterations=measure.iterations,
        utilisation=measure.job_seconds / capacity if capacity else 0.0,
        first_at_R=measure.at_max[0][0] if measure.at_max else None,
        jobs_at_R=tuple(measure.at_max),
        promotions=measure.promotions if stream.data is None else 0,
        pools={"names": list(POOLS), "points": measure.pools},
        reason=explain(stream.reason),
        reason_code=stream.reason.code.value if stream.reason is not None else None,
        events=world.events,
        predictions=questions.asked,
        predictions_failed=questions.failed,
        note=note,
        runs=tuple(measure.runs) if measure.details else None,
        states={job.id: job.state.value for job in stream.jobs.values()} if measure.details else None,
        curves=measure.curves if measure.details else None,
        labels=measure.labels if measure.details else None,
        confidences=measure.confidences if measure.details else None,
        held={one.name: tuple(one.places) for one in data.partitions} if measure.details and data is not None else None,
        moved=measure.moved if measure.details and data is not None else None,
        trained=trained(stream) if measure.details else None,
        experiments=results(stream) if len(stream.experiments) > 1 else None,
    )


class _Questions:
    """Answers the core's external requests: for configurations, for predictions, and to solvers.

    Args:
        configurations: By experiment id: the configurations of its jobs in order. Not used with a generator.
        generator: Proposes configurations; None: those given are used.
        predictions: Answers requests for predictions.

    Attributes:
        asked: Number of requests for predictions.
        failed: Number of these that were answered with an error.
        world: The simulation. It must be set before the first request.
    """

    def __init__(
        self,
        configurations: Mapping[str, Sequence[Mapping[str, Any]]],
        generator: Generator | None,
        predictions: SimulatedPredictions,
    ) -> None:
        self._configurations = configurations
        self._predictions = predictions
        self._generator = generator
        self._solvers: dict[str, Solver] = {}
        self._proposed: Counter[str] = Counter()
        self._told = 0
        self.asked = 0
        self.failed = 0
        self.world: World | None = None

    def answer(self, question: AskOutside) -> object:
        """Return the answer to an external request of the core.

        It is a configuration (None: there are no more), a prediction, or the result of a solver.

        Raises:
            InvalidInput: The request cannot be answered.
        """
        if question.experiment:
            return self._configuration(question)
        if question.kind == PREDICT:
            assert self.world is not None
            self.asked += 1
            try:
                return self._predictions.answer(self.world.experiment, question)
            except InvalidInput:
                self.failed += 1
                raise
        if question.kind not in self._solvers:
            self._solvers[question.kind] = new_solver(question.kind)
        try:
            payload = json.loads(json.dumps(question.payload))  # Convert to the types that a live solver receives.
        except (TypeError, ValueError) as error:
            raise InvalidInput(f"the question to solver {question.kind} is not plain data: {error}") from error
        return solved(question.kind, self._solvers[question.kind], payload, question.seconds)

    def _configuration(self, question: AskOutside) -> Mapping[str, Any] | None:
        ordinal = self._proposed[question.experiment]
        self._proposed[question.experiment] += 1
        if self._generator is None:
            mine = self._configurations[question.experiment]
            return mine[ordinal] if ordinal < len(mine) else None
        assert self.world is not None
        calls = self.world.experiment.experiments[question.experiment].generator_calls
        for call in calls[self._told : question.payload["after"]]:
            if call.kind == "report":
                self._generator.report(call.job, call.position, call.metrics)
            elif call.kind == "final":
                given = dict(call.hyperparameters) if call.hyperparameters is not None else None
                outcome = Outcome(call.metrics, call.outcome, call.position, given)
                self._generator.report_final(call.job, outcome)
        self._told = question.payload["after"]
        return self._generator.create(question.payload["job"], ordinal)


def _policy(
    policy: str | type[Policy] | Callable[..., Policy], parameters: Mapping[str, Any]
) -> tuple[Policy, str, Parameters]:
    """Create the policy, and assign the parameters of a simulation to the policy, the experiment and the predictor.

    Args:
        policy: The policy's name, its class, or a function that creates it.
        parameters: The parameters by their short or full names.

    Returns:
        The policy, its name, and the parameters.

    Raises:
        InvalidInput: The policy does not exist or rejects a parameter, a name is ambiguous or unknown, or a term is not a
            number in its range.
    """
    made_by = policy_class(policy) if isinstance(policy, str) else policy
    name = policy if isinstance(policy, str) else getattr(policy, "__name__", type(policy).__name__)
    takes = set(parameter_names(made_by) if isinstance(made_by, type) else inspect.signature(made_by).parameters)
    given = resolve(parameters, name, takes)
    made = new_policy(policy, given.policy) if isinstance(policy, str) else policy(**given.policy)
    return made, name, given


def _reviewed(
    policy: str | type[Policy] | Callable[..., Policy],
    name: str,
    own: Mapping[str, Any],
    settings: Settings,
    space: Space | None,
    data: PlacedData | None,
) -> str:
    """Return the policy's remarks on the experiment; empty: it has none, or `policy` is a function.

    The remarks are those of a second instance of the policy, so that the simulated instance is not changed.

    Args:
        policy: The policy's name, its class, or a function that creates it.
        name: The name of the policy.
        own: The parameters of the policy.
        settings: The settings of the experiment.
        space: The search space; None: it is not given.
        data: The data set; None: there is none.

    Raises:
        InvalidInput: The policy rejects the experiment or a parameter, or fails.
    """
    if isinstance(policy, str):
        return review(name, new_policy(policy, own), settings, space, data)
    return review(name, policy(**own), settings, space, data) if isinstance(policy, type) else ""
