"""How long does a prediction take, on one thread, with 30 reports, 170 future positions and a target?

    python benchmarks/curves_speed.py [--only NAME ...] [--curves 9] [--json FILE|-]

Each known predictor that is installed predicts the same curves. The table shows medians over the curves, in CPU seconds (on which other
processes of the host have little influence) and in wall seconds. Targets apply to CPU seconds. The rows of `mcmc` divide a prediction
into its phases; for the sampling phase, the baseline is the package emcee with the same density and the same start.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

# One thread, as on a node. Must be set before NumPy is imported.
os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")

import numpy as np
from figures.frame import host
from rich.console import Console
from rich.table import Table

from hopyard._common.plugins import PREDICTORS, PluginError, load_plugin
from hopyard.predictor import Curve, Predictor, Question

SEEN: Final = 30
HORIZON: Final = 200
HISTORY: Final = 100
TARGET: Final = 0.72
PROGRESS = Console(stderr=True, soft_wrap=True)


@dataclass(slots=True)
class Row:
    """The measured seconds of one thing, one number per curve; `most` is its target in CPU seconds, None: no target."""

    name: str
    most: float | None = None
    cpu: list[float] = field(default_factory=list)
    wall: list[float] = field(default_factory=list)

    @contextmanager
    def timed(self) -> Iterator[None]:
        """Return a context that measures the code inside it, and adds its CPU and wall seconds."""
        wall, cpu = time.perf_counter(), time.process_time()
        yield
        self.cpu.append(time.process_time() - cpu)
        self.wall.append(time.perf_counter() - wall)

    def summary(self) -> dict[str, Any]:
        """Return the medians, the slowest measurement, and whether the target is met."""
        cpu = statistics.median(self.cpu)
        return {
            "name": self.name,
            "cpu": cpu,
            "slowest_cpu": max(self.cpu),
            "wall": statistics.median(self.wall),
            "most": self.most,
            "met": None if self.most is None else cpu <= self.most,
            "curves": len(self.cpu),
        }


def values(seed: int, count: int) -> tuple[float, ...]:
    """Return a noisy, saturating curve of accuracies with `count` values, similar to real ones."""
    chance = np.random.default_rng(seed)
    end, start, rate = chance.uniform(0.55, 0.9), chance.uniform(0.1, 0.3), chance.uniform(0.4, 1.2)
    x = np.arange(1.0, count + 1)
    noise = chance.uniform(0.003, 0.02) * chance.standard_normal(count)
    return tuple((end - (end - start) * x**-rate + noise).tolist())


def question(seed: int, others: tuple[Curve, ...] = ()) -> Question:
    """Return a question about a curve that depends on `seed`, with the finished runs `others`."""
    curve = Curve(tuple(range(1, SEEN + 1)), values(seed, SEEN))
    return Question(curve, HORIZON, target=TARGET, low=0.0, high=1.0, others=others, seed=seed)


def history() -> tuple[Curve, ...]:
    """Return finished runs of the same experiment."""
    positions = tuple(range(1, HORIZON + 1))
    return tuple(Curve(positions, values(1000 + job, HORIZON), ended=True) for job in range(HISTORY))


def asked(predictor: Predictor, row: Row, others: tuple[Curve, ...], curves: int) -> Row:
    """Measure a prediction of each curve, and return `row`. A first prediction, which may compile code, is not measured."""
    predictor.predict(question(curves, others))
    for seed in range(curves):
        with row.timed():
            predictor.predict(question(seed, others))
    return row


def mcmc(predictor: type[Predictor], curves: int) -> list[Row]:
    """Return the rows of the predictor `mcmc`: its predictions, and their phases."""
    from hopyard_curves.mcmc.initial_walkers import started
    from hopyard_curves.mcmc.numba_kernels import abscissae
    from hopyard_curves.mcmc.numba_kernels import curves as expected
    from hopyard_curves.mcmc.posterior_predictive import Samples, chances, last
    from hopyard_curves.mcmc.samplers import SAMPLERS, around

    rows = [asked(predictor(), Row("mcmc 100 x 700: a prediction", 0.6), (), curves)]
    begin = Row("  start fits")
    walks = {
        (name, steps): Row(f"  walking {steps} steps, {name}", 0.35 if (name, steps) == ("stretch", 700) else None)
        for steps in (700, 2500)
        for name in ("stretch", "emcee")
    }
    look = Row("  170 probabilities, 100 quantiles")
    ahead = abscissae(np.arange(SEEN + 1.0, HORIZON + 1))
    for seed in range(curves):
        y = np.array(values(seed, SEEN))
        with begin.timed():
            found = started(np.arange(1.0, SEEN + 1), y, float(HORIZON))
        if found is None:
            raise RuntimeError(f"no family fits curve {seed}")
        about, theta = found
        chance = np.random.default_rng(seed)
        start, thetas = around(theta, 100, chance), theta[None]
        for (name, steps), row in walks.items():
            with row.timed():
                walked = SAMPLERS[name](about, start, steps, 500, 10, chance)
            thetas = walked if (name, steps) == ("stretch", 700) else thetas
        with look.timed():
            samples = Samples(expected(thetas, about, ahead), thetas[:, about.offsets[-1]])
            chances(samples, TARGET)
            last(samples)
    long = asked(predictor(steps=2500), Row("mcmc 100 x 2,500: a prediction"), (), curves)
    return [*rows, begin, *walks.values(), look, long]


def grid(predictor: type[Predictor], curves: int) -> list[Row]:
    """Return the row of the predictor `grid`, which uses the predicted curve only."""
    return [asked(predictor(), Row("grid: a prediction", 0.005), (), curves)]


def pooled(predictor: type[Predictor], curves: int) -> list[Row]:
    """Return the rows of the predictor `pooled`: with a history that it has used before, with a new one, and without one."""
    others = history()
    known = asked(predictor(), Row(f"pooled, {HISTORY} runs of history: a prediction", 0.02), others, curves)
    changed = Row("  the history is new")
    asked(predictor(), Row("prepares"), others, 1)
    for seed in range(curves):
        fresh = predictor()
        grown = (*others[seed + 1 :], *others[: seed + 1])
        with changed.timed():
            fresh.predict(question(seed, grown))
    return [known, changed, asked(predictor(), Row("  no history"), (), curves)]


MEASURES: Final[dict[str, Callable[[type[Predictor], int], list[Row]]]] = {"mcmc": mcmc, "grid": grid, "pooled": pooled}


def measured(names: list[str], curves: int) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the rows of the predictors that are installed, and for each other one a message why it has no rows."""
    rows: list[dict[str, Any]] = []
    skipped: list[str] = []
    for name in names:
        try:
            found = load_plugin(PREDICTORS, name, Predictor)
        except PluginError as error:
            skipped.append(f"{name} is left out: {error}")
            continue
        if not isinstance(found, type):
            raise TypeError(f"{name} is no class")
        PROGRESS.print(f"{name}: {curves} curves")
        rows += [row.summary() for row in MEASURES[name](found, curves)]
    return rows, skipped


