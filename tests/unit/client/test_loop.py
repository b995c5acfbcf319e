"""Tests of the synchronous clients, which share one event loop in a thread."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from concurrent.futures import CancelledError, ThreadPoolExecutor

import pytest

from hopyard._net.server import Server
from hopyard.client.portal import LoopThread
from hopyard.v1 import experiment_pb2 as pb
from hopyard.v1 import experiment_pb2_grpc
from tests.timing import HANG_SECONDS

pytestmark = pytest.mark.quick

TWO = """
import sys, threading
from hopyard.client import Client

with Client(sys.argv[1]) as one, Client(sys.argv[1]) as other:
    def ask(client):
        for _ in range(100):
            assert client.experiments() == []
    threads = [threading.Thread(target=ask, args=(client,)) for client in (one, other)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
"""


class Empty(experiment_pb2_grpc.ExperimentServiceServicer):
    """Serves a cluster without experiments."""

    async def ListExperiments(self, request: pb.ListExperimentsRequest, context: object) -> pb.ListExperimentsResponse:
        return pb.ListExperimentsResponse()


async def said_by(program: str) -> tuple[str, str]:
    """Run a Python program that calls an empty cluster. Return its standard output and its standard error."""
    server = Server("test")
    servicer = Empty()  # type: ignore[abstract]  # the others are not called
    server.add(experiment_pb2_grpc.add_ExperimentServiceServicer_to_server, servicer, "hopyard.v1.ExperimentService")
    address = await server.start()
    try:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", program, address, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        said, complaints = await process.communicate()
    finally:
        await server.stop(1.0)
    assert process.returncode == 0, complaints.decode()
    return said.decode(), complaints.decode()


@pytest.mark.merge
async def test_two_clients_in_two_threads_say_nothing() -> None:
    assert await said_by(TWO) == ("", "")


async def here() -> threading.Thread:
    return threading.current_thread()


def test_all_share_one_thread_which_ends_with_the_last_of_them() -> None:
    one, other = LoopThread(), LoopThread()
    thread = one.run(here())
    assert other.run(here()) is thread
    one.close()
    one.close()
    assert other.run(here()) is thread
    other.close()
    assert not thread.is_alive()
    assert one.run(here()) is not thread
    one.close()


def test_closing_one_cancels_what_it_runs_and_nothing_else() -> None:
    one, other = LoopThread(), LoopThread()
    begun, go = threading.Event(), asyncio.Event()

    async def wait() -> str:
        begun.set()
        await go.wait()
        return "went on"

    with ThreadPoolExecutor(2) as threads:
        kept = threads.submit(other.run, wait())
        assert begun.wait(HANG_SECONDS)
        begun.clear()
        lost = threads.submit(one.run, wait())
        assert begun.wait(HANG_SECONDS)
        one.close()
        with pytest.raises(CancelledError):
            lost.result(HANG_SECONDS)

        async def say() -> None:
            go.set()

        other.run(say())
        assert kept.result(HANG_SECONDS) == "went on"
    other.close()


FORK = """
import os, sys
from hopyard.client import Client
from hopyard.study import Study

with Client(sys.argv[1]) as client, Study(client) as study:
    assert client.experiments() == []
    if not os.fork():
        for ask in (client.experiments, Client(sys.argv[1]).experiments, lambda: study.open("a")):
            try:
                ask()
            except Exception as error:
                print(str(error).split(":")[0].replace(str(os.getpid()), "2").replace(str(os.getppid()), "1"), flush=True)
        client.close()
        os._exit(0)  # What gRPC does at the end of a process may wait for threads that are not there.
    os.wait()
    assert client.experiments() == []
"""


@pytest.mark.merge
async def test_a_process_that_was_forked_off_is_told_that_it_cannot_ask() -> None:
    said, _ = await said_by(FORK)  # gRPC itself warns of the fork on standard error
    assert said.splitlines() == 3 * [
        "process 2 was forked from process 1, which already uses gRPC, so it cannot call a cluster"
    ]
