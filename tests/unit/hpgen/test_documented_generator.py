"""Tests that the generator in the documentation and its test work."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from hopyard.spec import load_spec
from tests.timing import HANG_SECONDS

pytestmark = pytest.mark.quick

_BLOCK = re.compile(r"^`(\w+\.\w+)`[^`]*?\n+```(?:python|yaml)\n(.*?)^```", re.DOTALL | re.MULTILINE)
_PAGE = Path(__file__).parents[3] / "docs" / "generators.md"


@pytest.mark.merge
@pytest.mark.timeout(300)
def test_the_generator_in_the_documentation_passes_its_test_and_searches(tmp_path: Path) -> None:
    files = dict(_BLOCK.findall(_PAGE.read_text()))
    assert set(files) == {"near_the_best.py", "test_near_the_best.py", "experiment.yaml", "parabola.py"}
    assert len(files["near_the_best.py"].splitlines()) <= 40
    for name, text in files.items():
        (tmp_path / name).write_text(text)

    def run(*arguments: str) -> str:
        command = [sys.executable, *arguments]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=HANG_SECONDS)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    run("-m", "pytest", "-q", "-p", "no:cacheprovider", "test_near_the_best.py")
    hopyard = ("-P", "-c", "from hopyard.cli.main import main; main()")
    found = json.loads(run(*hopyard, "run", "experiment.yaml", "--json"))
    assert found["best"]["best_value"] > 0.99


def test_the_space_in_the_documentation_can_be_searched() -> None:
    text = _PAGE.read_text()
    start = text.index("    space:\n")
    block = text[start : text.index("\n\n", start)]
    rest = "name: x\ncommand: [a]\nmetric: {name: m, mode: max}\nstop: {jobs: 3}\n"
    spec = load_spec(rest + "\n".join(line[4:] for line in block.splitlines()))
    assert spec.search_space.contains(spec.search_space.sample_at(1, 1))
    assert len(spec.search_space) == 5
