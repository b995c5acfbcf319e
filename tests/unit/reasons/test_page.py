"""Tests of the page of all reason codes."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

pytestmark = pytest.mark.quick

SCRIPT = Path(__file__).parents[3] / "scripts" / "generate_reasons.py"


def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate_reasons", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_the_page_is_current(capsys: pytest.CaptureFixture[str]) -> None:
    assert script().main(["--check"]) == 0, capsys.readouterr().err


def test_a_page_that_is_not_current_is_found(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    module = script()
    monkeypatch.setattr(module, "ROOT", tmp_path)
    monkeypatch.setattr(module, "PAGE", tmp_path / "reasons.md")
    assert module.main(["--check"]) == 1
    assert capsys.readouterr().err == "reasons.md differs from the sentences: run python scripts/generate_reasons.py\n"
    assert module.main([]) == 0
    assert module.main(["--check"]) == 0


def test_a_row_has_the_code_its_arguments_and_the_sentence() -> None:
    row = next(line for line in script().page().splitlines() if line.startswith("| `WAITS_FOR_POLICY`"))
    assert "| `cause`: reason, optional, `seconds`: int, optional |" in row
    assert row.endswith("| `waits for the policy[: {cause}][, which has not answered for {seconds} s]` |")
