"""Checks the idempotency keys (`request_id`) of clients, which the journal keeps for as long as an experiment."""

from __future__ import annotations

from typing import Final

from hopyard.errors import InvalidInput

MAX_LENGTH: Final = 256
"""Maximum number of characters of an idempotency key."""


def problem_of(request: str) -> str | None:
    """Return why `request` cannot be an idempotency key, beginning with the name of its field; None: it can be one."""
    if not request:
        return "request_id: is required; it makes the call idempotent"
    if len(request) > MAX_LENGTH:
        return f"request_id: found {len(request)} characters, allowed are at most {MAX_LENGTH}"
    return None


def check_request_id(request: str) -> None:
    """Check an idempotency key.

    Raises:
        InvalidInput: It is empty, or longer than `MAX_LENGTH`.
    """
    if (problem := problem_of(request)) is not None:
        raise InvalidInput(problem)
