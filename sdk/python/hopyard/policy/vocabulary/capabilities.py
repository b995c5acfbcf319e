"""The capabilities of a policy: what it decides, and what it needs from an experiment."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PolicyCapabilities:
    """What a policy decides and needs. The capabilities are read when an experiment is created, and do not change after that.

    All fields except `statistics` and `requests` are attributes of `hopyard.policy.Policy`, which describes them.

    Attributes:
        statistics: Whether the policy gets an up-call for each report (`ApplicationStat`).
        requests: Whether the policy serves the requests of clients (`RequestMade`).
    """

    every_iteration: bool = False
    ends_jobs: bool = False
    forks: bool = False
    forks_newest: bool = False
    evaluates: bool = False
    shares: bool = False
    statistics: bool = False
    requests: bool = False
    generator: str = ""
    ship_every: int = 1
    needs_data: bool = False
    scales: bool = False
    rebuilds: bool = False
    version: str = "1"
