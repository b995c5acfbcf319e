"""Creates the policy of an experiment, and checks that the policy fits the experiment."""

from __future__ import annotations

from dataclasses import asdict, fields, replace
from typing import Final

from hopyard.errors import InvalidInput
from hopyard.policy import ENDLESS, ExperimentView, Policy, PolicyCapabilities
from hopyard.policy.compatibility import incompatibility
from hopyard.policy.factory import new_policy, policy_class
from hopyard.policy.vocabulary.reasons import Reason, ReasonCode
from hopyard.space import Space
from hopyard.spec import ExperimentSpec
from hopyard_engine.core.state.partitions import units
from hopyard_engine.core.types import PlacedData, Settings
from hopyard_engine.policy_host import Host, MissingPolicy, PolicyHost, terms_view

__all__ = [
    "host_of",
    "need_fit",
    "new_policy",
    "policy_class",
    "review",
    "terms_of",
    "unseen_metric",
    "with_capabilities",
]


MAX_VERSION: Final = 100
"""Maximum length of a policy's version in characters. The first record of each journal contains a version."""


def with_capabilities(settings: Settings, capabilities: PolicyCapabilities) -> Settings:
    """Return a copy of an experiment's settings in which the fields that depend on its policy have the values of `capabilities`."""
    names = {one.name for one in fields(Settings)}
    return replace(settings, **{name: value for name, value in asdict(capabilities).items() if name in names})


def need_fit(spec: ExperimentSpec, capabilities: PolicyCapabilities) -> None:
    """Raise an error unless a policy fits the program and the data of its experiment.

    Raises:
        InvalidInput: The program, the data or another field of `spec` is not supported by a policy with these capabilities, `spec` sets
            `stop.idle` for a policy that serves no client requests, or the version of the policy is not a text of valid length. The
            message names the field.
    """
    version = capabilities.version
    if not isinstance(version, str) or not 0 < len(version) <= MAX_VERSION:
        raise InvalidInput(
            f"policy {spec.policy.label}: version: found {version!r:.120}, allowed is a text of 1 to {MAX_VERSION} characters"
        )
    found = incompatibility(spec, capabilities)
    if found is not None:
        raise InvalidInput(": ".join(found))
    if spec.stop.idle is not None and not capabilities.requests:
        raise InvalidInput(
            f"stop.idle: found {spec.stop.idle:g} s, but policy {spec.policy.label} serves no requests that it could stay open for; "
            'stage_tree does: `policy: stage_tree` in the file, policy="stage_tree" for a study'
        )


def review(
    name: str, policy: Policy, settings: Settings, space: Space | None = None, data: PlacedData | None = None
) -> str:
    """Ask a policy whether it can serve an experiment with these settings.

    Args:
        name: Name of the policy, for messages.
        policy: A new policy object. It must not be used afterwards.
        settings: Settings of the experiment.
        space: Search space of the experiment; None: unknown.
        data: Partitioned data of the experiment; None: it has none.

    Returns:
        A warning of the policy for the user; empty: none.

    Raises:
        InvalidInput: The policy refuses the experiment with a ValueError, raises any other error, or does not return a text.
    """
    try:
        said = policy.review(terms_of(settings, space, data))
    except ValueError as error:
        raise InvalidInput(f"policy {name}: {error}") from error
    except (Exception, SystemExit) as error:
        raise InvalidInput(f"policy {name}: could not look at the terms: {type(error).__name__}: {error}") from error
    if not isinstance(said, str):
        raise InvalidInput(f"policy {name}: review answered {said!r}; needed is text, empty if there is nothing to say")
    return f"policy {name}: {said}" if said else ""


def unseen_metric(spec: ExperimentSpec, data: PlacedData | None) -> str:
    """Return a warning for the user if a data set has only training partitions; else "".

    Then no run evaluates, so the training itself must report the metric.

    Args:
        spec: The specification of the experiment, with the metric that the warning names.
        data: The data set; None: the experiment has none, and the result is "".
    """
    if data is None or units(data) < len(data.partitions):
        return ""
    return (
        f"data set {data.name} has no partitions to evaluate on (hopyard data register --eval), so {spec.metric.name} must be among "
        "what the training itself reports: what train_fn returns"
    )


def terms_of(settings: Settings, space: Space | None, data: PlacedData | None) -> ExperimentView:
    """Return the view of an experiment before its creation, when all its jobs are left to create.

    Args:
        settings: Settings of the experiment.
        space: Its search space, whose size limits the number of jobs; None: unknown.
        data: Its partitioned data; None: it has none.
    """
    size = space.size if space is not None else None
    partitions = units(data) if data is not None else 0
    return terms_view(settings, min(settings.jobs, size or ENDLESS), partitions, space)


def host_of(spec: ExperimentSpec) -> Host:
    """Return a host with a new policy object for an experiment.

    If the policy runs in another process, is not installed or refuses its parameters, no error is raised: the host then answers each
    up-call with a failure.
    """
    if spec.policy.remote:
        return MissingPolicy(Reason.of(ReasonCode.POLICY_ELSEWHERE, policy=spec.policy.label))
    try:
        return PolicyHost(new_policy(spec.policy.name, spec.policy.parameters))
    except InvalidInput as error:
        return MissingPolicy(Reason.of(ReasonCode.POLICY_UNAVAILABLE, error=str(error)))
