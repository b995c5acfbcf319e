"""Short forms of the reasons of jobs, for places that show one line, which may be cut at its end."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from hopyard._common.formatting import first_line
from hopyard.client.types import Job, JobState
from hopyard.policy.vocabulary.reasons import Argument, Reason, ReasonCode

_FAILURES: Final = frozenset(
    [
        ReasonCode.FAILED,
        ReasonCode.ATTEMPT_AFTER_FAILURE,
        ReasonCode.FAILED_FOR_GOOD,
        ReasonCode.FAILED_TOO_OFTEN,
        ReasonCode.LOST_TOO_OFTEN,
        ReasonCode.RUN_LOST,
    ]
)
_ENDING: Final = "trained to its end, ending"
"""Shown for TRAINED_SAVING: clients do not know whether the run still saves, or only its processes end."""

_NUMBER: Final = re.compile(r"[-+]?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?")


@dataclass(frozen=True, slots=True)
class FailedAttempt:
    """The last failed run of a job that has not ended and has reported nothing new since.

    Attributes:
        job: Id of the job.
        attempt: Number of the job's present run, or of its next one if it waits.
        attempts: The number of its last run if this one and all further ones fail.
        error: The error in one line, such as "ValueError: no".
        rest: What the job does now, with a leading blank: "waits", "in 4 s" or "starts"; empty: it trains.
    """

    job: str
    attempt: int
    attempts: int
    error: str
    rest: str

    def __str__(self) -> str:
        """Return a line such as "job 1 failed, attempt 2 of 4: ValueError: no"."""
        return f"job {self.job} failed, attempt {self.attempt} of {self.attempts}{self.rest}: {self.error}"


def failed_attempt(job: Job) -> FailedAttempt | None:
    """Return the last failed run of a job. None: it has ended, none of its runs failed, or it has reported something new since."""
    if job.state.ended or job.reason_code is None:
        return None
    code, args, last = job.reason_code, job.reason_args, job.reason_args.get("last")
    if isinstance(last, Reason):
        code, args = last.code, last.args
    left = args.get("left")
    if code is ReasonCode.ATTEMPT_AFTER_FAILURE:
        attempt, attempts = args["attempt"], args["attempts"]
    elif code is ReasonCode.FAILED and isinstance(left, int):
        attempt = job.attempt + (0 if job.state.live else 1)
        attempts = attempt + left
    else:
        return None
    assert isinstance(attempt, int)
    assert isinstance(attempts, int)
    return FailedAttempt(job.id, attempt, attempts, error_of(code, args), _present(job))


def error_of(code: ReasonCode | None, args: Mapping[str, Argument]) -> str:
    """Return the error of a failure in one line; without an error in its message: the first line of the message.

    Args:
        code: The code of the reason; None: there is no reason.
        args: The arguments of the reason.
    """
    found = _error_first(code, args) if code is not None else None
    return found[0] if found is not None else first_line(str(args.get("cause", ""))) or "no message"


def _present(job: Job) -> str:
    if job.reason_code is ReasonCode.WAITS_AFTER_SETBACKS:
        return f" in {job.reason_args['seconds']} s"
    if job.state is JobState.STARTING:
        return " starts"
    return "" if job.state.live else " waits"


def short_reason(job: Job) -> str:
    """Return the reason of a job in one line. Of a failure, also of the last one of a job that tries again, the error comes first.

    The error is the message of the run, or the last line of the output in it, such as "ValueError: no; failed 3 times, 2 allowed: the
    program ended with exit code 1". For a job that tries again, the line is such as "ValueError: no; attempt 2 of 4 waits". Empty: the
    job has no reason.
    """
    if (failed := failed_attempt(job)) is not None:
        return f"{failed.error}; attempt {failed.attempt} of {failed.attempts}{failed.rest}"
    if job.reason_code is ReasonCode.TRAINED_SAVING:
        return _ENDING
    found = _error_first(job.reason_code, job.reason_args) if job.reason_code is not None else None
    if found is None:
        return first_line(job.reason)
    error, rest = found
    return f"{error}; {first_line(str(rest)).removesuffix(':')}"


def grouped_failures(jobs: Iterable[Job]) -> list[tuple[str, list[str]]]:
    """Return the short reasons of the FAILED jobs with the ids of their jobs, in order of the first job of each.

    Reasons that differ only in numbers are one group, with the reason of its first job.
    """
    groups: dict[str, tuple[str, list[str]]] = {}
    for job in jobs:
        if job.state is JobState.FAILED:
            line = short_reason(job)
            groups.setdefault(_NUMBER.sub("#", line), (line, []))[1].append(job.id)
    return list(groups.values())


def _error_first(code: ReasonCode, args: Mapping[str, Argument]) -> tuple[str, Reason] | None:
    """Return the error of a failure, and the reason without it. None: the reason is no failure with an error.

    Args:
        code: The code of the reason.
        args: Its arguments.
    """
    name = "cause" if code in _FAILURES or code is ReasonCode.RANK_ENDED else "last"
    inner = args.get(name)
    if not isinstance(inner, Reason):
        return None
    if name == "cause" and inner.code is ReasonCode.RUN_MESSAGE:
        error, message = _divided(str(inner.args["message"]))
        found = (error, Reason.of(ReasonCode.RUN_MESSAGE, message=message)) if error else None
    else:
        found = _error_first(inner.code, inner.args)
    return (found[0], Reason(code, {**args, name: found[1]})) if found is not None else None


def _divided(message: str) -> tuple[str, str]:
    """Return the error in the message of a run, and what the message says before it; that is empty if the error is all of it.

    A first line that ends with a colon announces output of the program, whose last line is the error.
    """
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    if len(lines) < 2 or not lines[0].endswith(":"):
        return (lines[0] if lines else ""), ""
    said, _, announced = lines[0].rpartition("; ")
    return lines[-1], said if said and announced else lines[0].removesuffix(":")
