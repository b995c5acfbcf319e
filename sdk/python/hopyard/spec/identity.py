"""Identifies the training of an experiment by all inputs that it has in addition to a configuration.

The scheduler looks up earlier training by this identity, and `hopyard plan` compares experiment files by it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from hopyard.spec.models import ExperimentSpec


def training_root(spec: ExperimentSpec, code: str, interpreter: str) -> str:
    """Return a hash of everything that makes trainings of equal configurations identical: the root of the search plan.

    It covers the code, the trainer or command, the interpreter, the environment, the unit of positions, the seed, the
    snapshot provider, and the CPUs and GPUs per job, because the number of threads changes the results.

    Args:
        spec: The specification of the experiment.
        code: A hash of the files in the code bundle (`hopyard._runtime.bundle.code_hash`); empty: there is no code bundle.
            Experiments without a bundle have the same root if all other values are equal.
        interpreter: The path of the client's Python interpreter; empty: unknown.

    Returns:
        64 hexadecimal digits.
    """
    return inputs_hash(training_inputs(spec, code, interpreter))


def training_inputs(spec: ExperimentSpec, code: str, interpreter: str) -> dict[str, Any]:
    """Return the values that `training_root` hashes, by name. Arguments: as for `training_root`."""
    return {**program_inputs(spec, code, interpreter), "seed": spec.seed, "provider": spec.snapshot.provider}


def program_inputs(spec: ExperimentSpec, code: str, interpreter: str) -> dict[str, Any]:
    """Return the values that define the program of an experiment, by name. Arguments: as for `training_root`."""
    return {
        "code": code,
        "trainer": spec.trainer,
        "command": spec.command,
        "log": spec.log.model_dump(mode="json") if spec.log is not None else None,
        "interpreter": interpreter_path(spec, interpreter),
        "environment": spec.environment,
        "working_directory": spec.working_directory,
        "unit": spec.unit,
        "cpus": spec.resources.per_job.cpus,
        "gpus": spec.resources.per_job.gpus,
    }


def interpreter_path(spec: ExperimentSpec, interpreter: str) -> str:
    """Return the path of the Python interpreter for the runs of an experiment; empty: none is known.

    It is that of the specification if it is absolute, else the client's, else the relative one of the specification.

    Args:
        spec: The specification of the experiment.
        interpreter: The path of the client's Python interpreter; empty: unknown.
    """
    named = spec.interpreter or ""
    return named if named.startswith("/") else interpreter or named


def inputs_hash(inputs: Mapping[str, Any]) -> str:
    """Return the SHA-256 of inputs, which are JSON values by name, as 64 hexadecimal digits. Their order does not matter."""
    return hashlib.sha256(json.dumps(inputs, sort_keys=True).encode()).hexdigest()
