"""Determines how the process of a run is started on this node: its command line, folder and environment.

A *runner* is a training process that executes runs. A *command* is a user's program that is given as a command line instead of a
trainer class; a *log program* is a command whose reports are read from its output.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from hopyard._common import command_template
from hopyard._common.environment import OWN, passed_environment
from hopyard._net.rpc.values import hyperparameters_from_proto
from hopyard._runtime.criu import PROVIDER
from hopyard._runtime.criu.process_group import MOUNT
from hopyard._runtime.processes.process_family import MARK
from hopyard.policy.vocabulary import RunKey
from hopyard.script import mailbox_files
from hopyard.v1 import common_pb2, resource_manager_pb2
from hopyard.v1.application_pb2 import ProcessHost
from hopyard_nodeagent.settings import SlotSettings

_THREAD_VARIABLES: Final = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS")
# -P: do not import from the working directory.
_RUNNER: Final = ("-P", "-m", "hopyard._runtime.runner")


class ProgramRefused(Exception):
    """This agent cannot execute the program of a run. Another attempt would fail in the same way."""


class NodeUnable(ProgramRefused):
    """This agent cannot execute any job of the experiment, but other nodes may be able to.

    The end of the run says so (`unable`), so that the scheduler can start the job on another node.
    """


@dataclass(frozen=True, slots=True)
class LaunchSpec:
    """Identifies what a process executes. Runs with equal instances may use the same process, one after another.

    Attributes:
        experiment: Id of the experiment; experiments never share a process. Empty: a spare runner without a program.
        definition: The program message that determines the environment of the process, serialized; empty: a spare runner.
        arguments: The command line of the process.
        once: True: the process is the user's script itself, which executes one run and exits. False: it is a runner,
            which can execute several runs.
        parent: True: the process is a runner that starts the user's program as a child process. False: it does not.
    """

    experiment: str
    definition: bytes
    arguments: tuple[str, ...]
    once: bool = False
    parent: bool = False


@dataclass(frozen=True, slots=True)
class Preparation:
    """How the program of a run is executed on this node.

    Attributes:
        program: The command line and identity of the process: with it a process is started, or one to reuse is found.
        definition: The protobuf message from which the environment of the process is derived: the experiment's program, or for a runner
            that starts the user's program, the part that the runner needs.
        working_folder: Working directory of the user's program.
        command: The user's command line with the job's values filled in; empty for a trainer.
        variables: Additional environment variables of the user's program.
    """

    program: LaunchSpec
    definition: resource_manager_pb2.RunProgram
    working_folder: Path
    command: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)


def is_command(program: resource_manager_pb2.RunProgram) -> bool:
    """Return whether a program is a command of the user (a script or a log program). False: it is a trainer."""
    return program.WhichOneof("kind") in ("command", "log")


def prepared(
    key: RunKey, start: resource_manager_pb2.StartRun, code_folder: Path, host: ProcessHost | None = None
) -> Preparation:
    """Return how to execute a run on this node.

    Args:
        key: Identifies the run.
        start: The start command of the run.
        code_folder: Folder with the experiment's code.
        host: Settings for dumping and restoring the run's processes with CRIU; None: CRIU is not used. If processes are restored, the
            working directory and the interpreter are not checked on this node.

    Raises:
        ProgramRefused: The run needs something that this node, or this kind of program, does not support.
    """
    program = start.program
    kind = program.WhichOneof("kind")
    if kind is None:
        raise ProgramRefused("the run has no program: needs a trainer, a command or a log program")
    working = code_folder / program.working_directory
    restores = host is not None and start.snapshot.provider == PROVIDER
    if not (restores or working.is_dir()):
        raise ProgramRefused(
            f"working_directory {program.working_directory}: there is no such folder on this node; allowed: a folder inside "
            "the experiment's code, or an absolute one that every node has"
        )
    interpreter = sys.executable if restores else _interpreter(program, working)
    if kind == "trainer":
        definition = program.SerializeToString(deterministic=True)
        return Preparation(LaunchSpec(key.stream, definition, (interpreter, *_RUNNER)), program, working)
    _need_training_alone(start)
    arguments = (program.command if kind == "command" else program.log.command).arguments
    values = hyperparameters_from_proto(start.hyperparameters)
    try:
        command = command_template.filled(arguments, values)
    except command_template.PlaceholderError as error:
        raise ProgramRefused(f"command: {error}") from error
    if command[0] in ("python", "python3"):
        command[0] = interpreter
    variables = _variables(key, start, interpreter) | _checked(program.environment)
    if kind == "command" and host is None:
        once = LaunchSpec(key.stream, program.SerializeToString(deterministic=True), tuple(command), once=True)
        return Preparation(once, program, working, tuple(command), variables)
    # The runner itself uses the agent's interpreter and environment; the experiment's settings apply to the user's program.
    # Variables that it inherits by name are those of the runner, so that no message contains their values.
    plain = resource_manager_pb2.RunProgram(
        threads=program.threads, memory_bytes=program.memory_bytes, inherit_environment=program.inherit_environment
    )
    if kind == "log":
        plain.log.CopyFrom(program.log)
    elif host is not None:
        variables[mailbox_files.VARIABLE] = MOUNT
    runner = LaunchSpec(
        key.stream, plain.SerializeToString(deterministic=True), (sys.executable, *_RUNNER), parent=True
    )
    found = Preparation(runner, plain, working, tuple(command), variables)
    return found if host is None else _seen(found, host.folder)


def _seen(found: Preparation, folder: str) -> Preparation:
    """Return `found` with the path `folder` replaced by `MOUNT` in the working directory, command line and environment variables.

    `folder` is the folder of the run. A process that CRIU saves or restores sees it at the fixed path `MOUNT`.
    """
    return replace(
        found,
        working_folder=Path(str(found.working_folder).replace(folder, MOUNT)),
        command=tuple(argument.replace(folder, MOUNT) for argument in found.command),
        variables={name: value.replace(folder, MOUNT) for name, value in found.variables.items()},
    )


def spare() -> tuple[LaunchSpec, resource_manager_pb2.RunProgram]:
    """Return what a spare runner executes: a training process without a program, which waits for its first run.

    It uses this agent's interpreter, no additional variables and one thread, so that it suits most experiments.

    Returns:
        What the process executes, and the program message from which its environment is derived.
    """
    return LaunchSpec("", b"", (sys.executable, *_RUNNER)), resource_manager_pb2.RunProgram(threads=1)


def _interpreter(program: resource_manager_pb2.RunProgram, working: Path) -> str:
    """Return the path of the experiment's Python interpreter, or of this agent's if the experiment names none.

    Args:
        program: The program, which may name an interpreter or the folder of a virtual environment.
        working: The folder to which a relative path of the interpreter refers.

    Raises:
        ProgramRefused: The interpreter does not exist on this node.
    """
    if not program.interpreter:
        return sys.executable
    path = working / program.interpreter
    if path.is_dir():
        path = path / "bin" / "python"
    if not path.is_file():
        raise ProgramRefused(
            f"interpreter {program.interpreter}: there is no {path} on this node; allowed: a Python, or the folder of a "
            "virtual environment; those are no part of the code that travels, so give the absolute path that it has on the "
            "nodes"
        )
    return str(path)


def _need_training_alone(start: resource_manager_pb2.StartRun) -> None:
    if start.world > 1:
        raise ProgramRefused(
            f"a run on {start.world} slots at once needs a trainer (trainer: FILE.py:CLASS); commands run on one slot"
        )
    if start.mode in (common_pb2.RUN_MODE_EVALUATE, common_pb2.RUN_MODE_PROFILE):
        what = "evaluates" if start.mode == common_pb2.RUN_MODE_EVALUATE else "profiles"
        raise ProgramRefused(f"a run that only {what} needs a trainer (trainer: FILE.py:CLASS); commands train")


def _variables(key: RunKey, start: resource_manager_pb2.StartRun, interpreter: str) -> dict[str, str]:
    """Return the environment variables that every command gets: experiment, job, hyperparameters, seed, virtual environment.

    Args:
        key: Identifies the run.
        start: The start command of the run.
        interpreter: Path of the Python interpreter. If it is in a virtual environment, that is activated.
    """
    values = hyperparameters_from_proto(start.hyperparameters)
    variables = {
        "HOPYARD_EXPERIMENT": key.stream,
        "HOPYARD_JOB": key.job,
        "HOPYARD_HYPERPARAMETERS": json.dumps(values, sort_keys=True),
        "HOPYARD_SEED": str(start.seed),
        "PYTHONUNBUFFERED": "1",  # Output appears in the log at once and is not lost when the script is killed.
    }
    folder = Path(interpreter).parent
    # Activate the virtual environment for the programs that a command starts.
    if (folder.parent / "pyvenv.cfg").is_file():
        variables["VIRTUAL_ENV"] = str(folder.parent)
        variables["PATH"] = os.pathsep.join([str(folder), os.environ.get("PATH", os.defpath)])
    return variables


def _checked(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment variables of the experiment as a dict, after checking them.

    Raises:
        ProgramRefused: The experiment sets a variable whose name begins with HOPYARD_.
    """
    for name in environment:
        if name.startswith(OWN):
            raise ProgramRefused(f"the experiment sets {name}; names that begin with {OWN} are Hopyard's own")
    return dict(environment)


