"""Experiments and jobs as they are named on the command line: `--job JOB`, or `[EXPERIMENT] JOB` where a job must be named."""

from __future__ import annotations

from collections.abc import Sequence

from hopyard.cli.errors import WrongUse


def experiment_and_job(names: Sequence[str] | None, job: str | None = None) -> tuple[str | None, str]:
    """What `[EXPERIMENT] JOB` or `[EXPERIMENT] --job JOB` means.

    Raises:
        WrongUse: No job, or more than two words.
    """
    words = [*(names or ()), *([job] if job is not None else [])]
    if not words:
        raise WrongUse("name a job: JOB, EXPERIMENT JOB, or --job JOB (hopyard jobs lists them)")
    if len(words) > 2:
        raise WrongUse(f"found {len(words)} names; allowed are JOB, or EXPERIMENT JOB")
    return (words[0] if len(words) == 2 else None), words[-1]
