"""How a training process is started."""

from __future__ import annotations

import os
import sys

import pytest

from hopyard.errors import InvalidInput
from hopyard.v1 import resource_manager_pb2 as wire
from hopyard_nodeagent.command import machines
from hopyard_nodeagent.programs import ProgramRefused, agent_variables, environment_of, program_of
from hopyard_nodeagent.settings import MachineSettings

MACHINE = MachineSettings(id="a/0", cpus=2, gpus=(1, 3))


def test_equal_programs_of_one_experiment_share_a_process() -> None:
    def program(experiment: str = "e1", **fields: object) -> object:
        values: dict[str, object] = {"trainer": "train.py:Net", "bundle": "b", "environment": {"A": "1", "B": "2"}}
        return program_of(experiment, wire.RunProgram(**(values | fields)))  # type: ignore[arg-type]

    assert program() == program(environment={"B": "2", "A": "1"})
    assert program() != program("e2")
    assert program() != program(bundle="c")
    assert program() != program(environment={"A": "2"})


def test_the_interpreter_is_the_experiments_or_the_agents_own() -> None:
    assert program_of("e", wire.RunProgram(trainer="t.py:T")).arguments[0] == sys.executable
    assert program_of("e", wire.RunProgram(trainer="t.py:T", interpreter="/venv/python")).arguments[0] == "/venv/python"


@pytest.mark.parametrize(
    ("program", "kind"),
    [
        (wire.RunProgram(), "'none'"),
        (wire.RunProgram(command=wire.CommandLine(arguments=["x"])), "'command'"),
        (wire.RunProgram(log=wire.LogProgram()), "'log'"),
    ],
)
def test_other_kinds_of_programs_are_refused(program: wire.RunProgram, kind: str) -> None:
    with pytest.raises(ProgramRefused, match=f"of kind {kind}; this agent runs trainers"):
        program_of("e", program)


def test_threads_and_gpus_come_from_the_machine_unless_the_experiment_says_otherwise() -> None:
    inherited = {"PATH": "/bin", "OMP_NUM_THREADS": "64", "HOPYARD_TOKEN": "secret"}
    environment = environment_of(wire.RunProgram(environment={"LANG": "C"}), MACHINE, inherited)
    assert environment["PATH"] == "/bin"
    assert environment["LANG"] == "C"
    assert (
        environment["OMP_NUM_THREADS"] == environment["MKL_NUM_THREADS"] == environment["OPENBLAS_NUM_THREADS"] == "2"
    )
    assert environment["CUDA_VISIBLE_DEVICES"] == "1,3"
    assert "HOPYARD_TOKEN" not in environment
    assert environment_of(wire.RunProgram(threads=5), MACHINE, {})["OMP_NUM_THREADS"] == "5"
    assert environment_of(wire.RunProgram(), MachineSettings(id="a/1"), {})["CUDA_VISIBLE_DEVICES"] == ""


def test_an_experiment_cannot_set_hopyards_own_variables() -> None:
    with pytest.raises(ProgramRefused, match="sets HOPYARD_AGENT"):
        environment_of(wire.RunProgram(environment={"HOPYARD_AGENT": "elsewhere:1"}), MACHINE, {})


def test_a_process_learns_where_its_agent_is() -> None:
    assert agent_variables("127.0.0.1:5", "t") == {
        "HOPYARD_AGENT": "127.0.0.1:5",
        "HOPYARD_TOKEN": "t",
        "HOPYARD_AGENT_PID": str(os.getpid()),
    }


def test_a_node_is_cut_into_machines() -> None:
    assert machines("n", 2, 3, "0,1,4,5") == (
        MachineSettings(id="n/0", cpus=3, gpus=(0, 1)),
        MachineSettings(id="n/1", cpus=3, gpus=(4, 5)),
    )
    assert all(machine.cpus >= 1 for machine in machines("n", 512, None, ""))


@pytest.mark.parametrize("gpus", ["0,x", "0,0", "-1,2", "0,1,2"])
def test_gpus_that_cannot_be_shared_out_are_refused(gpus: str) -> None:
    with pytest.raises(InvalidInput, match="--gpus"):
        machines("n", 2, None, gpus)
