"""Records the traces in this folder again: all jobs of a search without early stopping, one after another on one slot.

    python benchmarks/traces/record.py fashion|lunarlander [--jobs N] [--epochs N] [--data DIR] [-o FILE]

Each recording takes about half an hour of one CPU core. Ctrl-C suspends it, and the same command resumes it. The script installs
nothing, and names packages and data that are missing.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import yaml

from hopyard.errors import HopyardError
from hopyard.traces import Trace, read_traces, write_traces

HERE = Path(__file__).resolve().parent
FASHION_DATA = HERE.parents[1] / "examples" / "fashion_mnist" / "data.py"
BESIDE: Mapping[str, tuple[Path, ...]] = {"fashion": (FASHION_DATA,), "lunarlander": ()}
"""The modules in other folders that a trainer imports."""

MODULES: Mapping[str, Mapping[str, str]] = {
    "fashion": {"torch": "torch"},
    "lunarlander": {"torch": "torch", "gymnasium": "lunarlander", "Box2D": "lunarlander", "pygame": "lunarlander"},
}
"""The packages that a trainer imports, and the extra that installs each."""


def missing(name: str) -> str | None:
    """Return a message about packages or data that must be installed first; None: nothing is missing."""
    extras = {extra for module, extra in MODULES[name].items() if find_spec(module) is None}
    if extras:
        return f"packages are missing: pip install './hopyard[{','.join(sorted(extras))}]'"
    if name == "fashion":
        sys.path.insert(0, str(FASHION_DATA.parent))
        from data import DataMissing, load  # the file that travels with the trainer

        try:
            load("train", 0, 1)
        except DataMissing as error:
            return str(error)
    return None


def gather(name: str, folder: Path, jobs: int | None, epochs: int | None) -> Path:
    """Copy all files that the training needs to one folder, and return the experiment file."""
    for path in (*(HERE / name).glob("*.py"), *BESIDE[name]):
        shutil.copy(path, folder)
    experiment: dict[str, Any] = yaml.safe_load((HERE / name / "experiment.yaml").read_text())
    experiment["stop"] |= {key: n for key, n in (("jobs", jobs), ("max_iterations", epochs)) if n is not None}
    made = folder / "experiment.json"
    made.write_text(json.dumps(experiment))
    return made


def hopyard(*arguments: object) -> int:
    """Run a command of Hopyard, and return its exit code. This process ignores Ctrl-C meanwhile; the command handles it."""
    call = [sys.executable, "-P", "-c", "from hopyard.cli.main import main; main()", *map(str, arguments)]
    process = subprocess.Popen(call)
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        return process.wait()
    finally:
        signal.signal(signal.SIGINT, before)


def compact(trace: Trace) -> Trace:
    """Return the trace with fewer digits, to make the file smaller: times in whole microseconds, metrics with six decimals."""
    return replace(
        trace,
        metrics=tuple(round(value, 6) for value in trace.metrics),
        seconds=tuple(round(value, 6) for value in trace.seconds),
        others={name: tuple(float(f"{value:.6g}") for value in values) for name, values in trace.others.items()},
    )


def record(name: str, data: Path, to: Path, jobs: int | None, epochs: int | None) -> int:
    """Record the traces, or resume the recording, and write the file. Return the exit code."""
    with tempfile.TemporaryDirectory() as folder:
        if (data / "appstat.sqlite").exists():
            code = hopyard("resume", "--slots", 1, "--data", data)
        else:
            code = hopyard("run", gather(name, Path(folder), jobs, epochs), "--slots", 1, "--data", data)
        if code != 0:
            print(f"not recorded to its end; the same command goes on, with what is in {data}", file=sys.stderr)
            return code
        raw = Path(folder) / "traces.jsonl"
        if (code := hopyard("trace", "--data", data, "-o", raw)) != 0:
            return code
        traces = [compact(trace) for trace in read_traces(raw)]
    write_traces(to, traces)
    seconds = math.fsum(second for trace in traces for second in trace.seconds)
    print(f"{to}: {len(traces)} jobs, {sum(len(t.metrics) for t in traces)} reports, {seconds:.0f} s of training")
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=BESIDE)
    parser.add_argument("--jobs", type=int, help="fewer configurations than in the experiment file")
    parser.add_argument("--epochs", type=int, help="fewer reports of each")
    parser.add_argument("--data", type=Path, help="where the cluster keeps its data [default: ./NAME-data]")
    parser.add_argument("-o", "--to", type=Path, help="the file to write [default: ./NAME.jsonl.gz]")
    given = parser.parse_args()
    if problem := missing(given.name):
        sys.exit(f"error: {problem}")
    data, to = given.data or Path(f"{given.name}-data"), given.to or Path(f"{given.name}.jsonl.gz")
    try:
        return record(given.name, data.resolve(), to, given.jobs, given.epochs)
    except HopyardError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    sys.exit(main())
