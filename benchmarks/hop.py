"""What does a model hop cost, compared with the time to write and read the model's bytes on disk?

    python benchmarks/hop.py [--sizes 4KB,50MB] [--kinds bytes,torch] [--units 20] [--jobs 1] [--folder DIR] [--legs]
                             [--output FILE.json]

Two agents on one host, each with its own folder and one slot, run under `hopyard up`. The policy sends each job to the other node after
every unit, so its model moves between the agents. `ship_every` is 0, so nothing is uploaded to the store before the end. A hop lasts
from the end of a unit until the next one begins on the other node, by the clocks of the training processes: saving, packing, hashing,
the scheduler, the transfer, creating the new model meanwhile, and loading. The kind `bytes` is a model of plain bytes; `torch` is one
matrix with SGD, saved by the handler. The baseline is measured between the hops, by the same processes in the same folder: writing the
snapshot's bytes to a file, fsync, reading them, and SHA-256. Target at 50 MB: the median is at most 1.5 times the baseline's. The first
hops, which start processes, are not counted. The moved bytes are compared with units x size, plus one copy of each job in the store.
`--legs` adds the median of each phase of a hop.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from statistics import median, quantiles
from typing import Any, Final, TypeAlias

from figures.cluster import ended, up
from figures.frame import host

from hopyard._net.auth import CallerKind, find_token
from hopyard._net.rpc import channel
from hopyard.client import AsyncClient
from hopyard.client.types import Experiment, Statistic
from hopyard.v1 import appstat_pb2, appstat_pb2_grpc
from hopyard_engine.core.events import Ended, RunMessage, SnapshotTaken
from hopyard_engine.journal.codec import event_of
from hopyard_scheduler.runtime.journal import stored

Hop: TypeAlias = tuple[str, int]
Times: TypeAlias = dict[str, float]

PROGRAM: Final = Path(__file__).parent / "hop"
SIZES: Final = {"4KB": 4096, "50MB": 50_000_000}
TARGET: Final = 1.5
LEGS: Final = {
    "ended": "",
    "saving": "the trainer's report",
    "saved": "its `save`",
    "taken": "naming it by its hash, and saying so",
    "told": "the run's end",
    "ordered": "the scheduler's decision, its journal, the order",
    "building": "what precedes the trainer",
    "loading": "the transfer, and making the model meanwhile",
    "loaded": "its `load`",
    "began": "the rest",
}
"""The moments from the end of a unit to the start of the next one, each with what happens before it."""
_WARM: Final = 4
"""Number of hops that are not counted, in which the processes of both nodes start and import modules."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure each size and kind, print a table, and write the figures to a file. Return 1 if a target is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="4KB,50MB")
    parser.add_argument("--kinds", default="bytes,torch")
    parser.add_argument("--units", type=int, default=20)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--folder", type=Path, help="where the agents keep their files; none: where temporary files go")
    parser.add_argument("--legs", action="store_true", help="what the hops consist of")
    parser.add_argument("--output", type=Path)
    given = parser.parse_args(arguments)
    rows = []
    for size in given.sizes.split(","):
        for kind in given.kinds.split(","):
            with tempfile.TemporaryDirectory(prefix="hopyard-hop-", dir=given.folder) as folder:
                rows.append(asyncio.run(measure(Path(folder), size, kind, given.units, given.jobs)))
            _say(rows[-1])
            if given.legs:
                _say_legs(rows[-1]["legs"])
    if given.output is not None:
        given.output.write_text(json.dumps({"host": host(), "hops": rows}, indent=2) + "\n")
    return 0 if all(row["met"] for row in rows) else 1


