"""Tests that the data of a cluster is private under every umask, and that training processes keep the user's umask."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import require_system_package
from tests.e2e.harness import softmax_file
from tests.timing import HANG_SECONDS

NOBODY = 65534

SCRIPT = """
import os, sys
import hopyard
for step in range(3):
    with open("model.txt", "w") as file:
        file.write(str(step))
    hopyard.report(loss=1 / (1 + step), checkpoint="model.txt")
    with open(sys.argv[1], "w") as file:
        file.write("weights")
"""


def hopyard(folder: Path, umask: int, *arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "hopyard.cli.main", *map(str, arguments)],
        cwd=folder,
        umask=umask,
        check=False,
        capture_output=True,
        text=True,
        timeout=HANG_SECONDS,
        env={**os.environ, "COLUMNS": "300"},
    )


def script(folder: Path, output: Path) -> Path:
    """Write an experiment with a script that writes the file `output`; return its file."""
    folder.mkdir()
    (folder / "train.py").write_text(SCRIPT)
    (folder / "experiment.yaml").write_text(
        f"{{name: script, command: [python, train.py, {output}], metric: {{name: loss, mode: min}},\n"
        " space: {x: {choice: [1]}}, generator: grid, stop: {max_iterations: 3}}\n"
    )
    return folder / "experiment.yaml"


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def below(folder: Path) -> list[Path]:
    return [folder, *sorted(folder.rglob("*"))]


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder that every user can enter, as `tmp_path` is not."""
    # The temporary folder of the tests is private, too.
    folder = Path(tempfile.mkdtemp(prefix="hopyard-private-", dir="/tmp"))
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


@pytest.mark.timeout(240)
@pytest.mark.parametrize("umask", [0o000, 0o022], ids=["000", "022"])
def test_a_data_directory_is_private_and_the_output_of_training_is_not(place: Path, umask: int) -> None:
    data, output = place / "data", place / "weights.txt"
    snapshot = {"provider": "framework", "every": 2, "keep_latest": 5}
    trainer = softmax_file(place / "trainer", stop={"jobs": 2, "max_iterations": 4}, snapshot=snapshot)
    for file in (trainer, script(place / "script", output)):
        ended = hopyard(place, umask, "run", file, "--data", data, "--slots", 2)
        assert ended.returncode == 0, ended.stderr
    found = below(data)
    kinds = ("agent/snapshots/?*", "agent/.bundles/?*/train.py", "agent/logs/jobs/*/*.log", "logs/*.log", "store/*/?*")
    for pattern in kinds:
        assert list(data.glob(pattern)), f"the experiments left no {pattern}, so this test checks nothing"
    wide = [
        f"{mode(path):04o} {path}"
        for path in found
        # Unpacked code is read-only, because all runs of the node share it.
        if mode(path) not in ({0o700} if path.is_dir() else {0o600, 0o400})
    ]
    assert not wide
    assert output.read_text() == "weights"
    assert mode(output) == 0o666 & ~umask, "the training process has the umask of the user"
    _nobody_reads(found, control=output)


def _nobody_reads(paths: list[Path], control: Path) -> None:
    """Check that another user can open none of these paths, though `control`."""
    if os.geteuid() != 0:
        pytest.skip("to read as another user, setpriv changes the user, which only root can do")
    setpriv = require_system_package("util-linux", "setpriv")
    reads = 'while IFS= read -r path; do if cat "$path" || ls "$path"/; then echo "READ $path"; fi; done 2>/dev/null'
    said = subprocess.run(
        [setpriv, "--reuid", str(NOBODY), "--regid", str(NOBODY), "--clear-groups", "sh", "-c", reads],
        input="".join(f"{path}\n" for path in [*paths, control]),
        check=True,
        capture_output=True,
        text=True,
        cwd="/",
    ).stdout
    assert [line for line in said.splitlines() if "READ" in line] == [f"weightsREAD {control}"]


def test_a_wider_data_directory_is_narrowed_with_one_line(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    data.chmod(0o755)
    file = script(tmp_path / "script", tmp_path / "weights.txt")
    ended = hopyard(tmp_path, 0o022, "run", file, "--data", data)
    assert ended.returncode == 0, ended.stderr
    assert mode(data) == 0o700
    line = f"{data}: changed the mode from 0755 to 0700"
    logs = "".join(path.read_text() for path in (data / "logs").glob("*.log"))
    assert (ended.stderr.count(line), logs.count(line)) == (1, 0)


@pytest.mark.parametrize("command", ["run", "up"])
def test_a_data_directory_of_another_user_is_refused(tmp_path: Path, command: str) -> None:
    if os.geteuid() != 0:
        pytest.skip("a folder is given to another user, which only root can do")
    data, link = tmp_path / "data", tmp_path / "link"
    data.mkdir()
    os.chown(data, NOBODY, NOBODY)
    link.symlink_to(data)
    file = script(tmp_path / "script", tmp_path / "weights.txt")
    for path in (data, link):
        words = [file] if command == "run" else []
        ended = hopyard(tmp_path, 0o022, command, *words, "--data", path)
        assert ended.returncode == 2
        errors = [line for line in ended.stderr.splitlines() if not line.startswith("starting a cluster")]
        assert len(errors) == 1, ended.stderr
        assert f"{path}: the folder belongs to user nobody (65534)" in errors[0]
    assert list(data.iterdir()) == []


@pytest.mark.parametrize("service", ["agent", "appstat"])
def test_a_service_refuses_a_folder_that_others_can_replace(tmp_path: Path, service: str) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    options = ["--scheduler", "127.0.0.1:1"] if service == "agent" else []
    ended = hopyard(tmp_path, 0o022, service, *options, "--data", shared / "data")
    assert ended.returncode == 2
    assert f"{shared}: every user can rename the folders in it (mode 0777)" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert list(shared.iterdir()) == []
