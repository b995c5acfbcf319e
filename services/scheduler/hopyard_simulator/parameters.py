"""The parameters of a simulated search by name: of the policy, of the experiment (its terms) and of the predictor.

Terms that are not given have the defaults of an experiment file (`hopyard.spec`), as in a live experiment.

A full name begins with its owner: `policy.grace`, `experiment.grace`, `predictor.steps`. A short name, such as `grace`, is a
parameter of the policy or a term of the experiment, whichever exists; if both exist, it is refused.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from hopyard.errors import InvalidInput
from hopyard.policy import PolicyCapabilities
from hopyard.space import Space
from hopyard.spec.models import ExperimentSpec, GeneratorSpec, MetricSpec
from hopyard.spec.sections import StopSpec
from hopyard_engine.core.types import Settings
from hopyard_engine.policy_host.factory import with_capabilities
from hopyard_engine.settings import settings_of
from hopyard_simulator.workload import Workload
from hopyard_simulator.world import NAME

POLICY: Final = "policy."
EXPERIMENT: Final = "experiment."
PREDICTOR: Final = "predictor."

TERMS: Final[Mapping[str, tuple[type, float]]] = {
    "kill_threshold": (float, -math.inf),
    "target_over": (int, 1),
    "low": (float, -math.inf),
    "high": (float, -math.inf),
    "max_failures": (int, 0),
    "max_losses": (int, 0),
    "snapshot_every": (int, 0),
    "ship_every": (int, 0),
    "keep_latest": (int, 1),
    "keep_best": (int, 0),
    "snapshot_quota": (int, 0),
    "concurrency": (int, 1),
    "kill_after": (float, 0),
    "grace": (float, 0),
}
"""Terms of an experiment that can be set: type and minimum."""


@dataclass(frozen=True, slots=True)
class Parameters:
    """The parameters of a simulated search, by owner and name.

    Attributes:
        policy: Parameters of the policy.
        terms: Terms of the experiment.
        predictor: Parameters of the predictor.
        ambiguous: Names that a parameter of the policy and a term have, whether they are given or not.
    """

    policy: dict[str, Any] = field(default_factory=dict)
    terms: dict[str, Any] = field(default_factory=dict)
    predictor: dict[str, Any] = field(default_factory=dict)
    ambiguous: frozenset[str] = frozenset()

    def shown(self) -> dict[str, Any]:
        """Return the parameters of the policy and the terms in one mapping, with short names except for ambiguous ones."""
        owners = ((POLICY, self.policy), (EXPERIMENT, self.terms))
        return {
            f"{owner if name in self.ambiguous else ''}{name}": value
            for owner, values in owners
            for name, value in values.items()
        }


def experiment_settings(
    workload: Workload,
    capabilities: PolicyCapabilities,
    terms: Mapping[str, Any],
    *,
    jobs: int,
    target: float | None,
    max_time: float | None,
    seed: int,
    space: Space | None,
) -> Settings:
    """Return the settings of a simulated search: those of a live experiment with the same metric, end and policy.

    Args:
        workload: Its metric, mode and maximum position are used.
        capabilities: The capabilities of the policy.
        terms: Terms of the experiment, which replace its defaults and those of the policy.
        jobs: The maximum number of jobs.
        target: The value that ends the search; None: no target.
        max_time: The virtual seconds after which the search ends; None: no limit.
        seed: The seed of the policy.
        space: The search space; None: unknown.
    """
    # The specification is not validated, because `simulate` accepts workloads that no experiment file can describe.
    spec = ExperimentSpec.model_construct(
        name=NAME,
        metric=MetricSpec.model_construct(name=workload.metric, mode=workload.mode, target=target),
        stop=StopSpec.model_construct(jobs=jobs, max_iterations=workload.max_position, max_time=max_time),
        generator=GeneratorSpec.model_construct(seed=seed),
        space=space if space is not None else Space({}),
        constraints=tuple(constraint.text for constraint in space.constraints) if space is not None else (),
    )
    settings = settings_of(spec)
    if space is None:
        settings = replace(settings, space=None)
    return replace(with_capabilities(settings, capabilities), **terms)


def resolve(given: Mapping[str, Any], policy: str, takes: Collection[str]) -> Parameters:
    """Assign parameters to the policy, the experiment and the predictor by their short or full names.

    Args:
        given: The values by name.
        policy: The name of the policy, for error messages.
        takes: The names of its parameters.

    Raises:
        InvalidInput: A short name is ambiguous, a name is unknown or given twice, or a term is not a number in its range. The
            parameters of the predictor are not checked.
    """
    found = Parameters(ambiguous=frozenset(takes) & TERMS.keys())
    names: dict[str, str] = {}
    for name, value in given.items():
        full = _full_name(name, policy, takes)
        if full in names:
            short = full.partition(".")[2]
            raise InvalidInput(f"{short} is given twice: as {names[full]} and as {name}; give it once")
        names[full] = name
        owner, _, short = full.partition(".")
        {POLICY: found.policy, EXPERIMENT: found.terms, PREDICTOR: found.predictor}[f"{owner}."][short] = value
    _check_names(found, policy, takes)
    _check_terms(found.terms)
    return found


def _full_name(name: str, policy: str, takes: Collection[str]) -> str:
    """Return the full name of a parameter. A name that nobody has is assigned to the policy.

    Raises:
        InvalidInput: The name is short and ambiguous.
    """
    if name.startswith((POLICY, EXPERIMENT, PREDICTOR)):
        return name
    if name in TERMS and name in takes:
        raise InvalidInput(
            f"{name} is ambiguous: it is a parameter of policy {policy} and a term of the experiment; use {POLICY}{name} or "
            f"{EXPERIMENT}{name}"
        )
    return f"{EXPERIMENT if name in TERMS else POLICY}{name}"


def _check_names(given: Parameters, policy: str, takes: Collection[str]) -> None:
    if unknown := sorted(given.policy.keys() - takes):
        raise InvalidInput(
            f"policy {policy} has no parameter {', '.join(unknown)}; it has: {', '.join(sorted(takes)) or 'none'}; an "
            f"experiment's terms are: {', '.join(TERMS)}"
        )
    if unknown := sorted(given.terms.keys() - TERMS.keys()):
        raise InvalidInput(f"an experiment has no term {', '.join(unknown)}; its terms are: {', '.join(TERMS)}")


def _check_terms(terms: Mapping[str, Any]) -> None:
    """Raise InvalidInput unless the terms of an experiment, by name, are numbers in the ranges of `TERMS`.

    If `terms` has both `low` and `high` (the range of the metric), `low` must be less than `high`.
    """
    for key, value in terms.items():
        kind, least = TERMS[key]
        allowed = int if kind is int else (int, float)
        if not isinstance(value, allowed) or isinstance(value, bool) or (kind is float and not math.isfinite(value)):
            raise InvalidInput(f"{key} must be a {'whole' if kind is int else 'finite'} number, found {value!r}")
        if value < least:
            raise InvalidInput(f"{key} must be at least {least:g}, found {value!r}")
    if "low" in terms and "high" in terms and not terms["low"] < terms["high"]:
        raise InvalidInput(f"low must be below high, found {terms['low']!r} and {terms['high']!r}")
