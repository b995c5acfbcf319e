"""The figure `decision`: the time from the end of an iteration in the training process to the start of the next one.

In between, the report is journalled and the policy decides that the run continues.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, AsyncExitStack
from pathlib import Path
from typing import Any, Final

import grpc.aio

from figures.cluster import cpu_seconds, embedded, ended
from figures.frame import Sample
from figures.timing import TIMED, percentile, timed_spec
from hopyard.client.address import find_server

RUNNERS: Final = 8
PACE: Final = 0.05
ITERATIONS: Final = 150
BUSY_ITERATIONS: Final = 250
WARM_UP: Final = 10
"""Number of iterations of each job that are not measured, because everything is done for the first time in them."""

POLICY: Final[Mapping[str, Any]] = {"name": "median", "evaluation_boundary": 1, "least_jobs": 1_000_000}
"""A built-in policy that decides after each iteration, and terminates no job."""

Serve = Callable[[str], AbstractContextManager[str]]

_ECHO: Final = """
import asyncio
import grpc.aio

async def echo(request, context):
    return request

async def main():
    server = grpc.aio.server()
    handler = grpc.unary_unary_rpc_method_handler(echo)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("bare", {"Echo": handler}),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(port, flush=True)
    await server.wait_for_termination()

asyncio.run(main())
"""


async def measure(folder: Path) -> list[Sample]:
    """Measure once: with iterations of 25 to 75 ms, as in real training, and also with iterations that take no time."""
    call = await _unary(400, PACE / RUNNERS)
    gaps, cpu = await gaps_of(folder / "paced", PACE, ITERATIONS)
    busy, _ = await gaps_of(folder / "busy", 0.0, BUSY_ITERATIONS)
    beside = {"CPU ms a decision, all processes": cpu * 1e3} | {
        f"{RUNNERS} runners that train nothing, {name}": percentile(busy, part) for name, part in _PARTS
    }
    return [
        Sample(
            name=f"{name}, {RUNNERS} runners",
            value=percentile(gaps, part),
            unit="ms",
            most=most,
            baseline=percentile(call, part),
            against="ms of a bare unary call",
            beside=beside if part == 0.5 else {},
        )
        for (name, part), most in zip(_PARTS, (3.0, 15.0), strict=True)
    ]


_PARTS: Final = (("p50", 0.5), ("p99", 0.99))


async def gaps_of(
    data: Path,
    pace: float,
    iterations: int,
    serve: Serve | None = None,
    *,
    name: str = POLICY["name"],
    code: Path = TIMED,
) -> tuple[list[float], float]:
    """Return the milliseconds between the iterations of all jobs, and the CPU seconds per decision.

    Args:
        data: Data folder of the cluster.
        pace: Mean duration of an iteration in seconds.
        iterations: Number of measured iterations of each job.
        serve: Returns a context in which a process serves the policy to the cluster at the given address, and which yields the policy's
            name. None: the scheduler runs the policy.
        name: Name of the policy, if the scheduler runs it: that of `POLICY`, or of a copy of its class.
        code: Code folder of the experiment.
    """
    async with AsyncExitStack() as stack:
        _, client = await stack.enter_async_context(embedded(data, RUNNERS))
        if serve is not None:
            name = stack.enter_context(serve(find_server(None, data).address))
        policy = {**POLICY, "name": name}
        spec = timed_spec(RUNNERS, WARM_UP, pace, uneven=True, policy=policy)
        experiment = await client.create(spec, code)
        await ended(client, experiment)
        used = cpu_seconds()
        experiment = await client.extend(experiment, max_iterations=WARM_UP + iterations)
        await ended(client, experiment)
        used = cpu_seconds() - used
        reports = [one.report for one in await client.statistics(experiment) if one.report.position > WARM_UP]
    gaps = [report.metrics["gap"] * 1e3 for report in reports if report.metrics["gap"] >= 0]
    assert len(gaps) == RUNNERS * (iterations - 1), f"{len(gaps)} decisions"
    return gaps, used / len(gaps)


async def _unary(calls: int, pause: float) -> list[float]:
    """Return the milliseconds of unary gRPC calls to another process, one at a time, with `pause` seconds between them."""
    pipe = asyncio.subprocess.PIPE
    server = await asyncio.create_subprocess_exec(sys.executable, "-c", _ECHO, stdin=pipe, stdout=pipe)
    try:
        assert server.stdout is not None
        port = int(await server.stdout.readline())
        found = []
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            call: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary("/bare/Echo")
            for _ in range(calls):
                began = time.perf_counter()
                await call(b"x" * 64)
                found.append((time.perf_counter() - began) * 1e3)
                await asyncio.sleep(pause)
    finally:
        server.kill()
        await server.wait()
    return found[10:]
