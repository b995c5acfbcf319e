"""A stand-in for NVML, the library of NVIDIA's driver, so that processes of a test find GPUs that do not exist."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Final

from tests.conftest import require_system_package

SOURCE: Final = Path(__file__).parent / "nvml.c"

TWO_GPUS: Final = "GPU-aaaa-1,NVIDIA A100,40960,1024,37;GPU-bbbb-2,NVIDIA A100,40960,512,5"
"""Two GPUs with 40 GiB, in the format that `nvml.c` describes."""


def fake_nvml(folder: Path, gpus: str = TWO_GPUS, **variables: str) -> dict[str, str]:
    """Build the library in a folder, and return the environment variables with which processes load it.

    Args:
        folder: An empty folder.
        gpus: The GPUs, in the format that `nvml.c` describes.
        variables: Further environment variables.
    """
    compiler = require_system_package("g++", "gcc")
    library = folder / "libnvidia-ml.so.1"
    subprocess.run(
        [compiler, "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-o", str(library), str(SOURCE)], check=True
    )
    return {"LD_LIBRARY_PATH": str(folder), "FAKE_GPUS": gpus, **variables}
