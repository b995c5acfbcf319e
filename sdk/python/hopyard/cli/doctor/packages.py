"""Checks the installed packages: the extras of Hopyard (optional dependencies, `hopyard[NAME]`), and torch."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from importlib.metadata import PackageNotFoundError, metadata, requires, version
from typing import Final

from hopyard.cli.doctor.check_result import Finding, missing, ok, problem

NEEDED: Final = ("cli", "scheduler", "agent", "appstat", "hpgen")
"""Extras that `hopyard run` needs to start a local cluster."""

_WHAT: Final = {
    "cli": "the hopyard command",
    "scheduler": "the scheduler",
    "agent": "the node agent",
    "appstat": "AppStat",
    "hpgen": "the generator service",
    "torch": "TorchTrainer",
    "mop": "exact plans for mop",
    "gpu": "snapshots of processes that use GPUs",
    "sklearn": "scikit-learn models under model hopping",
    "optuna": "the generators tpe, gp, cmaes and nsga2",
    "data": "partitions of Parquet files, and by URL",
    "pandas": "results as data frames",
    "parquet": "results as Parquet files",
    "tensorboard": "results for TensorBoard",
    "mlflow": "results for MLflow",
    "plot": "hopyard plot",
    "curves": "the predictor mcmc",
    "emcee": "another sampler for mcmc",
    "lunarlander": "training on LunarLander",
    "all": "the hopyard command and all services",
    "demo": "the examples",
    "dev": "developing Hopyard itself",
}
_REQUIREMENT: Final = re.compile(r"\s*([A-Za-z0-9._-]+)\s*(?:\[([^\]]*)\])?")
_EXTRA: Final = re.compile(r"extra\s*==\s*['\"]([^'\"]+)['\"]")
_TORCH_SECONDS: Final = 120.0
_TORCH: Final = """
import time; begin = time.perf_counter()
import torch
seconds = time.perf_counter() - begin
print(torch.__version__, f"{seconds:.1f}", torch.cuda.device_count() if torch.cuda.is_available() else 0)
"""


def extras() -> list[Finding]:
    """Check each extra of Hopyard, and return one finding each, with the command that installs missing packages as advice."""
    try:
        offered = metadata("hopyard").get_all("Provides-Extra") or []
    except PackageNotFoundError:
        return [
            problem(
                "hopyard", "is imported, not installed", "pip install ./hopyard (./hopyard: a checkout)", needed=True
            )
        ]
    return [extra(name, list(requires("hopyard") or ())) for name in offered]


def extra(name: str, requirements: Iterable[str]) -> Finding:
    """Check whether all packages of an extra are installed.

    Args:
        name: Name of the extra.
        requirements: The requirements in the metadata of Hopyard, with their markers.
    """
    lines = list(requirements)
    lacking = sorted({package for package in packages_of(name, lines) if _version(package) is None})
    told = _WHAT.get(name, "")
    title = f"hopyard[{name}]"
    if lacking:
        detail = f"{told + ': ' if told else ''}not installed: {', '.join(lacking)}"
        return missing(title, detail, f"pip install './hopyard[{name}]'", needed=name in NEEDED)
    return ok(title, told or "installed", needed=name in NEEDED)


def packages_of(name: str, requirements: list[str], seen: frozenset[str] = frozenset()) -> Iterator[str]:
    """Yield the names of the packages of an extra, including those of extras that it contains.

    Args:
        name: Name of the extra.
        requirements: The requirements in the metadata of Hopyard, with their markers.
        seen: Names of the extras that the caller is expanding, which are skipped to end cycles.
    """
    for line in requirements:
        marker = _EXTRA.search(line)
        found = _REQUIREMENT.match(line)
        if marker is None or marker[1] != name or found is None:
            continue
        if found[1].lower() == "hopyard":
            for inner in filter(None, (one.strip() for one in (found[2] or "").split(","))):
                if inner not in seen:
                    yield from packages_of(inner, requirements, seen | {name})
        else:
            yield found[1]


def torch() -> Finding:
    """Check PyTorch in a new process: its version, the duration of its import, and the number of GPUs that it detects."""
    if _version("torch") is None:
        return missing("torch", "not installed", "only trainers that use it need it: pip install torch")
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
