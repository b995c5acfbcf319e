"""Runs one session with an experiment: opens the cluster, starts the experiment, shows it, and suspends it at Ctrl-C."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

from hopyard._runtime.gpus import SlotLayout
from hopyard.cli.commands.experiments.local_slots import SlotWishes, slot_cpus
from hopyard.cli.commands.inspect.trace_export import TraceFile
from hopyard.cli.commands.session.feed import POLL_SECONDS, feed, given_up, watch_cluster
from hopyard.cli.commands.session.result_report import ResultReport
from hopyard.cli.connect import client_of, running_server, where
from hopyard.cli.errors import Interrupted
from hopyard.cli.interrupts import Interrupts
from hopyard.cli.live.actions import LiveActions
from hopyard.cli.live.controls import Controls
from hopyard.cli.live.model import LiveModel
from hopyard.cli.live.screen import live_view
from hopyard.cli.output import say
from hopyard.client.async_client import AsyncClient
from hopyard.client.display.outcome import STARTS_OVER
from hopyard.client.local_cluster.data_dir_lock import lock_holder
from hopyard.client.local_cluster.embedded import EmbeddedCluster
from hopyard.client.submission import Submission
from hopyard.client.types import Experiment, ExperimentState
from hopyard.errors import Conflict

T = TypeVar("T")

SUSPEND_SECONDS: Final = 120.0
"""Seconds that all runs have to save after Ctrl-C. Each run first trains to the end of its iteration."""

_INTERRUPT_EFFECT: Final = "suspend the experiment and leave; a second time: leave at once"


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
        self._traces = traces
        self._server = server
        self._data = data
        self._slots = slots
        self._purpose = purpose
        self._own: EmbeddedCluster | None = None
        self._asked = server
        self._experiment: Experiment | None = None
        self._interrupts = Interrupts()
        self._report = ResultReport(self._where, self._interrupts, submission, traces)

    async def follow(
        self, begin: Callable[[AsyncClient], Coroutine[Any, Any, Experiment]], source: str, json: bool
    ) -> int:
        """Start an experiment, show it until it ends or is suspended, print the result, and return the exit code of the command.

        Args:
            begin: Creates or continues the experiment with a client, and returns it.
            source: Name of the experiment in messages until its state is known.
            json: Whether to print the result as JSON.

        Returns:
            0: the experiment ended without an error, or the user left the view while it continues. 1: it failed, its policy or
            generator failed, no report contains its metric, or the traces could not be written. 130 (signal or the user), 129
            (SIGHUP) or 141 (closed output): this suspended it or ended the command; see `Interrupts`.
        """
        with self._interrupts:
            try:
                async with self._connected() as client:
                    experiment = await self._unless_interrupted(self._begin(client, begin(client)))
                    self._experiment = experiment
                    if experiment.state.ended and not self._eager:
                        return await self._report.ended(client, experiment, json)
                    return await self._watch(client, experiment, source, json)
            except Interrupted:
                if self._experiment is None:
                    say(f"interrupted{self._interrupts.because}")
                else:
                    command = self._report.resume_command(self._experiment)
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
            data = self._data if self._server is None else None
            self._server = server
            async with client_of(server, data) as client:
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
            return await client.get(experiment)  # Before, no agent was connected.
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
            asyncio.create_task(given_up(model), name="given up"),
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
            return await self._report.left(client, experiment, json)
        return await self._report.result(client, experiment, model, json)

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
                await asyncio.sleep(POLL_SECONDS)

        await self._interrupts.unless(self._interrupts.second, paused())

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
