"""What a run's program needs from the node: who may run it, and how its process is started."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from hopyard.v1 import resource_manager_pb2
from hopyard_nodeagent.settings import MachineSettings

_THREAD_VARIABLES: Final = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS")
_RESERVED: Final = "HOPYARD_"


class ProgramRefused(Exception):
    """This agent cannot run such a program; another try here fails alike."""


@dataclass(frozen=True, slots=True)
class Program:
    """What a process is started for. Runs with equal programs may share a warm process.

    Attributes:
        experiment: whose program it is: experiments never share a process.
        definition: the program on the wire, serialized.
        arguments: how its process is started.
    """

    experiment: str
    definition: bytes
    arguments: tuple[str, ...]


def program_of(experiment: str, program: resource_manager_pb2.RunProgram) -> Program:
    """How to run a program on this node.

    Raises:
        ProgramRefused: it is of a kind that this agent does not run.
    """
    kind = program.WhichOneof("kind")
    if kind != "trainer":
        raise ProgramRefused(
            f"the program is of kind {kind or 'none'!r}; this agent runs trainers (trainer: FILE.py:CLASS or PACKAGE.MODULE:CLASS) only"
        )
    interpreter = program.interpreter or sys.executable
    definition = program.SerializeToString(deterministic=True)
    # -P: the folder it is started in is no import path.
    return Program(experiment, definition, (interpreter, "-P", "-m", "hopyard.runner"))


def environment_of(
    program: resource_manager_pb2.RunProgram, machine: MachineSettings, inherited: Mapping[str, str]
) -> dict[str, str]:
    """The environment of a program's process, before the agent adds its own address and token.

    Thread counts and visible GPUs must stand before anything is imported; the counts are the same at every resume if
    the experiment names them. What the experiment sets wins over both; a variable of Hopyard's own cannot be set by it.

    Raises:
        ProgramRefused: the experiment sets a variable that begins with HOPYARD_.
    """
    environment = {name: value for name, value in inherited.items() if not name.startswith(_RESERVED)}
    threads = program.threads or machine.cpus
    environment |= dict.fromkeys(_THREAD_VARIABLES, str(threads))
    # Empty: a machine without GPUs sees none, also on a node that has some.
    environment["CUDA_VISIBLE_DEVICES"] = ",".join(str(index) for index in machine.gpus)
    for name, value in program.environment.items():
        if name.startswith(_RESERVED):
            raise ProgramRefused(f"the experiment sets {name}; names that begin with {_RESERVED} are Hopyard's own")
        environment[name] = value
    return environment


def agent_variables(address: str, token: str) -> dict[str, str]:
    """What a training process needs to find and convince its agent."""
    return {"HOPYARD_AGENT": address, "HOPYARD_TOKEN": token, "HOPYARD_AGENT_PID": str(os.getpid())}
