"""Tests that mistakes and attacks of clients get INVALID_ARGUMENT, not INTERNAL, and that large texts do not block the event loop."""

from __future__ import annotations

import asyncio
import hashlib
import io
import tarfile
import threading
from pathlib import Path
from typing import Any

import pytest
import zstandard

from hopyard.client import AsyncClient
from hopyard.client.transfer.blobs import BUNDLE_OWNER
from hopyard.errors import InvalidInput
from hopyard.v1 import appstat_pb2, appstat_pb2_grpc, experiment_pb2, hpgen_pb2
from hopyard_hpgen import servicer as hpgen_servicer
from hopyard_hpgen.host import GeneratorHost
from hopyard_scheduler.experiments import spec_thread
from tests.access import channel_as
from tests.integration.scheduler.conftest import Stubs, experiment

HEAD = "name: x\ncommand: ['true']\nmetric: {name: m, mode: max}\nstop: {jobs: 1, max_iterations: 1}\n"


def create(spec: str, bundle: str = "") -> experiment_pb2.CreateExperimentRequest:
    return experiment_pb2.CreateExperimentRequest(spec=spec, source="x.yaml", bundle=bundle, request_id="r")


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (HEAD + f"space: {{x: {{choice: [1, {'9' * 200_000}]}}}}", "needs a number that a double can hold"),
        (HEAD + "space: " + "[" * 100_000, "nested too deeply"),
        ("a: &a [1, 1, 1, 1, 1, 1, 1, 1]\nb: &b [*a, *a, *a, *a, *a, *a, *a, *a]\nc: [*b, *b, *b]", "unknown field"),
        ("x: " + "y" * 10_000_000, "needs at most 1048576 characters"),
        (
            HEAD + f"generator: grid\nspace: {{{', '.join(f'x{n}: {{choice: [0, 1, 2, 3]}}' for n in range(40))}}}",
            r"grid can have at most 2\^62 points, found 2\^80 or more",
        ),
        (f"name: {'n' * 1_000_000}\n", "name: needs 1 to 100 letters"),
        (HEAD + "space: {x: {uniform: [0, .inf]}}\nweight: .nan", "finite"),
    ],
)
async def test_hostile_specifications_are_refused(stubs: Stubs, spec: str, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        await stubs.experiments.CreateExperiment(create(spec))


async def test_a_bundle_with_a_link_is_refused_by_name(client: AsyncClient, stubs: Stubs, tmp_path: Path) -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        link = tarfile.TarInfo("secret")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(link)
    data = zstandard.compress(buffer.getvalue())
    sha256 = hashlib.sha256(data).hexdigest()
    cluster = await client.cluster()
    async with channel_as("service", cluster.appstat_address) as opened:
        appstat: appstat_pb2_grpc.AppStatServiceAsyncStub = appstat_pb2_grpc.AppStatServiceStub(opened)
        await appstat.PutBlob(iter([appstat_pb2.PutBlobRequest(sha256=sha256, owner=BUNDLE_OWNER, data=data)]))
    spec = HEAD + "space: {x: {uniform: [0, 1]}}\npolicy: stage_tree"
    with pytest.raises(
        InvalidInput, match="bundle: it is no bundle: member 'secret' is a symbolic link; allowed: plain files"
    ):
        await stubs.experiments.CreateExperiment(create(spec, sha256))


async def test_specifications_are_parsed_in_a_thread_one_at_a_time(
    stubs: Stubs, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: set[int] = set()
    inside = most = 0

    def watched(function: Any) -> Any:
        def call(*args: Any) -> Any:
            nonlocal inside, most
            threads.add(threading.get_ident())
            inside += 1
            most = max(most, inside)
            try:
                return function(*args)
            finally:
                inside -= 1

        return call

    for name in ("load_spec", "placed", "program_of"):
        monkeypatch.setattr(spec_thread, name, watched(getattr(spec_thread, name)))
    requests = [create(HEAD + f"space: {{x: {{uniform: [0, {n}]}}}}") for n in range(1, 4)]
    for number, request in enumerate(requests):
        request.request_id = f"r{number}"
    await asyncio.gather(*map(stubs.experiments.CreateExperiment, requests))
    with pytest.raises(InvalidInput):
        await stubs.experiments.CreateExperiment(create(HEAD))
    assert threads
    assert threading.get_ident() not in threads
    assert most == 1


async def test_the_generator_service_parses_specifications_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[int] = []

    def noted(text: str) -> None:
        threads.append(threading.get_ident())
        raise InvalidInput("noted")

    servicer = hpgen_servicer.HpgenServicer(GeneratorHost())
    monkeypatch.setattr(hpgen_servicer, "spec_from_json", noted)
    monkeypatch.setattr(hpgen_servicer, "_LONGEST_SPEC", 10)
    with pytest.raises(InvalidInput, match="noted"):
        await servicer.OpenGenerator(hpgen_pb2.OpenGeneratorRequest(experiment="x", spec_json="{}"), None)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="spec_json: found 11 characters, allowed are 10"):
        await servicer.OpenGenerator(hpgen_pb2.OpenGeneratorRequest(experiment="x", spec_json="x" * 11), None)  # type: ignore[arg-type]
    assert len(threads) == 1
    assert threading.get_ident() not in threads


async def test_an_imported_bomb_is_refused(client: AsyncClient, stubs: Stubs, tmp_path: Path) -> None:
    await client.create(experiment(tmp_path / "e", jobs=1, length=1))  # The scheduler serves others meanwhile.
    data = zstandard.compress(bytes(64 * 2**20))
    sha256 = hashlib.sha256(data).hexdigest()
    async with channel_as("service", (await client.cluster()).appstat_address) as opened:
        appstat: appstat_pb2_grpc.AppStatServiceAsyncStub = appstat_pb2_grpc.AppStatServiceStub(opened)
        await appstat.PutBlob(iter([appstat_pb2.PutBlobRequest(sha256=sha256, owner="import", data=data)]))
    request = experiment_pb2.ImportExperimentRequest(journal=sha256, request_id="r")
    with pytest.raises(InvalidInput, match="journal: its content is more than 200 times as long"):
        await stubs.experiments.ImportExperiment(request)
