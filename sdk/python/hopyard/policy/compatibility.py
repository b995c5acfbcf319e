"""Checks whether a policy supports an experiment's program and data, when the experiment is created."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from hopyard.policy.vocabulary import PolicyCapabilities
    from hopyard.spec import ExperimentSpec

NEEDS_DATA: Final = (
    "sends jobs to partitioned data, and the experiment names none; register some with `hopyard data register`, and name them: "
    "`data: NAME`"
)
"""The message, after the policy's name, if a policy needs data (`Policy.needs_data`) and there is none."""

_NO_PARTITIONS: Final = (
    "sends no job to a partition, so none would be read; leave `data` out, or take a policy that does, such as mop (your own policy "
    "declares it with `needs_data = True`)"
)
_NEEDS_TRAINER: Final = (
    "sends jobs to partitioned data, and a program of this kind does not get the name of its partition; use "
    "`trainer: FILE.py:NAME`, preferably one of hopyard.model_hopper.trainer"
)
_ON_ONE_SLOT: Final = (
    "trains jobs on several slots at once, and a program of this kind runs on one; use `trainer: FILE.py:NAME`, or leave "
    "`elastic` out"
)
_CANNOT_SHARE: Final = (
    "lets jobs continue from snapshots of jobs with other hyperparameters, but a process keeps those that it began with; use "
    "a trainer, or a script that saves (hopyard.report(..., checkpoint=...)) with `snapshot: {provider: framework}`"
)


def incompatibility(spec: ExperimentSpec, capabilities: PolicyCapabilities) -> tuple[str, str] | None:
    """Return the reason for which a policy cannot serve an experiment, or None if it can.

    Args:
        spec: The experiment.
        capabilities: The capabilities of the policy.

    Returns:
        The name of the wrong field in the experiment file, and a sentence that describes the problem.
    """
    policy, program, provider = spec.policy.label, spec.program, spec.snapshot.provider
    has_data = spec.data is not None
    if capabilities.needs_data and not has_data:
        return "data", f"{policy} {NEEDS_DATA}"
    if capabilities.needs_data and program != "trainer":
        return program, f"{policy} {_NEEDS_TRAINER}"
    if has_data and not capabilities.needs_data:
        return "data", f"{policy} {_NO_PARTITIONS}"
    if capabilities.scales and program != "trainer":
        return program, f"{policy} {_ON_ONE_SLOT}"
    if (
        capabilities.shares
        and program != "trainer"
        and (provider == "criu" or (provider == "auto" and program == "log"))
    ):
        return "snapshot.provider", f"{policy} {_CANNOT_SHARE}"
    return None
