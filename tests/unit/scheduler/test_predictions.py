"""Tests of the prediction requests to nodes that connect and disconnect, and of the histories in them. The nodes are simulated."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hopyard._net.server import Background
from hopyard.policy.vocabulary import ExperimentId, JobState, Predict, StreamId
from hopyard.predictor import LEVELS, Prediction
from hopyard.predictor.factory import new_predictor
from hopyard.predictor.wire import prediction_to_wire, question_from_json
from hopyard.spec import PredictorSpec
from hopyard.v1 import resource_manager_pb2 as pb
from hopyard_engine import curve_history
from hopyard_engine.core.actions.prediction_requests import MAX_POINTS, thinned
from hopyard_engine.core.events import Answered, Event
from hopyard_engine.curve_history import Histories
from hopyard_scheduler.agents.sessions import Session, Sessions
from hopyard_scheduler.external_requests.predictions import dispatcher
from hopyard_scheduler.external_requests.predictions.dispatcher import PredictionDispatcher
from hopyard_scheduler.external_requests.predictions.prior_curves import PriorCurves
from hopyard_scheduler.external_requests.predictions.probe import Predictors
from tests.timing import HANG_SECONDS
from tests.unit.core.rig import Rig

pytestmark = pytest.mark.quick

WIRE = prediction_to_wire(Prediction((10,), (0.5,), (0.1,), final=(0.5,) * len(LEVELS)))


@dataclass
class Node:
    """The session of a simulated node; `heard` contains the messages that were sent to it."""

    session: Session
    heard: list[pb.AgentSessionResponse] = field(default_factory=list)

    async def hears(self) -> pb.AgentSessionResponse:
        message = await self.session.next()
        assert message is not None
        self.heard.append(message)
        return message

    async def question(self) -> pb.NodeQuestion:
        return (await self.hears()).question


@asynccontextmanager
async def unpacked(bundle: str) -> AsyncIterator[Path]:
    """Return the folder of a bundle, which no predictor here needs."""
    yield Path(bundle)


async def made_here(name: str, parameters: Mapping[str, Any], seconds: float, code: Path | None) -> str:
    """Create a predictor in this process, and return what it reads."""
    return new_predictor(name, parameters).reads


class EarlierText(PriorCurves):
    """Simulates the curves of earlier experiments: returns `found` as JSON, and records the calls in `asked`."""

    def __init__(self) -> None:
        self.found = "[]"
        self.asked: list[tuple[str, float]] = []

    async def curves(self, experiment: str, spec: object, before: float) -> str:
        self.asked.append((experiment, before))
        return self.found

    def forget(self, experiment: str) -> None:
        self.asked.remove((experiment, self.asked[0][1]))


class Shell:
    """The dispatcher of predictions with sessions of simulated nodes; `answers` contains the events that it posts to the core."""

    def __init__(self, rig: Rig, background: Background, node_seconds: float = 60.0) -> None:
        self.rig = rig
        self.sessions = Sessions(10.0, lambda: 0.0)
        self.answers: list[Answered] = []
        self.earlier = EarlierText()
        predictors = Predictors(unpacked, probe=made_here)
        self.predictions = PredictionDispatcher(
            self.sessions, background, lambda: rig.now, self.earlier, predictors, node_seconds
        )
        self.spec = PredictorSpec(name="tests.integration.predictors:Toy", time_limit=7.0)
        self.predictions.attach(rig.core, self._post, self._program)

    def _post(self, event: Event) -> None:
        assert isinstance(event, Answered)
        self.answers.append(event)
        self.rig.feed(event)

    def _program(self, name: str) -> Any:
        return SimpleNamespace(spec=SimpleNamespace(predictor=self.spec), bundle="b" * 64)

    def join(self, name: str) -> Node:
        session = Session(name, "1", "127.0.0.1:1")
        self.sessions.open(session)
        session.welcome(pb.AgentSessionResponse(welcome=pb.AgentWelcome(epoch=1)))
        self.predictions.joined()
        return Node(session)

    def ask(self, *jobs: str) -> None:
        for job in jobs:
            self.rig.command(Predict(f"t{job}", job))
            self.predictions.ask(self.rig.stream.asks[f"policy/t{job}"])

    def answer(self, question: pb.NodeQuestion, **said: str) -> None:
        given = said or {"result_json": json.dumps(WIRE)}
        self.predictions.answered(pb.NodeAnswer(ticket=question.ticket, **given))

    async def answered(self, count: int = 1) -> list[Answered]:
        async with asyncio.timeout(HANG_SECONDS):
            while len(self.answers) < count:  # noqa: ASYNC110 - tasks of this loop, and a thread that imports
                await asyncio.sleep(0.001)
        return self.answers


@pytest.fixture
def rig() -> Rig:
    """A core with two jobs, the first of which trains on the node n1."""
    rig = Rig(capacity=1)
    rig.create()
    rig.create()
    rig.start("1")
    rig.report(1, 0.25)
    return rig


@pytest.fixture
async def background() -> AsyncIterator[Background]:
    async with Background("test") as found:
        yield found


async def welcomed(node: Node) -> Node:
    assert (await node.hears()).HasField("welcome")
    return node


@pytest.mark.merge
async def test_the_node_that_trains_a_job_is_asked(rig: Rig, background: Background) -> None:
    shell = Shell(rig, background)
    other, own = await welcomed(shell.join("a")), await welcomed(shell.join("n1"))
    shell.ask("1")
    question = await own.question()
    assert (question.ticket, question.kind, question.timeout_seconds) == ("x/policy/t1", "predict", 7.0)
    assert (question.predictor.name, question.predictor.parameters_json) == (shell.spec.name, "{}")
    assert question.predictor.bundle == "b" * 64
    assert json.loads(question.payload_json)["curve"]["values"] == [0.25]
    assert "others" not in json.loads(question.payload_json)
    shell.answer(question)
    (answered,) = await shell.answered()
    assert (answered.ticket, answered.result, answered.error) == ("policy/t1", WIRE, "")
    shell.answer(question)
    assert len(shell.answers) == 1
    assert len(other.heard) == 1


@pytest.mark.merge
async def test_a_question_goes_to_another_node_when_its_own_is_gone(rig: Rig, background: Background) -> None:
    shell = Shell(rig, background)
    own = await welcomed(shell.join("n1"))
    shell.ask("1")
    await own.question()
    shell.sessions.gone(own.session)
    other = await welcomed(shell.join("a"))
    question = await other.question()
    shell.answer(question, error="too few points")
    (answered,) = await shell.answered()
    assert (answered.result, answered.error) == (None, "too few points")


@pytest.mark.merge
async def test_a_node_that_comes_back_is_asked_again(rig: Rig, background: Background) -> None:
    shell = Shell(rig, background)
    shell.ask("1")
    first = await welcomed(shell.join("n1"))
    before = await first.question()
    second = await welcomed(shell.join("n1"))
    shell.sessions.gone(first.session)
    assert await second.question() == before
    shell.answer(before)
    assert len(await shell.answered()) == 1


async def test_a_job_without_a_run_is_asked_of_the_experiments_own_nodes_the_least_busy_first(
    rig: Rig, background: Background
) -> None:
    shell = Shell(rig, background)
    await welcomed(shell.join("a"))
    own = await welcomed(shell.join("n1"))
    shell.ask("2")
    await own.question()
    rig.join("n2", 1)
    more = await welcomed(shell.join("n2"))
    rig.create()
    shell.ask("3")
    await more.question()


@pytest.mark.merge
async def test_without_a_node_it_fails_after_a_while(rig: Rig, background: Background) -> None:
    shell = Shell(rig, background, node_seconds=0.0)
    shell.ask("1")
    (answered,) = await shell.answered()
    assert answered.error == "no node was there to predict on for 0 s"


@pytest.mark.merge
@pytest.mark.parametrize(
    ("said", "error"),
    [
        ("{", "the node's answer is not JSON"),
        ("3", "a prediction is a mapping, found int"),
        ('{"positions": [1], "mean": "x"}', "mean: numbers are needed"),
        ("[" * 100_000, "the node's answer is nested deeper than 100 levels"),
        (json.dumps(WIRE | {"mean": [10**400]}), "the node's answer has an integer of 401 characters"),
        (json.dumps(WIRE | {"mean": [math.nan]}), "mean must be finite, found nan"),
        (json.dumps(WIRE | {"positions": [10**30]}), "positions must rise from above 1 to the horizon 10"),
        (json.dumps(WIRE | {"final": list(range(len(LEVELS), 0, -1))}), "final are quantiles, which never fall"),
    ],
    ids=["no JSON", "number", "text", "deep", "large mean", "NaN", "large position", "falling quantiles"],
)
async def test_what_is_no_prediction_is_a_failure(rig: Rig, background: Background, said: str, error: str) -> None:
    shell = Shell(rig, background)
    own = await welcomed(shell.join("n1"))
    shell.ask("1")
    shell.answer(await own.question(), result_json=said)
    (answered,) = await shell.answered()
    assert error in answered.error


@pytest.mark.merge
async def test_a_predictor_that_is_none_fails_without_a_node(rig: Rig, background: Background) -> None:
    shell = Shell(rig, background)
    shell.spec = PredictorSpec(name="nobody")
    shell.ask("1")
    (answered,) = await shell.answered()
    assert "no plugin is called 'nobody'" in answered.error


@pytest.mark.merge
async def test_a_withdrawn_question_is_withdrawn_from_its_node(rig: Rig, background: Background) -> None:
    shell = Shell(rig, background)
    own = await welcomed(shell.join("n1"))
    shell.ask("1")
    question = await own.question()
    shell.predictions.withdraw(StreamId("x"), "policy/t1")
    shell.predictions.withdraw(StreamId("x"), "policy/t1")
    shell.predictions.withdraw(StreamId("x"), "create/3")
    assert (await own.hears()).withdraw_question.ticket == question.ticket
    shell.answer(question)
    shell.ask("2")
    shell.answer(await own.question())
    assert [answered.ticket for answered in await shell.answered()] == ["policy/t2"]


async def test_a_node_has_a_few_questions_at_a_time(
    rig: Rig, background: Background, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatcher, "WINDOW", 1)
    shell = Shell(rig, background)
    own = await welcomed(shell.join("n1"))
    shell.ask("1", "2")
    first = await own.question()
    shell.predictions.withdraw(StreamId("x"), "policy/t1")
    assert (await own.hears()).withdraw_question.ticket == first.ticket
    assert (await own.question()).ticket == "x/policy/t2"


async def test_after_a_stop_nothing_is_asked(rig: Rig, background: Background) -> None:
    shell = Shell(rig, background)
    shell.predictions.stop()
    shell.ask("1")
    assert background.failure is None
    assert not shell.answers


async def test_curves_go_with_questions_to_those_that_read_them(rig: Rig, background: Background) -> None:
    shell = Shell(rig, background)
    shell.spec = PredictorSpec(name="tests.integration.predictors:Social")
    own = await welcomed(shell.join("n1"))
    shell.ask("2")
    (other,) = json.loads((await own.question()).payload_json)["others"]
    assert other == {"positions": [1], "values": [0.25], "hyperparameters": {"lr": 0.1}, "ended": False}


async def test_curves_of_earlier_experiments_go_with_it_unless_the_file_says_no(
    rig: Rig, background: Background
) -> None:
    shell = Shell(rig, background)
    shell.spec = PredictorSpec(name="tests.integration.predictors:Social")
    shell.earlier.found = '[{"positions":[1],"values":[7.0]}]'
    own = await welcomed(shell.join("n1"))
    shell.ask("1")
    (curve,) = question_from_json((await own.question()).payload_json).earlier
    assert curve.values == (7.0,)
    assert shell.earlier.asked == [("x", rig.stream.experiments[ExperimentId("x")].created_at)]
    shell.predictions.ended(ExperimentId("x"))
    assert shell.earlier.asked == []
    shell.spec = PredictorSpec(name="tests.integration.predictors:Social", earlier=False)
    shell.ask("2")
    assert question_from_json((await own.question()).payload_json).earlier == ()
    assert shell.earlier.asked == []


# --------------------------------------------------------------------------------------------------------------- histories


def grown(rig: Rig, lengths: list[int]) -> None:
    """Create jobs with these numbers of points in their curves."""
    for length in lengths:
        job = rig.job(rig.create())
        for position in range(1, length + 1):
            job.curve.add(SimpleNamespace(position=position, seconds=1.0, part="", metrics={"score": 0.5}))  # type: ignore[arg-type]
        job.high_water = length


def lengths(rig: Rig, found: Histories) -> list[int]:
    return [len(curve["values"]) for curve in json.loads(found.others(rig.stream, rig.job("1")))]


def test_histories_hold_what_went_furthest_in_the_order_of_creation(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig()
    rig.create()
    grown(rig, [1, 3, 0, 2, 3])
    found = Histories()
    assert lengths(rig, found) == [1, 3, 2, 3]
    monkeypatch.setattr(curve_history, "MAX_CURVES", 3)
    assert lengths(rig, found) == [3, 2, 3]
    monkeypatch.setattr(curve_history, "MAX_POINTS", 7)
    assert lengths(rig, found) == [3, 3]


def test_a_curve_is_written_anew_when_it_has_changed() -> None:
    rig = Rig()
    rig.create()
    grown(rig, [2])
    found = Histories()
    first = found.others(rig.stream, rig.job("1"))
    assert found.others(rig.stream, rig.job("1")) == first
    rig.job("2").state = JobState.COMPLETED
    assert json.loads(found.others(rig.stream, rig.job("1")))[0]["ended"] is True
    found.forget(ExperimentId("x"))
    assert json.loads(found.others(rig.stream, rig.job("1")))[0]["ended"] is True


def test_a_long_curve_is_thinned_and_keeps_its_last_report() -> None:
    assert thinned(range(1, 11), 10) == range(1, 11)
    assert list(thinned(range(1, 24), 10)) == [2, 5, 8, 11, 14, 17, 20, 23]
    assert list(thinned([], 10)) == []


async def test_a_question_is_bounded_however_long_the_curves(background: Background) -> None:
    rig = Rig(capacity=1, max_position=5 * MAX_POINTS)
    rig.create()
    grown(rig, [3 * MAX_POINTS])
    job = rig.job("1")
    for position in range(1, 5 * MAX_POINTS + 1):
        job.curve.add(SimpleNamespace(position=position, seconds=1.0, part="", metrics={"score": 0.5}))  # type: ignore[arg-type]
    job.high_water = 5 * MAX_POINTS
    shell = Shell(rig, background)
    shell.spec = PredictorSpec(name="tests.integration.predictors:Social")
    own = await welcomed(shell.join("n1"))
    shell.ask("1")
    asked = question_from_json((await own.question()).payload_json)
    assert asked.curve.positions == tuple(range(5, 5 * MAX_POINTS + 1, 5))
    assert asked.others[0].positions == tuple(range(3, 3 * MAX_POINTS + 1, 3))
