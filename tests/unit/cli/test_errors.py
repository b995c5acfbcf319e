"""Tests of error messages on a terminal."""

from __future__ import annotations

import pytest

from hopyard.cli.errors import EXIT_WRONG_USE, report
from hopyard.errors import InvalidInput

pytestmark = pytest.mark.quick


def test_the_words_of_somebody_s_code_leave_the_terminal_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert report(InvalidInput("predictor p: RuntimeError: red \x1b[31m\nand more\r")) == EXIT_WRONG_USE
    assert capsys.readouterr().err == "error: predictor p: RuntimeError: red \\x1b[31m\nand more\\x0d\n"
