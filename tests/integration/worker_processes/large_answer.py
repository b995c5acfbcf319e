"""A worker process whose first answer has two million bytes."""

from __future__ import annotations

from typing import Any

from hopyard._runtime.processes import worker_process


def begin(wanted: dict[str, Any]) -> tuple[dict[str, Any], worker_process.Answer]:
    """Return the large answer, and a function that is not called."""
    return {"answer": "x" * 2_000_000}, lambda question: {}


if __name__ == "__main__":
    worker_process.main(begin)
