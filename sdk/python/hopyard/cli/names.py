"""Experiments and jobs as they are named on the command line."""

from __future__ import annotations

from hopyard.cli.errors import WrongUse


def experiment_and_job(names: list[str]) -> tuple[str | None, str]:
    """What `[EXPERIMENT] JOB` means.

    Raises:
        WrongUse: More than two words.
    """
    if len(names) > 2:
        raise WrongUse(f"found {len(names)} names; allowed are JOB, or EXPERIMENT JOB")
    return (names[0] if len(names) == 2 else None), names[-1]
