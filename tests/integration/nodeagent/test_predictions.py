"""Tests of predictions on a node: real processes, and a scheduler that the test controls."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from typing import Any

import psutil
import pytest

from hopyard._runtime import bundle
from hopyard._runtime.processes.process_family import ProcessFamily
from hopyard.predictor import Curve, Question
from hopyard.predictor.wire import prediction_from_wire, question_to_json
from hopyard.v1 import resource_manager_pb2 as wire
from tests.integration.children import running
from tests.integration.nodeagent.cluster import Cluster, gone
from tests.integration.nodeagent.process_snapshots import comes
from tests.timing import HANG_SECONDS

MODULE = "tests.integration.predictors"
QUESTION = Question(Curve((1, 2, 3), (0.1, 0.2, 0.3)), horizon=6, target=0.25)


def ask(
    cluster: Cluster,
    ticket: str,
    name: str = f"{MODULE}:Toy",
    limit: float = HANG_SECONDS,
    sha256: str = "",
    memory: int = 0,
    **parameters: Any,
) -> None:
    predictor = wire.NodePredictor(
        name=name, parameters_json=json.dumps(parameters), bundle=sha256, memory_bytes=memory
    )
    question = wire.NodeQuestion(
        ticket=ticket,
        kind="predict",
        payload_json=question_to_json(QUESTION),
        timeout_seconds=limit,
        predictor=predictor,
    )
    cluster.scheduler.say("a", question=question)


async def answer(cluster: Cluster, ticket: str) -> wire.NodeAnswer:
    def found() -> list[wire.NodeAnswer]:
        return [one for one in cluster.scheduler.answers if one.ticket == ticket]

    await cluster.scheduler.until(lambda: bool(found()))
    assert len(found()) == 1
    return found()[0]


def processes() -> list[psutil.Process]:
    return [psutil.Process(pid) for pid in running("hopyard.predictor.process")]


def first_to_go(process: psutil.Process) -> str:
    return Path(f"/proc/{process.pid}/oom_score_adj").read_text().strip()


async def test_a_question_of_a_restored_history_is_not_answered_with_the_prediction_of_the_lost_one(
    cluster: Cluster,
) -> None:
    await cluster.agent()
    ask(cluster, "e/1", spread=0.2)
    await answer(cluster, "e/1")
    cluster.scheduler.answers.clear()
    cluster.scheduler.restore("restored")
    await cluster.scheduler.connected("a", 2)
    ask(cluster, "e/1", spread=0.3)
    found = prediction_from_wire(json.loads((await answer(cluster, "e/1")).result_json))
    assert found.deviation == (0.3,) * 3


async def test_a_question_is_answered_by_a_process_of_low_priority_that_stays_for_the_next(cluster: Cluster) -> None:
    await cluster.agent()
    ask(cluster, "e/1", spread=0.2)
    found = prediction_from_wire(json.loads((await answer(cluster, "e/1")).result_json))
    assert (found.positions, found.mean, found.deviation) == ((4, 5, 6), (0.3,) * 3, (0.2,) * 3)
    assert found.reaches == (1.0,) * 3
    (process,) = processes()
    assert process.nice() == 19
    assert process.environ()["OMP_NUM_THREADS"] == "1"
    ask(cluster, "e/2", spread=0.2)
    await answer(cluster, "e/2")
    assert processes() == [process]
    ask(cluster, "e/3", spread=0.3)  # Another predictor takes its place: the node has one slot.
    await answer(cluster, "e/3")
    await gone(process.pid)
    assert len(processes()) == 1


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("raise", "Bad: ZeroDivisionError: no way (predictors.py:"),
        ("exit", "its process ended with exit code 3; it said:\nlast words"),
        ("kill", "its process was killed by SIGKILL (out of memory?)"),
        ("grow", "Bad: MemoryError: no room for 1 TiB"),
        ("lie", "Bad: positions must rise from above 3 to the horizon 6, found 1..1 (1)"),
    ],
)
async def test_a_failure_is_the_answer_and_the_next_question_is_answered(cluster: Cluster, how: str, said: str) -> None:
    await cluster.agent()
    ask(cluster, "e/1", f"{MODULE}:Bad", how=how)
    assert said in (await answer(cluster, "e/1")).error
    ask(cluster, "e/2")
    assert not (await answer(cluster, "e/2")).error


@pytest.mark.parametrize("how", ["sleep", "spin"])
async def test_what_takes_too_long_is_killed(cluster: Cluster, how: str) -> None:
    await cluster.agent()
    ask(cluster, "e/1", f"{MODULE}:Bad", 0.2, how=how)
    assert (await answer(cluster, "e/1")).error == f"predictor {MODULE}:Bad took longer than 0.2 s over one prediction"
    assert processes() == []


@pytest.mark.parametrize(
    ("name", "parameters", "said"),
    [
        ("nobody", {}, "no plugin is called 'nobody'"),
        (f"{MODULE}:Toy", {"spred": 1}, "Toy has no parameter spred; it takes: seconds, spread"),
        (f"{MODULE}:Unmakeable", {}, "could not be made: RuntimeError: not today"),
    ],
)
async def test_a_predictor_that_is_none_is_told(
    cluster: Cluster, name: str, parameters: dict[str, Any], said: str
) -> None:
    await cluster.agent()
    ask(cluster, "e/1", name, **parameters)
    assert said in (await answer(cluster, "e/1")).error
    assert processes() == []


async def test_what_holds_too_much_memory_is_killed(cluster: Cluster) -> None:
    await cluster.agent()
    ask(cluster, "e/1", f"{MODULE}:Bad", memory=200 * 2**20, how="hog")
    error = (await answer(cluster, "e/1")).error
    assert error.startswith(f"predictor {MODULE}:Bad: out of memory: used ")
    assert error.endswith("of its limit of 200.0 MiB (predictor.memory)")
    assert processes() == []
    ask(cluster, "e/2", memory=200 * 2**20)
    assert not (await answer(cluster, "e/2")).error


@pytest.mark.parametrize("how", ["exit", "kill", "sleep"])
async def test_what_it_has_started_ends_with_it(cluster: Cluster, tmp_path: Path, how: str) -> None:
    await cluster.agent()
    note = tmp_path / "child"
    ask(cluster, "e/1", f"{MODULE}:Bad", how=how, note=str(note))
    if how == "sleep":
        await comes(lambda: note.exists() and bool(note.read_text()))
        cluster.scheduler.say("a", withdraw_question=wire.WithdrawQuestion(ticket="e/1"))
    else:
        assert (await answer(cluster, "e/1")).error
    await gone(int(note.read_text()))


async def test_a_child_that_has_the_output_open_does_not_delay_the_answer(cluster: Cluster, tmp_path: Path) -> None:
    await cluster.agent()
    note = tmp_path / "child"
    ask(cluster, "e/1", f"{MODULE}:Bad", how="fork", note=str(note))
    assert "its process ended with exit code 3" in (await answer(cluster, "e/1")).error
    await gone(int(note.read_text()))


async def test_who_has_ended_by_itself_is_not_killed_by_its_number(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Show that a process group is not killed after its leader exited, since its id may be in use again.

    The remaining processes of the session are looked up outside the agent's event loop.
    """
    killed, looked = list[int](), list[bool]()
    monkeypatch.setattr(os, "killpg", lambda group, _: killed.append(group))

    find = ProcessFamily.members

    def looking(family: ProcessFamily) -> list[int]:
        looked.append(threading.current_thread() is threading.main_thread())
        return find(family)

    monkeypatch.setattr(ProcessFamily, "members", looking)
    await cluster.agent()
    note = tmp_path / "child"
    ask(cluster, "e/1", f"{MODULE}:Bad", how="exit", note=str(note))
    assert (await answer(cluster, "e/1")).error
    await gone(int(note.read_text()))
    monkeypatch.undo()
    assert (killed, set(looked)) == ([], {False})


