"""Hosts policies: loads them, shows them their experiment, collects their answers."""

from hopyard_scheduler.policyhost.host import Host, LatePolicy, MissingPolicy, PolicyHost, took_too_long
from hopyard_scheduler.policyhost.view import CoreView, job_view, machine_view

__all__ = ["CoreView", "Host", "LatePolicy", "MissingPolicy", "PolicyHost", "job_view", "machine_view", "took_too_long"]
