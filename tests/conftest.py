"""What all tests share: the way to ask for a system package, and the account of what was skipped."""

import os
import shutil

import pytest
from hypothesis import settings

CI_VARIABLE = "HOPYARD_CI"

# Before anything imports NumPy or PyTorch. Tests run side by side, and what they compute is small: more threads would mostly
# wait for each other.
os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")

# A loaded machine makes deadlines lie; the time-out of each test stands in the configuration of pytest. In CI the
# examples are the same at every run.
settings.register_profile("hopyard", deadline=None, print_blob=True)
settings.register_profile("hopyard-ci", deadline=None, print_blob=True, derandomize=True)
settings.load_profile("hopyard-ci" if os.environ.get(CI_VARIABLE) else "hopyard")


def require_system_package(name: str, wanted: str) -> str:
    """Return the path of something that a test needs from a system package.

    Without it the test is skipped, with a reason that says what to install; under CI it fails.

    Args:
        name: The Debian package, as deploy/install-system-packages.sh names it.
        wanted: A program to look for on PATH, or the absolute path of a file or folder.
    """
    path = wanted if os.path.isabs(wanted) and os.path.exists(wanted) else shutil.which(wanted)
    if path is not None:
        return path
    place = "" if os.path.isabs(wanted) else " on PATH"
    reason = f"no {wanted!r}{place}: install the system package {name!r} (deploy/install-system-packages.sh)"
    if os.environ.get(CI_VARIABLE):
        pytest.fail(f"{reason}; under {CI_VARIABLE} a missing system package is a failure", pytrace=False)
    pytest.skip(reason)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Name every skipped test and why, one line each."""
    skipped = terminalreporter.stats.get("skipped", [])
    if not skipped:
        return
    terminalreporter.section(f"{len(skipped)} skipped")
    for report in skipped:
        # The reason of a skip is the third part of its place: (file, line, "Skipped: reason").
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        terminalreporter.write_line(f"{report.nodeid}: {reason.removeprefix('Skipped: ')}")
