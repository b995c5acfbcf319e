"""Test that a run which misses a file names the line of `.hopyardignore` that left it out."""

from __future__ import annotations

from pathlib import Path

import yaml

from tests.e2e.test_interrupt import hopyard

PROGRAM = """
import hopyard

open("data/train.csv").read()
hopyard.report(accuracy=1.0)
"""

SPEC = {
    "name": "needy",
    "command": ["python", "train.py"],
    "metric": {"name": "accuracy", "mode": "max"},
    "space": {"lr": {"uniform": [0.0, 1.0]}},
    "stop": {"jobs": 1, "max_iterations": 1},
}


def test_a_failure_names_the_file_that_was_not_packed(tmp_path: Path) -> None:
    code = tmp_path / "code"
    (code / "data").mkdir(parents=True)
    (code / "data" / "train.csv").write_text("1\n")
    (code / ".hopyardignore").write_text("# large\n/data/\n")
    (code / "train.py").write_text(PROGRAM)
    file = code / "experiment.yaml"
    file.write_text(yaml.safe_dump(SPEC))
    found = hopyard("run", str(file), "--data", str(tmp_path / "data"), "--slots", "1")
    assert found.returncode == 1
    assert (
        f"note: data/train.csv exists in {code} but is not packed for the nodes: .hopyardignore line 2 (/data/) excludes it\n"
        in found.stderr
    )
