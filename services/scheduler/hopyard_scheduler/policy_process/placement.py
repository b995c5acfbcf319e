"""Placement of policies: built-in and trusted policies run on the event loop of the scheduler, all others in processes."""

from __future__ import annotations

from hopyard._common.plugins import GENERATORS, POLICIES, is_built_in
from hopyard.spec import ExperimentSpec
from hopyard.spec.models import REMOTE, PolicySpec


def runs_inline(policy: PolicySpec) -> bool:
    """Return True if a policy runs on the event loop: the experiment file has `inline: true`, or the policy is built in.

    The policies that it contains (`tuner`) must then be built in, too.
    """
    return policy.inline or (not policy.remote and not _foreign(policy))


def trusted_plugins(spec: ExperimentSpec) -> str:
    """Return a note for people that names the plugins of third parties that run inside the services; empty: there are none."""
    found = []
    if spec.policy.inline and (policies := _foreign(spec.policy)):
        found.append(f"policy {' and '.join(policies)} runs inside the scheduler")
    if spec.generator.inline and not is_built_in(GENERATORS, spec.generator.name):
        found.append(f"generator {spec.generator.name} runs inside the generator service")
    return f"{' and '.join(found)} (inline: true): its faults affect all experiments" if found else ""


def _foreign(policy: PolicySpec) -> list[str]:
    """Return the names of a policy, and of those that it contains, that are not built in.

    A remote name can only be the name of a nested policy, which the outer policy refuses.
    """
    return [name for name in policy.names if not name.startswith(REMOTE) and not is_built_in(POLICIES, name)]
