"""What every generator of configurations promises."""

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
"""What a generator learns from: nothing; how jobs ended; that, and what they reported on their way."""


class GeneratorParameterError(InvalidInput):
    """A generator was given a parameter it does not take, or a value it cannot use; the message lists what it takes."""


class Metric(NamedTuple):
    """What the experiment optimises.

    Attributes:
        name: its name in the metrics of reports.
        mode: whether larger (max) or smaller (min) values are better.
    """

    name: str = "metric"
    mode: Literal["max", "min"] = "max"

    def loss(self, metrics: Mapping[str, float]) -> float:
        """The metric turned so that smaller is better; infinity for one that is missing or not finite."""
        value = metrics.get(self.name)
        if value is None or not is_number(value):
            return float("inf")
        return value if self.mode == "min" else -value


@dataclass(frozen=True)
class Result:
    """How a job ended.

    Attributes:
        metrics: those of its best report; empty when it has none with a finite value of the experiment's metric.
        outcome: COMPLETED; TERMINATED, when a policy or a person ended it; or FAILED.
        position: where these metrics were measured, in the experiment's unit.
        hyperparameters: the configuration of a job that the generator did not propose (a policy made or forked it);
            None for its own. It need not be in the space.
    """

    metrics: Mapping[str, float]
    outcome: JobState = JobState.COMPLETED
    position: int = 0
    hyperparameters: Configuration | None = None


class Generator(ABC):
    """Proposes configurations (the hyperparameter generator, HG, of the papers).

    The service calls a generator from one thread at a time and keeps every call. A generator must be **deterministic**:
    its answers are a function of the space, the seed, the parameters and the calls before, in their order. It reads no
    clock, no file, no network and no random source but those it derives from its seed (`hopyard.space.stream`), and it
    does not rely on Python's `hash` or the order of sets. That makes **recovery** simple: nothing is saved; after a
    restart a new instance is given the recorded calls again, and each `create` must propose what it proposed before.

    A generator that **learns** overrides `report_final`, or `report` as well; what it does not override it is not sent.
    Results come in the order in which they happened, and before the next `create` rather than at once.

    Ship one as an entry point in the group `hopyard.generators`, or name it as `module:Class` in the experiment file
    (docs/generators.md). Test it with `hopyard.generator.conformance.GeneratorConformance`.
    """

    report_order_matters: ClassVar[bool] = True
    """False claims that proposals do not depend on the order of reports (random and grid search do not read them)."""

    metric: Metric = Metric()
    """What the experiment optimises; the service sets it before the first call."""

    def __init__(self, space: Space, seed: int, **parameters: Any) -> None:
        """Start at the first proposal.

        A subclass declares its own parameters as keywords and passes the rest on: `def __init__(self, space, seed, *,
        shuffle=False, **rest): super().__init__(space, seed, **rest)`.

        Args:
            space: what to propose from.
            seed: 0 <= seed < 2^63; different seeds give different proposals where chance plays a part.
            **parameters: further fields under `generator:` in the experiment file; JSON values.

        Raises:
            GeneratorParameterError: a parameter that the class does not declare.
            SpaceError: a space it cannot propose from.
        """
        if parameters:
            wrong = plugins.wrong_parameters(parameters, parameter_names(type(self)))
            raise GeneratorParameterError(f"{type(self).__name__} {wrong}")
        self.space = space
        self.seed = seed

    @property
    def size(self) -> int | None:
        """How many configurations it proposes in all before it is exhausted; None: endless, or not known beforehand."""
        return None

    @property
    def reads(self) -> Reads:
        """What it learns from, and so what it is told: by default what follows from the methods it overrides."""
        if type(self).report is not Generator.report:
            return "reports"
        return "finals" if type(self).report_final is not Generator.report_final else "nothing"

    @abstractmethod
    def create(self, job: str, ordinal: int) -> Configuration | None:
        """Propose the configuration of one job.

        Args:
            job: the job's id; never asked for twice in one life. It may be remembered, to match later reports, but
                must not influence the values: ids differ between repetitions of an experiment.
            ordinal: how many proposals were asked for before this one: 0, 1, 2, ...

        Returns:
            A configuration of the space (`space.contains`: what is not active is absent, and the constraints hold; see
            `space.build` and `space.fitting`); JSON values only; a new dict each time, which the caller may change. None
            when exhausted: then every later call gives None too.
        """

    def report(self, job: str, position: int, metrics: Mapping[str, float]) -> None:
        """Learn from an intermediate result. Does nothing unless overridden.

        Args:
            job: the id of a job that this generator proposed.
            position: how far the job has trained, in the experiment's unit; rises from report to report of a job.
            metrics: doubles by name; NaN and infinities are legal, and worst.
        """

    def report_final(self, job: str, result: Result) -> None:
        """Learn how a job ended, at most once a job. Does nothing unless overridden.

        Args:
            job: a job's id; it may be one that this generator did not propose: then `result.hyperparameters` is set.
            result: how it ended, and its best metrics.
        """


def parameter_names(generator: type[Generator]) -> list[str]:
    """The names of the parameters that `generator` and its bases declare, sorted."""
    return [name for name in plugins.parameter_names(generator) if name not in ("space", "seed")]
