"""A worker process that, when it is asked, starts a child in another process session with its output open, and sleeps."""

from __future__ import annotations

import os
import time
from typing import Any

from hopyard._runtime.processes import worker_process


def begin(wanted: dict[str, Any]) -> tuple[dict[str, Any], worker_process.Answer]:
    """Return an empty answer, and the function that starts the child and does not return."""
    return {}, _sleep


def _sleep(question: bytes) -> dict[str, Any]:
    if os.fork() == 0:
        os.setsid()
    time.sleep(600)
    return {}


if __name__ == "__main__":
    worker_process.main(begin)
