"""Tests of the predictions on a node: questions of the scheduler and processes that answer them, which are simulated."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any, cast

import pytest

from hopyard._net.server import Background
from hopyard._runtime.processes.process_family import ProcessFamily
from hopyard.errors import NotFound
from hopyard.v1 import resource_manager_pb2 as wire
from hopyard_nodeagent.predictions import queue as queue_module
from hopyard_nodeagent.predictions.process import (
    MAX_ANSWER_BYTES,
    PredictorFailed,
    PredictorKey,
    PredictorProcess,
    TaskTime,
)
from hopyard_nodeagent.predictions.queue import MOST_WAITING, PredictionQueue
from tests.timing import HANG_SECONDS

pytestmark = pytest.mark.quick


class Process:
    """Simulates a process with a predictor; the test sets the result of its future `answer`."""

    def __init__(self, key: PredictorKey) -> None:
        self.key = key
        self.usable = True
        self.questions: list[bytes] = []
        self.answer: asyncio.Future[Mapping[str, Any]] | None = None

    async def ask(self, question: bytes, seconds: float) -> Mapping[str, Any]:
        self.questions.append(question)
        self.answer = asyncio.get_running_loop().create_future()
        try:
            return await self.answer
        except BaseException:
            self.usable = False
            raise

    async def kill(self) -> None:
        self.usable = False


class Node:
    """The predictions of a node with a number of processes and a clock of the test."""

    def __init__(self, background: Background, processes: int = 1) -> None:
        self.now = 0.0
        self.said: list[wire.NodeAnswer] = []
        self.processes: list[Process] = []
        self.predictions = PredictionQueue(
            self._start,
            self._bundle,
            background,
            processes=processes,
            idle_seconds=10.0,
            say=self.said.append,
            clock=lambda: self.now,
        )

    async def _start(self, key: PredictorKey) -> Process:
        if key.name == "none":
            raise PredictorFailed("there is no such predictor")
        self.processes.append(Process(key))
        return self.processes[-1]

    async def _bundle(self, sha256: str) -> Path:
        if sha256 == "lost":
            raise NotFound("the store does not have it")
        return Path("/code") / sha256

    async def ask(self, *tickets: str, name: str = "p", bundle: str = "") -> None:
        for ticket in tickets:
            predictor = wire.NodePredictor(name=name, bundle=bundle)
            self.predictions.ask(wire.NodeQuestion(ticket=ticket, payload_json=ticket, predictor=predictor))
        await settled()

    async def answer(self, index: int = -1, **said: Any) -> None:
        answer = self.processes[index].answer
        assert answer is not None
        answer.set_result(said or {"result": {"mean": [1.0]}})
        await settled()

    @property
    def asked(self) -> list[list[str]]:
        return [[question.decode() for question in process.questions] for process in self.processes]


async def settled() -> None:
    """Run the event loop until no task can continue."""
    for _ in range(10):
        await asyncio.sleep(0)


@pytest.fixture
async def background() -> AsyncIterator[Background]:
    async with Background("test") as found:
        yield found


async def test_questions_wait_for_the_one_process(background: Background) -> None:
    node = Node(background)
    await node.ask("1", "2", "1", "2")
    assert node.asked == [["1"]]
    await node.answer()
    assert node.asked == [["1", "2"]]
    await node.answer(error="it cannot")
    assert [(a.ticket, a.result_json, a.error) for a in node.said] == [
        ("1", '{"mean":[1.0]}', ""),
        ("2", "", "it cannot"),
    ]


async def test_as_many_processes_as_allowed_work_at_once(background: Background) -> None:
    node = Node(background, processes=2)
    await node.ask("1", "2", "3")
    assert node.asked == [["1"], ["2"]]
    await node.answer(1)
    assert node.asked == [["1"], ["2", "3"]]


async def test_another_predictor_takes_the_place_of_an_idle_process(background: Background) -> None:
    node = Node(background)
    await node.ask("1")
    await node.answer()
    await node.ask("2", name="q")
    assert [process.usable for process in node.processes] == [False, True]
    assert node.processes[1].key == PredictorKey("q", "{}")


async def test_own_code_is_part_of_what_a_process_is_for(background: Background) -> None:
    node = Node(background, processes=2)
    await node.ask("1", bundle="a")
    await node.answer()
    await node.ask("2", bundle="b")
    assert [process.key.folder for process in node.processes] == [Path("/code/a"), Path("/code/b")]
    await node.ask("3", bundle="lost")
    assert (node.said[-1].ticket, node.said[-1].error) == ("3", "the store does not have it")


async def test_an_answer_is_given_again_and_not_made_again(background: Background) -> None:
    node = Node(background)
    await node.ask("1")
    await node.answer()
    await node.ask("1")
    assert node.asked == [["1"]]
    assert [answer.ticket for answer in node.said] == ["1", "1"]
    node.predictions.withdraw("1")  # no later question repeats it
    await node.ask("1")
    assert node.asked == [["1", "1"]]


async def test_a_session_takes_what_waits_with_it_and_leaves_what_is_under_way(background: Background) -> None:
    node = Node(background)
    await node.ask("1", "2", "3")
    node.predictions.new_session()
    await node.ask("3", "1")
    await node.answer()
    await node.answer()
    assert node.asked == [["1", "3"]]
    assert [answer.ticket for answer in node.said] == ["1", "3"]


async def test_nothing_is_left_of_discarded_questions(background: Background) -> None:
    node = Node(background)
    await node.ask("1")
    await node.answer()
    await node.ask("2", "3")
    await node.predictions.discard()
    assert [answer.ticket for answer in node.said] == ["1"]
    assert not node.processes[0].usable, "it was computing the prediction of a discarded question"
    for _ in range(3):
        await node.ask("1", "2", "3")
        await node.answer()
    assert node.asked == [["1", "2"], ["1", "2", "3"]]


async def test_withdrawn_questions_are_not_answered(background: Background) -> None:
    node = Node(background)
    await node.ask("1", "2", "3")
    node.predictions.withdraw("2")
    node.predictions.withdraw("1")
    node.predictions.withdraw("1")
    await settled()
    assert node.asked == [["1"], ["3"]]
    assert not node.processes[0].usable
    await node.answer()
    assert [answer.ticket for answer in node.said] == ["3"]


async def test_one_that_is_withdrawn_before_it_begins_leaves_its_place(background: Background) -> None:
    node = Node(background)
    node.predictions.ask(wire.NodeQuestion(ticket="1"))
    node.predictions.withdraw("1")
    await node.ask("2")
    assert node.asked == [["2"]]


async def test_a_failed_process_is_replaced(background: Background) -> None:
    node = Node(background)
    await node.ask("1", "2")
    answer = node.processes[0].answer
    assert answer is not None
    answer.set_exception(PredictorFailed("it was killed"))
    await settled()
    assert node.said[0].error == "it was killed"
    assert node.asked == [["1"], ["2"]]
    await node.ask("3", name="none")
    await node.answer()
    assert node.said[-1].error == "there is no such predictor"


async def test_too_many_are_refused(background: Background) -> None:
    node = Node(background)
    await node.ask(*map(str, range(MOST_WAITING + 2)))
    assert [(a.ticket, a.error) for a in node.said] == [
        (str(MOST_WAITING + 1), "1000 predictions wait on this node already")
    ]


async def test_idle_processes_end(background: Background) -> None:
    node = Node(background, processes=2)
    await node.ask("1")
    await node.answer()
    node.now = 9.0
    await node.ask("2", name="q")
    await node.answer()
    node.now = 10.0
    await node.predictions.end_idle()
    assert [process.usable for process in node.processes] == [False, True]
    await node.ask("3", name="q")
    assert node.asked == [["1"], ["2", "3"]]


async def test_a_stop_ends_all(background: Background) -> None:
    node = Node(background, processes=2)
    await node.ask("1", name="q")
    await node.answer()
    await node.ask("2", "3", "4")
    await node.predictions.stop()
    await node.predictions.stop()
    await node.ask("5")
    assert not any(process.usable for process in node.processes)
    assert [json.loads(answer.result_json) for answer in node.said] == [{"mean": [1.0]}]


# ------------------------------------------------------------------------------------------------------------ time limits


class Looked:
    """The CPU time and state of a process as the operating system reports them; the test sets both and the clock."""

    def __init__(self) -> None:
        self.now = self.used = 0.0
        self.wants = True
        self.spent = TaskTime(1, lambda: self.now, lambda: (self.used, self.wants))

    def passes(self, seconds: float, used: float = 0.0) -> None:
        self.now += seconds
        self.used += used


def test_waiting_for_a_processor_is_excused_and_waiting_for_anything_else_is_not() -> None:
    process = Looked()
    process.passes(5.0, 0.5)
    assert not process.spent.more_than(1.0)
    process.wants = False
    process.passes(0.4)
    assert not process.spent.more_than(1.0)
    process.passes(0.2)
    assert process.spent.more_than(1.0)


def test_computing_counts() -> None:
    process = Looked()
    process.passes(2.0, 1.1)
    assert process.spent.more_than(1.0)


def test_nothing_excuses_for_ever() -> None:
    process = Looked()
    process.passes(19.0)
    assert not process.spent.more_than(1.0)
    process.passes(1.5)
    assert process.spent.more_than(1.0)


# -------------------------------------------------------------------------------------------------------------- frames


class Pipes:
    """Simulates an ended operating system process whose standard output contains `frame` after its length."""

    pid = 2**31 - 1
    returncode = 0

    def __init__(self, frame: bytes, length: int) -> None:
        self.stdin = self
        self.stdout = asyncio.StreamReader()
        self.stdout.feed_data(length.to_bytes(4, "big") + frame)
        self.stdout.feed_eof()

    def write(self, frame: bytes) -> None:
        """Ignore the question."""

    async def drain(self) -> None:
        """Return at once: the question is ignored."""

    async def wait(self) -> int:
        return self.returncode


async def asked_of(frame: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, length: int | None = None) -> Any:
    """Return the answer of a predictor process that writes a frame."""
    monkeypatch.setattr(ProcessFamily, "end", lambda family, seconds: [])
    pipes = cast("Any", Pipes(frame, len(frame) if length is None else length))
    process = PredictorProcess(PredictorKey("p", "{}"), pipes, tmp_path / "log", lambda pid: None)
    return await process.ask(b"{}", HANG_SECONDS)


async def test_frames_with_a_result_or_an_error_are_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for frame in (b'{"result":{"mean":[NaN]}}', b'{"error":"\\ud83d\\ude00"}'):
        assert str(await asked_of(frame, tmp_path, monkeypatch)) == str(json.loads(frame))


@pytest.mark.parametrize(
    ("frame", "error"),
    [
        (b"[" * 100_000, "is nested deeper than 100 levels"),
        (b"{}", "found {}, where an object with result or error is needed"),
        (b"[]", r"found \[\], where an object with result or error is needed"),
        (b'{"error":"\\ud800"}', "has text that is no Unicode"),
        (b'{"result":1%s}' % (b"0" * 400), "has an integer of 401 characters"),
        (b"\xff", "is not JSON"),
    ],
    ids=["deep", "empty", "list", "surrogate", "large integer", "bytes"],
)
async def test_a_malformed_frame_is_a_failed_prediction(
    frame: bytes, error: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(PredictorFailed, match=f"predictor p: its process said what is no answer: {error}"):
        await asked_of(frame, tmp_path, monkeypatch)


async def test_a_frame_that_is_too_long_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(PredictorFailed, match=f"4294967295 bytes, at most {MAX_ANSWER_BYTES} are allowed"):
        await asked_of(b"", tmp_path, monkeypatch, length=2**32 - 1)


async def test_a_long_error_is_cut(background: Background) -> None:
    node = Node(background)
    await node.ask("1")
    await node.answer(error=["x" * 10_000])
    assert node.said[0].error == "['" + "x" * 3998


async def test_a_result_that_grows_beyond_a_message_is_an_error(
    background: Background, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue_module, "MAX_ANSWER_BYTES", 20)
    node = Node(background)
    await node.ask("1")
    await node.answer(result=[1e15, 1e15])
    assert (node.said[0].result_json, node.said[0].error) == ("", "the prediction has 39 bytes, at most 20 are allowed")
