"""The base class of generators, which propose configurations, and the types of the results that they get."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple, TypeAlias

from hopyard._common import plugins
from hopyard.errors import InvalidInput
from hopyard.policy.vocabulary import JobState
from hopyard.space import Configuration, Space, is_number

Reads: TypeAlias = Literal["nothing", "finals", "reports"]
"""What a generator learns from: nothing, the results of ended jobs, or these results and intermediate reports."""


class GeneratorParameterError(InvalidInput):
    """A generator got an unknown parameter or an invalid value. The message lists what is allowed."""


class ObjectiveMetric(NamedTuple):
    """The metric that the experiment optimizes.

    Attributes:
        name: The metric's name in the metrics of reports.
        mode: Whether larger (max) or smaller (min) values are better.
    """

    name: str = "metric"
    mode: Literal["max", "min"] = "max"

    def loss(self, metrics: Mapping[str, float]) -> float:
        """Return the value of the metric with a sign such that smaller is better; infinity if it is missing or not finite.

        Args:
            metrics: The metrics of a report by name.
        """
        value = metrics.get(self.name)
        if value is None or not is_number(value):
            return float("inf")
        return value if self.mode == "min" else -value


@dataclass(frozen=True)
class Result:
    """The result of an ended job.

    Attributes:
        metrics: The metrics of its best report; empty if no report has a finite value of the experiment's metric.
        outcome: COMPLETED, TERMINATED (a policy or a user ended it), or FAILED.
        position: The position of the report with these metrics, in the experiment's unit; 0 if there is none.
        hyperparameters: The job's configuration if the generator did not propose it (a policy created or forked the
            job), else None. It may be outside the space.
    """

    metrics: Mapping[str, float]
    outcome: JobState = JobState.COMPLETED
    position: int = 0
    hyperparameters: Configuration | None = None


class Generator(ABC):
    """Base class of generators: plugins that propose configurations (the hyperparameter generator, HG, of HyperDrive).

    The generator service calls a generator from one thread at a time and records every call. A generator must be
    **deterministic**: its answers depend only on the space, the seed, the parameters, and the previous calls in order.
    It must not use a clock, files, the network, or random numbers other than those derived from its seed
    (`hopyard.space.stream`), and it must not depend on Python's `hash` or on the order of sets. **Recovery** is
    therefore simple. No state is saved. After a restart, a new instance gets the recorded calls again, and each
    `create` must return the same proposal as before.

    A generator that **learns** overrides `report_final`, or also `report`. The generator service makes only the calls that
    the generator overrides. Results arrive in the order in which they occurred, at the latest before the next `create`.

    Publish a generator as an entry point in the group `hopyard.generators`, or name it as `module:Class` in the
    experiment file (docs/generators.md). Test it with `hopyard.generator.conformance.GeneratorConformance`.

    A subclass declares its parameters as keywords of `__init__` and passes the others on: `def __init__(self, space, seed, *,
    shuffle=False, **rest): super().__init__(space, seed, **rest)`.

    Example:
        class Middle(Generator):
            def create(self, job: str, ordinal: int) -> Configuration:
                return self.space.build(lambda name, parameter: parameter.from_unit(0.5))

    Args:
        space: The space of the proposals.
        seed: The seed of the random numbers; 0 <= seed < 2^63. Different seeds give different proposals if the generator uses
            random numbers.
        **parameters: The other fields of `generator:` in the experiment file; JSON values. The base class accepts none.

    Attributes:
        report_order_matters: Whether proposals depend on the order of reports. A subclass sets it to False if they do
            not.
        metric: The metric that the experiment optimizes. The generator service sets it before the first call.
        space: The space of the proposals.
        seed: The seed of the random numbers.

    Raises:
        GeneratorParameterError: The class does not declare a parameter.
        SpaceError: The generator does not support the space.
    """

    report_order_matters: ClassVar[bool] = True
    """Set it to False if the proposals do not depend on the order of reports (random and grid search ignore reports)."""

    metric: ObjectiveMetric = ObjectiveMetric()
    """The metric that the experiment optimizes. The generator service sets it before the first call."""

    def __init__(self, space: Space, seed: int, **parameters: Any) -> None:
        if parameters:
            wrong = plugins.wrong_parameters(parameters, parameter_names(type(self)))
            raise GeneratorParameterError(f"{type(self).__name__} {wrong}")
        self.space = space
        self.seed = seed

    @property
    def size(self) -> int | None:
        """The total number of configurations that the generator proposes; None if it is infinite or unknown."""
        return None

    @property
    def reads(self) -> Reads:
        """The results that the generator learns from: "nothing", "finals" (of ended jobs), or "reports" (also intermediate ones).

        By default it is "reports" if the class overrides `report`, else "finals" if it overrides `report_final`, else "nothing".
        """
        if type(self).report is not Generator.report:
            return "reports"
        return "finals" if type(self).report_final is not Generator.report_final else "nothing"

    @abstractmethod
    def create(self, job: str, ordinal: int) -> Configuration | None:
        """Propose the configuration of one job.

        Args:
            job: The job's id, which is new in each call. The generator may store it to match later reports, but the id
                must not influence the values, because ids differ between repetitions of an experiment.
            ordinal: The number of previous proposals: 0, 1, 2, ...

        Returns:
            A configuration of the space, or None if there are no more; every later call must then also return None. The
            configuration must fulfil `space.contains`: inactive parameters are absent, and the constraints hold (see
            `space.build` and `space.fitting`). It must contain only JSON values and be a new dict each time, because
            the caller may modify it.
        """

    def report(self, job: str, position: int, metrics: Mapping[str, float]) -> None:
        """Learn from an intermediate result. The default does nothing.

        Args:
            job: The id of a job that this generator proposed.
            position: The job's progress in the experiment's unit. It rises from report to report of a job.
            metrics: The values of the metrics by name. NaN and infinite values are allowed and are worse than all
                others.
        """

    def report_final(self, job: str, result: Result) -> None:
        """Learn from the result of an ended job, at most once for each job. The default does nothing.

        Args:
            job: The job's id. If this generator did not propose the job, `result.hyperparameters` is set.
            result: The outcome of the job and its best metrics.
        """


def parameter_names(generator: type[Generator]) -> list[str]:
    """Return the sorted names of the parameters that `generator` and its base classes declare, without `space` and `seed`."""
    return [name for name in plugins.parameter_names(generator) if name not in ("space", "seed")]
