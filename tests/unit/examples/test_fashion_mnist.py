"""Tests of the loader of the Fashion-MNIST example: the files that it reads, and its error when they are missing."""

from __future__ import annotations

import gzip
import runpy
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from tests.conftest import require_system_package

pytestmark = pytest.mark.quick

EXAMPLES = Path(__file__).parents[3] / "examples"
FOLDER = "/usr/share/datasets/fashion-mnist"
data = SimpleNamespace(**runpy.run_path(str(EXAMPLES / "fashion_mnist" / "data.py")))


def idx(path: Path, header: list[int], content: bytes) -> Path:
    path.write_bytes(gzip.compress(bytes(header) + content))
    return path


def test_reads_bytes_of_any_shape(tmp_path: Path) -> None:
    path = idx(tmp_path / "a.gz", [0, 0, 8, 2, 0, 0, 0, 2, 0, 0, 0, 3], bytes(range(6)))
    assert data.read_idx(path).tolist() == [[0, 1, 2], [3, 4, 5]]


@pytest.mark.parametrize(
    ("header", "content"),
    [([0, 0, 8, 1, 0, 0, 0, 3], b"ab"), ([0, 0, 13, 1, 0, 0, 0, 2], b"ab"), ([80, 75, 8, 1, 0, 0, 0, 2], b"ab")],
)
def test_refuses_what_is_cut_off_or_something_else(tmp_path: Path, header: list[int], content: bytes) -> None:
    with pytest.raises(ValueError, match=r"a\.gz is not an idx file of unsigned bytes, or is cut off"):
        data.read_idx(idx(tmp_path / "a.gz", header, content))


@pytest.mark.merge
@pytest.mark.parametrize(
    "command",
    [
        [sys.executable, "fashion_mnist/train.py"],
        [sys.executable, "fashion_mnist_script/train.py"],
        ["perl", "log_mode/train.pl", "0.1", "0", "50", "1"],
    ],
)
def test_without_the_data_a_program_says_what_to_install(tmp_path: Path, command: list[str]) -> None:
    environment = {"PATH": "/usr/bin:/bin", "FASHION_MNIST": str(tmp_path / "none")}
    done = subprocess.run(command, cwd=EXAMPLES, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode != 0
    assert "dataset-fashion-mnist" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.merge
def test_images_are_halved_and_scaled() -> None:
    require_system_package("dataset-fashion-mnist", FOLDER)
    images, labels = data.load("train", 100, 1100)
    assert images.shape == (1000, 1, 14, 14)
    assert images.dtype == np.float32
    assert abs(images.mean()) < 0.1
    assert 0.9 < images.std() < 1.1
    assert labels.shape == (1000,)
    assert set(labels.tolist()) == set(range(10))
    pixels = data.read_idx(Path(FOLDER) / "train-images-idx3-ubyte.gz")
    wanted = (pixels[100, 14:16, 6:8].astype(float).mean() / 255 - 0.29) / 0.33
    assert images[0, 0, 7, 3] == pytest.approx(wanted, abs=1e-6)
