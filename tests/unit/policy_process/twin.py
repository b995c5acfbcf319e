"""A host that asks a policy in this process and over the wire, and compares the views and the answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from hopyard._runtime.policy_process.instance import Instance
from hopyard._runtime.policy_process.view import RemoteView
from hopyard.policy import Cluster, JobState, Policy
from hopyard.v1 import policy_pb2 as pb
from hopyard_engine.core.effects import UpCall
from hopyard_engine.core.events import PolicyAnswered, PolicyFailed
from hopyard_engine.core.state.stream import Stream
from hopyard_engine.policy_host import CoreView, PolicyHost
from hopyard_engine.replay import same
from hopyard_scheduler.policy_process.policy import answered
from hopyard_scheduler.policy_process.state_delta import StateDelta


class Mirrored:
    """Asks a policy in this process and a second instance of it over the wire; raises if they differ.

    Args:
        make: Creates an instance of the policy.
        views: Whether the views are compared, too.
    """

    calls = 0
    """Number of up-calls that all instances have asked twice."""

    def __init__(self, make: Callable[[], Policy], *, views: bool = True) -> None:
        self._here = PolicyHost(make())
        self._changes = StateDelta()
        self._there = Instance(lambda _: make())
        self._there.welcome(pb.PolicyWelcome(experiment="x", parameters_json="{}"))
        self._views = views

    def answer(self, experiment: Stream, call: UpCall) -> PolicyAnswered | PolicyFailed:
        message = pb.UpCall.FromString(self._changes.up_call(experiment, call).SerializeToString())
        said = answered("the twin", call, pb.Answer.FromString(self._there.answer(message).SerializeToString()))
        far = said if isinstance(said, PolicyFailed) else said.event
        if self._views:
            there = seen(RemoteView(self._there.state, call.number, call.at, call.seed))
            for name, value in seen(CoreView(experiment, call)).items():
                assert there[name] == value, f"{call}: {name}: there {there[name]!r}, here {value!r}"
        near = self._here.answer(experiment, call)
        if isinstance(near, PolicyAnswered):
            assert same(near, far), f"{call}: there {far}, here {near}"
        Mirrored.calls += 1
        return near


def seen(view: Cluster) -> Mapping[str, Any]:
    """Return all attributes of a view, by name."""
    return {
        "now": view.now,
        "chance": view.rng.random(),
        "experiment": view.experiment,
        "experiments": dict(view.experiments),
        "share": view.share,
        "jobs": dict(view.jobs),
        "order": list(view.jobs),
        "earlier": dict(view.earlier),
        "scaling": dict(view.scaling),
        "slots": dict(view.slots),
        "data": view.data,
        "idle slots": list(view.idle_slots()),
        "idle jobs": list(view.idle_jobs()),
        "next": view.get_idle_job(),
        "waits": [job for job in view.jobs if view.waits(job)],
        "backoffs": [job for job in view.jobs if view.backs_off(job)],
        "counts": [view.count(state) for state in JobState],
        "queued": view.queued(),
        "busy": view.busy_slots(),
        "live": list(view.live_jobs()),
        "open": list(view.open_jobs()),
        "curves": {job: list(view.curve(job)) for job in (*view.jobs, *view.earlier)},
        "snapshots": {job: list(view.snapshots(job)) for job in (*view.jobs, *view.earlier)},
        "incumbent": view.incumbent,
        "ids": (view.new_job_id(), view.new_ticket()),
    }
