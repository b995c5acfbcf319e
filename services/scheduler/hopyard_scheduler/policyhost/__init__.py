"""Hosts policies: loads them, shows them their experiment, collects their answers."""

from hopyard_scheduler.policyhost.host import Host, MissingPolicy, PolicyHost
from hopyard_scheduler.policyhost.view import CoreView, job_view, machine_view

__all__ = ["CoreView", "Host", "MissingPolicy", "PolicyHost", "job_view", "machine_view"]
