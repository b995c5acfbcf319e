"""Tests of the generator of one experiment: idempotent calls, recovery, and broken contracts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hopyard.errors import Conflict, InvalidInput
from hopyard.generator import Generator, Result
from hopyard.policy.vocabulary import JobState
from hopyard.space import Configuration
from hopyard.spec import ExperimentSpec, parse_spec
from hopyard_hpgen.call_log import Call, CreateCall, ReportCall, ReportFinalCall
from hopyard_hpgen.experiment_generator import ExperimentGenerator, GeneratorFailed

pytestmark = pytest.mark.quick


class Recorder(Generator):
    """Records every call; each proposal depends on the number of calls so far."""

    def __init__(self, *args: Any, **parameters: Any) -> None:
        super().__init__(*args, **parameters)
        self.calls: list[tuple[object, ...]] = []

    def create(self, job: str, ordinal: int) -> Configuration | None:
        self.calls.append(("create", job, ordinal))
        return self.space.sample_at(self.seed, len(self.calls))

    def report(self, job: str, position: int, metrics: Mapping[str, float]) -> None:
        self.calls.append(("report", job, position, dict(metrics)))

    def report_final(self, job: str, result: Result) -> None:
        self.calls.append(("report_final", job, result))


class Crashes(Recorder):
    def create(self, job: str, ordinal: int) -> Configuration | None:
        if ordinal == 1:
            raise RuntimeError("out of ideas")
        return super().create(job, ordinal)


def spec(name: str, **generator: object) -> ExperimentSpec:
    return parse_spec(
        {
            "name": "x",
            "command": ["a"],
            "metric": {"name": "loss", "mode": "min"},
            "space": {"lr": {"loguniform": [1e-4, 1.0]}, "layers": {"int": [1, 4]}},
            "stop": {"jobs": 10},
            "generator": {"name": name, **generator},
        }
    )


HERE = __name__
ENDED = Result({"loss": 9.0}, JobState.TERMINATED, 5)


def recorder(calls: list[Call] | None = None) -> tuple[ExperimentGenerator, Recorder]:
    made = ExperimentGenerator("e", spec(f"{HERE}:Recorder"), calls or [])
    inner = made._generator
    assert isinstance(inner, Recorder)
    return made, inner


def test_a_job_is_asked_for_once() -> None:
    made, inner = recorder()
    first = made.create_job("a")
    assert first is not None
    kept = dict(first)
    first.clear()
    assert made.create_job("b") != kept
    assert made.create_job("a") == kept
    assert inner.calls == [("create", "a", 0), ("create", "b", 1)]


def test_results_are_told_once_and_in_order() -> None:
    made, inner = recorder()
    for position in (1, 2, 2, 1, 4, 3):
        made.report_performance("a", position, {"loss": float(position)})
    made.report_performance("b", 0, {"loss": 0.0})
    for _ in range(2):
        made.report_final_performance("a", ENDED)
    made.report_performance("a", 5, {"loss": 5.0})
    assert inner.calls == [
        ("report", "a", 1, {"loss": 1.0}),
        ("report", "a", 2, {"loss": 2.0}),
        ("report", "a", 4, {"loss": 4.0}),
        ("report", "b", 0, {"loss": 0.0}),
        ("report_final", "a", ENDED),
    ]


def test_a_position_is_not_negative() -> None:
    made, _ = recorder()
    with pytest.raises(InvalidInput, match="experiment e: job a: a position is 0 or more, found -1"):
        made.report_performance("a", -1, {})


JOBS = st.sampled_from("abcd")
STORIES = st.lists(
    st.one_of(
        st.tuples(st.just("create"), JOBS, st.just(0)),
        st.tuples(st.just("report"), JOBS, st.integers(0, 5)),
        st.tuples(st.just("final"), JOBS, st.just(0)),
    ),
    max_size=20,
)


@pytest.mark.merge
@given(STORIES, STORIES)
def test_recorded_calls_rebuild_the_state(
    before: list[tuple[str, str, int]], after: list[tuple[str, str, int]]
) -> None:
    made, inner = recorder()
    recovered, inner_again = recorder(tell(made, before))
    assert inner_again.calls == inner.calls
    assert tell(recovered, after) == tell(made, after)


def tell(made: ExperimentGenerator, story: list[tuple[str, str, int]]) -> list[Call]:
    calls = list[Call]()
    for kind, job, position in story:
        if kind == "create":
            calls.append(CreateCall(job, made.create_job(job)))
        elif kind == "report":
            made.report_performance(job, position, {"loss": 0.5})
            calls.append(ReportCall(job, position, {"loss": 0.5}))
        else:
            made.report_final_performance(job, ENDED)
            calls.append(ReportFinalCall(job, ENDED))
    return calls


def test_what_comes_out_otherwise_than_recorded_is_a_conflict() -> None:
    recorded = CreateCall("a", {"lr": 0.5, "layers": 1})
    message = "experiment e: the generator random is not deterministic, or has changed: for job a it proposed {"
    with pytest.raises(Conflict, match=message):
        ExperimentGenerator("e", spec("random"), [recorded])
    with pytest.raises(Conflict, match="it proposed null, repeated it proposes"):
        ExperimentGenerator("e", spec("random"), [CreateCall("a", None)])


def test_numbers_may_come_back_from_storage_as_another_type() -> None:
    proposed = ExperimentGenerator("e", spec("random")).create_job("a")
    assert proposed is not None
    stored = {**proposed, "layers": float(str(proposed["layers"]))}
    assert ExperimentGenerator("e", spec("random"), [CreateCall("a", stored)]).create_job("a") == proposed


class Floats(Generator):
    def create(self, job: str, ordinal: int) -> Configuration | None:
        return {"lr": 1, "layers": 2.0}


def test_a_proposal_gets_the_types_of_the_space() -> None:
    assert repr(ExperimentGenerator("e", spec(f"{__name__}:Floats")).create_job("e/a")) == "{'lr': 1, 'layers': 2}"


def test_exhaustion_is_remembered() -> None:
    finite = parse_spec(
        {
            "name": "x",
            "command": ["a"],
            "metric": {"name": "loss", "mode": "min"},
            "space": {"b": {"choice": [1, 2]}},
            "generator": "grid",
        }
    )
    made = ExperimentGenerator("e", finite)
    assert made.terms == (2, "nothing")
    assert [made.create_job(job) for job in "abcab"] == [{"b": 1}, {"b": 2}, None, {"b": 1}, {"b": 2}]


def test_a_generator_that_raises_answers_no_more() -> None:
    made = ExperimentGenerator("e", spec(f"{HERE}:Crashes"))
    first = made.create_job("a")
    message = r"generator .*Crashes: create\('b'\) raised RuntimeError: out of ideas"
    for _ in range(2):
        with pytest.raises(GeneratorFailed, match=message):
            made.create_job("b")
    with pytest.raises(GeneratorFailed):
        made.report_performance("a", 1, {})
    assert made.failed
    assert made.create_job("a") == first


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("OutsideTheSpace", r'but layers = 99 is outside \{"int": \[1, 4\]\}'),
        ("ForgetsAName", "but lr is missing"),
        ("NotJson", r"but layers = .* is outside"),
    ],
)
def test_bad_proposals_are_refused(name: str, message: str) -> None:
    made = ExperimentGenerator("e", spec(f"tests.unit.hpgen.broken:{name}"))
    with pytest.raises(GeneratorFailed, match=message):
        made.create_job("a")


def test_a_generator_that_forgets_its_end_is_refused() -> None:
    made = ExperimentGenerator("e", spec("tests.unit.hpgen.broken:ForgetsExhaustion"))
    assert [made.create_job(str(job)) is None for job in range(5)] == [False] * 4 + [True]
    with pytest.raises(GeneratorFailed, match="although it was exhausted"):
        made.create_job("6")


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (spec("nothing"), "no plugin is called 'nothing'"),
        (spec("grid"), "space.lr: loguniform needs count"),
        (spec("random", depth=3), "RandomGenerator has no parameter depth; it takes: none"),
        (spec("random", space=3), "could not be made with .*TypeError"),
        (spec("hopyard.space:Space"), "is a class that is not derived from"),
    ],
)
def test_what_cannot_be_made_is_refused_with_reason(asked: ExperimentSpec, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        ExperimentGenerator("e", asked)


def test_a_longer_search_is_the_same_search() -> None:
    made = ExperimentGenerator("e", spec("random"))
    longer = spec("random").model_copy(update={"seed": 3})
    assert made.is_for(longer)
    assert not made.is_for(spec("random", seed=1))
