"""Tests of the answers of a policy process for a policy whose attributes, texts or errors do not fit into a message."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from typing_extensions import override

from hopyard._runtime.policy_process.instance import Instance, reviewed
from hopyard.policy import Cluster, ExperimentView, Policy
from hopyard.v1 import common_pb2
from hopyard.v1 import policy_pb2 as pb

pytestmark = pytest.mark.quick

TERMS = pb.PolicyExperiment(
    id="x", max_position=10, metric=common_pb2.Metric(name="loss", mode=common_pb2.METRIC_MODE_MIN)
)
REVIEW = pb.PolicyReview(parameters_json="{}", experiment=TERMS)


class Plain(Policy):
    """A policy that does nothing."""

    def allocate_jobs(self, cluster: Cluster) -> None:
        pass


def with_attributes(**attributes: Any) -> Policy:
    made: Policy = type("Mine", (Plain,), attributes)()
    return made


def raises(error: Exception) -> Any:
    def fails(*_: object) -> Any:
        raise error

    return fails


class Mute(Exception):
    """An exception whose text cannot be computed."""

    @override
    def __str__(self) -> str:
        raise RuntimeError("no message")


@pytest.mark.parametrize(
    ("attributes", "error"),
    [
        ({"version": 3}, "policy mine: Mine.version: found 3, needed is a text"),
        ({"version": None}, "policy mine: Mine.version: found None, needed is a text"),
        ({"every_iteration": "yes"}, "policy mine: Mine.every_iteration: found 'yes', needed is True or False"),
        ({"ship_every": 1.5}, "policy mine: Mine.ship_every: found 1.5, needed is a whole number"),
        ({"ship_every": True}, "policy mine: Mine.ship_every: found True, needed is a whole number"),
        (
            {"version": property(raises(RuntimeError("none")))},
            "policy mine: could not look at the terms: RuntimeError: none",
        ),
        ({"review": raises(Mute())}, "(its message cannot be made: RuntimeError)"),
        ({"review": raises(ValueError("\ud800"))}, "policy mine: \\ud800"),
        ({"review": raises(ValueError())}, "policy mine: ValueError"),
        ({"review": lambda *_: 7}, "policy mine: review answered 7; needed is text, empty if there is nothing to say"),
    ],
    ids=["number", "none", "text", "fraction", "truth", "property", "mute", "surrogate", "empty", "note"],
)
def test_a_policy_that_fits_into_no_message_is_refused_with_the_place(attributes: dict[str, Any], error: str) -> None:
    found = reviewed(lambda _: with_attributes(**attributes), REVIEW, "policy mine: ")
    assert found.error.endswith(error)


def test_a_long_note_is_shortened() -> None:
    def review(self: Policy, experiment: ExperimentView) -> str:
        return "y" * 10_000

    found = reviewed(lambda _: with_attributes(review=review), REVIEW)
    assert not found.error
    assert found.note == "y" * 2_000 + "..."


@pytest.fixture
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Disables the log: a test report with lone surrogates in its log cannot be sent to another process."""
    monkeypatch.setattr(logging.getLogger(Instance.__module__), "disabled", True)


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ValueError("a \ud800"), "ValueError: a \\ud800 ("),
        (Mute(), "Mute: (its message cannot be made: RuntimeError) ("),
        (ValueError("y" * 10_000), "y... ("),
    ],
    ids=["surrogate", "mute", "long"],
)
@pytest.mark.usefixtures("quiet")
def test_an_error_without_a_text_that_can_be_sent_is_answered(error: Exception, text: str) -> None:
    instance = Instance(lambda _: with_attributes(allocate_jobs=raises(error)))
    instance.welcome(pb.PolicyWelcome(experiment="x", parameters_json="{}"))
    call = pb.UpCall(number=1, changes=[pb.StateChange(experiment=TERMS)], allocate_jobs=pb.AllocateJobs())
    answer = instance.answer(call)
    assert text in answer.error
    assert len(answer.error) < 3_000


@pytest.mark.usefixtures("quiet")
def test_a_policy_that_cannot_be_made_is_answered_with_a_short_text() -> None:
    def make(_: object) -> Policy:
        raise ValueError("\ud800" * 10_000)

    instance = Instance(make)
    instance.welcome(pb.PolicyWelcome(experiment="x", parameters_json="{}"))
    assert len(instance.answer(pb.UpCall(number=1, allocate_jobs=pb.AllocateJobs())).error) < 20_000
