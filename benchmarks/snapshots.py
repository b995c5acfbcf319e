"""What does it cost to suspend and to resume a job, with process images (CRIU) and with the framework's own snapshots?

    python benchmarks/snapshots.py [--kinds trivial,numpy,cnn,workers,350MB] [--times 20] [--folder DIR] [--output FILE.json]

A script of each kind runs in an embedded cluster (one agent, one slot), and is suspended and resumed after every iteration. From the
journal: `free`: from the decision until the slot is free (the last message of the run was received); `stored`: from the decision until
the snapshot is stored; `ship`: the part of that after the slot was free; `resumed`: from the release of the slot until the script
trains again. From the job's log: `dump`, `pack` (with compression), `unpack` and `restore`, and the bytes of the images and of the
snapshot.

`framework` is the cnn with a checkpoint in each report, and a new process for each run; `trainer` is a trainer in a running process,
with 360 KB of state. The first suspension and the first resume are not counted. Targets: the trainer's median until free is below 25
ms, that of the 350 MB process below 1 s. For comparison, in HyperDrive's paper the framework's snapshots (360 KB) took 158 ms on
average and 219 ms at the 95th percentile, those by CRIU (43.75 MB) up to 22.4 s.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from figures.cluster import embedded, ended
from figures.frame import host
from figures.timing import TIMED, first_trained, journal, percentile, suspensions, timed_spec

PROGRAMS: Final = Path(__file__).parent / "snapshots"
KINDS: Final = "trivial,numpy,cnn,workers,350MB"
BESIDE: Final = ("framework", "trainer")
TARGETS: Final = {"trainer": 25.0, "350MB": 1000.0}
_DUMPED: Final = re.compile(
    r"hopyard: snapshot at position (\d+): (\d+) bytes dumped in ([0-9.]+) s, packed into (\d+) in ([0-9.]+) s"
)
_RESTORED: Final = re.compile(r"hopyard: restored at position (\d+): unpacked in ([0-9.]+) s, restored in ([0-9.]+) s")
_POLICY: Final = {"name": "figures.policies:EachIteration", "suspend": True}
_COLUMNS: Final = ("free", "stored", "ship", "resumed", "dump", "pack", "unpack", "restore")


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure each kind, print a table, and write the figures to a file. Return 1 if a target is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kinds", default=KINDS)
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("--folder", type=Path, help="where the cluster keeps its files; none: where temporary files go")
    parser.add_argument("--output", type=Path)
    given = parser.parse_args(arguments)
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(PROGRAMS.parent), os.environ.get("PYTHONPATH", "")]))
    rows = []
    for kind in (*given.kinds.split(","), *BESIDE):
        with tempfile.TemporaryDirectory(dir=given.folder) as folder:
            rows.append(asyncio.run(_measure(kind, given.times, Path(folder))))
        sys.stdout.write(_shown(rows[-1]))
        sys.stdout.flush()
    if given.output is not None:
        given.output.write_text(json.dumps({"host": host(), "rows": rows}, indent=1) + "\n")
    return 0 if all(row["met"] is not False for row in rows) else 1


async def _measure(kind: str, times: int, folder: Path) -> dict[str, Any]:
    async with embedded(folder / "data", 1) as (_, client):
        spec, code = _spec(kind, times)
        experiment = await client.create(spec, code)
        await ended(client, experiment, 1800.0)
        trained = first_trained(await client.statistics(experiment))
    log = next((folder / "data").rglob("logs/jobs/*/*.log")).read_text(errors="replace")
    counted = range(2, times + 2)
    spent = _spans(folder / "data" / "appstat.sqlite", trained, counted)
    dumps = [found for found in _DUMPED.finditer(log) if int(found[1]) in counted]
    restores = [found for found in _RESTORED.finditer(log) if int(found[1]) in counted]
    spent |= {
        "dump": [float(found[3]) * 1e3 for found in dumps],
        "pack": [float(found[5]) * 1e3 for found in dumps],
        "unpack": [float(found[2]) * 1e3 for found in restores],
        "restore": [float(found[3]) * 1e3 for found in restores],
    }
    free = percentile(spent["free"], 0.5)
    return {
        "kind": kind,
        "times": times,
        "raw_bytes": round(_mean(int(found[2]) for found in dumps)),
        "packed_bytes": round(_mean(int(found[4]) for found in dumps)) or _size(folder / "data" / "appstat.sqlite"),
        "milliseconds": {name: _parts(values) for name, values in spent.items() if values},
        "met": free < TARGETS[kind] if kind in TARGETS else None,
    }


def _spec(kind: str, times: int) -> tuple[Mapping[str, Any], Path]:
    if kind == "trainer":
        spec = dict(timed_spec(1, times + 2, 0.05, policy=_POLICY, trainer="train.py:Heavy"))
        spec["space"] = {**spec["space"], "size": {"constant": 360_000}}
        return spec, TIMED
    framework = kind == "framework"
    command = ["python", "programs.py", "cnn", "--checkpoint"] if framework else ["python", "programs.py", kind]
    return {
        "name": kind,
        "command": command,
        "metric": {"name": "began", "mode": "max"},
        "space": {"x": {"constant": 1.0}},
        "policy": _POLICY,
        "stop": {"jobs": 1, "max_iterations": times + 2},
        "snapshot": {"provider": "framework" if framework else "criu", "every": 1_000_000, "keep_best": 0},
    }, PROGRAMS


def _spans(database: Path, trained: Mapping[tuple[str, int], float], counted: range) -> dict[str, list[float]]:
    """Return the milliseconds of each suspension: `free`, `stored`, `ship` and `resumed`, as described in the module docstring."""
    decided, free, stored = suspensions(database)
    return {
        "free": [(free[n] - decided[n]) * 1e3 for n in counted],
        "stored": [(stored[n] - decided[n]) * 1e3 for n in counted if n in stored],
        "ship": [max(stored[n] - free[n], 0.0) * 1e3 for n in counted if n in stored],
        "resumed": [(trained[("1", n + 1)] - free[n]) * 1e3 for n in counted],
    }


def _size(database: Path) -> int:
    """Return the bytes of the last snapshot with which a run ended; 0: there is none."""
    sizes = [
        event["body"]["snapshot"]["size"]
        for _, kind, event in journal(database)
        if kind == "RunMessage" and event["body"]["is"] == "Ended" and event["body"].get("snapshot")
    ]
    return int(sizes[-1]) if sizes else 0


def _parts(values: Sequence[float]) -> dict[str, float]:
    return {"p50": percentile(values, 0.5), "p95": percentile(values, 0.95), "max": max(values)}


def _mean(values: Iterable[int]) -> float:
    found = list(values)
    return sum(found) / len(found) if found else 0.0


def _shown(row: Mapping[str, Any]) -> str:
    lines = [f"{row['kind']}: images {row['raw_bytes'] / 1e6:.1f} MB, snapshot {row['packed_bytes'] / 1e6:.2f} MB"]
    spent = row["milliseconds"]
    for name in _COLUMNS:
        if name in spent:
            parts = "  ".join(f"{part} {value:7.1f}" for part, value in spent[name].items())
            lines.append(f"  {name:8} ms  {parts}")
    if row["met"] is not None:
        lines.append(f"  target {TARGETS[row['kind']]:g} ms until free: {'met' if row['met'] else 'MISSED'}")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    raise SystemExit(main())
