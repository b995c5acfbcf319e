"""Tests of the format of log entries."""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator

import pytest

from hopyard._net.server.logs import set_up_logging

pytestmark = pytest.mark.quick


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    """The stream of the log, while this configuration replaces that of the tests."""
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    found = io.StringIO()
    set_up_logging("hpgen", stream=found)
    yield found
    root.handlers[:] = before
    root.setLevel(level)


def test_control_characters_of_foreign_code_are_escaped(stream: io.StringIO) -> None:
    try:
        raise RuntimeError("\x1b[2Jred\x9b0m")
    except RuntimeError:
        logging.getLogger("g").exception("it raised\x07\nand\tended")
    found = stream.getvalue()
    assert " ERROR hpgen g: it raised\\x07\\nand\tended\nTraceback " in found
    assert "RuntimeError: \\x1b[2Jred\\x9b0m" in found
