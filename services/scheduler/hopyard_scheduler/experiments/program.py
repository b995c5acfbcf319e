"""Conversion of an experiment's specification to the program of its runs."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from hopyard.errors import InvalidInput
from hopyard.spec import ExperimentSpec, configuration_seed, spec_from_json
from hopyard.spec.identity import inputs_hash, interpreter_path, program_inputs, training_inputs, training_root
from hopyard.v1 import resource_manager_pb2

MAX_PARSED: Final = 1024
"""Maximum number of parsed programs in the cache. A program takes about 15 kB."""


@dataclass(frozen=True)
class ExperimentProgram:
    """The program that the runs of an experiment execute.

    Attributes:
        spec: The specification of the experiment.
        bundle: The hash of the code bundle; empty: none.
        interpreter: The path of the client's Python interpreter; empty: unknown.
    """

    spec: ExperimentSpec
    bundle: str
    interpreter: str

    def seed(self, hyperparameters: Mapping[str, Any]) -> int:
        """Return the seed for the training of a configuration. It depends on the experiment's seed and the configuration only."""
        return configuration_seed(self.spec.seed, hyperparameters)

    def to_proto(self) -> resource_manager_pb2.RunProgram:
        """Convert the program to the message that agents receive."""
        spec = self.spec
        message = resource_manager_pb2.RunProgram(
            bundle=self.bundle,
            interpreter=interpreter_path(spec, self.interpreter),
            environment=spec.environment,
            inherit_environment=spec.inherit_environment,
            working_directory=spec.working_directory or "",
            threads=spec.resources.per_job.cpus,
            snapshot_provider=spec.snapshot.provider,
            memory_bytes=spec.resources.per_job.memory or 0,
            log_bytes_per_job=spec.logs.per_job or 0,
            log_bytes_per_experiment=spec.logs.per_experiment or 0,
        )
        if spec.resources.per_job.data_cache is not None:
            message.data_cache_bytes = spec.resources.per_job.data_cache
        if spec.trainer is not None:
            message.trainer = spec.trainer
        elif spec.command is not None:
            message.command.arguments.extend(spec.command)
        elif spec.log is not None:
            message.log.command.arguments.extend(spec.log.command)
            message.log.metrics.update(spec.log.metrics)
            message.log.metric = spec.metric.name
        return message

    def root(self, code: str) -> str:
        """Return the root of the search plan for trainings of this program; see `training_root`.

        Args:
            code: A hash of the files in the code bundle; empty: there is no code bundle.
        """
        return training_root(self.spec, code, self.interpreter)

    def sameness(self, code: str) -> dict[str, Any]:
        """Return the values that `root` hashes, by name.

        Args:
            code: A hash of the files in the code bundle, which becomes the value `code`; empty: there is none.
        """
        return training_inputs(self.spec, code, self.interpreter)

    def training(self, code: str) -> str:
        """Return a hash of everything that makes trainings take equally long on slots of one kind.

        Unlike `root`, it does not cover the seed and the snapshot provider, but it covers the search space. A batch
        size or a width changes the time of an iteration, so measurements apply only to configurations of the same
        space.

        Args:
            code: A hash of the files in the code bundle; not empty.
        """
        spec = self.spec
        space = {"space": spec.space.to_dict(), "constraints": spec.constraints, "data": spec.data}
        return inputs_hash({**program_inputs(spec, code, self.interpreter), **space})


def program_of(payload: Mapping[str, Any]) -> ExperimentProgram:
    """Return the program of an experiment from the payload of its first event. Parsed programs are cached.

    Args:
        payload: Has the specification as JSON ("spec"), the hash of the bundle ("bundle"; empty: none) and the path of
            the client's interpreter ("interpreter"; empty: unknown).

    Raises:
        SpecError: The specification cannot be read by this version.
    """
    return _program(payload["spec"], payload["bundle"], payload["interpreter"])


def renamed(spec: str, metric: str) -> str:
    """Return the specification `spec`, which is canonical JSON, with the name of its metric replaced by `metric`."""
    given = json.loads(spec)
    if given["metric"]["name"] == metric:
        return spec
    given["metric"]["name"] = metric
    return json.dumps(given, sort_keys=True, separators=(",", ":"))


@functools.lru_cache(MAX_PARSED)
def _program(spec: str, bundle: str, interpreter: str) -> ExperimentProgram:
    return ExperimentProgram(spec_from_json(spec), bundle, interpreter)


def need_agreement(spec: ExperimentSpec, other: ExperimentSpec, leader: str) -> None:
    """Raise InvalidInput unless an experiment can join a group, whose experiments have one common policy.

    Args:
        spec: The specification of the new experiment.
        other: The specification of the group's first experiment.
        leader: The id of the group.

    Raises:
        InvalidInput: The policy (name, command or parameters), the metric (name, mode, `kill_threshold`, `min` or `max`), the unit, the
            data set, or the CPUs or GPUs per job differ. The message has both values of each.
    """
    agreed = {
        "policy.name": (spec.policy.name, other.policy.name),
        "policy.command": (spec.policy.command, other.policy.command),
        "policy": (spec.policy.parameters, other.policy.parameters),
        "metric.name": (spec.metric.name, other.metric.name),
        "metric.mode": (spec.metric.mode, other.metric.mode),
        "metric.kill_threshold": (spec.metric.kill_threshold, other.metric.kill_threshold),
        "metric.min": (spec.metric.min, other.metric.min),
        "metric.max": (spec.metric.max, other.metric.max),
        "unit": (spec.unit, other.unit),
        "data": (spec.data, other.data),
        "resources.per_job.cpus": (spec.resources.per_job.cpus, other.resources.per_job.cpus),
        "resources.per_job.gpus": (spec.resources.per_job.gpus, other.resources.per_job.gpus),
    }
    found = [
        f"{place}: found {mine!r}, the group has {theirs!r}"
        for place, (mine, theirs) in agreed.items()
        if mine != theirs
    ]
    if found:
        raise InvalidInput(
            f"share: experiments with the same key ({spec.share}) have one policy, so they agree with {leader}; "
            + "; ".join(found)
            + "; use another share key, or none"
        )
