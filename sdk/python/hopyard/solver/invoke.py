"""Creates solvers and runs their requests; used by the solver process and by simulations."""

from __future__ import annotations

import json
import os
import traceback
from typing import Any, Final

from hopyard._common.plugins import SOLVERS, load_plugin
from hopyard.errors import InvalidInput
from hopyard.solver.base import Solver

MOST_BYTES: Final = 1_000_000
"""Maximum length of an answer as JSON, in bytes. Answers are limited because they are journalled."""


def new_solver(kind: str) -> Solver:
    """Create a solver.

    Args:
        kind: The name of an entry point in the group `hopyard.solvers`, or `module:Class`.

    Raises:
        InvalidInput: There is no solver of that kind, or its constructor failed. For an unknown name the message lists
            the available ones.
    """
    cls = load_plugin(SOLVERS, kind, Solver)
    assert isinstance(cls, type)
    try:
        made = cls()
    except (Exception, SystemExit) as error:
        raise InvalidInput(f"solver {kind}: could not be made: {type(error).__name__}: {error}") from error
    assert isinstance(made, Solver)
    return made


def solved(kind: str, solver: Solver, payload: Any, seconds: float) -> Any:
    """Run one request and return the solver's answer, after conversion to JSON and back.

    Args:
        kind: The kind of the solver, for error messages.
        solver: The solver.
        payload: The policy's request: plain data.
        seconds: The time limit to pass to the solver, in seconds. This function does not enforce it.

    Raises:
        InvalidInput: The solver raised an exception, or its answer cannot be written as JSON or is longer than
            `MOST_BYTES`. The policy receives the message.
    """
    try:
        text = json.dumps(solver.solve(payload, seconds), separators=(",", ":"))
    except ValueError as error:
        raise InvalidInput(f"solver {kind}: {error}") from error
    except (Exception, SystemExit) as error:
        frames = traceback.extract_tb(error.__traceback__)
        place = f" ({os.path.basename(frames[-1].filename)}:{frames[-1].lineno})" if frames else ""
        raise InvalidInput(f"solver {kind}: {type(error).__name__}: {error}{place}") from error
    if len(text) > MOST_BYTES:
        raise InvalidInput(f"solver {kind}: its answer has {len(text)} bytes, at most {MOST_BYTES} are allowed")
    return json.loads(text)
