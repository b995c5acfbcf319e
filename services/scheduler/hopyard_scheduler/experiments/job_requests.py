"""Requests of clients for jobs. A request asks for the training of one configuration up to a position."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from hopyard.errors import Conflict, InvalidInput
from hopyard.space import Space
from hopyard_engine.core.state.experiment import Experiment
from hopyard_engine.core.state.stream import Stream
from hopyard_scheduler.request_ids import problem_of

MOST: Final = 1000
"""Maximum number of requests in one call."""


class JobRequest(NamedTuple):
    """A client's request to train a configuration up to a position.

    Attributes:
        hyperparameters: The configuration.
        position: The position at which the training ends, 1 or more.
        request: The idempotency key of the request.
    """

    hyperparameters: Mapping[str, Any]
    position: int
    request: str


def check(wanted: Sequence[JobRequest], space: Space, most: int) -> None:
    """Raise InvalidInput unless all requests of a call are valid by themselves.

    Args:
        wanted: The requests, 1 to `MOST`.
        space: The space of the experiment.
        most: The maximum position of a job of the experiment.

    Raises:
        InvalidInput: Requests are invalid. The message lists all errors with the index of their request.
    """
    if not 1 <= len(wanted) <= MOST:
        raise InvalidInput(f"jobs: give 1..{MOST} in one call, found {len(wanted)}")
    wrong = []
    seen: set[str] = set()
    for index, each in enumerate(wanted):
        problems = [f"hyperparameters: {problem}" for problem in space.problems(each.hyperparameters)]
        if not 1 <= each.position <= most:
            problems.append(f"position: must be in 1..{most}, found {each.position}")
        if (problem := problem_of(each.request)) is not None:
            problems.append(problem)
        elif each.request in seen:
            problems.append(f"request_id: {each.request!r} is there twice")
        seen.add(each.request)
        wrong += [f"jobs[{index}].{problem}" for problem in problems]
    if wrong:
        raise InvalidInput("\n".join(wrong))


def known(stream: Stream, experiment: Experiment, wanted: JobRequest) -> bool:
    """Return True if a request with equal idempotency key and content was accepted before; False if the key is new.

    Args:
        stream: The stream of the experiment.
        experiment: The experiment to which the request is addressed.
        wanted: The request.

    Raises:
        Conflict: The idempotency key was used before for another configuration or position.
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
