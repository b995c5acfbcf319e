"""Making the policy that an experiment's file names."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from hopyard.errors import InvalidInput
from hopyard.plugins import POLICIES, load_plugin, unknown_parameters
from hopyard.policy import ENDLESS, ExperimentView, Policy
from hopyard.space import Space
from hopyard.spec import ExperimentSpec
from hopyard_scheduler.core.events import Settings
from hopyard_scheduler.policyhost import Host, MissingPolicy, PolicyHost


def new_policy(name: str, parameters: Mapping[str, Any]) -> Policy:
    """A fresh policy by its name and parameters.

    Raises:
        InvalidInput: There is no such policy, or it does not take the parameters.
    """
    cls = policy_class(name)
    if wrong := unknown_parameters(cls, parameters):
        raise InvalidInput(f"policy {name} {wrong}")
    try:
        policy = cls(**parameters)
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"policy {name}: {error}; its parameters are: {_takes(cls)}") from error
    except (Exception, SystemExit) as error:
        raise InvalidInput(f"policy {name}: could not be made: {type(error).__name__}: {error}") from error
    if not isinstance(policy, Policy):
        raise InvalidInput(f"policy {name}: found {cls!r}, needed is a subclass of hopyard.Policy")
    return policy


def review(name: str, policy: Policy, settings: Settings, space: Space | None = None) -> str:
    """Asks a policy whether it can serve an experiment with these settings. It is not to be used any more after that.

    Returns:
        What a person should know before the experiment begins; empty: nothing.

    Raises:
        InvalidInput: It says that it cannot, or fails to say.
    """
    size = space.size if space is not None else None
    terms = ExperimentView(
        metric=settings.metric,
        mode=settings.mode,
        max_position=settings.max_position,
        target=settings.target,
        kill_threshold=settings.kill_threshold,
        jobs_left=min(settings.jobs, size or ENDLESS),
        seed=settings.seed,
        weight=settings.weight,
        space=space,
    )
    try:
        said = policy.review(terms)
    except ValueError as error:
        raise InvalidInput(f"policy {name}: {error}") from error
    except (Exception, SystemExit) as error:
        raise InvalidInput(f"policy {name}: could not look at the terms: {type(error).__name__}: {error}") from error
    if not isinstance(said, str):
        raise InvalidInput(f"policy {name}: review answered {said!r}; needed is text, empty if there is nothing to say")
    return f"policy {name}: {said}" if said else ""


def policy_class(name: str) -> type[Policy]:
    """The class that a policy's name stands for.

    Raises:
        InvalidInput: There is no such policy.
    """
    cls = load_plugin(POLICIES, name, Policy)
    if not isinstance(cls, type):
        raise InvalidInput(f"policy {name}: found {cls!r}, needed is a subclass of hopyard.Policy")
    return cls


def host_of(spec: ExperimentSpec) -> Host:
    """The host of an experiment's policy, fresh. A policy that cannot be made fails its up-calls instead of the scheduler."""
    try:
        return PolicyHost(new_policy(spec.policy.name, spec.policy.parameters))
    except InvalidInput as error:
        return MissingPolicy(str(error))


def _takes(cls: type) -> str:
    try:
        parameters = list(inspect.signature(cls).parameters.values())
    except (TypeError, ValueError):
        return "unknown"
    return ", ".join(str(p.replace(annotation=inspect.Parameter.empty)) for p in parameters) or "none"
