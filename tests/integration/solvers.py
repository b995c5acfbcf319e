"""Solvers for tests: some work, others fail or behave as a solver must not."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from hopyard.solver import Solver


class Adding(Solver):
    """Returns the sum of the numbers in the payload."""

    def solve(self, payload: Any, seconds: float) -> Any:
        return {"sum": sum(payload), "said": f"{len(payload)} numbers in up to {seconds:g} s"}


class Bad(Solver):
    """Fails in `solve` as the payload says."""

    def solve(self, payload: Any, seconds: float) -> Any:
        match payload:
            case "raise":
                raise KeyError("nothing")
            case "refuse":
                raise ValueError("there is no answer to that")
            case "exit":
                sys.stderr.write("so long\n")
                os._exit(3)
            case "killed":
                os.kill(os.getpid(), signal.SIGKILL)
            case "forks":
                for _ in range(8):
                    if os.fork() == 0:
                        os.setsid()
                        time.sleep(600)
                time.sleep(600)
            case "memory":
                held = b"x" * (256 << 20)
                time.sleep(600 + len(held))
            case "sleep":
                time.sleep(600)
            case "set":
                return {1, 2}
            case "large":
                return "x" * 2_000_000
            case "print":
                sys.stdout.write("this is no frame\n")
                sys.stdout.flush()
        return payload


class Waiting(Solver):
    """Creates a file named by its process id in the folder `payload`, and answers once the file `go` exists there."""

    def solve(self, payload: Any, seconds: float) -> Any:
        folder = Path(payload)
        (folder / f"{os.getpid()}.asked").touch()
        until = time.monotonic() + seconds
        while not (folder / "go").exists() and time.monotonic() < until:
            time.sleep(0.02)
        return "answered"
