"""Tests that the reference page of the experiment file agrees with the models."""

from __future__ import annotations

import runpy
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

SCRIPT = Path(__file__).parents[3] / "scripts" / "generate_spec_reference.py"
reference = SimpleNamespace(**runpy.run_path(str(SCRIPT)))


def test_the_page_is_current(capsys: pytest.CaptureFixture[str]) -> None:
    assert reference.main(["--check"]) == 0, capsys.readouterr().out


def test_another_page_is_not_current(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "page.md"
    assert reference.main(["--check", "--page", str(page)]) == 1
    assert reference.main(["--page", str(page)]) == 0
    assert reference.main(["--check", "--page", str(page)]) == 0
    page.write_text(page.read_text().replace("**required**", "optional"))
    assert reference.main(["--check", "--page", str(page)]) == 1
    assert "generate_spec_reference.py" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("taken_out", "named"),
    [
        ("weight: 2.0\n", "uses weight"),
        (", memory: 2GiB", "resources.per_job.memory"),
        (", step: 0.1", "uniform with step"),
    ],
)
def test_a_field_or_option_without_an_example_is_named(tmp_path: Path, taken_out: str, named: str) -> None:
    shutil.copytree(reference.EXAMPLES, tmp_path / "examples")
    file = tmp_path / "examples" / "trainer.yaml"
    file.write_text(file.read_text().replace(taken_out, ""))
    with pytest.raises(reference.ReferenceError, match=named):
        reference.page(reference.Examples(tmp_path / "examples"))


def test_what_the_models_say_is_on_the_page() -> None:
    text = reference.PAGE.read_text()
    assert "| `max_failures` | Number of failures of the user's code" in text
    assert "| integer, 0 or more | `3` | `max_failures: 5` |" in text
    assert "| one of `max`, `min` | **required** | `mode: max` |" in text
    assert "### `logint`" in text
