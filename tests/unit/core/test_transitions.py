"""Tests of the transition tables of the five state machines, and of their documentation page."""

from __future__ import annotations

import enum
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from hopyard.policy.vocabulary import ExperimentState, JobState
from hopyard_engine.core.state.policy_conversation import CONVERSATION
from hopyard_engine.core.state_machines.experiment_states import EXPERIMENT
from hopyard_engine.core.state_machines.job_states import JOB
from hopyard_engine.core.state_machines.run_states import RUN, RunState
from hopyard_engine.core.state_machines.snapshot_states import SNAPSHOT
from hopyard_engine.core.state_machines.transitions import IllegalTransitionError, TransitionTable

pytestmark = pytest.mark.quick

TABLES = (EXPERIMENT, JOB, RUN, SNAPSHOT, CONVERSATION)
SCRIPT = Path(__file__).parents[3] / "scripts" / "generate_state_machines.py"


class Light(enum.Enum):
    RED = 1
    GREEN = 2


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.subject)
def test_every_state_is_reached(table: TransitionTable[Any]) -> None:
    reached = {table.initial}
    while more := {target for source, target, _ in table if source in reached} - reached:
        reached |= more
    assert reached == set(table.states)


def test_what_is_over_stays_so_unless_it_is_extended_or_retried() -> None:
    assert {target for source, target, _ in JOB if source is JobState.TERMINATED} == set()
    for ended in (JobState.COMPLETED, JobState.FAILED):
        assert {target for source, target, _ in JOB if source is ended} == {JobState.PENDING, JobState.SUSPENDED}
    assert {target for source, target, _ in EXPERIMENT if isinstance(source, ExperimentState) and source.ended} == {
        ExperimentState.RUNNING
    }
    assert {target for source, target, _ in RUN if source is RunState.LEAVING} == set()


def test_a_change_that_is_not_in_the_table_names_the_subject_and_its_story() -> None:
    table = TransitionTable("light", Light.RED, [([Light.RED], Light.GREEN, "it is time")])
    table.check("1", Light.RED, Light.GREEN, "go")
    with pytest.raises(IllegalTransitionError, match=r"^light 1: GREEN -> RED \(stop\); story: GREEN \(go\)$"):
        table.check("1", Light.GREEN, Light.RED, "stop", ["GREEN (go)"])
    with pytest.raises(IllegalTransitionError, match="story: none"):
        table.check("1", Light.GREEN, Light.RED, "stop")


def test_a_change_has_one_row() -> None:
    rows = [([Light.RED], Light.GREEN, "it is time"), ([Light.RED, Light.GREEN], Light.GREEN, "again")]
    with pytest.raises(ValueError, match="light: RED -> GREEN occurs twice"):
        TransitionTable("light", Light.RED, rows)


def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate_state_machines", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_the_page_is_current(capsys: pytest.CaptureFixture[str]) -> None:
    assert script().main(["--check"]) == 0, capsys.readouterr().err


def test_a_page_that_is_not_current_is_found(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    module = script()
    monkeypatch.setattr(module, "ROOT", tmp_path)
    monkeypatch.setattr(module, "PAGE", tmp_path / "state-machines.md")
    assert module.main(["--check"]) == 1
    assert capsys.readouterr().err == (
        "state-machines.md differs from the tables: run python scripts/generate_state_machines.py\n"
    )
    assert module.main([]) == 0
    assert module.main(["--check"]) == 0
