"""Policy hosts: load policies, make up-calls on them with a view of their experiment, and return their answers as events."""

from hopyard_engine.policy_host.host import Host, MissingPolicy, PolicyHost, RecordedAnswer, as_recorded, took_too_long
from hopyard_engine.policy_host.view import CoreView, experiment_view, job_view, slot_view, terms_view

__all__ = [
    "CoreView",
    "Host",
    "MissingPolicy",
    "PolicyHost",
    "RecordedAnswer",
    "as_recorded",
    "experiment_view",
    "job_view",
    "slot_view",
    "terms_view",
    "took_too_long",
]