async def measure(folder: Path, size: str, kind: str, units: int, jobs: int) -> dict[str, Any]:
    """Return the figures of one size and kind of model."""
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(PROGRAM), os.environ.get("PYTHONPATH", "")]))
    spec = {
        "name": f"hop-{kind}",
        "trainer": "weights.py:Hop",
        "metric": {"name": "score", "mode": "max"},
        "space": {"size": SIZES[size], "kind": kind, "marks": str(folder / "marks"), "x": {"uniform": [0.0, 1.0]}},
        "policy": {"name": "tour:Tour"},
        "stop": {"jobs": jobs, "max_iterations": units},
        "snapshot": {"every": 1, "keep_best": 0},
        "unit": "units",
    }
    async with up(folder / "cluster", agents=2, slots=1) as (_, client):
        experiment = await client.create(spec, PROGRAM)
        found = await ended(client, experiment)
        statistics = await client.statistics(found)
        snapshot = (await client.jobs(found))[0].snapshots[-1].size_bytes
        told = await _told(client, found)
    hops, disk = [], []
    for job in {one.job for one in statistics}:
        units_of = [one.report.metrics for one in statistics if one.job == job]
        hops += [after["began"] - before["ended"] for before, after in pairwise(units_of)][_WARM:]
        disk += [one["disk"] for one in units_of][_WARM:]
    moved, expected = found.hops.direct_bytes + found.hops.stored_bytes, jobs * (units - 1) * snapshot + jobs * snapshot
    ratio = median(hops) / median(disk)
    return {
        "size": size,
        "kind": kind,
        "snapshot_bytes": snapshot,
        "hops": len(hops),
        "hop_p50": median(hops),
        "hop_p90": quantiles(hops, n=10)[-1],
        "disk_p50": median(disk),
        "disk_p90": quantiles(disk, n=10)[-1],
        "ratio": ratio,
        "legs": _legs(_times(folder, statistics, told)),
        "direct": found.hops.direct,
        "direct_bytes": found.hops.direct_bytes,
        "fetched_bytes": found.hops.fetched_bytes,
        "stored_bytes": found.hops.stored_bytes,
        "bytes_against_expected": moved / expected,
        "met": (size != "50MB" or ratio <= TARGET) and abs(moved / expected - 1) <= 0.02 and not found.hops.fetched,
    }


async def _told(client: AsyncClient, experiment: Experiment) -> dict[Hop, Times]:
    """Return when the scheduler received the messages that a unit was saved (`taken`) and that its run had ended (`told`)."""
    found: dict[Hop, Times] = defaultdict(dict)
    address = (await client.cluster()).appstat_address
    async with channel(address, token=find_token(CallerKind.SERVICE, address)) as opened:
        stub: appstat_pb2_grpc.AppStatServiceAsyncStub = appstat_pb2_grpc.AppStatServiceStub(opened)
        async for response in stub.ReadJournal(appstat_pb2.ReadJournalRequest(stream=experiment.id)):
            for record in response.records:
                match event_of(stored(record)):
                    case RunMessage(at=at, job=job, body=SnapshotTaken(snapshot=snapshot)):
                        found[job, snapshot.position]["taken"] = at
                    case RunMessage(at=at, job=job, body=Ended(position=position)):
                        found[job, position]["told"] = at
                    case _:
                        pass
    return found


def _times(folder: Path, statistics: Sequence[Statistic], told: dict[Hop, Times]) -> dict[Hop, Times]:
    """Return the times of all moments (keys of LEGS) by hop. A hop is a job and the position after which it moves."""
    times = told
    for one in statistics:
        times[one.job, one.report.position]["ended"] = one.report.metrics["ended"]
        times[one.job, one.report.position - 1]["began"] = one.report.metrics["began"]
    for line in (folder / "marks").read_text().splitlines():
        mark = json.loads(line)
        times[mark.pop("job"), mark.pop("position")].update(mark)
    starts: dict[str, list[float]] = defaultdict(list)
    for record in folder.glob("cluster/agent-*/logs/commands.jsonl"):
        for command in map(json.loads, record.read_text().splitlines()):
            if command["kind"] == "start":
                starts[command["run"][1]].append(command["at"])
    for job, ordered in starts.items():
        for position, at in enumerate(sorted(ordered)):
            times[job, position]["ordered"] = at
    return times


def _legs(times: dict[Hop, Times]) -> dict[str, float]:
    """Return the median duration in seconds between each two consecutive moments, over the hops that are counted."""
    whole = [one for (_, position), one in sorted(times.items()) if position > _WARM and one.keys() >= {*LEGS}]
    return {f"{a} - {b}": median(one[b] - one[a] for one in whole) for a, b in pairwise(LEGS)}


def _say_legs(legs: dict[str, float]) -> None:
    for leg, seconds in legs.items():
        sys.stdout.write(f"{leg:>22}: {1000 * seconds:7.1f} ms, {LEGS[leg.split(' - ')[1]]}\n")
    sys.stdout.flush()


def _say(row: dict[str, Any]) -> None:
    sys.stdout.write(
        f"{row['size']:>5} {row['kind']:>6}: hop p50 {1000 * row['hop_p50']:7.1f} ms, p90 {1000 * row['hop_p90']:7.1f} ms; "
        f"write + fsync + read + hash p50 {1000 * row['disk_p50']:7.1f} ms; ratio {row['ratio']:.2f}; "
        f"{row['direct']} direct hops, bytes / expected {row['bytes_against_expected']:.4f}, "
        f"by the store {row['fetched_bytes']}; {'met' if row['met'] else 'MISSED'}\n"
    )
    sys.stdout.flush()


if __name__ == "__main__":
    raise SystemExit(main())
