"""Where a policy runs: those that come with Hopyard on the event loop, all others in processes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from hopyard._common.plugins import POLICIES, entries
from hopyard.spec.models import REMOTE, PolicySpec

BUILT_IN: Final = "hopyard_policies"
"""The package of the policies that come with Hopyard."""


def runs_inline(policy: PolicySpec) -> bool:
    """Whether a policy is asked on the event loop: it comes with Hopyard, and so does the policy inside it (`tuner`), if there is one.

    A name that nobody has counts as one of Hopyard's: making it fails before anybody's code runs.
    """
    return not policy.remote and all(_built_in(name) for name in _names(policy.name, policy.parameters))


def _names(name: str, parameters: Mapping[str, Any]) -> Iterator[str]:
    """The names of a policy and of the policies inside it."""
    yield name
    tuner = parameters.get("tuner")
    if isinstance(tuner, str):
        yield tuner
    elif isinstance(tuner, Mapping) and isinstance(tuner.get("name"), str):
        yield from _names(tuner["name"], tuner)


def _built_in(name: str) -> bool:
    if name.startswith(REMOTE):  # Only a tuner, which the policy refuses.
        return True
    values = [name] if ":" in name else [entry.value for entry in entries(POLICIES) if entry.name == name]
    return all(value.partition(":")[0].partition(".")[0] == BUILT_IN for value in values)
