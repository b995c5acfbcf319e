"""The time of a good client's calls while other clients have 2,000 watches open on an experiment whose jobs report."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from contextlib import aclosing
from pathlib import Path
from typing import Any, Final

from figures.cluster import NOOP, embedded, noop_spec
from figures.frame import Sample
from figures.timing import percentile
from hopyard._net.auth import CallerKind, SecretsFolder, new_token
from hopyard._net.auth.tokens import digest
from hopyard.client import AsyncClient
from hopyard.client.types import Job, JobState

WATCHES: Final = 2000
TOKENS: Final = 8
"""Tokens of the watching clients in the second measurement; with one token, the server refuses most of the watches."""

CALLS: Final = 1000
PACE: Final = 0.02

_WATCHERS: Final = """
import asyncio, json, os, sys
from collections import Counter
from hopyard._net.rpc import channel
from hopyard.v1 import experiment_pb2, experiment_pb2_grpc

async def main(address, experiment, watches, tokens):
    codes, messages = Counter(), 0
    begun = [asyncio.Event() for _ in range(watches)]
    stubs = [experiment_pb2_grpc.ExperimentServiceStub(channel(address, token=token)) for token in tokens]

    async def watch(number):
        nonlocal messages
        stub = stubs[number % len(stubs)]
        try:
            async for _ in stub.WatchExperiment(experiment_pb2.WatchExperimentRequest(experiment=experiment)):
                messages += 1
                begun[number].set()
            codes["ended"] += 1
        except Exception as error:
            codes[type(error).__name__] += 1
        begun[number].set()

    tasks = [asyncio.create_task(watch(number)) for number in range(watches)]
    for one in begun:
        await one.wait()
    print(json.dumps(codes), flush=True)
    before = messages
    await asyncio.to_thread(sys.stdin.read)
    print(json.dumps([messages - before, codes]), flush=True)
    os._exit(0)  # Thousands of open calls take long to be cancelled.

given = json.loads(sys.stdin.readline())
asyncio.run(main(**given))
"""


async def measure(folder: Path) -> list[Sample]:
    """Return the 50th and 99th percentile in milliseconds, with watches of one token and of several."""
    secrets = SecretsFolder(folder / "data" / "secrets")
    secrets.path.parent.mkdir(mode=0o700)
    secrets.make()
    tokens = [new_token(CallerKind.USER) for _ in range(TOKENS)]
    with (secrets.path / "accepted").open("a") as accepted:
        accepted.writelines(f"{token.kind} {token.id} {digest(token.text)}\n" for token in tokens)
    samples = []
    async with embedded(folder / "data", 2) as (_, client):
        paced = noop_spec(1000, 500, trainer="train.py:Paced")
        experiment = await client.create(paced, NOOP)
        await _running(client, experiment.id)
        address = (folder / "data" / "scheduler.address").read_text().strip()
        alone, one = await _beside(client, experiment.id, address, [tokens[0].text], 1)
        messages = one["messages a second to watches"]
        for name, used in (("one token", tokens[:1]), (f"{TOKENS} tokens", tokens)):
            found, beside = await _beside(client, experiment.id, address, [token.text for token in used])
            beside["messages a second to one watch alone"] = messages
            samples += [
                Sample(
                    name=f"call beside {WATCHES} watches of {name}, p{round(rank * 100)}",
                    value=percentile(found, rank),
                    unit="ms",
                    most=1000.0,
                    baseline=percentile(alone, rank),
                    against="the same calls with one watch",
                    beside=beside if rank == 0.5 else {},
                )
                for rank in (0.5, 0.99)
            ]
    return samples


async def _running(client: AsyncClient, experiment: str) -> None:
    """Wait until a job of an experiment runs."""
    async with aclosing(client.watch(experiment)) as changes:
        async for change in changes:
            if isinstance(change, Job) and change.state is JobState.RUNNING:
                return


async def _beside(
    client: AsyncClient, experiment: str, address: str, tokens: list[str], watches: int = WATCHES
) -> tuple[list[float], dict[str, float]]:
    """Return the milliseconds of calls while watches are open, and numbers of the watches."""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", _WATCHERS, stdin=pipe, stdout=pipe)
    assert process.stdin is not None
    assert process.stdout is not None
    given = {"address": address, "experiment": experiment, "watches": watches, "tokens": tokens}
    process.stdin.write(f"{json.dumps(given)}\n".encode())
    began = time.perf_counter()
    refused = json.loads(await process.stdout.readline())
    opened = time.perf_counter() - began
    began = time.perf_counter()
    found = await _times(client, experiment)
    seconds = time.perf_counter() - began
    process.stdin.close()
    messages, codes = json.loads(await process.stdout.readline())
    await process.wait()
    beside = {
        "watches refused": float(sum(refused.values())),
        "watches dropped later": float(sum(codes.values()) - sum(refused.values())),
        "seconds until all were open or refused": opened,
        "messages a second to watches": messages / seconds,
    }
    return found, beside


async def _times(client: AsyncClient, experiment: str) -> list[float]:
    """Return the milliseconds of calls that show the cluster, an experiment and its jobs."""
    calls: list[Any] = [client.cluster, lambda: client.get(experiment), lambda: client.jobs(experiment)]
    found = []
    for number in range(CALLS):
        began = time.perf_counter()
        await calls[number % len(calls)]()
        found.append((time.perf_counter() - began) * 1e3)
        await asyncio.sleep(PACE)
    return found
