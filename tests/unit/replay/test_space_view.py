"""Tests that policies see the space of their experiment, as the journal records it."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from hopyard.policy.vocabulary import AllocateJobs, StreamId
from hopyard.space import Space
from hopyard_engine.core.effects import UpCall
from hopyard_engine.core.events import StreamCreated
from hopyard_engine.core.state.stream import Stream
from hopyard_engine.core.types import Settings
from hopyard_engine.journal.codec import decode, encode
from hopyard_engine.policy_host.view import CoreView, JobViews

pytestmark = pytest.mark.quick

PLAIN = Settings(metric="x", mode="max", max_position=4, jobs=2)
SPACE = Space.from_dict(
    {"lr": {"loguniform": [1e-4, 1.0]}, "net": {"space": {"depth": {"int": [1, 4]}, "width": {"choice": [8, 16]}}}}
).constrained(["net.depth * net.width <= 32"])


def viewed(settings: Settings, views: JobViews) -> Space | None:
    """Return the space that a policy sees in an experiment whose journal contains these settings."""
    event = StreamCreated(0.0, StreamId("e"), settings)
    recorded = decode("StreamCreated", encode(event))
    assert recorded == event
    assert hash(recorded) == hash(event)  # caches use the settings as keys
    assert isinstance(recorded, StreamCreated)
    call = UpCall(StreamId("e"), 1, 0.0, 0, AllocateJobs())
    return CoreView(Stream(recorded), call, views).experiment.space


def test_the_space_comes_from_the_journal_with_its_constraints() -> None:
    settings = replace(PLAIN, space=SPACE.to_dict(), constraints=("net.depth * net.width <= 32",))
    views = JobViews()
    found = viewed(settings, views)
    assert found == SPACE
    assert found is viewed(settings, views)
    assert found is not None
    assert found.sample(random.Random(3)) == SPACE.sample(random.Random(3))


def test_a_journal_of_an_earlier_version_has_none() -> None:
    assert b"space" not in encode(StreamCreated(0.0, StreamId("e"), PLAIN))
    assert viewed(PLAIN, JobViews()) is None
