"""Creates the tuner that the parameters of an outer policy describe."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hopyard._common.plugins import POLICIES, load_plugin, unknown_parameters
from hopyard.policy import Policy


def made(tuner: str | Mapping[str, Any], trains: type[Policy]) -> Policy:
    """Create a tuner.

    Args:
        tuner: The name of a policy, or a mapping with `name` and its parameters.
        trains: The class of the outer policy, which cannot be its own tuner.

    Raises:
        ValueError: The policy does not exist, rejects the parameters, or cannot be a tuner: it runs in another process, needs
            partitioned data, or chooses the number of slots of its jobs.
    """
    given: dict[str, Any] = (
        {"name": tuner} if isinstance(tuner, str) else dict(tuner) if isinstance(tuner, Mapping) else {}
    )
    name = given.pop("name", None)
    if not isinstance(name, str):
        raise ValueError(f"tuner is {tuner!r}; it must be a policy's name, or a mapping with `name` and its parameters")
    if name.startswith("remote:"):
        raise ValueError(
            f"tuner is {name!r}; a tuner is asked where its trials are trained, so it must be one of the scheduler's own Python: "
            "a policy's name, or module:Class"
        )
    found = load_plugin(POLICIES, name, Policy)
    if isinstance(found, type) and issubclass(found, trains):
        raise ValueError(f"tuner is {name} itself; name the policy that decides what is trained, such as asha")
    assert isinstance(found, type)
    if wrong := unknown_parameters(found, given):
        raise ValueError(f"tuner {name} {wrong}")
    try:
        policy = found(**given)
    except (TypeError, ValueError) as error:
        raise ValueError(f"tuner {name}: {error}") from error
    assert isinstance(policy, Policy)
    if policy.needs_data:
        raise ValueError(
            f"tuner is {name}, which sends jobs to partitioned data itself; name the policy that decides what is trained, such as asha"
        )
    if policy.scales:
        raise ValueError(
            f"tuner {name} chooses on how many slots its trials train; this is not for a tuner to say: leave out elastic"
        )
    return policy


def version_with(policy: Policy, tuner: Policy) -> str:
    """Return the version of a policy together with that of its tuner. A change of either may change decisions in a replay."""
    return f"{policy.version} (tuner {type(tuner).__name__} {tuner.version})"
