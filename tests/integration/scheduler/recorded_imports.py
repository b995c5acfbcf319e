"""Plugins of an experiment. Each process that imports this module creates a file with its id in the folder RECORDED_IMPORTS."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from hopyard.solver import Solver
from hopyard_policies.default import DefaultPolicy
from tests.integration.predictors import Toy
from tests.unit.hpgen.broken import Wrapped

(Path(os.environ["RECORDED_IMPORTS"]) / str(os.getpid())).touch()


class RecordedPolicy(DefaultPolicy):
    """The default policy."""


class RecordedGenerator(Wrapped):
    """A random generator."""


class RecordedPredictor(Toy):
    """A simple predictor."""


class RecordedSolver(Solver):
    """Returns the id of its process."""

    def solve(self, payload: Any, seconds: float) -> Any:
        """Return the id of the process."""
        return os.getpid()
