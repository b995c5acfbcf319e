"""Tests of a generator in the generator service: same proposals as in this process, even if the service is killed in between."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from hopyard.errors import InvalidInput
from hopyard.generator import Generator, Result
from hopyard.space import Configuration, Space, Uniform
from hopyard.spec import load_spec
from hopyard_hpgen.experiment_generator import make_generator
from hopyard_hpgen.generators import external
from hopyard_hpgen.generators.external import RemoteGenerator
from hopyard_hpgen.generators.random import RandomGenerator
from tests.integration.hpgen.adaptive_generator import NearTheLast
from tests.timing import HANG_SECONDS

ROOT = Path(__file__).parents[3]
SPACE = Space({"x": Uniform(0.0, 1.0), "y": Uniform(0.0, 1.0)}, ["x + y <= 1.5"])
LEARNS = "tests.integration.hpgen.adaptive_generator:NearTheLast"


class Process:
    """A generator service in a process that a test kills and starts again at the same address."""

    def __init__(self, data: Path) -> None:
        self._data = data
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> str:
        file = self._data / "hpgen.address"
        file.unlink(missing_ok=True)
        command = [sys.executable, "-m", "hopyard_hpgen", "--data", str(self._data)]
        self._process = subprocess.Popen(command, cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)})
        end = time.monotonic() + HANG_SECONDS
        while not file.exists():
            assert time.monotonic() < end
            assert self._process.poll() is None
            time.sleep(0.02)
        return file.read_text().strip()

    def children(self) -> list[psutil.Process]:
        assert self._process is not None
        return psutil.Process(self._process.pid).children()

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait(HANG_SECONDS)


@contextmanager
def process(data: Path) -> Iterator[tuple[Process, str]]:
    found = Process(data)
    try:
        yield found, found.start()
    finally:
        found.kill()


def proposals(generator: Generator, first: int, count: int) -> list[Configuration | None]:
    found: list[Configuration | None] = []
    for ordinal in range(first, first + count):
        proposed = generator.create(str(ordinal), ordinal)
        assert proposed is not None
        found.append(proposed)
        generator.report(str(ordinal), 1, {"score": float(proposed["x"]) / 2})  # type: ignore[arg-type]
        generator.report_final(str(ordinal), Result({"score": float(proposed["x"])}, position=2))  # type: ignore[arg-type]
    return found


def test_it_proposes_the_same_and_learns_the_same_when_its_process_is_killed(tmp_path: Path) -> None:
    here = NearTheLast(SPACE, 3, width=0.2)
    with process(tmp_path) as (there, address):
        far = RemoteGenerator(SPACE, 3, server=address, of=LEARNS, width=0.2)
        assert far.reads == "reports"
        assert far.size is None
        assert proposals(far, 0, 4) == proposals(here, 0, 4)
        there.kill()
        there.start()
        assert proposals(far, 4, 4) == proposals(here, 4, 4)
        finite = RemoteGenerator(Space.from_dict({"x": {"choice": [1, 2]}}), 1, server=address, of="grid")
        assert finite.size == 2
        assert [finite.create(str(i), i) for i in range(3)] == [{"x": 1}, {"x": 2}, None]


def test_the_death_of_the_process_of_the_generator_in_the_service_changes_nothing(tmp_path: Path) -> None:
    here = NearTheLast(SPACE, 3, width=0.2)
    with process(tmp_path) as (there, address):
        far = RemoteGenerator(SPACE, 3, server=address, of=LEARNS, width=0.2)
        assert proposals(far, 0, 3) == proposals(here, 0, 3)
        (worker,) = there.children()
        worker.kill()
        assert proposals(far, 3, 3) == proposals(here, 3, 3)


def test_what_is_wrong_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with process(tmp_path) as (_, address):
        wrong = RemoteGenerator(SPACE, 3, server=address, of=LEARNS, witdh=0.2)
        with pytest.raises(InvalidInput, match=f"generator at {address}: .*has no parameter witdh"):
            _ = wrong.size
    monkeypatch.setattr(external, "PATIENCE_SECONDS", 0.2)
    with pytest.raises(
        InvalidInput, match=f"generator at {address}: no process answers there .*hopyard hpgen --data DIR"
    ):
        _ = RemoteGenerator(SPACE, 3, server=address).size
    with pytest.raises(InvalidInput, match="a service's address is unix:/PATH"):
        RemoteGenerator(SPACE, 3, server="nowhere")


def test_an_experiment_file_names_it(tmp_path: Path) -> None:
    with process(tmp_path) as (_, address):
        spec = load_spec(
            f"""
            name: digits
            command: [python, train.py]
            metric: {{name: score, mode: max}}
            space: {{x: {{uniform: [0.0, 1.0]}}}}
            generator: {{name: 'hopyard_hpgen.generators.external:RemoteGenerator', seed: 5, server: '{address}', of: random}}
            stop: {{jobs: 10}}
            """
        )
        made = make_generator(spec)
        here = RandomGenerator(spec.search_space, 5)
        assert [made.create(str(i), i) for i in range(5)] == [here.create(str(i), i) for i in range(5)]
