"""Tests of program text on a terminal: control characters are escaped."""

from __future__ import annotations

import pytest

from hopyard._common.formatting import printable
from hopyard.cli.output import say
from hopyard.client.wire import converters
from hopyard.v1 import common_pb2, experiment_pb2

pytestmark = pytest.mark.quick


def test_control_characters_are_written_out() -> None:
    assert printable("boom \x1b[31m\r\x07\x9b!\n\tµ") == "boom \\x1b[31m\\x0d\\x07\\x9b!\n\tµ"


def test_reasons_and_errors_cannot_colour_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    shown = experiment_pb2.Experiment(id="x", state=experiment_pb2.EXPERIMENT_STATE_FAILED, reason="a \x1b[31m b")
    shown.metric.mode = common_pb2.METRIC_MODE_MAX
    assert converters.experiment(shown).reason == "a \\x1b[31m b"
    say("error: \x1b]0;title\x07")
    assert capsys.readouterr().err == "error: \\x1b]0;title\\x07\n"
