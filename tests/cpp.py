"""The build of the C++ application library as a user does it: built, tested, installed, and used by the build of the example."""

from __future__ import annotations

import fcntl
import hashlib
import os
import platform
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.conftest import require_system_package

ROOT = Path(__file__).parents[1]
LIBRARY = ROOT / "sdk" / "cpp"
EXAMPLE = ROOT / "examples" / "cpp_digits"
SOURCES = (LIBRARY, EXAMPLE, ROOT / "protos")

_KEPT: Final = 3
"""Number of builds that stay in the cache; older ones are deleted."""

_PACKAGES = (
    ("cmake", "cmake"),
    ("g++", "g++"),
    ("protobuf-compiler", "protoc"),
    ("protobuf-compiler-grpc", "grpc_cpp_plugin"),
    ("libprotobuf-dev", "/usr/include/google/protobuf/message.h"),
    ("libgrpc++-dev", "/usr/include/grpcpp/grpcpp.h"),
)


@dataclass(frozen=True)
class Programs:
    """The folders and programs of the build.

    Attributes:
        build: The library's build folder, for ctest.
        installed: The folder in which the library is installed, for CMAKE_PREFIX_PATH.
        probe: A program that calls internal parts of the library for tests.
        counter: A program that counts, as a trainer or as a script.
        task: The task of the conformance program.
        digits: The example.
    """

    build: Path
    installed: Path
    probe: Path
    counter: Path
    task: Path
    digits: Path


def cache_folder() -> Path:
    """Return the folder in which a build of these sources with these tools is kept between runs.

    Its name is a hash of the sources, their location, this module and the versions of the tools.
    """
    found = hashlib.sha256(f"{ROOT} {platform.machine()}".encode())
    found.update(Path(__file__).read_bytes())
    for tool in ("g++", "cmake", "protoc"):
        if (path := shutil.which(tool)) is not None:
            found.update(subprocess.run([path, "--version"], capture_output=True, check=False).stdout)
    for folder in SOURCES:
        for file in sorted(path for path in folder.rglob("*") if path.is_file() and "build" not in path.parts):
            content = file.read_bytes()
            found.update(f"{file.relative_to(ROOT)} {len(content)} ".encode() + content)
    return Path(sys.prefix) / "hopyard-test-cache" / f"cpp-{found.hexdigest()[:16]}"


def built(folder: Path) -> Programs:
    """Build what is not built yet in a folder; several processes may call this at once.

    If required packages are missing, the test is skipped, or fails in CI. A complete build in the cache is used without a check.
    """
    for package, wanted in _PACKAGES:
        require_system_package(package, wanted)
    folder.mkdir(parents=True, exist_ok=True)
    build, prefix, example = folder / "library", folder / "installed", folder / "example"
    complete, cached = folder / "complete", folder == cache_folder()
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (cached and complete.exists()):
            # Without optimization and symbols: that takes half as long.
            cmake("-S", LIBRARY, "-B", build, "-DCMAKE_BUILD_TYPE=None", f"-DCMAKE_INSTALL_PREFIX={prefix}")
            cmake("--build", build, "--parallel", str(len(os.sched_getaffinity(0))))
            cmake("--install", build)
            cmake("-S", EXAMPLE, "-B", example, "-DCMAKE_BUILD_TYPE=Release", f"-DCMAKE_PREFIX_PATH={prefix}")
            cmake("--build", example)
            if cached:
                complete.touch()
                _delete_old(folder)
    tests = build / "tests"
    return Programs(
        build, prefix, tests / "hopyard_probe", tests / "hopyard_counter", tests / "hopyard_task", example / "digits"
    )


def _delete_old(newest: Path) -> None:
    """Delete all builds from the cache except the newest ones."""
    others = sorted(newest.parent.glob("cpp-*"), key=lambda folder: folder.stat().st_mtime, reverse=True)
    for folder in others[_KEPT:]:
        shutil.rmtree(folder, ignore_errors=True)


def cmake(*arguments: str | Path) -> None:
    """Run CMake; if it fails, its output is shown."""
    done = subprocess.run(["cmake", *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"cmake {arguments}: {done.stdout[-4000:]}\n{done.stderr[-4000:]}"
