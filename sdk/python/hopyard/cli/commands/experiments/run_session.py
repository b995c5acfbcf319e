"""Implements `run` and `resume`: opens the cluster, starts the experiment, shows it, suspends it at Ctrl-C, and prints the result."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final, TypeVar

from hopyard._runtime.gpus import AUTOMATIC, GpuOptions, SlotLayout
from hopyard.cli.commands.experiments.hints import mended, tell_changed_code, unused_note
from hopyard.cli.commands.experiments.local_slots import SlotWishes, slot_cpus, wait_for_agent
from hopyard.cli.commands.experiments.preflight import check_policy, policy_notes, sharing_note
from hopyard.cli.commands.experiments.requirements import check_imports, check_plugins
from hopyard.cli.commands.inspect.trace_export import TraceFile
from hopyard.cli.connect import choose, connected, find_unfinished, running_server, stopped_data_dir, where
from hopyard.cli.errors import EXIT_DONE, EXIT_FAILED, Interrupted
from hopyard.cli.interrupts import Interrupts
from hopyard.cli.live.actions import LiveActions
from hopyard.cli.live.controls import Controls
from hopyard.cli.live.model import LiveModel
from hopyard.cli.live.screen import live_view
from hopyard.cli.output import emit, emit_json, height, say, width
from hopyard.client.async_client import AsyncClient
from hopyard.client.display.outcome import STARTS_OVER, ended_error, incomplete_search_note, metric_error, metrics_seen
from hopyard.client.local_cluster.data_dir_lock import lock_holder
from hopyard.client.local_cluster.embedded import EmbeddedCluster
from hopyard.client.submission import Submission, left_out_note, missing_file_note, prepare
from hopyard.client.types import Experiment, ExperimentState, Job, JobState
from hopyard.client.wire import converters
from hopyard.errors import Conflict, HopyardError, NotFound
from hopyard.policy.vocabulary.reasons import ReasonCode
from hopyard.spec import parse_spec

T = TypeVar("T")

SUSPEND_SECONDS: Final = 120.0
"""Seconds that all runs have to save after Ctrl-C. Each run first trains to the end of its iteration."""

_INTERRUPT_EFFECT: Final = "suspend the experiment and leave; a second time: leave at once"

_GIVEN_UP: Final = frozenset([ReasonCode.POLICY_ERROR, ReasonCode.METRIC_MISSING])
"""Reasons for which the cluster pauses an experiment by itself, so that only a person can continue it."""

_POLL_SECONDS: Final = 0.1
_CLUSTER_SECONDS: Final = 2.0


class RunSession:
    """One execution of the commands `run`, `resume` or `extend --watch`. `follow` runs it.

    Args:
        server: Address of a running cluster's scheduler; None: the cluster that serves `data`, else a new one in `data`.
        data: The data directory.
        slots: What is known about the slots of a new cluster.
        purpose: Description of this command, for the error message of others that find the directory locked.
        eager: Whether to start the slots of a new cluster immediately, even if there may be nothing to train.
        submission: The experiment that the command creates; None: it exists already.
        traces: The file to write the traces to at the end; None: no traces.
    """

    def __init__(
        self,
        server: str | None,
        data: Path,
        slots: SlotWishes,
        purpose: str,
        *,
        eager: bool = False,
        submission: Submission | None = None,
        traces: TraceFile | None = None,
    ) -> None:
        self._eager = eager
        self._submission = submission
        self._traces = traces
        self._server = server
        self._data = data
        self._slots = slots
        self._purpose = purpose
        self._own: EmbeddedCluster | None = None
        self._asked = server
        self._experiment: Experiment | None = None
        self._interrupts = Interrupts()

    async def follow(
        self, begin: Callable[[AsyncClient], Coroutine[Any, Any, Experiment]], source: str, json: bool
    ) -> int:
        """Start an experiment, show it until it ends or is suspended, print the result, and return the exit code of the command.

        Args:
            begin: Creates or continues the experiment with a client, and returns it.
            source: Name of the experiment in messages until its state is known.
            json: Whether to print the result as JSON.

        Returns:
            0: the experiment ended without an error, or the user left the view while it continues. 1: it failed, its policy failed, no
            report contains its metric, or the traces could not be written. 130 (signal or the user), 129 (SIGHUP) or 141 (closed
            output): this suspended it or ended the command; see `Interrupts`.
        """
        with self._interrupts:
            try:
                async with self._connected() as client:
                    experiment = await self._unless_interrupted(self._begin(client, begin(client)))
                    self._experiment = experiment
                    if experiment.state.ended and not self._eager:
                        return await self._ended(client, experiment, json)
                    if self._own is not None:
                        # Otherwise the view would begin with the lost node of the earlier cluster.
                        await self._unless_interrupted(wait_for_agent(client, self._own))
                        self._experiment = experiment = await self._unless_interrupted(client.get(experiment))
                    return await self._watch(client, experiment, source, json)
            except Interrupted:
                if self._experiment is None:
                    say(f"interrupted{self._interrupts.because}")
                else:
                    command = self.resume_command(self._experiment)
                    back = "; jobs go back to their last snapshot" if self._own is not None else ""
                    say(f"interrupted{back}; resume it with: {command}")
                return self._interrupts.exit_code
            finally:
                if self._traces is not None and self._experiment is not None:
                    self._traces.tell_missing(self._experiment, self._where)

    async def _unless_interrupted(self, work: Coroutine[Any, Any, T]) -> T:
        return await self._interrupts.unless(self._interrupts.first, work)

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[AsyncClient]:
        server = self._server or await self._unless_interrupted(running_server(self._data))
        if server is not None:
            if self._server is None:
                _refuse_foreign_cluster(self._data)
            if self._slots.gpus.given:
                say(f"note: {self._slots.gpus.given} has no effect: the cluster at {server} is running already")
            self._server = server
            async with AsyncClient(server) as client:
                yield client
            return
        if self._eager:
            # Slots whose number is known start together with the services.
            layout = await self._unless_interrupted(self._layout(self._slots))
            say(f"starting a cluster in {self._data}")
            slots = len(layout.slots)
            self._own = EmbeddedCluster(
                self._data,
                slots=slots,
                cpus=slot_cpus(slots, self._slots.cpus),
                gpus=layout.options,
                purpose=self._purpose,
            )
        else:
            if self._slots.slots or self._slots.gpus.given:  # refuse a contradiction before the experiment is resumed
                await self._unless_interrupted(asyncio.to_thread(self._slots.layout))
            self._own = EmbeddedCluster(self._data, slots=0, purpose=self._purpose)
        try:
            async with AsyncClient(await self._unless_interrupted(self._own.start())) as client:
                yield client
        finally:
            try:
                await self._interrupts.unless(self._interrupts.second, self._own.stop())
            except Interrupted:
                self._own.kill()
                await self._own.stop()

    @property
    def owns_cluster(self) -> bool:
        """Whether this command has started the cluster, which ends with it."""
        return self._own is not None

    async def _layout(self, wishes: SlotWishes) -> SlotLayout:
        """Return the slots of a new cluster with their GPUs, and print what the user should know about them."""
        layout = await asyncio.to_thread(wishes.layout)
        for note in layout.notes:
            say(note)
        for warning in layout.warnings:
            say(f"warning: {warning}")
        return layout

    async def _begin(self, client: AsyncClient, work: Coroutine[Any, Any, Experiment]) -> Experiment:
        """Await `work`, which creates or continues the experiment, and return the experiment.

        Then start the slots of this command's own cluster, unless they are running or the experiment has ended. Before, pause all other
        experiments that the cluster would continue: only this experiment trains.
        """
        own = self._own
        if own is None or own.slots:
            return await work
        experiment = await work
        if not experiment.state.ended:
            if not self._eager:
                say(f"starting a cluster in {self._data}")
            wishes = self._slots.of_experiment(experiment.spec.get("resources") or {})
            layout = await self._layout(wishes)
            slots = len(layout.slots)
            await _pause_others(client, experiment, self._where)
            await own.start_agent(slots, slot_cpus(slots, wishes.cpus), gpus=layout.options)
        return experiment

    async def _watch(self, client: AsyncClient, experiment: Experiment, source: str, json: bool) -> int:
        model = LiveModel(source, slots=self._own.slots if self._own else None, server=self._server or "")
        controls = Controls(owns_cluster=self.owns_cluster, interrupt_effect=_INTERRUPT_EFFECT)
        left = asyncio.Event()
        # The cluster of this command ends with it: to leave is then to suspend.
        actions = LiveActions(
            client, experiment, controls, self._interrupts.interrupt if self.owns_cluster else left.set
        )
        feeding = asyncio.create_task(feed(client, experiment, model), name="watch")
        waits: list[asyncio.Task[Any]] = [
            feeding,
            asyncio.create_task(left.wait(), name="left"),
            asyncio.create_task(self._interrupts.first.wait(), name="interrupt"),
            asyncio.create_task(_given_up(model), name="given up"),
        ]
        own = self._own
        died = asyncio.create_task(own.died(), name="cluster") if own is not None else None
        if died is not None:
            waits.append(died)
        cluster_watch = asyncio.create_task(watch_cluster(client, model), name="cluster watch")
        try:
            async with live_view(model, controls=controls, perform=actions.perform):
                await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
                leaves = left.is_set() and not feeding.done() and not self._interrupts.first.is_set()
                if self._interrupts.first.is_set() and not feeding.done():
                    await self._suspend(client, experiment, model, feeding)
            if died is not None and died.done() and not feeding.done():
                died.result()
            if feeding.done():
                feeding.result()
        finally:
            for wait in (*waits, cluster_watch):
                wait.cancel()
            await asyncio.gather(*waits, cluster_watch, return_exceptions=True)
            await actions.close()
        if model.starts_over:
            say(f"warning: {STARTS_OVER}")
        if leaves:
            return await self._left(client, experiment, json)
        return await self._result(client, experiment, model, json)

    async def _left(self, client: AsyncClient, experiment: Experiment, json: bool) -> int:
        """Print how to watch an experiment again that continues after the user has left its view, and return the exit code 0.

        Args:
            client: Queries the experiment.
            experiment: The experiment.
            json: Whether to print its present state as JSON before this message.
        """
        present = await client.get(experiment)
        if json:
            emit_json(_document(present, await client.jobs(experiment)))
        state = "continues" if present.state is ExperimentState.RUNNING else f"is {present.state.value}"
        again = f"hopyard jobs {present.id} --watch{self._where}"
        say(f"{present.name} ({present.id}) {state}; watch it with: {again}")
        return EXIT_DONE

    def _suspend_once(self) -> None:
        """Suspend the experiment as the first Ctrl-C does, unless this has begun: the cluster of this command ends with it."""
        if not self._interrupts.first.is_set():
            self._interrupts.interrupt()

    async def _suspend(
        self, client: AsyncClient, experiment: Experiment, model: LiveModel, feeding: asyncio.Task[None]
    ) -> None:
        """Pause the experiment, and wait until its runs have saved their state. After 120 seconds, print a message and return.

        Args:
            client: Pauses the experiment.
            experiment: The experiment.
            model: The model of the live view, which shows when the experiment is paused.
            feeding: The task that updates the model until the experiment ends.

        Raises:
            Interrupted: A second signal was received.
        """
        model.note = f"suspending... ({self._interrupts.to_quit} quits at once)"

        async def paused() -> None:
            try:
                await client.pause(experiment)
            except Conflict:
                return  # the experiment has ended in the meantime
            end = time.monotonic() + SUSPEND_SECONDS
            while not feeding.done() and not (model.experiment and model.experiment.state is ExperimentState.PAUSED):
                if time.monotonic() > end:
                    say(
                        f"some jobs have not saved within {SUSPEND_SECONDS:g} s; they continue from their last snapshot"
                    )
                    return
                await asyncio.sleep(_POLL_SECONDS)

        await self._interrupts.unless(self._interrupts.second, paused())

    async def _result(self, client: AsyncClient, experiment: Experiment, model: LiveModel, json: bool) -> int:
        present = await client.get(experiment)
        jobs = await client.jobs(experiment)
        if json:
            emit_json(_document(present, jobs))
        else:
            from hopyard.cli.tables import summary

            emit(summary(present, jobs, width(), height=height(), model=model, where=self._where))
        traced = self._traces is None or await self._traces.write(client, present, self._where)
        code = await self._outcome(client, present, jobs)
        return code if traced else code or EXIT_FAILED

    async def _outcome(self, client: AsyncClient, present: Experiment, jobs: Sequence[Job]) -> int:
        """Print how the experiment ended, or how to continue it if it was suspended, and return the exit code of the command.

        Args:
            client: Queries reports for the messages.
            present: The experiment in its current state, ended or suspended.
            jobs: Its jobs.

        Returns:
            0: it ended without an error. 1: it failed, its policy failed, or no report contains its metric. Else it was suspended:
            `Interrupts.exit_code`.
        """
        if present.state.ended:
            return await self._verdict(client, present, jobs)
        if present.reason_code is ReasonCode.POLICY_ERROR:
            say(f"error: {present.reason}")
            say(f"{mended(present)} {self.resume_command(present)}")
            return EXIT_FAILED
        if present.reason_code is ReasonCode.METRIC_MISSING:
            say(f"error: {present.reason}")
            change = f"hopyard set {present.id} --metric {present.reason_args['name']}{self._where}"
            say(f"change the metric: {change}; then: {self.resume_command(present)}")
            return EXIT_FAILED
        if trouble := await metric_error(client, present, jobs):
            say(f"warning: {trouble}")
        say(f"suspended{self._interrupts.because}; resume it with: {self.resume_command(present)}")
        return self._interrupts.exit_code

    async def _ended(self, client: AsyncClient, experiment: Experiment, json: bool) -> int:
        """Print that the experiment had ended before this command started, and return the exit code of the command.

        Args:
            client: Queries jobs and reports.
            experiment: The ended experiment.
            json: Whether to print its result as JSON before this message.

        Returns:
            1 if the experiment failed, else 0.
        """
        jobs = await client.jobs(experiment)
        if json:
            emit_json(_document(experiment, jobs))
        why = f" ({experiment.reason})" if experiment.reason else ""
        say(
            f"{experiment.name} ({experiment.id}) has ended already, {experiment.state.value}{why}: "
            f"hopyard jobs {experiment.id}{self._where} shows it, hopyard extend {experiment.id}{self._where} continues it"
        )
        return EXIT_FAILED if await ended_error(client, experiment, jobs) else EXIT_DONE

    async def _verdict(self, client: AsyncClient, experiment: Experiment, jobs: Sequence[Job]) -> int:
        """Print why an ended experiment failed (see `ended_error`), or a remark on its result if there is one.

        Args:
            client: Queries reports.
            experiment: The ended experiment.
            jobs: Its jobs.

        Returns:
            The exit code of the command: 1 if the experiment failed, else 0.
        """
        error = await ended_error(client, experiment, jobs)
        if not error:
            if note := incomplete_search_note(experiment, jobs):
                say(f"note: {note}")
            return EXIT_DONE
        say(f"error: {error}")
        failed = next((job for job in jobs if job.state is JobState.FAILED), None)
        if self._submission and failed and (note := missing_file_note(self._submission, failed.reason)):
            say(f"note: {note}")
        if jobs and all(job.state is JobState.FAILED for job in jobs):
            say(f"its output: hopyard logs {experiment.id} {jobs[0].id}{self._where}")
        return EXIT_FAILED

    def resume_command(self, experiment: Experiment) -> str:
        """Return the command line that continues the experiment later."""
        return f"hopyard resume {experiment.id}{self._where}"

    @property
    def _where(self) -> str:
        """The options with which other commands find this cluster, with a leading blank."""
        return where(self._asked, None if self._asked is not None else self._data)


def _refuse_foreign_cluster(data: Path) -> None:
    """Raise Conflict if the cluster in the data directory was started by another command than `hopyard up`, such as `hopyard run`.

    Such a cluster ends with the command that started it, so experiments of this command would not be trained to their end.
    """
    holder = lock_holder(data)
    if holder is not None and holder[1] != "hopyard up":
        raise Conflict(
            f"{data}: in use by {holder[1]} (process {holder[0]}), and its cluster ends with it; wait for it, name another "
            "directory with --data, or keep a cluster with hopyard up and use --server"
        )


async def _given_up(model: LiveModel) -> None:
    """Wait until the experiment that `model` shows is paused for one of the reasons `_GIVEN_UP`. If it never is, this never returns."""
    while True:
        present = model.experiment
        if present and present.reason_code in _GIVEN_UP and present.state is ExperimentState.PAUSED:
            return
        await asyncio.sleep(_POLL_SECONDS)


async def watch_cluster(client: AsyncClient, model: LiveModel) -> None:
    """Query the cluster every two seconds, and set `model.trouble` to the problem that blocks the cluster; empty: none.

    A failed query changes nothing. It never returns; cancel it to stop.
    """
    while True:
        with suppress(HopyardError):  # other calls wait for an unreachable scheduler
            model.trouble = (await client.cluster()).trouble
            model.heard(time.monotonic())
        await asyncio.sleep(_CLUSTER_SECONDS)


async def feed(client: AsyncClient, experiment: Experiment, model: LiveModel) -> None:
    """Update a model with the reports so far and then with all changes until the experiment ends.

    Args:
        client: The client of the cluster.
        experiment: The experiment.
        model: The model of the live view to update.
    """
    model.apply(experiment, time.monotonic())
    by_job: dict[str, list[Any]] = {}
    statistics = await client.statistics(experiment)
    model.load_metrics(metrics_seen(statistics))
    for one in statistics:
        by_job.setdefault(one.job, []).append(one)
    for job, reports in by_job.items():
        model.load_curve(job, converters.curve(reports, experiment.metric.name))
    async with aclosing(client.watch(experiment)) as changes:
        async for change in changes:
            model.apply(change, time.monotonic())


def _document(experiment: Experiment, jobs: Sequence[Job]) -> dict[str, Any]:
    best = next((job for job in jobs if job.id == experiment.best_job), None)
    return {"experiment": experiment, "best": best, "jobs": jobs}


def run_file(
    file: Path,
    *,
    folder: Path | None,
    slots: int | None,
    gpus: GpuOptions = AUTOMATIC,
    server: str | None,
    data: Path | None,
    json: bool,
    traces: Path | None = None,
) -> int:
    """Run `hopyard run` and return the exit code of `RunSession.follow`.

    Args:
        file: The experiment file.
        folder: Folder of the training code; None: the folder of the file.
        slots: Number of slots of a new cluster; None: one per GPU, without GPUs that in the file, else as many as the CPUs of
            this computer suffice for.
        gpus: The options for the GPUs of a new cluster.
        server: Address of the scheduler, the value of --server; None: not given.
        data: The data directory, the value of --data; None: not given.
        json: Whether to print the result as JSON.
        traces: The file to write the traces of the experiment to at the end; None: no traces.

    Raises:
        SpecError: The experiment file is invalid.
        InvalidInput: A file is missing or unreadable.
    """
    # Before anything is started, so that mistakes in the file are reported immediately.
    submission: Submission = prepare(file, folder)
    trace_file = TraceFile(traces) if traces is not None else None
    for note in (unused_note(submission.spec), sharing_note(submission)):
        if note:
            say(note)
    if note := left_out_note(submission):
        say(f"note: {note}")
    address, directory = choose(server, data)
    told: list[str] = []
    if address is None:
        check_policy(submission)
        check_plugins(submission)
        check_imports(submission)
        told = policy_notes(submission)
        for note in told:
            say(note)

    resources = submission.spec.resources
    wishes = SlotWishes(slots, gpus, resources.slots, resources.per_job.cpus, resources.per_job.gpus)

    async def begin(client: AsyncClient) -> Experiment:
        experiment = await client.create(submission)
        if experiment.note and f"note: {experiment.note}" not in told:
            say(f"note: {experiment.note}")
        return experiment

    async def main() -> int:
        session = RunSession(
            address, directory, wishes, "hopyard run", eager=True, submission=submission, traces=trace_file
        )
        return await session.follow(begin, submission.spec.name, json)

    return asyncio.run(main())


def resume_experiment(
    given: str | None,
    *,
    slots: int | None,
    gpus: GpuOptions = AUTOMATIC,
    server: str | None,
    data: Path | None,
    json: bool,
) -> int:
    """Run `hopyard resume` and return the exit code of `RunSession.follow`.

    A paused experiment is resumed, then the command shows it until it ends or is suspended. If no cluster runs in the data directory,
    the command starts one in which only this experiment trains: it pauses all other running ones and prints their names. In a cluster
    that runs already, other experiments are not changed. If the experiment has ended, no job is started: the command prints that it
    has ended (with `json` also its result), and the exit code is 1 if it failed, else 0.

    Args:
        given: Id or name of the experiment; None: the newest paused experiment, else the newest unfinished one.
        slots: Number of slots of a new cluster; None: as `run_file` chooses it.
        gpus: The options for the GPUs of a new cluster.
        server: Address of the scheduler, the value of --server; None: not given.
        data: The data directory, the value of --data; None: not given.
        json: Whether to print the result as JSON.

    Raises:
        NotFound: There is no such experiment, or no cluster has run in the data directory.
    """
    address, directory = choose(server, data)
    need_cluster(address, directory, "resume")

    async def begin(client: AsyncClient) -> Experiment:
        experiment, others = await find_unfinished(client, given)
        if others:
            left = ", ".join(f"{one.name} ({one.id}, {_rests(one, session.owns_cluster)})" for one in others)
            say(f"continuing {experiment.name} ({experiment.id}); also unfinished: {left}: hopyard resume ID")
        if not experiment.state.ended:
            await tell_changed_code(client, experiment)
        if experiment.state in (ExperimentState.PAUSED, ExperimentState.PAUSING):
            return await client.resume(experiment)
        return experiment

    session = RunSession(address, directory, SlotWishes(slots, gpus), "hopyard resume")

    async def main() -> int:
        if await stopped_data_dir(server, data) is not None:
            async with connected(server, data, purpose="hopyard resume", read_only=True) as client:
                stored, _ = await find_unfinished(client, given)
            if not stored.state.ended:
                check_plugins(Submission("", stored.id, parse_spec(stored.spec), None))
        return await session.follow(begin, given or "", json)

    return asyncio.run(main())


async def _pause_others(client: AsyncClient, experiment: Experiment, where: str) -> None:
    """Pause all running experiments but one, and print their names.

    Args:
        client: The client of a cluster that has no slots yet.
        experiment: The experiment that is not paused.
        where: The options with which other commands find the cluster, with a leading blank, for the printed command that resumes the
            others; empty: none needed.
    """
    others = [one for one in await client.experiments(ExperimentState.RUNNING) if one.id != experiment.id]
    for other in others:
        await client.pause(other)
    if others:
        names = ", ".join(f"{one.name} ({one.id})" for one in others)
        say(f"only {experiment.name} ({experiment.id}) continues; paused: {names}: hopyard resume ID{where}")


def _rests(experiment: Experiment, owned: bool) -> str:
    """Return the state to print for an unfinished experiment that the command does not continue.

    Args:
        experiment: That experiment.
        owned: Whether the command has started the cluster, in which it pauses all other experiments; the result is then PAUSED.
    """
    return ExperimentState.PAUSED.value if owned else experiment.state.value


def extend_experiment(
    begin: Callable[[AsyncClient], Coroutine[Any, Any, Experiment]],
    source: str,
    *,
    server: str | None,
    data: Path | None,
    json: bool,
) -> int:
    """Run `hopyard extend --watch` and return the exit code of `RunSession.follow`.

    Args:
        begin: Extends the experiment with a client, and returns it.
        source: Name of the experiment in messages until its state is known.
        server: Address of the scheduler, the value of --server; None: use the data directory.
        data: The data directory, the value of --data; None: `./hopyard-data`.
        json: Whether to print the result as JSON.
    """
    address, directory = choose(server, data)
    need_cluster(address, directory, "extend")

    async def main() -> int:
        return await RunSession(address, directory, SlotWishes(), "hopyard extend").follow(begin, source, json)

    return asyncio.run(main())


def need_cluster(address: str | None, directory: Path, action: str) -> None:
    """Raise NotFound unless a scheduler's address is given or a cluster has run in the data directory.

    `action` is the verb of the message, such as "resume".
    """
    if address is None and not (directory / "cluster.lock").exists():
        raise NotFound(
            f"{directory}: no cluster has run here, so there is nothing to {action}; name another with --data"
        )
