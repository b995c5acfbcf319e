"""Tests that the C++ library follows the protocol of training programs, as a trainer and as a script."""

from __future__ import annotations

from pathlib import Path

import pytest

from hopyard._runtime.application.conformance import CASES, ClientUnderTest, check
from tests.cpp import Programs
from tests.timing import HANG_SECONDS, scaled

pytestmark = pytest.mark.timeout(600)


@pytest.mark.parametrize("style", ["trainer", "script"])
def test_it_passes_the_conformance_program(cpp: Programs, tmp_path: Path, style: str) -> None:
    client = ClientUnderTest((str(cpp.task), style), tmp_path)
    results = {result.name: result for result in check(client, patience=HANG_SECONDS, jobs=8, stretch=scaled(2.5))}
    assert results.keys() == CASES.keys()
    failed = {name: (one.expected, one.seen, one.printed) for name, one in results.items() if one.outcome != "ok"}
    assert failed == {}
