"""What clients ask an experiment for: configurations trained to positions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from hopyard.errors import Conflict, InvalidInput
from hopyard.space import Space
from hopyard_engine.core.state.experiment import Experiment
from hopyard_engine.core.state.stream import Stream

MOST: Final = 1000
"""Requests in one call."""


class JobRequest(NamedTuple):
    """A configuration trained to a position (>= 1); `request` names the request."""

    hyperparameters: Mapping[str, Any]
    position: int
    request: str


def check(wanted: Sequence[JobRequest], space: Space, most: int) -> None:
    """Looks at requests before any is taken.

    Raises:
        InvalidInput: All that is wrong, and with which.
    """
    if not 1 <= len(wanted) <= MOST:
        raise InvalidInput(f"jobs: give 1..{MOST} in one call, found {len(wanted)}")
    wrong = []
    seen: set[str] = set()
    for index, each in enumerate(wanted):
        problems = [f"hyperparameters: {problem}" for problem in space.problems(each.hyperparameters)]
        if not 1 <= each.position <= most:
            problems.append(f"position: must be in 1..{most}, found {each.position}")
        if not each.request:
            problems.append("request_id: is required; it makes the call idempotent")
        elif each.request in seen:
            problems.append(f"request_id: {each.request!r} is there twice")
        seen.add(each.request)
        wrong += [f"jobs[{index}].{problem}" for problem in problems]
    if wrong:
        raise InvalidInput("\n".join(wrong))


def known(stream: Stream, experiment: Experiment, wanted: JobRequest) -> bool:
    """Whether a request was taken before.

    Raises:
        Conflict: Its id was that of another one.
    """
    if wanted.request not in experiment.requested:
        return False
    job = stream.jobs.get(experiment.requested[wanted.request])
    same = job is not None and job.limit == wanted.position
    if job is None or not same or dict(job.hyperparameters or {}) != dict(wanted.hyperparameters):
        other = (
            f"job {job.id} of experiment {job.experiment.id}, up to {job.limit}"
            if job is not None
            else "something else"
        )
        raise Conflict(f"request_id: {wanted.request!r} asked for {other}; a new request needs an id of its own")
    return True
