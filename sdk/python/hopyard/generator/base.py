"""What every generator of configurations promises."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

from hopyard.errors import InvalidInput
from hopyard.space import Configuration, Space


class GeneratorParameterError(InvalidInput):
    """A generator was given a parameter it does not take, or a value it cannot use; the message lists what it takes."""


class Generator(ABC):
    """Proposes configurations (the hyperparameter generator, HG, of the papers).

    The service calls a generator from one thread at a time and keeps every call. A generator must be **deterministic**:
    its answers are a function of the space, the seed, the parameters and the calls before, in their order. It reads no
    clock, no file, no network and no random source but those it derives from its seed (`hopyard.space.stream`), and it
    does not rely on Python's `hash` or the order of sets. That makes **recovery** simple: nothing is saved; after a
    restart a new instance is given the recorded calls again, and each `create` must propose what it proposed before.

    Ship one as an entry point in the group `hopyard.generators`, or name it as `module:Class` in the experiment file.
    Test it with `hopyard.generator.conformance.GeneratorConformance`.
    """

    report_order_matters: ClassVar[bool] = True
    """False claims that proposals do not depend on the order of reports (random and grid search do not read them)."""

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
            takes = ", ".join(parameter_names(type(self))) or "none"
            unknown = ", ".join(sorted(parameters))
            raise GeneratorParameterError(f"{type(self).__name__} has no parameter {unknown}; it takes: {takes}")
        self.space = space
        self.seed = seed

    @property
    def size(self) -> int | None:
        """How many configurations it proposes in all before it is exhausted; None: endless."""
        return None

    @abstractmethod
    def create(self, job: str, ordinal: int) -> Configuration | None:
        """Propose the configuration of one job.

        Args:
            job: the job's id; never asked for twice in one life. It may be remembered, to match later reports, but
                must not influence the values: ids differ between repetitions of an experiment.
            ordinal: how many proposals were asked for before this one: 0, 1, 2, ...

        Returns:
            A value of the space for each of its names; JSON values only; a new dict each time, which the caller may
            change. None when exhausted: then every later call gives None too.
        """

    def report(self, job: str, position: int, metrics: Mapping[str, float]) -> None:
        """Learn from an intermediate result. Does nothing unless overridden.

        Args:
            job: a job's id; it may be one this generator did not propose (a policy made or forked it): ignore those.
            position: how far the job has trained, in the experiment's unit; rises from report to report of a job.
            metrics: doubles by name; NaN and infinities are legal, and worst.
        """

    def report_final(self, job: str, metrics: Mapping[str, float]) -> None:
        """Learn a job's last result, at most once a job. Does nothing unless overridden.

        Args:
            job: as in `report`.
            metrics: as in `report`; empty when the job ended without one.
        """


def parameter_names(generator: type[Generator]) -> list[str]:
    """The names of the parameters that `generator` and its bases declare, sorted."""
    names = set[str]()
    for cls in generator.__mro__:
        if "__init__" in vars(cls):
            names |= {
                name
                for name, parameter in inspect.signature(vars(cls)["__init__"]).parameters.items()
                if parameter.kind is not parameter.VAR_KEYWORD and parameter.kind is not parameter.VAR_POSITIONAL
            }
    return sorted(names - {"self", "space", "seed", "args", "kwargs"})
