"""Short forms of the reasons of jobs, for places that show one line, which may be cut at its end."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

from hopyard._common.formatting import first_line
from hopyard.client.types import Job, JobState
from hopyard.policy.vocabulary.reasons import Argument, Reason, ReasonCode

_FAILURES: Final = frozenset(
    [
        ReasonCode.FAILED,
        ReasonCode.FAILED_FOR_GOOD,
        ReasonCode.FAILED_TOO_OFTEN,
        ReasonCode.LOST_TOO_OFTEN,
        ReasonCode.RUN_LOST,
    ]
)
_ENDING: Final = "trained to its end, ending"
"""Shown for TRAINED_SAVING: clients do not know whether the run still saves, or only its processes end."""

_NUMBER: Final = re.compile(r"[-+]?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?")


def short_reason(job: Job) -> str:
    """Return the reason of a job in one line. Of a failure, also of the last one of a waiting job, the error comes first.

    The error is the message of the run, or the last line of the output in it, such as "ValueError: no; failed (2 more failures
    allowed): the program ended with exit code 1". Empty: the job has no reason.
    """
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
