"""A trainer that can fail in every manner that a test needs, and experiments of it."""

from __future__ import annotations

import importlib.util
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from hopyard import Trainer
from hopyard.client.types import Statistic
from hopyard.local import fit
from hopyard.spec import configuration_seed

TRAINER = textwrap.dedent(
    '''
    """A random walk; `fail` says how it goes wrong, in its iteration `at`.

    `pace` slows each iteration down, until the file `enough` is there. From the position `late` on an iteration takes five
    seconds until then, so that the job is not over before, however busy the host is.
    """

    import json
    import os
    import random
    import signal
    import time

    from hopyard import Trainer


    class Walk(Trainer):
        def build(self, hyperparameters):
            self.rng = random.Random(self.context.seed)
            self.x = 0.0

        def setup(self, hyperparameters, changed):
            if hyperparameters["fail"] == "import":
                import missing_module
            if hyperparameters["fail"] == "setup":
                raise ValueError("a bad setup")

        def train(self):
            self.pause(self.hyperparameters)
            self.x += self.hyperparameters["step"] * self.rng.gauss(0.0, 1.0)
            metrics = {"x": self.x, "pid": float(os.getpid())}
            if self.position + 1 == self.hyperparameters.get("at", 5):
                self.go_wrong(self.hyperparameters["fail"], metrics)
            if self.hyperparameters["fail"] == "always nan":
                metrics["x"] = float("nan")
            return metrics

        def pause(self, given):
            late = self.position >= given.get("late", 1_000_000)
            end = time.monotonic() + (5.0 if late else given.get("pace", 0.0))
            while time.monotonic() < end and not os.path.exists(given.get("enough", "")):
                time.sleep(0.01)

        def go_wrong(self, how, metrics):
            print(f"now comes: {how}", flush=True)
            if how == "train":
                raise ValueError("a bad iteration")
            if how == "exit":
                os._exit(3)
            if how == "crash":
                os.kill(os.getpid(), signal.SIGSEGV)
            if how == "hang":
                while True:
                    time.sleep(1)
            if how == "memory":
                memory = b"x" * (600 << 20)
                time.sleep(3600)
                print(len(memory))
            if how == "nan":
                metrics["x"] = float("nan")
            if how == "many":
                metrics.update({f"metric number {number}": 0.0 for number in range(200_000)})
            if how == "long":
                metrics["x" * 1_000_000] = 0.0
            if how == "text":
                metrics["x"] = "high"

        def save(self, directory):
            if self.hyperparameters["fail"] == "save":
                raise ValueError("a bad save")
            state = [self.x, self.rng.getstate(), "." * self.hyperparameters.get("bytes", 0)]
            (directory / "walk.json").write_text(json.dumps(state))

        def load(self, directory):
            self.x, (version, internal, gauss), _ = json.loads((directory / "walk.json").read_text())
            self.rng.setstate((version, tuple(internal), gauss))
    '''
)


def experiment(folder: Path, fail: object = "no", *, length: int = 6, **changes: Any) -> Path:
    """Write an experiment file, with its trainer beside it, whose jobs fail as `fail` says; return the file.

    Args:
        folder: The folder to write to.
        fail: The kind of failure; a list gives one job for each kind.
        length: Iterations of a job.
        changes: Top-level fields of the file; those of `space` and `stop` are merged with the present ones.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "train.py").write_text(TRAINER)
    ways = list(fail) if isinstance(fail, list | tuple) else [fail]
    spec: dict[str, Any] = {
        "name": folder.name,
        "trainer": "train.py:Walk",
        "metric": {"name": "x", "mode": "max"},
        "space": {"fail": {"choice": ways}, "step": 0.5} | changes.pop("space", {}),
        "generator": "grid",
        "stop": {"max_iterations": length, "max_failures": 0} | changes.pop("stop", {}),
        "resources": {"slots": 1},
    }
    file = folder / "experiment.yaml"
    file.write_text(yaml.safe_dump(spec | changes, sort_keys=False))
    return file


def curve(statistics: list[Statistic]) -> list[tuple[int, float]]:
    """Return positions and values in the order in which they were recorded."""
    return [(one.report.position, one.report.metrics["x"]) for one in statistics]


def alone(folder: Path, hyperparameters: Mapping[str, Any], until: int) -> list[tuple[int, float]]:
    """Return the curve of an uninterrupted run without a cluster."""
    spec = importlib.util.spec_from_file_location("walk_alone", folder / "train.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    trainer: type[Trainer] = module.Walk
    given = {**hyperparameters, "pace": 0.0, "late": until} if "pace" in hyperparameters else dict(hyperparameters)
    reports = fit(trainer, given, until=until, seed=configuration_seed(0, hyperparameters))
    return [(report.position, report.metrics["x"]) for report in reports]
