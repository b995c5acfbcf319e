"""Checks the installed packages: the extras of Hopyard (optional dependencies, `hopyard[NAME]`), and torch."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, metadata, requires, version
from typing import Final

from hopyard._common.extras import install_command, is_installed, packages_of, source_command
from hopyard.cli.doctor.check_result import Finding, missing, ok, problem

NEEDED: Final = ("cli", "cluster")
"""Extras that `hopyard run` needs to start a local cluster."""

WHAT: Final = {
    "cli": "the hopyard command",
    "cluster": "the hopyard command and all services",
    "plot": "hopyard plot",
    "pandas": "results as data frames",
    "parquet": "results as Parquet files",
    "tensorboard": "results for TensorBoard",
    "mlflow": "results for MLflow",
    "optuna": "the generators tpe, gp, cmaes and nsga2",
    "curves": "the predictor mcmc",
    "emcee": "another sampler for mcmc",
    "mop": "exact plans for mop",
    "torch": "TorchTrainer",
    "sklearn": "scikit-learn models under model hopping",
    "data": "partitions of Parquet files, and by URL",
    "gpu": "snapshots of processes that use GPUs",
    "all": "all optional features",
}
"""The extras that users choose from, in the order of the checks, each with what it is for.

Not among them: the services, of which `cluster` has all, and the extras for examples, benchmarks and developers of Hopyard.
"""

_MOST_PACKAGES: Final = 2
"""Maximum number of missing packages that are named; if more are missing, the extra is named as a whole."""

_TORCH_SECONDS: Final = 120.0
_TORCH: Final = """
import time; begin = time.perf_counter()
import torch
seconds = time.perf_counter() - begin
print(torch.__version__, f"{seconds:.1f}", torch.cuda.device_count() if torch.cuda.is_available() else 0)
"""


def extras() -> list[Finding]:
    """Check the extras of Hopyard for users, and return one finding each, with a command that installs missing packages as advice."""
    try:
        offered = metadata("hopyard").get_all("Provides-Extra") or []
    except PackageNotFoundError:
        return [
            problem("hopyard", "is imported, not installed", "pip install -e . in a checkout of Hopyard", needed=True)
        ]
    return [extra(name, list(requires("hopyard") or ())) for name in WHAT if name in offered]


def extra(name: str, requirements: Iterable[str]) -> Finding:
    """Check whether all packages of an extra are installed.

    Args:
        name: Name of the extra, a key of `WHAT`.
        requirements: The requirements in the metadata of Hopyard, with their markers.
    """
    lines = list(requirements)
    lacking = sorted({package for package, _ in packages_of(name, lines) if not is_installed(package)})
    title = f"hopyard[{name}]"
    if not lacking:
        return ok(title, WHAT[name], needed=name in NEEDED)
    if len(lacking) > _MOST_PACKAGES:
        named, command = f"{len(lacking)} packages", source_command(name)
    else:
        named, command = ", ".join(lacking), install_command(name, requirements=lines)
    return missing(title, f"{WHAT[name]}: not installed: {named}", command, needed=name in NEEDED)


def torch() -> Finding:
    """Check PyTorch in a new process: its version, the duration of its import, and the number of GPUs that it detects."""
    if _version("torch") is None:
        return missing("torch", "not installed", f"only trainers that use it need it: {install_command('torch')}")
    try:
        done = subprocess.run(
            [sys.executable, "-c", _TORCH], capture_output=True, text=True, timeout=_TORCH_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return problem("torch", f"its import took longer than {_TORCH_SECONDS:g} s", "see whether the disk is slow")
    words = done.stdout.split()
    if done.returncode or len(words) != 3:
        last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        return problem("torch", f"{_version('torch')} cannot be imported: {last}", "install it again")
    return ok("torch", f"{words[0]}, imported in {words[1]} s, sees {words[2]} GPUs")


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