def show(rows: list[dict[str, Any]], skipped: list[str], where: dict[str, Any]) -> None:
    """Print the rows as a table."""
    load = where["load_average"][0]
    title = f"{where['cpu']}, {where['cores']} cores, load {load}, Python {where['python']}; one thread, milliseconds"
    table = Table("what", "CPU", "slowest", "wall", "target", "met", title=title, box=None)
    for row in rows:
        seconds = [row["cpu"], row["slowest_cpu"], row["wall"]]
        target = "" if row["most"] is None else f"<= {1000 * row['most']:g}"
        met = {None: "", True: "yes", False: "[bold red]NO[/]"}[row["met"]]
        table.add_row(row["name"], *(f"{1000 * one:.3g}" for one in seconds), target, met)
    console = Console(width=None if sys.stdout.isatty() else 160)
    console.print(table)
    for line in skipped:
        console.print(line)


def main() -> int:
    """Run the command line, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--only", action="append", choices=[*MEASURES], help="this predictor; may be given several times"
    )
    parser.add_argument("--curves", type=int, default=9, help="how many curves are predicted")
    parser.add_argument("--json", metavar="FILE", help="write the rows to a file, or - to the standard output")
    given = parser.parse_args()
    where = host()
    rows, skipped = measured(given.only or [*MEASURES], given.curves)
    text = json.dumps({"host": where, "rows": rows, "skipped": skipped}, indent=2)
    if given.json == "-":
        print(text)
    else:
        show(rows, skipped, where)
        if given.json:
            Path(given.json).write_text(text + "\n")
    return 0 if all(row["met"] is not False for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