async def test_when_memory_is_short_it_goes_before_training(cluster: Cluster) -> None:
    await cluster.agent()
    ask(cluster, "e/1")
    await answer(cluster, "e/1")
    (process,) = processes()
    assert first_to_go(process) == "1000"


async def test_what_it_prints_goes_to_the_log(cluster: Cluster) -> None:
    await cluster.agent()
    ask(cluster, "e/1", f"{MODULE}:Bad", how="print")
    assert not (await answer(cluster, "e/1")).error
    await cluster.agents["a"].stop()
    assert "hello to the log" in (cluster.folder / "a" / "logs" / "predictors.log").read_text()


async def test_a_predictor_of_ones_own_is_found_in_the_experiments_code(cluster: Cluster, tmp_path: Path) -> None:
    await cluster.agent()
    (tmp_path / "own").mkdir()
    source = Path(__file__).parents[1] / "predictors.py"
    (tmp_path / "own" / "mine_alone.py").write_text(source.read_text())
    sha256 = cluster.store.add(bundle.pack(tmp_path / "own").data)
    ask(cluster, "e/1", "mine_alone:Toy", sha256=sha256)
    assert not (await answer(cluster, "e/1")).error


async def test_a_withdrawn_question_ends_its_process_and_is_not_answered(cluster: Cluster) -> None:
    await cluster.agent()
    ask(cluster, "e/1", f"{MODULE}:Bad", how="sleep")
    ask(cluster, "e/2")
    cluster.scheduler.say("a", withdraw_question=wire.WithdrawQuestion(ticket="e/1"))
    cluster.scheduler.say("a", withdraw_question=wire.WithdrawQuestion(ticket="e/7"))
    await answer(cluster, "e/2")
    assert [one.ticket for one in cluster.scheduler.answers] == ["e/2"]
    assert len(processes()) == 1


async def test_a_question_that_is_asked_again_in_the_next_session_is_answered_again(cluster: Cluster) -> None:
    await cluster.agent()
    ask(cluster, "e/1")
    first = await answer(cluster, "e/1")
    cluster.scheduler.drop_session("a")
    await cluster.scheduler.connected("a", 2)
    cluster.scheduler.answers.clear()
    (process,) = processes()
    os.kill(process.pid, 9)  # The prediction is not computed again.
    ask(cluster, "e/1")
    assert await answer(cluster, "e/1") == first
