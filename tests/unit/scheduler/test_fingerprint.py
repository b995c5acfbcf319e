"""Tests of the fingerprints by which failures from the same cause are recognized."""

from __future__ import annotations

import pytest

from hopyard.v1 import common_pb2, resource_manager_pb2
from hopyard_engine.core.events import Ended
from hopyard_scheduler.converters import fingerprint, run_message_from_proto

pytestmark = pytest.mark.quick


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("train at position 0: ValueError: 0.1 is too small", "train at position 0: ValueError: 1e-5 is too small"),
        ("no such file: '/tmp/run-ab12/x.csv'", "no such file: '/tmp/run-xyz/7/x.csv'"),
        (
            "the program ended with exit code 1:\nEpoch 3\nKeyError: 'lr'",
            "the program ended with exit code 1:\n\nKeyError: 'lr'\n",
        ),
        ("<Model object at 0x7f00ffee> has no weights", "<Model object at 0x7faa0011> has no weights"),
        ("bundle 0011aabbccddeeff is broken", "bundle 9911aabbccddee77 is broken"),
    ],
)
def test_the_same_cause(one: str, other: str) -> None:
    assert fingerprint(one) == fingerprint(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("ValueError: too small", "ValueError: too large"),
        ("no such file: '/data/x.csv'", "no such file: '/data/y.csv'"),
        ("ended with exit code 1:\nKeyError: 'lr'", "ended with exit code 1:\nKeyError: 'width'"),
    ],
)
def test_different_causes(one: str, other: str) -> None:
    assert fingerprint(one) != fingerprint(other)


@pytest.mark.parametrize(
    ("failure", "message", "known"),
    [
        (common_pb2.FAILURE_CLASS_USER_CODE, "ValueError: no", True),
        (common_pb2.FAILURE_CLASS_USER_CODE, "", False),
        (common_pb2.FAILURE_CLASS_INFRASTRUCTURE, "no space left on device", False),
    ],
)
def test_only_failures_of_user_code_have_one(
    failure: common_pb2.FailureClass.ValueType, message: str, known: bool
) -> None:
    said = resource_manager_pb2.RunMessage(
        ended=resource_manager_pb2.RunEnded(reason=common_pb2.RUN_END_REASON_FAILED, failure=failure, message=message)
    )
    ended = run_message_from_proto(said, 1.0, {}).body
    assert isinstance(ended, Ended)
    assert bool(ended.fingerprint) is known
