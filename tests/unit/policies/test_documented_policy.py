"""The policy in the documentation, and its test, are what they say."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

_BLOCK = re.compile(r"^`(\w+\.py)`:.*?^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)


def test_the_policy_in_the_documentation_passes_its_test(tmp_path: Path) -> None:
    page = next(parent for parent in Path(__file__).parents if (parent / "docs").is_dir()) / "docs" / "policies.md"
    files = dict(_BLOCK.findall(page.read_text()))
    assert set(files) == {"stop_worse.py", "test_stop_worse.py", "train.py"}
    assert len(files["stop_worse.py"].splitlines()) < 40
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_stop_worse.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=50)
    assert done.returncode == 0, done.stdout + done.stderr
