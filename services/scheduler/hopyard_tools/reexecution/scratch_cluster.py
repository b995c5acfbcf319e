"""A temporary cluster on this computer that repeats chains of recorded runs."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any, Final

from hopyard._runtime.bundle import unpack
from hopyard._runtime.gpus import GpuOptions
from hopyard._runtime.gpus.selection import NONE
from hopyard.client import AsyncClient
from hopyard.client.datasets import DataPartition, DataReplica
from hopyard.client.local_cluster.embedded import NODE, EmbeddedCluster
from hopyard.client.submission import Submission
from hopyard.client.types import Experiment, ExperimentState, JobReport
from hopyard.errors import Conflict, InvalidInput, NotFound
from hopyard.spec import canonical_json, parse_spec
from hopyard.spec.models import MAX_REPORTS
from hopyard_scheduler.experiments.program import ExperimentProgram
from hopyard_tools.commands.journal_source import reading
from hopyard_tools.reexecution.chains import TrainingChain
from hopyard_tools.reexecution.extract import Recorded

_POLICY: Final = "hopyard_tools.reexecution.recorded_policy:RecordedPolicy"

Told = Callable[[int, str], None]
"""Receives the number of reports so far and the reason for waiting; empty: it is not waiting."""


async def train_again(
    chains: Sequence[TrainingChain],
    program: ExperimentProgram,
    data: Sequence[DataPartition],
    folder: Path,
    *,
    bundle: Path | None,
    slots: int,
    cpus: int,
    told: Told,
) -> Recorded:
    """Repeat chains of recorded runs with their recorded program, on CPUs of this computer.

    Args:
        chains: The chains to train, at least one with training.
        program: The program of the experiment.
        data: The partitions of its data, from `partitions_here`; empty: none.
        folder: An existing folder for all files, which may be deleted afterwards.
        bundle: The file with the code bundle; None: the experiment has no code.
        slots: The number of slots, each for one process of a run; at least the number of ranks of the largest gang.
        cpus: CPU threads of each slot.
        told: Called with the number of reports so far and the reason for waiting (empty: it is not waiting).

    Returns:
        The runs and results in the journal of the temporary cluster.

    Raises:
        InvalidInput: The code or the data differ from those of the experiment.
        Conflict: The temporary experiment was paused. The message has the reason.
        Unavailable: A service of the cluster ended.
    """
    code = None
    if bundle is not None:
        code = folder / "code"
        await asyncio.to_thread(unpack, bundle, code, program.bundle)
    plan = folder / "plan.json"
    plan.write_text(json.dumps([chain.plain() for chain in chains]), encoding="utf-8")
    given = spec_again(program, chains, plan)
    submission = Submission(json.dumps(given), "experiment", parse_spec(given), code)
    cluster = EmbeddedCluster(
        folder / "cluster", slots=slots, cpus=cpus, gpus=GpuOptions(NONE), purpose="hopyard replay --execute"
    )
    try:
        async with AsyncClient(await cluster.start()) as client:
            if data:
                await _register(client, given["data"], data)
            training = asyncio.create_task(_train(client, submission, program.bundle, told), name="training again")
            died = asyncio.create_task(cluster.died(), name="cluster")
            try:
                await asyncio.wait((training, died), return_when=asyncio.FIRST_COMPLETED)
                if not training.done():
                    died.result()
                return await _read(client, training.result())
            finally:
                for task in (training, died):
                    task.cancel()
                await asyncio.gather(training, died, return_exceptions=True)
    finally:
        await cluster.stop()


def spec_again(program: ExperimentProgram, chains: Sequence[TrainingChain], plan: Path) -> dict[str, Any]:
    """Return the specification of the experiment that repeats chains of recorded runs, as JSON values.

    The training is that of the recorded experiment. All decisions come from the file `plan`.

    Args:
        program: The program of the recorded experiment.
        chains: The chains to repeat, at least one with training.
        plan: The file with the chains, which the policy `RecordedPolicy` reads.
    """
    given: dict[str, Any] = json.loads(canonical_json(program.spec))
    last = max(stretch.end for chain in chains for stretch in chain.stretches)
    given |= {
        "interpreter": program.to_proto().interpreter or None,
        "policy": {"name": _POLICY, "plan": str(plan)},
        "generator": {"name": "random"},
        # No job reaches its max position, so that it can be evaluated and continued anywhere.
        "stop": {
            **given["stop"],
            "jobs": sum(chain.origin is None for chain in chains),
            "max_iterations": last + 1,
            "max_time": None,
        },
        "snapshot": {**given["snapshot"], "ship_every": 0, "keep_latest": 1, "keep_best": 0, "quota": None},
        "resources": {**given["resources"], "slots": None, "concurrency": None},
        "share": None,
    }
    # A pause because of a missing metric would leave the recorded path.
    given["metric"] |= {"target": None, "target_over": 1, "kill_threshold": None, "every": MAX_REPORTS}
    del given["predictor"]  # Not used, so it need not be installed.
    return given


def partitions_here(recorded: Recorded) -> list[DataPartition]:
    """Return the partitions of an experiment's data, each with a path on this computer or its URL.

    The path is the first existing one of those at which nodes had a replica. The content is not compared here. The list is
    empty if the experiment has no partitioned data.

    Args:
        recorded: The journal of the experiment, with the places of the replicas.

    Raises:
        NotFound: Files of partitions are missing on this computer. The message lists them with their recorded places.
    """
    found, missing = [], []
    for name, one in recorded.data.items():
        if one.url:
            found.append(DataPartition(name, one.size, one.sha256, one.examples, url=one.url))
            continue
        paths = dict.fromkeys(recorded.places[name].values())
        here = next((path for path in paths if Path(path).exists()), None)
        if here is None:
            were = ", ".join(f"{node}:{path}" for node, path in sorted(recorded.places[name].items())) or "nowhere"
            missing.append(f"{name} is not on this computer; it was {were}")
        else:
            found.append(DataPartition(name, one.size, one.sha256, one.examples, (DataReplica(NODE, here),)))
    if missing:
        raise NotFound("\n".join(missing) + "\ncopy it to the same path here, or train again where it is")
    return found


async def _register(client: AsyncClient, name: str, data: Sequence[DataPartition]) -> None:
    registered = await client.register_data(name, data)
    wanted = {one.name: one for one in data}
    wrong = [
        f"{one.name}: {wanted[one.name].replicas[0].path} has the hash {one.sha256}, and the experiment was trained on "
        f"{wanted[one.name].sha256}"
        for one in registered.partitions
        if one.sha256 != wanted[one.name].sha256
    ]
    if wrong:
        raise InvalidInput("\n".join(wrong))


async def _train(client: AsyncClient, submission: Submission, bundle: str, told: Told) -> Experiment:
    created = await client.create(submission)
    if created.bundle != bundle:
        raise InvalidInput(f"the code was packed as {bundle}, and is packed as {created.bundle} here")
    seen: set[tuple[str, int, str]] = set()
    reason = ""
    async with aclosing(client.watch(created)) as changes:
        async for change in changes:
            if isinstance(change, JobReport):
                seen.add((change.job, change.report.position, change.report.part))
            elif isinstance(change, Experiment):
                if change.state is ExperimentState.PAUSED:
                    raise Conflict(f"the repeated training stopped: {change.reason}")
                reason = change.reason if change.state is ExperimentState.RUNNING else ""
            told(len(seen), reason)
    return created


async def _read(client: AsyncClient, experiment: Experiment) -> Recorded:
    again = Recorded()
    async with reading(client, experiment) as source, aclosing(source.read()) as events:
        async for _, event in events:
            again.take(event)
    return again
