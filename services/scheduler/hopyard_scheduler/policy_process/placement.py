"""Placement of policies: built-in and trusted policies run on the event loop of the scheduler, all others in processes."""

from __future__ import annotations

from typing import Final

from hopyard._common.plugins import GENERATORS, POLICIES, is_part_of
from hopyard.spec import ExperimentSpec
from hopyard.spec.models import REMOTE, PolicySpec

BUILT_IN: Final = "hopyard_policies"
"""The package of the built-in policies."""

BUILT_IN_GENERATORS: Final = "hopyard_hpgen"
"""The package of the built-in generators."""


def is_built_in(policy: PolicySpec) -> bool:
    """Return True if a policy and the policies that it contains (`tuner`) are built in.

    An unknown name is treated as built in. Creating the policy then fails before any foreign code runs.
    """
    # A remote name can only be the name of a nested policy, which the outer policy refuses.
    return not policy.remote and all(
        name.startswith(REMOTE) or is_part_of(BUILT_IN, POLICIES, name) for name in policy.names
    )


def runs_inline(policy: PolicySpec) -> bool:
    """Return True if a policy runs on the event loop: it is built in, or the experiment file has `inline: true`."""
    return policy.inline or is_built_in(policy)


def trusted_plugins(spec: ExperimentSpec) -> str:
    """Return a note for people that names the plugins of third parties that run inside the services; empty: there are none."""
    found = []
    policies = (
        [name for name in spec.policy.names if not is_part_of(BUILT_IN, POLICIES, name)] if spec.policy.inline else []
    )
    if policies:
        found.append(f"policy {' and '.join(policies)} runs inside the scheduler")
    generator = spec.generator
    if generator.inline and not is_part_of(BUILT_IN_GENERATORS, GENERATORS, generator.name):
        found.append(f"generator {generator.name} runs inside the generator service")
    return f"{' and '.join(found)} (inline: true): its faults affect all experiments" if found else ""
