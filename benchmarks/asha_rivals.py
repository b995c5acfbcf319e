"""How does Hopyard's `asha` compare with the ASHA of Ray Tune and of Optuna?

    python benchmarks/asha_rivals.py [--configurations 256] [-R 1024] [-r 16] [--eta 4] [--workers 4] [--pause 0.02] [--runs 1]
        [--contenders hopyard,ray,optuna] [--environments FOLDER] [--json]

The three contenders run one after another. They train the same configurations in the same order on the same analytic curves, with the
same number of equal workers, and with the same R (iterations of a complete training), r (the lowest rung) and eta. An iteration sleeps
20 ms and is reported. Hopyard implements ASHA with promotion: a configuration waits at a rung and may be promoted later (Algorithm 2 of
the ASHA paper). **Ray Tune and Optuna have only the stopping variant**: a configuration continues at a rung if it is among the best
1/eta of those that reached the rung before, otherwise it ends for good; the first ones at a rung always continue. They therefore train
other iterations than Hopyard, and more of them.

Ray Tune (`ASHAScheduler`) runs trials as actors. Optuna (`SuccessiveHalvingPruner`) has one process per worker; the processes share a
journal file. Each of the two is installed once into its own virtual environment below `--environments`. All run in a network namespace
that has only a loopback device, because Ray listens on all interfaces; this needs unshare (util-linux) and iproute2.

Hopyard saves a configuration when it leaves its slot at a rung. The other two save nothing, and could not resume after a crash.

All contenders are measured in the same way: each iteration writes a line with its times to a log. Columns:

* wall s: seconds from the start of the first iteration to the end of the last one; all s: seconds of the whole command, with its
  services;
* iterations: number of trained iterations; best loss: the best reported loss; at R: number of configurations that were trained to R;
* gap ms: mean milliseconds from the end of an iteration to the start of the next one of the same run, which is what a report costs;
* busy: the part of the workers' wall time in which they trained; lost ms: the workers' remaining time, divided by the number of
  reports.

With `--runs N`, the contenders take turns N times, and each figure is the median.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import yaml
from rivals.task import loss

HERE = Path(__file__).parent / "rivals"
INSTALLED = {"ray": "ray[tune]==2.60.0", "optuna": "optuna==5.0.0"}
SCRIPTS = {"ray": "ray_tune.py", "optuna": "optuna_study.py"}
TITLES = {"hopyard": "Hopyard asha", "ray": "Ray Tune, stopping", "optuna": "Optuna, stopping"}
LOOPBACK_ONLY = ("unshare", "-rn", "sh", "-c", 'ip link set lo up && exec "$@"', "sh")


def python_of(contender: str, environments: Path) -> str:
    """Return the Python interpreter of a contender. Create its virtual environment if it does not exist."""
    if contender == "hopyard":
        return sys.executable
    folder = environments / INSTALLED[contender].replace("[", "-").replace("]", "")
    python = folder / "bin" / "python"
    done = folder / "installed"
    if not done.exists():
        print(f"installing {INSTALLED[contender]} into {folder}", file=sys.stderr)
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", INSTALLED[contender]], check=True)
        done.touch()
    return str(python)


def hopyard(python: str, folder: Path, given: argparse.Namespace) -> list[str]:
    """Return the command that runs the search with Hopyard, in a cluster for this search only. Its files are written to `folder`."""
    for name in ("task.py", "train.py"):
        shutil.copy(HERE / name, folder / name)
    spec = {
        "name": "rivals",
        "trainer": "train.py:Curve",
        "metric": {"name": "loss", "mode": "min"},
        "space": {"index": {"choice": list(range(given.configurations))}},
        "generator": {"name": "grid"},
        "policy": {"name": "asha", "r": given.r, "eta": given.eta, "brackets": [0]},
        "stop": {"jobs": given.configurations, "max_iterations": given.R},
        "snapshot": {"every": given.R, "keep_best": 0},  # Only at rungs. The other contenders take no snapshots.
        "environment": {name: os.environ[name] for name in ("RIVALS_LOG", "RIVALS_PAUSE")},
    }
    (folder / "experiment.yaml").write_text(yaml.safe_dump(spec))
    command = [python, "-m", "hopyard.cli.main", "run", str(folder / "experiment.yaml"), "--json"]
    return [*command, "--slots", str(given.workers), "--data", str(folder / "data")]


def rival(contender: str) -> Callable[[str, Path, argparse.Namespace], list[str]]:
    """Return a function that returns the command of another contender; it has the same parameters as `hopyard`."""

    def command(python: str, folder: Path, given: argparse.Namespace) -> list[str]:
        names = ("configurations", "R", "r", "eta", "workers")
        arguments = {**{name: getattr(given, name) for name in names}, "folder": str(folder)}
        return [python, str(HERE / SCRIPTS[contender]), json.dumps(arguments)]

    return command


COMMANDS = {"hopyard": hopyard, "ray": rival("ray"), "optuna": rival("optuna")}


def run(contender: str, python: str, given: argparse.Namespace) -> dict[str, Any]:
    """Run one search with a contender, and return its figures (see `figures`)."""
    with tempfile.TemporaryDirectory(prefix="rivals") as made:
        folder, log = Path(made), Path(made) / "iterations"
        log.mkdir()
        os.environ.update(RIVALS_LOG=str(log), RIVALS_PAUSE=str(given.pause))
        os.environ.update(RAY_AUTH_MODE="disabled", RAY_USAGE_STATS_ENABLED="0")
        command = [*LOOPBACK_ONLY, *COMMANDS[contender](python, folder, given)]
        began = time.time()
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        ended = time.time()
        if done.returncode:
            sys.exit(f"{contender} ended with exit code {done.returncode}:\n{done.stdout[-2000:]}{done.stderr[-4000:]}")
        return figures(contender, list(iterations(log)), given, began, ended)


def iterations(log: Path) -> Iterator[tuple[str, int, int, float, float]]:
    """Yield the iterations in a log folder: process, configuration, position, start and end. Those of a process are in order."""
    for file in sorted(log.iterdir()):
        for line in file.read_text().splitlines():
            index, position, began, ended = line.split()
            yield file.stem, int(index), int(position), float(began), float(ended)


def figures(
    contender: str,
    trained: list[tuple[str, int, int, float, float]],
    given: argparse.Namespace,
    began: float,
    ended: float,
) -> dict[str, Any]:
    """Return the figures of one search.

    Args:
        contender: Name of the contender.
        trained: The iterations, as `iterations` yields them.
        given: The options of the benchmark.
        began: Start of the command in seconds since the Unix epoch.
        ended: End of the command in seconds since the Unix epoch.
    """
    furthest: dict[int, int] = {}
    for _, index, position, _, _ in trained:
        furthest[index] = max(furthest.get(index, 0), position)
    if len(furthest) != given.configurations:
        sys.exit(f"{contender} trained {len(furthest)} of {given.configurations} configurations")
    gaps = [
        later[3] - earlier[4]
        for earlier, later in pairwise(trained)
        if earlier[:2] == later[:2] and later[2] == earlier[2] + 1
    ]
    wall = max(one[4] for one in trained) - min(one[3] for one in trained)
    busy = sum(one[4] - one[3] for one in trained)
    return {
        "contender": contender,
        "wall_seconds": wall,
        "all_seconds": ended - began,
        "iterations": len(trained),
        "best_loss": min(loss(index, position) for index, position in furthest.items()),
        "at_R": sum(position == given.R for position in furthest.values()),
        "gap_ms": 1e3 * statistics.fmean(gaps) if gaps else None,
        "busy": busy / (given.workers * wall),
        "lost_ms": 1e3 * (given.workers * wall - busy) / len(trained),
    }


def medians(runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the median of each figure over several runs of one contender."""
    numbers = [key for key, value in runs[0].items() if isinstance(value, int | float)]
    return {"contender": runs[0]["contender"], **{key: statistics.median(run[key] for run in runs) for key in numbers}}


