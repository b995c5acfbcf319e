"""Checks a running cluster, and runs a complete search on a temporary cluster."""

from __future__ import annotations

import asyncio
import tempfile
import time
from pathlib import Path
from typing import Final

from hopyard._common import formatting
from hopyard.cli.doctor.check_result import Finding, ok, problem
from hopyard.client.async_client import AsyncClient
from hopyard.client.types import Experiment, ExperimentState, JobReport
from hopyard.errors import HopyardError, InvalidInput, Unauthenticated

MOST_SECONDS_APART: Final = 1.0  # the largest harmless difference between two clocks
SELF_TEST_SECONDS: Final = 180.0

_TRAINER: Final = """
from hopyard import Trainer


class Parabola(Trainer):
    def setup(self, hyperparameters, changed):
        self.x, self.lr = 1.0, hyperparameters["lr"]

    def train(self):
        self.x -= self.lr * 2 * self.x
        return {"loss": self.x**2}

    def save(self, directory):
        (directory / "x").write_text(repr(self.x))

    def load(self, directory):
        self.x = float((directory / "x").read_text())
"""
_SPEC: Final = """
name: self-test
trainer: train.py:Parabola
metric: {name: loss, mode: min}
space: {lr: {choice: [0.1, 0.4]}}
generator: grid
stop: {jobs: 2, max_iterations: 3, max_failures: 0}
"""


async def server(address: str, data: Path | None = None) -> list[Finding]:
    """Check the running cluster whose scheduler is at `address`.

    It reports the version, the nodes, a problem that blocks the cluster, and the difference between the scheduler's clock and
    this host's. If the scheduler is not reachable, the only finding has the error.

    Args:
        address: The address.
        data: The data directory whose address file contains the address; None: the address was given.
    """
    try:
        found_by = AsyncClient(address, patience=3.0) if data is None else AsyncClient(data=data, patience=3.0)
        async with found_by as client:
            before = time.time()
            cluster = await client.cluster()
            after = time.time()
            nodes = await client.nodes()
    except (Unauthenticated, InvalidInput) as error:  # The message says what to do.
        return [problem("server", str(error), "hopyard connection shows which token is used", needed=True)]
    except HopyardError as error:
        advice = "check that it runs and that the address is right; hopyard up prints it"
        return [problem("server", str(error), advice, needed=True)]
    slots = sum(len(node.slots) for node in nodes)
    there = f"{formatting.count(len(nodes), 'node')}, {formatting.count(slots, 'slot')}"
    found = [ok("server", f"{address}: hopyard {cluster.version}, {there}", needed=True)]
    if cluster.trouble:
        found[0] = problem("server", f"{address}: {cluster.trouble}", "the cluster continues when this is fixed")
    if cluster.now is not None:
        apart = cluster.now - (before + after) / 2
        detail = f"the server's clock is {abs(apart):.2f} s {'ahead' if apart > 0 else 'behind'} (+-{(after - before) / 2:.2f} s)"
        if abs(apart) - (after - before) / 2 > MOST_SECONDS_APART:
            found.append(
                problem(
                    "clocks", detail, "synchronize both with NTP (chrony), or times in reports and logs will differ"
                )
            )
        else:
            found.append(ok("clocks", detail))
    return found


async def self_test(limit: float = SELF_TEST_SECONDS) -> Finding:
    """Run a tiny search without torch on a temporary cluster, and return a finding with its times, or with the error.

    The times are those until the cluster serves, until the first report, and until the end.

    Args:
        limit: Maximum duration in seconds, after which the outcome is PROBLEM.
    """
    name, advice = "self-test", "hopyard run shows the same error; the message above names the failure"
    begin = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="hopyard-doctor-") as scratch:
        folder = Path(scratch)
        code = folder / "code"
        code.mkdir()
        (code / "train.py").write_text(_TRAINER)
        try:
            async with asyncio.timeout(limit):
                async with AsyncClient.local(folder / "data", slots=1, gpus="none") as client:
                    up = time.monotonic() - begin
                    first, end = await _search(client, code, begin)
        except TimeoutError:
            return problem(name, f"not done after {limit:g} s", "the computer may be very busy; try again", needed=True)
        except (HopyardError, OSError) as error:
            return problem(name, str(error), advice, needed=True)
    if end.state is not ExperimentState.COMPLETED:
        return problem(name, f"the search ended {end.state.value}: {end.reason}", advice, needed=True)
    whole = time.monotonic() - begin
    detail = f"a search of 2 jobs: cluster up after {up:.1f} s, first metric after {first:.1f} s, all over after {whole:.1f} s"
    return ok(name, detail, needed=True)


async def _search(client: AsyncClient, code: Path, begin: float) -> tuple[float, Experiment]:
    """Run the self-test's search until its end.

    Args:
        client: The client of the temporary cluster.
        code: The folder of the training code.
        begin: Start of the self-test in monotonic seconds.

    Returns:
        Seconds from `begin` to the first report (0: no report), and the experiment after its end.
    """
    experiment = await client.create(_SPEC, code)
    first = 0.0
    async for change in client.watch(experiment):
        if isinstance(change, JobReport) and not first:
            first = time.monotonic() - begin
    return first, await client.get(experiment)
