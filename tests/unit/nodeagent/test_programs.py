"""Tests of the start of a training process: its command, environment and code."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from hopyard._net.rpc.values import hyperparameters_to_proto
from hopyard._runtime.gpus import GpuDevice, SlotLayout
from hopyard.policy.vocabulary import RunKey, StreamId
from hopyard.v1 import common_pb2
from hopyard.v1 import resource_manager_pb2 as wire
from hopyard.v1.application_pb2 import ProcessHost
from hopyard_nodeagent.command import divide_node
from hopyard_nodeagent.runs.launch_spec import (
    NodeUnable,
    Preparation,
    ProgramRefused,
    agent_variables,
    environment_of,
    mark_of_token,
    prepared,
)
from hopyard_nodeagent.settings import SlotSettings
from tests.plugins.processes import MARK

pytestmark = pytest.mark.quick

SLOT = SlotSettings(id="a/0", cpus=2, gpus=(GpuDevice(1, "GPU-b"), GpuDevice(3)))


def prepare(
    code: Path, *, experiment: str = "e1", start: Mapping[str, Any] | None = None, **fields: Any
) -> Preparation:
    program = wire.RunProgram(**fields)
    values = hyperparameters_to_proto({"lr": 0.1, "units": 32, "act": "relu", "wide": True})
    run = wire.StartRun(program=program, hyperparameters=values, seed=7, **(start or {}))
    return prepared(RunKey(StreamId(experiment), "j1", 2, 0), run, code)


def test_equal_programs_of_one_experiment_share_a_process(tmp_path: Path) -> None:
    def program(experiment: str = "e1", **fields: Any) -> object:
        values: dict[str, Any] = {"trainer": "train.py:Net", "bundle": "b", "environment": {"A": "1", "B": "2"}}
        return prepare(tmp_path, experiment=experiment, **(values | fields)).program

    assert program() == program(environment={"B": "2", "A": "1"})
    assert program() != program("e2")
    assert program() != program(bundle="c")
    assert program() != program(environment={"A": "2"})


def test_what_is_said_of_places_to_processes_that_are_dumped_is_the_same_on_all_nodes(tmp_path: Path) -> None:
    code = tmp_path / "own" / "code"
    (code / "src").mkdir(parents=True)
    program = wire.RunProgram(working_directory="src", environment={"A": "1"}, snapshot_provider="criu")
    program.command.arguments.extend(["python", "train.py", "{lr}"])
    start = wire.StartRun(program=program, hyperparameters=hyperparameters_to_proto({"lr": 0.1}))
    found = prepared(RunKey(StreamId("e1"), "j1", 1, 0), start, code, ProcessHost(folder=str(tmp_path / "own")))
    assert str(found.working_folder) == "/run/hopyard/job/code/src"
    assert found.command == (sys.executable, "train.py", "0.1")
    assert found.variables["HOPYARD_MAILBOX"] == "/run/hopyard/job"
    assert found.variables["A"] == "1"
    assert found.program.parent
    assert not found.program.once


def test_processes_that_are_restored_need_no_code_on_the_node(tmp_path: Path) -> None:
    program = wire.RunProgram(interpreter="gone/python")
    program.command.arguments.append("python")
    snapshot = common_pb2.Snapshot(provider="criu")
    start = wire.StartRun(program=program, snapshot=snapshot)
    found = prepared(
        RunKey(StreamId("e1"), "j1", 2, 0), start, tmp_path / "gone", ProcessHost(folder=str(tmp_path / "own"))
    )
    assert found.program.parent
    with pytest.raises(ProgramRefused, match="there is no such folder"):
        prepared(RunKey(StreamId("e1"), "j1", 2, 0), start, tmp_path / "gone")


def test_the_interpreter_is_the_experiments_or_the_agents_own(tmp_path: Path) -> None:
    def used(interpreter: str = "") -> str:
        return prepare(tmp_path, trainer="t.py:T", interpreter=interpreter).program.arguments[0]

    venv = tmp_path / "env" / "bin"
    venv.mkdir(parents=True)
    (venv / "python").touch()
    assert used() == sys.executable
    assert used("env/bin/python") == used("env") == used(str(tmp_path / "env")) == str(venv / "python")
    with pytest.raises(
        ProgramRefused, match=r"interpreter other: there is no .*other on this node; allowed: a Python, or"
    ):
        used("other")


def test_a_command_gets_the_jobs_values_and_the_interpreter(tmp_path: Path) -> None:
    arguments = ["python", "t.py", "--lr={lr}", "{units} {act}", "{wide}", "{{lr}}"]
    found = prepare(tmp_path, command=wire.CommandLine(arguments=arguments), environment={"A": "1"})
    assert found.command == found.program.arguments == (sys.executable, "t.py", "--lr=0.1", "32 relu", "true", "{lr}")
    assert found.program.once
    assert found.variables["A"] == "1"
    assert found.variables["HOPYARD_JOB"] == "j1"
    assert found.variables["HOPYARD_EXPERIMENT"] == "e1"
    assert found.variables["HOPYARD_SEED"] == "7"
    assert json.loads(found.variables["HOPYARD_HYPERPARAMETERS"]) == {
        "lr": 0.1,
        "units": 32,
        "act": "relu",
        "wide": True,
    }


def test_a_command_without_a_value_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ProgramRefused, match=r"command: the program itself needs \{depth\}"):
        prepare(tmp_path, command=wire.CommandLine(arguments=["{depth}", "train"]))


def test_a_log_program_runs_below_the_agents_own_runner_whatever_its_environment(tmp_path: Path) -> None:
    def log(**fields: Any) -> Preparation:
        program = wire.LogProgram(command=wire.CommandLine(arguments=["./train", "{lr}"]), metrics={"a": "a=(.*)"})
        return prepare(tmp_path, log=program, **fields)

    found = log(environment={"LD_PRELOAD": "x.so"}, interpreter=sys.executable)
    assert found.program.arguments == (sys.executable, "-P", "-m", "hopyard._runtime.runner")
    assert found.program.parent
    assert found.command == ("./train", "0.1")
    assert found.variables["LD_PRELOAD"] == "x.so"
    assert dict(found.definition.environment) == {}
    assert found.program == log().program


def test_a_virtual_environment_is_active_for_what_a_command_starts(tmp_path: Path) -> None:
    (tmp_path / "env" / "bin").mkdir(parents=True)
    (tmp_path / "env" / "bin" / "python").touch()
    (tmp_path / "env" / "pyvenv.cfg").touch()
    command = wire.CommandLine(arguments=["sh", "run.sh"])
    found = prepare(tmp_path, command=command, interpreter="env")
    assert found.variables["PATH"].startswith(f"{tmp_path}/env/bin:")
    assert found.variables["VIRTUAL_ENV"] == f"{tmp_path}/env"
    assert prepare(tmp_path, command=command, interpreter="env", environment={"PATH": "/x"}).variables["PATH"] == "/x"


def test_the_working_directory_is_inside_the_code_or_on_the_node(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    assert prepare(tmp_path, trainer="t.py:T").working_folder == tmp_path
    assert prepare(tmp_path, trainer="t.py:T", working_directory="src").working_folder == tmp_path / "src"
    assert prepare(tmp_path / "src", trainer="t.py:T", working_directory="/").working_folder == Path("/")
    with pytest.raises(ProgramRefused, match="working_directory lib: there is no such folder on this node; allowed"):
        prepare(tmp_path, trainer="t.py:T", working_directory="lib")


def test_what_only_trainers_can_do_is_refused(tmp_path: Path) -> None:
    command = wire.CommandLine(arguments=["x"])
    with pytest.raises(ProgramRefused, match="a run on 2 slots at once needs a trainer"):
        prepare(tmp_path, command=command, start={"world": 2})
    with pytest.raises(ProgramRefused, match="a run that only evaluates needs a trainer"):
        prepare(tmp_path, log=wire.LogProgram(command=command), start={"mode": common_pb2.RUN_MODE_EVALUATE})
    with pytest.raises(ProgramRefused, match="the run has no program: needs a trainer, a command or a log program"):
        prepare(tmp_path)


def test_threads_and_gpus_come_from_the_slot_unless_the_experiment_says_otherwise() -> None:
    inherited = {"PATH": "/bin", "OMP_NUM_THREADS": "64", "HOPYARD_TOKEN": "secret"}
    environment = environment_of(wire.RunProgram(environment={"LANG": "C"}), SLOT, inherited)
    assert environment["PATH"] == "/bin"
    assert environment["LANG"] == "C"
    assert (
        environment["OMP_NUM_THREADS"] == environment["MKL_NUM_THREADS"] == environment["OPENBLAS_NUM_THREADS"] == "2"
    )
    assert environment["CUDA_VISIBLE_DEVICES"] == "GPU-b,3"
    assert "HOPYARD_TOKEN" not in environment
    assert environment_of(wire.RunProgram(threads=5), SLOT, {})["OMP_NUM_THREADS"] == "5"
    assert environment_of(wire.RunProgram(), SlotSettings(id="a/1"), {})["CUDA_VISIBLE_DEVICES"] == ""


def test_an_experiment_cannot_set_hopyards_own_variables() -> None:
    with pytest.raises(ProgramRefused, match="sets HOPYARD_AGENT"):
        environment_of(wire.RunProgram(environment={"HOPYARD_AGENT": "elsewhere:1"}), SLOT, {})


def test_an_experiment_inherits_variables_of_the_agent_by_name() -> None:
    inherited = {"PATH": "/bin", "WANDB_API_KEY": "w", "OTHER_KEY": "o", "EMPTY": "", "CUDA_VISIBLE_DEVICES": "7"}
    assert "WANDB_API_KEY" not in environment_of(wire.RunProgram(), SLOT, inherited)
    assert environment_of(wire.RunProgram(), SLOT, inherited, ["OTHER_*"])["OTHER_KEY"] == "o"
    program = wire.RunProgram(inherit_environment=["WANDB_API_KEY", "EMPTY", "CUDA_VISIBLE_DEVICES"])
    found = environment_of(program, SLOT, inherited)
    assert (found["WANDB_API_KEY"], found["EMPTY"]) == ("w", "")
    assert found["CUDA_VISIBLE_DEVICES"] == "GPU-b,3", "the GPUs are always those of the slot"
    assert "OTHER_KEY" not in found


def test_a_node_without_an_inherited_variable_is_unable() -> None:
    with pytest.raises(NodeUnable, match="inherit_environment: NOT_SET is not set on node n; set it where the agent"):
        environment_of(wire.RunProgram(inherit_environment=["NOT_SET"]), SlotSettings(id="n/0"), {"PATH": "/bin"})
    with pytest.raises(ProgramRefused, match="the experiment inherits HOPYARD_TOKEN"):
        environment_of(wire.RunProgram(inherit_environment=["HOPYARD_TOKEN"]), SLOT, {"HOPYARD_TOKEN": "t"})


def test_a_process_learns_where_its_agent_is() -> None:
    assert agent_variables("127.0.0.1:5", "t") == {
        "HOPYARD_AGENT": "127.0.0.1:5",
        "HOPYARD_TOKEN": "t",
        "HOPYARD_AGENT_PID": str(os.getpid()),
        "HOPYARD_PROCESS": mark_of_token("t"),
    }
    assert mark_of_token("t") not in ("t", mark_of_token("u"))


def test_a_node_is_cut_into_slots() -> None:
    gpus = tuple(GpuDevice(index) for index in (0, 1, 4, 5))
    assert divide_node("n", SlotLayout((gpus[:2], gpus[2:])), 3) == (
        SlotSettings(id="n/0", cpus=3, gpus=gpus[:2]),
        SlotSettings(id="n/1", cpus=3, gpus=gpus[2:]),
    )
    assert all(slot.cpus >= 1 for slot in divide_node("n", SlotLayout(((),) * 512), None))


def test_the_cpus_of_slots_are_what_the_control_group_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hopyard_nodeagent.command.available_cpus", lambda: 7)
    assert [slot.cpus for slot in divide_node("n", SlotLayout(((),) * 3), None)] == [2, 2, 2]


def test_training_processes_carry_the_mark_by_which_the_test_suite_finds_them() -> None:
    assert environment_of(wire.RunProgram(), SLOT, {MARK: "a test"})[MARK] == "a test"
