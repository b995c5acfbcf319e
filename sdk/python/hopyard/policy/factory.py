"""Creates policies from their names and parameters."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from hopyard._common.plugins import POLICIES, load_plugin, unknown_parameters
from hopyard.errors import InvalidInput
from hopyard.policy.base import Policy


def new_policy(name: str, parameters: Mapping[str, Any]) -> Policy:
    """Create a policy.

    Args:
        name: A name of the entry-point group `hopyard.policies`, or `module:Class`.
        parameters: The keyword arguments of the policy's constructor.

    Raises:
        InvalidInput: There is no such policy, it rejects the parameters, or its constructor failed.
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


def policy_class(name: str) -> type[Policy]:
    """Return the class of a policy.

    Args:
        name: A name of the entry-point group `hopyard.policies`, or `module:Class`.

    Raises:
        InvalidInput: There is no such policy, or the name does not refer to a class.
    """
    cls = load_plugin(POLICIES, name, Policy)
    if not isinstance(cls, type):
        raise InvalidInput(f"policy {name}: found {cls!r}, needed is a subclass of hopyard.Policy")
    return cls


def _takes(cls: type) -> str:
    try:
        parameters = list(inspect.signature(cls).parameters.values())
    except (TypeError, ValueError):
        return "unknown"
    return ", ".join(str(p.replace(annotation=inspect.Parameter.empty)) for p in parameters) or "none"
