"""Putting a question to a solver: the same in a process beside the scheduler and in a simulation."""

from __future__ import annotations

import json
import os
import traceback
from typing import Any, Final

from hopyard._common.plugins import SOLVERS, load_plugin
from hopyard.errors import InvalidInput
from hopyard.solver.base import Solver

MOST_BYTES: Final = 1_000_000
"""Of an answer, as JSON: it is journalled."""


def new_solver(kind: str) -> Solver:
    """A fresh solver for a kind of questions, by its name or as `module:Class`.

    Raises:
        InvalidInput: There is none of that name, or it cannot be made; lists those there are.
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
    """A solver's answer, as JSON gives it back.

    Raises:
        InvalidInput: It has none, or one that is no plain data or too long; the message is what policies hear.
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
