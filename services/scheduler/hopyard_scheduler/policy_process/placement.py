"""Placement of policies: built-in policies run on the event loop of the scheduler, all others in processes."""

from __future__ import annotations

from typing import Final

from hopyard._common.plugins import POLICIES, entries
from hopyard.spec.models import REMOTE, PolicySpec

BUILT_IN: Final = "hopyard_policies"
"""The package of the built-in policies."""


def runs_inline(policy: PolicySpec) -> bool:
    """Return True if a policy runs on the event loop: it and the policies that it contains (`tuner`) are built in.

    An unknown name is treated as built in. Creating the policy then fails before any foreign code runs.
    """
    return not policy.remote and all(_built_in(name) for name in policy.names)


def _built_in(name: str) -> bool:
    if name.startswith(REMOTE):  # It can only be the name of a nested policy (tuner), which the outer policy refuses.
        return True
    values = [name] if ":" in name else [entry.value for entry in entries(POLICIES) if entry.name == name]
    return all(value.partition(":")[0].partition(".")[0] == BUILT_IN for value in values)
