"""The command `hopyard replay --execute`: repeats the training of an experiment and compares the results bit for bit."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import aclosing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hopyard._common.formatting import count
from hopyard.errors import DataLoss, InvalidInput, NotFound
from hopyard.policy.vocabulary import ExperimentId
from hopyard.v1 import appstat_pb2
from hopyard_scheduler.experiments.program import program_of
from hopyard_tools.commands.journal_source import JournalSource, opened
from hopyard_tools.reexecution.chains import TrainingChain, chains_of
from hopyard_tools.reexecution.diff import JobComparison, compared, first
from hopyard_tools.reexecution.extract import Recorded
from hopyard_tools.reexecution.scratch_cluster import partitions_here, train_again

if TYPE_CHECKING:
    from rich.console import RenderableType

    from hopyard_scheduler.experiments.program import ExperimentProgram


async def execute(
    given: str | None, jobs: Collection[str], slots: int | None, server: str | None, data: Path | None, json: bool
) -> bool:
    """Perform the command: repeat the training of an experiment and print the comparison.

    Args:
        given: The experiment's id or name; None: the newest experiment.
        jobs: Ids of the jobs to repeat, including the training of other jobs from which they started; empty: all jobs.
        slots: The number of slots, each for one process of a run; None: as many as this computer's CPUs allow.
        server: Address of a running cluster's scheduler; None: the cluster is found by `data`.
        data: Data folder of a cluster; None: the default folder.
        json: Print one JSON document instead of a table.

    Returns:
        True if all results are equal.

    Raises:
        NotFound: The experiment, a job or a file does not exist.
        InvalidInput: The training cannot be repeated here. The message has the reason.
    """
    from hopyard.cli.output import emit, emit_json, say

    with tempfile.TemporaryDirectory(prefix="hopyard-replay-", ignore_cleanup_errors=True) as made:
        folder = Path(made)
        async with opened(server, data, given, "hopyard replay --execute") as source:
            name = source.experiment.id
            recorded = await _read(source)
            assert recorded.stream is not None
            experiment = recorded.stream.experiments[ExperimentId(name)]
            program = program_of(experiment.payload)
            bundle = await _fetch(source, program.bundle, folder / "bundle")
        chains = chosen(name, recorded, jobs, experiment.settings.snapshot_every)
        found: list[JobComparison] = []
        if chains:
            slots = slots_for(program, chains, slots)
            if note := gpu_note(chains):
                say(note)
            partitions = partitions_here(recorded) if program.spec.data is not None else []
            with _shown(name, chains, slots) as told:
                cpus = _cpus(program, slots)
                again = await train_again(
                    chains, program, partitions, folder, bundle=bundle, slots=slots, cpus=cpus, told=told
                )
            found = compared(chains, again)
    if json:
        emit_json(document(name, found))
    else:
        if found:
            emit(table(found))
        say(verdict(name, found))
    return first(found) is None


async def _read(source: JournalSource) -> Recorded:
    recorded = Recorded()
    async with aclosing(source.read()) as events:
        async for _, event in events:
            recorded.take(event)
    return recorded


async def _fetch(source: JournalSource, sha256: str, file: Path) -> Path | None:
    """Download the experiment's code bundle to a file and return the file; None: the experiment has no code.

    Args:
        source: The connection to the cluster.
        sha256: The hash of the bundle; empty: the experiment has no code.
        file: The file to write.

    Raises:
        DataLoss: The downloaded bytes have another hash.
    """
    if not sha256:
        return None
    digest = hashlib.sha256()
    with file.open("wb") as opened_file:
        async for part in source.stub.GetBlob(appstat_pb2.GetBlobRequest(sha256=sha256)):
            digest.update(part.data)
            opened_file.write(part.data)
    if digest.hexdigest() != sha256:
        raise DataLoss(f"the code {sha256} came with the hash {digest.hexdigest()}; try again")
    return file


def chosen(name: str, recorded: Recorded, jobs: Collection[str], every: int) -> list[TrainingChain]:
    """Return the chains to repeat: sequences of recorded runs, each started from a snapshot of the preceding run.

    Args:
        name: The id of the experiment.
        recorded: The runs of its stream.
        jobs: Ids of the jobs to repeat; empty: all jobs of the experiment.
        every: Positions between two automatic snapshots of a run; 0: there are no automatic snapshots.

    Raises:
        NotFound: A job does not exist.
        InvalidInput: A job started from the training of another experiment.
    """
    stream = recorded.stream
    assert stream is not None
    own = [job.id for job in stream.jobs.values() if job.experiment.id == name]
    if unknown := [job for job in jobs if job not in own]:
        raise NotFound(
            f"experiment {name} has no job {', '.join(map(repr, unknown))}; it has {', '.join(own) or 'none'}"
        )
    chains = chains_of(recorded.runs, every, jobs or own)
    runs = [stretch.run for chain in chains for stretch in chain.stretches]
    if other := next((run for run in runs if run.experiment != name), None):
        raise InvalidInput(
            f"experiment {name}: a job continues from job {other.job} of {other.experiment}, another experiment of its group, "
            "whose program may be different; select other jobs with --job"
        )
    runs += [run for chain in chains for run in chain.evaluations]
    if foreign := next((run for run in runs if run.foreign), None):
        raise InvalidInput(
            f"experiment {name}: job {foreign.job} continues from the training of an earlier experiment, which is not repeated "
            "here; select other jobs with --job"
        )
    return chains


def slots_for(program: ExperimentProgram, chains: Sequence[TrainingChain], asked: int | None) -> int:
    """Return the number of slots of the temporary cluster that repeats the training. A run uses one slot for each rank.

    Args:
        program: The program of the experiment.
        chains: The chains (sequences of recorded runs) to repeat, at least one with training.
        asked: The number that the user gave; None: as many as this computer's CPUs allow, but at least as many as the
            largest run needs.

    Raises:
        InvalidInput: `asked` is less than the number of slots of the largest run, or the experiment needs GPUs.
    """
    from hopyard.cli.commands.experiments.local_slots import cpu_slots

    resources = program.spec.resources.per_job
    if resources.gpus:
        raise InvalidInput(
            f"resources.per_job.gpus is {resources.gpus}: only what is trained on CPUs can be trained again to the same bits"
        )
    gang = max(len(stretch.run.inputs) for chain in chains for stretch in chain.stretches)
    if asked is not None and asked < gang:
        raise InvalidInput(f"--slots {asked}: a job was on {gang} slots at once; give at least --slots {gang}")
    return asked or max(gang, cpu_slots(resources.cpus))


def gpu_note(chains: Sequence[TrainingChain]) -> str:
    """Return a note for people if some of the jobs trained on slots with GPUs; empty: none did.

    Such jobs are trained again on CPUs, so their results may differ: the journal does not record whether a program used its GPUs.

    Args:
        chains: The training to repeat, by job.
    """
    jobs = {chain.job for chain in chains if any(stretch.run.on_gpus for stretch in chain.stretches)}
    if not jobs:
        return ""
    return (
        f"note: {count(len(jobs), 'job')} trained on slots with GPUs and {'is' if len(jobs) == 1 else 'are'} trained again on "
        "CPUs: if the program used the GPUs, the results differ"
    )


def _cpus(program: ExperimentProgram, slots: int) -> int:
    from hopyard.cli.commands.experiments.local_slots import slot_cpus

    return slot_cpus(slots, program.spec.resources.per_job.cpus)


def verdict(name: str, found: Sequence[JobComparison]) -> str:
    """Return the result of the comparison as one line for people.

    Args:
        name: The id of the experiment.
        found: The comparison of each job; empty: nothing was repeated.
    """
    if not found:
        return f"{name}: no run of it counts, so there is nothing to train again"
    positions, reports, snapshots = (
        sum(getattr(job, what) for job in found) for what in ("positions", "reports", "snapshots")
    )
    what = f"{name}: {count(len(found), 'job')}, {count(positions, 'position')} trained again"
    told = f"{count(reports, 'report')} and {count(snapshots, 'snapshot')}"
    difference = first(found)
    if difference is None:
        return f"{what}: {told} are the same bit for bit"
    different = sum(not job.equal for job in found)
    return f"{what}, {told} compared: {count(different, 'job')} differ{'s' if different == 1 else ''}; first: {difference.text}"


def document(name: str, found: Sequence[JobComparison]) -> dict[str, Any]:
    """Return the result of the comparison as a JSON document.

    Args:
        name: The id of the experiment.
        found: The comparison of each job.
    """

    def plain(job: JobComparison) -> dict[str, Any]:
        return {
            "job": job.job,
            "hyperparameters": job.hyperparameters,
            "positions": job.positions,
            "visits": job.visits,
            "evaluations": job.evaluations,
            "reports": job.reports,
            "snapshots": job.snapshots,
            "equal": job.equal,
            "differences": len(job.differences),
            "first_difference": job.differences[0] if job.differences else None,
        }

    difference = first(found)
    return {
        "experiment": name,
        "jobs": [plain(job) for job in found],
        "equal": difference is None,
        "first_difference": difference.text if difference is not None else None,
    }


def table(found: Sequence[JobComparison]) -> RenderableType:
    """Return a table with one line for each repeated job, for people.

    Args:
        found: The comparison of each job.
    """
    from rich.table import Table

    made = Table(box=None, pad_edge=False, header_style="dim")
    for column in ("job", "positions", "evaluations", "reports", "snapshots"):
        made.add_column(column, justify="left" if column == "job" else "right")
    made.add_column("")
    for job in found:
        said = "equal" if job.equal else f"different from position {job.differences[0].position} on"
        numbers = (job.positions, job.evaluations, job.reports, job.snapshots)
        made.add_row(job.job, *map(str, numbers), said)
    return made


@contextmanager
def _shown(name: str, chains: Sequence[TrainingChain], slots: int) -> Iterator[Callable[[int, str], None]]:
    """Show progress on stderr while the context is open.

    On a terminal it is a bar, else a line at the start and a line for each new reason for waiting. The context value is
    a function that receives the number of reports so far and the reason for waiting (empty: it does not wait).

    Args:
        name: The id of the experiment.
        chains: The chains (sequences of recorded runs) to repeat.
        slots: The number of slots, each for one process of a run.
    """
    from rich.console import Console
    from rich.progress import Progress

    from hopyard.cli.output import say

    jobs = {chain.job for chain in chains}
    positions = sum(chain.positions for chain in chains)
    doing = f"{name}: training {count(len(jobs), 'job')} again, {count(positions, 'position')}, {slots} at a time"
    console = Console(stderr=True)
    if not console.is_terminal:
        say(doing)
        last = ""

        def tell(_: int, reason: str) -> None:
            nonlocal last
            if reason and reason != last:
                say(reason)
            last = reason

        yield tell
        return
    expected = sum(len(stretch.run.reports) for chain in chains for stretch in chain.stretches)
    expected += sum(len(run.reports) for chain in chains for run in chain.evaluations)
    with Progress(console=console, transient=True) as progress:
        task = progress.add_task(doing, total=expected)
        yield lambda reports, reason: progress.update(task, completed=reports, description=reason or doing)
