"""The handle of a search for asyncio, and its error."""

from __future__ import annotations

import asyncio
import time
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Self

from hopyard.client.display.outcome import ended_error
from hopyard.client.display.progress import FRAME_SECONDS, WaitProgress, progress_view
from hopyard.client.types import Change, Experiment, ExperimentState, Job, JobState
from hopyard.errors import Conflict, HopyardError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    import pandas as pd
    from matplotlib.figure import Figure

    from hopyard.client.queries import ClientQueries
    from hopyard.results import Results


class SearchFailed(HopyardError):
    """Raised when a search has ended without a result: all jobs or the experiment failed, or no report has a finite metric value.

    Args:
        experiment: The ended experiment.
        reason: Why it has no result.
        failure: The whole reason of the first failed job, with the last lines of its output; empty: no job failed. If it has several
            lines, the message of this error ends with it.

    Attributes:
        experiment: The ended experiment.
        reason: Why it has no result.
    """

    def __init__(self, experiment: Experiment, reason: str, failure: str = "") -> None:
        more = f"\n\n{failure}" if "\n" in failure else ""
        super().__init__(
            f"search {experiment.id}: {reason}; the whole output of a job: client.logs({experiment.id!r}, job){more}"
        )
        self.experiment, self.reason = experiment, reason


class AsyncSearchHandle:
    """A search that `AsyncClient.search` began. `SearchHandle` has the same methods for code without an event loop.

    Args:
        client: The client of the cluster.
        experiment: The experiment of the search.
        stop: Stops an experiment, as `AsyncClient.stop`.

    Attributes:
        experiment: The experiment in the newest state that this object knows. `AsyncClient` has methods for everything else.
    """

    def __init__(
        self, client: ClientQueries, experiment: Experiment, stop: Callable[[Experiment], Awaitable[Experiment]]
    ) -> None:
        self._client = client
        self._stop = stop
        self.experiment = experiment

    @property
    def id(self) -> str:
        """Id of the experiment."""
        return self.experiment.id

    async def wait(
        self,
        timeout: float | None = None,  # noqa: ASYNC109 - the same signature as in the synchronous handle
        *,
        progress: bool | None = None,
    ) -> Self:
        """Wait until the search has ended, and return this object. A cancelled wait leaves the search running.

        Args:
            timeout: Maximum time to wait in seconds; None: no limit.
            progress: Whether to show the progress; None: in a notebook, or if stderr is a terminal.

        Raises:
            SearchFailed: All jobs failed, the experiment is FAILED, or no job has reported a finite value of the metric. A search that
                was stopped never raises this.
            TimedOut: The timeout has passed.
        """
        state, view = WaitProgress(time.monotonic()), progress_view(progress)
        following = asyncio.create_task(self.follow(state.apply, timeout), name=f"wait for {self.id}")
        try:
            while not following.done():
                view.show(state, time.monotonic())
                await asyncio.wait([following], timeout=FRAME_SECONDS)
            view.show(state, time.monotonic())
        finally:
            following.cancel()
            view.close()
        state.warn()
        await following
        return self

    async def follow(self, heard: Callable[[Change], object], timeout: float | None = None) -> None:  # noqa: ASYNC109
        """Wait until the search has ended, and call a function with each change. No progress is shown.

        Args:
            heard: The function, which is not awaited; it gets the new state of the experiment or of a job.
            timeout: Maximum time to wait in seconds; None: no limit.

        Raises:
            SearchFailed: All jobs failed, the experiment is FAILED, or no job has reported a finite value of the metric. A search that
                was stopped never raises this. A search that is paused because no report contains its metric raises it at once.
            TimedOut: The timeout has passed.
        """
        try:
            self.experiment = await self._client.wait(self.experiment, timeout, heard=heard)
        except Conflict as error:
            await self.refresh()
            raise SearchFailed(self.experiment, self.experiment.reason or str(error)) from error
        if self.experiment.state is ExperimentState.STOPPED:
            return
        jobs = await self._client.jobs(self.experiment)
        if reason := await ended_error(self._client, self.experiment, jobs):
            failed = next((job.reason for job in jobs if job.state is JobState.FAILED), "")
            raise SearchFailed(self.experiment, reason, failed)

    def continuation(self, experiment: str) -> str:
        """Return how a user continues or watches the experiment with the id `experiment` after an interrupted wait."""
        return self._client.continuation(experiment)

    async def refresh(self) -> Experiment:
        """Query the current state of the experiment, store it in `experiment`, and return it."""
        self.experiment = await self._client.get(self.experiment)
        return self.experiment

    async def best(self) -> Job | None:
        """Return the job with the best value so far, or None before the first report with a finite value."""
        return await self._client.best(self.experiment)

    async def jobs(self, state: JobState | None = None) -> list[Job]:
        """Return all jobs (`state` None) or those in one state, in order of creation."""
        return await self._client.jobs(self.experiment, state)

    async def results(self, *, reports: bool = False) -> pd.DataFrame | Results:
        """Return the results as a table: a pandas DataFrame if pandas is installed, else `hopyard.results.Results`.

        Args:
            reports: Whether the table has one row per report; otherwise it has one row per job.
        """
        found = await self._client.results(self.experiment, reports=reports)
        return found.frame() if find_spec("pandas") is not None else found

    async def plot(self, kind: str | None = None, *, over: str | None = None) -> Figure:
        """Return a plot of the search as a matplotlib figure, which a notebook shows. It needs the extra `plot`.

        Args:
            kind: The kind of plot, such as "curves" or "gantt" (docs/plots.md); None: the first of "curves", "gantt", "jobs_at_R" and
                "pools" for which the search has data, else "boxes".
            over: "position" or "time": the quantity on the x axis of learning curves; None: the default of the kind.

        Raises:
            InvalidInput: There is no such kind, or the search lacks what it shows.
            NotFound: No job has reported what the plot shows.
            Unsupported: matplotlib, or what reads the journal for this kind, is not installed.
        """
        from hopyard.client.async_client import AsyncClient
        from hopyard.plots import figure, gather
        from hopyard.plots.experiments import read_experiment

        assert isinstance(self._client, AsyncClient)
        search = await read_experiment(self._client, await self.refresh(), kind)
        drawn = await asyncio.to_thread(lambda: figure(gather([search], kind, over)))
        return _shown_in_notebooks(drawn)

    async def stop(self) -> Experiment:
        """End the search and terminate its jobs. The snapshot of the best job is kept. No effect if the search has ended.

        The call returns the experiment before running jobs have ended; `wait` waits for that.
        """
        self.experiment = await self._stop(self.experiment)
        return self.experiment

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.experiment!r}>"

    def _repr_html_(self) -> str:
        return self.experiment._repr_html_()


def _shown_in_notebooks(figure: Figure) -> Figure:
    """Let a notebook show a figure also if matplotlib's own support for notebooks was not set up, and return the figure."""

    def png() -> bytes:
        from io import BytesIO

        out = BytesIO()
        figure.savefig(out, format="png", dpi=110)
        return out.getvalue()

    shown: Any = figure
    shown._repr_png_ = png
    return figure
