"""Placement of policies: built-in ones run on the event loop, all others in processes."""

from __future__ import annotations

from typing import Final

from hopyard._common.plugins import POLICIES, entries
from hopyard.spec.models import REMOTE, PolicySpec

BUILT_IN: Final = "hopyard_policies"
"""The package of the built-in policies."""


def runs_inline(policy: PolicySpec) -> bool:
    """Returns True if a policy runs on the event loop: it and the policies nested in it (`tuner`) are built in.

    An unknown name counts as built in: creating the policy fails before foreign code runs.
    """
    return not policy.remote and all(_built_in(name) for name in policy.names)


def _built_in(name: str) -> bool:
    if name.startswith(REMOTE):  # It can only be a tuner, which the outer policy refuses.
        return True
    values = [name] if ":" in name else [entry.value for entry in entries(POLICIES) if entry.name == name]
    return all(value.partition(":")[0].partition(".")[0] == BUILT_IN for value in values)
