"""How much does it save to train common beginnings only once, live? Compared with Ray Tune, which trains trial by trial.

    python benchmarks/stage_tree_live.py [--epochs 24] [--trials 96] [--slots 2] [--searches grid,sha] [--contenders tree,alone,ray]
        [--environments FOLDER] [--output FILE.json] [--json]

A small convolutional network trains on Fashion-MNIST at 14 x 14 pixels. The space is learning-rate steps x batch-size switch x momentum
switch (stage_tree_live/space.yaml), as a grid of complete trainings and with successive halving (eta 4, 6..24 epochs). Contenders:

* tree: Hopyard's `stage_tree`; alone: the same policy with `share: false`, so that everything else is equal;
* ray: Ray Tune, with the same number of workers with one CPU each. It has no successive halving with promotion; its ASHAScheduler,
  which stops trials, is used instead, and trains other epochs. It is installed as by asha_rivals.py, and uses the PyTorch of this
  environment.

All contenders train the same network on the same images with one thread, one contender after another, in a network namespace with only
a loopback device. Each epoch writes a line with its times, CPU seconds and accuracy. Columns:

* epochs: number of trained epochs; for a grid, `hopyard plan` tells how many different ones there are;
* all s: the whole command, with its services; wall s: from the start of the first epoch to the end of the last one;
* CPU s: all processes, with services and imports; training: only the epochs;
* best: the best accuracy of any epoch, on images that are not trained on.

The benchmark takes about a quarter of an hour on two cores that have nothing else to do.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, cast

import psutil
import yaml
from asha_rivals import LOOPBACK_ONLY, python_of
from figures.cluster import processes
from figures.frame import host

from hopyard._common.plugins import GENERATORS, load_plugin
from hopyard.generator import Generator
from hopyard.sequences import PrefixTree, Request, values_at
from hopyard.spec import load_search

HERE: Final = Path(__file__).parent
CODE: Final = HERE / "stage_tree_live"
DATA: Final = HERE.parent / "examples" / "fashion_mnist" / "data.py"
TITLES: Final = {"tree": "Hopyard stage_tree", "alone": "Hopyard, share off", "ray": "Ray Tune"}
HALVING: Final = {"eta": 4, "r": 6}
FIGURES: Final = {
    "epochs": ("epochs", "8.0f"),
    "all_seconds": ("all s", "8.1f"),
    "wall_seconds": ("wall s", "8.1f"),
    "cpu_seconds": ("CPU s", "8.1f"),
    "training_cpu_seconds": ("training", "9.1f"),
    "best_accuracy": ("best", "7.4f"),
}
_SUBREAPER: Final = 36


def trials_of(given: argparse.Namespace) -> list[Mapping[str, Any]]:
    """Return the first `--trials` trials of the space, in the order in which all contenders try them."""
    spec = load_search((CODE / "space.yaml").read_text(), "space.yaml")
    kind = cast("type[Generator]", load_plugin(GENERATORS, "grid", Generator))
    generator = kind(spec.search_space, 0)
    found = (generator.create(str(number), number) for number in range(given.trials))
    return [cast("Mapping[str, Any]", one) for one in found if one is not None]


def hopyard(folder: Path, search: str, given: argparse.Namespace, *, share: bool) -> list[str]:
    """Return the command of a search with Hopyard, in a cluster for this search only. `share` is the parameter of `stage_tree`."""
    for file in (CODE / "train.py", CODE / "network.py", DATA):
        shutil.copy(file, folder)
    halving = {"name": "sha", **HALVING, "width": given.trials}
    spec = {
        **yaml.safe_load((CODE / "space.yaml").read_text()),
        "policy": {"name": "stage_tree", "share": share, "tuner": halving if search == "sha" else "default"},
        "stop": {"jobs": given.trials, "max_iterations": given.epochs},
        "snapshot": {"every": 1_000_000, "keep_best": 0},
        "environment": {name: os.environ[name] for name in ("EPOCHS_LOG", "FASHION_MNIST") if name in os.environ},
    }
    (folder / "experiment.yaml").write_text(yaml.safe_dump(spec))
    command = [sys.executable, "-m", "hopyard.cli.main", "run", str(folder / "experiment.yaml"), "--json"]
    return [*command, "--slots", str(given.slots), "--data", str(folder / "data")]


def ray(folder: Path, search: str, given: argparse.Namespace) -> list[str]:
    """Return the command of a search with Ray Tune."""
    shutil.copy(CODE / "network.py", folder)
    shutil.copy(DATA, folder)
    trials = [
        [[values_at(trial, epoch)[name] for name in ("lr", "batch_size", "momentum")] for epoch in range(given.epochs)]
        for trial in trials_of(given)
    ]
    names = ("slots", "epochs", "seed")
    arguments = {name: getattr(given, name) for name in names} | HALVING
    arguments |= {"search": search, "trials": trials, "folder": str(folder)}
    os.environ.update(EPOCHS_CODE=str(folder), EPOCHS_TORCH=_packages("torch"))
    os.environ.update(RAY_AUTH_MODE="disabled", RAY_USAGE_STATS_ENABLED="0")
    return [python_of("ray", given.environments), str(CODE / "ray_tune.py"), json.dumps(arguments)]


def _packages(module: str) -> str:
    """Return the folder that contains an installed module."""
    spec = find_spec(module)
    if spec is None or spec.origin is None:
        sys.exit(f"error: {module} is not installed here: pip install './hopyard[torch]'")
    return str(Path(spec.origin).parents[1])


def run(contender: str, search: str, given: argparse.Namespace) -> dict[str, Any]:
    """Run one search with a contender, and return its figures."""
    with tempfile.TemporaryDirectory(prefix="stages") as made:
        folder, log = Path(made), Path(made) / "epochs"
        log.mkdir()
        os.environ.update(EPOCHS_LOG=str(log))
        command = (
            ray(folder, search, given)
            if contender == "ray"
            else hopyard(folder, search, given, share=contender == "tree")
        )
        began, used = time.time(), CpuTime()
        with (
            subprocess.Popen(
                [*LOOPBACK_ONLY, *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
            ) as process,
            used,
        ):
            out, error = process.communicate()
        ended = time.time()
        if process.returncode:
            sys.exit(f"{contender} ended with exit code {process.returncode}:\n{out[-2000:]}{error[-4000:]}")
        epochs = lines(log)
        return {
            "search": search,
            "contender": contender,
            "epochs": len(epochs),
            "trials": len({trial for trial, *_ in epochs}),
            "all_seconds": ended - began,
            "wall_seconds": max(one[4] for one in epochs) - min(one[3] for one in epochs),
            "cpu_seconds": used.seconds,
            "training_cpu_seconds": sum(one[5] for one in epochs),
            "best_accuracy": max(one[2] for one in epochs),
        }


def lines(log: Path) -> list[tuple[str, int, float, float, float, float]]:
    """Return trial, position, accuracy, start, end and CPU seconds of each epoch in a log folder."""
    found = []
    for file in sorted(log.iterdir()):
        for text in file.read_text().splitlines():
            trial, position, accuracy, began, ended, cpu = text.split()
            found.append((trial, int(position), float(accuracy), float(began), float(ended), float(cpu)))
    return found


class CpuTime:
    """A context that measures the CPU seconds of all descendants of this process, sampled every quarter of a second.

    The operating system's sum does not include processes whose parents do not wait for them, such as Ray's workers.
    """

    def __init__(self) -> None:
        # Let orphaned descendants become children of this process.
        if ctypes.CDLL(None, use_errno=True).prctl(_SUBREAPER, 1, 0, 0, 0):
            raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER) failed")
        self._seen: dict[tuple[int, float], float] = {}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    @property
    def seconds(self) -> float:
        return sum(self._seen.values())

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.wait(0.25):
            for process in processes():
                with suppress(psutil.NoSuchProcess):
                    spent = process.cpu_times()
                    self._seen[process.pid, process.create_time()] = spent.user + spent.system


def show(rows: Sequence[Mapping[str, Any]], given: argparse.Namespace, plan: PrefixTree) -> None:
    """Print the rows as a table."""
    print(
        f"{plan.requests} trials x {given.epochs} epochs = {plan.total}, of them {plan.unique} different "
        f"(merge rate {plan.total / plan.unique:.3f}); {given.slots} slots"
    )
    widths = {key: int(form.split(".")[0]) for key, (_, form) in FIGURES.items()}
    print(f"{'':26}" + "".join(f"{title:>{widths[key]}}" for key, (title, _) in FIGURES.items()))
    for row in rows:
        name = f"{row['search']:5}{TITLES[row['contender']]}"
        print(f"{name:26}" + "".join(f"{row[key]:{form}}" for key, (_, form) in FIGURES.items()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--epochs", type=int, default=24, help="of a whole training [default: 24]")
    add("--trials", type=int, default=96, help="the first so many of the space [default: 96]")
    add("--slots", type=int, default=2, help="slots [default: 2]")
    add("--seed", type=int, default=0, help="Ray Tune's seed [default: 0]")
    add("--searches", default="grid,sha", metavar="NAME,...", help="[default: grid,sha]")
    add("--contenders", default="tree,alone,ray", metavar="NAME,...", help="[default: tree,alone,ray]")
    add("--environments", type=Path, default=Path.home() / ".cache" / "hopyard-rivals", metavar="FOLDER")
    add("--output", type=Path, metavar="FILE.json", help="write what --json prints to a file, too")
    add("--json", action="store_true")
    given = parser.parse_args()
    searches, contenders = given.searches.split(","), given.contenders.split(",")
    for option, names, known in (
        ("searches", searches, ("grid", "sha")),
        ("contenders", contenders, tuple(TITLES)),
    ):
        if unknown := sorted(set(names) - set(known)):
            parser.error(f"--{option}: there is no {', '.join(unknown)}; there are: {', '.join(known)}")
    if subprocess.run([*LOOPBACK_ONLY, "true"], capture_output=True, check=False).returncode:
        sys.exit(
            "error: no network namespace can be made here: it takes unshare (util-linux), ip (iproute2) and user namespaces"
        )
    trials = trials_of(given)
    given.trials = len(trials)
    plan = PrefixTree(Request(dict(trial), given.epochs) for trial in trials)
    if "ray" in contenders:
        python_of("ray", given.environments)
    rows = []
    for search in searches:
        for contender in contenders:
            rows.append(run(contender, search, given))
            print(f"{search} {TITLES[contender]}: {rows[-1]['all_seconds']:.1f} s", file=sys.stderr)
    settings = {key: value for key, value in vars(given).items() if key not in ("environments", "output", "json")}
    document = json.dumps(
        {
            "host": host(),
            "settings": settings,
            "plan": {"trials": plan.requests, "total": plan.total, "unique": plan.unique},
            "rows": rows,
        }
    )
    if given.output is not None:
        given.output.write_text(document)
    if given.json:
        print(document)
    else:
        show(rows, given, plan)


if __name__ == "__main__":
    main()