def environment_of(
    program: resource_manager_pb2.RunProgram,
    slot: SlotSettings,
    inherited: Mapping[str, str],
    passed: Iterable[str] = (),
) -> dict[str, str]:
    """Return the environment of a program's process, without the variables that name the agent's address and token.

    It consists of the agent's variables that every process gets, and of those that the experiment inherits by name. The number of
    threads and the visible GPUs are set here, because libraries read them when they are imported. The experiment's
    variables override others. If the experiment sets a number of threads, it is the same on every node; otherwise it is the slot's
    number of CPUs.

    Args:
        program: The program.
        slot: The slot.
        inherited: The environment of the agent.
        passed: Patterns of names that this node passes to every process (`passed_environment`).

    Raises:
        NodeUnable: The agent does not have a variable that the experiment inherits.
        ProgramRefused: The experiment sets a variable whose name begins with HOPYARD_.
    """
    environment = passed_environment(inherited, passed)
    for name in program.inherit_environment:
        if name.startswith(OWN):
            raise ProgramRefused(f"the experiment inherits {name}; names that begin with {OWN} are Hopyard's own")
        if name not in inherited:
            raise NodeUnable(
                f"inherit_environment: {name} is not set on node {slot.id.rpartition('/')[0]}; set it where the agent of the node "
                "is started (`hopyard agent`, `hopyard up`; for a local cluster your own shell), and start the agent again"
            )
        environment[name] = inherited[name]
    threads = program.threads or slot.cpus
    environment |= dict.fromkeys(_THREAD_VARIABLES, str(threads))
    # Empty: a slot without GPUs sees none, even if the node has some.
    environment["CUDA_VISIBLE_DEVICES"] = ",".join(device.name for device in slot.gpus)
    return environment | _checked(program.environment)


def mark_of_token(token: str) -> str:
    """Return the mark of the training process that has a token: a hash of the token, which is secret."""
    return hashlib.sha256(token.encode()).hexdigest()[:32]


def agent_variables(address: str, token: str) -> dict[str, str]:
    """Return the environment variables by which a training process finds the agent and authenticates, and the agent its children.

    Args:
        address: Address of ApplicationService.
        token: The secret of the process.
    """
    return {
        "HOPYARD_AGENT": address,
        "HOPYARD_TOKEN": token,
        "HOPYARD_AGENT_PID": str(os.getpid()),
        MARK: mark_of_token(token),
    }