def show(rows: Sequence[Mapping[str, Any]], given: argparse.Namespace) -> None:
    best = min(loss(index, given.R) for index in range(given.configurations))
    print(
        f"{given.configurations} configurations, R {given.R}, r {given.r}, eta {given.eta}, {given.workers} workers, "
        f"{1e3 * given.pause:g} ms an iteration; the best possible loss is {best:.4f}"
    )
    print(
        f"{'':20} {'wall s':>7} {'all s':>7} {'iterations':>10} {'best loss':>9} {'at R':>5} {'gap ms':>7} {'busy':>6} {'lost ms':>8}"
    )
    for row in rows:
        print(
            f"{TITLES[row['contender']]:20} {row['wall_seconds']:7.1f} {row['all_seconds']:7.1f} {row['iterations']:10.0f} "
            f"{row['best_loss']:9.4f} {row['at_R']:5.0f} {row['gap_ms']:7.2f} {row['busy']:6.1%} {row['lost_ms']:8.2f}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--configurations", type=int, default=256, metavar="N")
    add("-R", type=int, default=1024, metavar="R", help="iterations of a whole training [default: 1024]")
    add("-r", type=int, default=16, metavar="r", help="the lowest rung [default: 16]")
    add("--eta", type=int, default=4)
    add("--workers", type=int, default=4)
    add("--pause", type=float, default=0.02, metavar="SECONDS", help="sleep of an iteration [default: 0.02]")
    add("--runs", type=int, default=1)
    add("--contenders", default="hopyard,ray,optuna", metavar="NAME,...", help="[default: hopyard,ray,optuna]")
    add("--environments", type=Path, default=Path.home() / ".cache" / "hopyard-rivals", metavar="FOLDER")
    add("--json", action="store_true")
    given = parser.parse_args()
    names = given.contenders.split(",")
    if unknown := sorted(set(names) - set(COMMANDS)):
        parser.error(f"--contenders: there is no {', '.join(unknown)}; there are: {', '.join(COMMANDS)}")
    if subprocess.run([*LOOPBACK_ONLY, "true"], capture_output=True, check=False).returncode:
        sys.exit(
            "error: no network namespace can be made here: it takes unshare (util-linux), ip (iproute2) and user namespaces"
        )
    pythons = {name: python_of(name, given.environments) for name in names}
    runs: dict[str, list[Mapping[str, Any]]] = {name: [] for name in names}
    for number in range(given.runs):
        for name in names:
            runs[name].append(run(name, pythons[name], given))
            print(f"{TITLES[name]} {number + 1}/{given.runs}: {runs[name][-1]['wall_seconds']:.1f} s", file=sys.stderr)
    rows = [medians(runs[name]) for name in names]
    if given.json:
        settings = {name: value for name, value in vars(given).items() if name not in ("environments", "json")}
        print(json.dumps({"settings": settings, "rows": rows, "runs": runs}))
    else:
        show(rows, given)


if __name__ == "__main__":
    main()
