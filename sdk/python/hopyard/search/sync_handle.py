"""The handle of a search for code without an event loop."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from hopyard.client.display.progress import wait_with_progress
from hopyard.client.types import Experiment, Job

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from hopyard.client.portal import LoopThread
    from hopyard.results import Results
    from hopyard.search.async_handle import AsyncSearchHandle


class SearchHandle:
    """A search that `Client.search` began.

        with Client.local(slots=2) as client:
            search = client.search(objective, {"lr": {"loguniform": [1e-4, 1.0]}}, metric="loss", mode="min", jobs=20)
            search.wait()
            print(search.best.best_value, search.best.hyperparameters)

    Args:
        handle: The handle of the same search for asyncio, to which each call is passed.
        loop: The event loop in the background on which the client of `handle` runs.
    """

    def __init__(self, handle: AsyncSearchHandle, loop: LoopThread) -> None:
        self._handle = handle
        self._loop = loop

    @property
    def experiment(self) -> Experiment:
        """The experiment in its current state, requested from the cluster. The methods of `Client` accept it as an argument."""
        return self._loop.run(self._handle.refresh())

    @property
    def id(self) -> str:
        """Id of the experiment."""
        return self._handle.id

    @property
    def best(self) -> Job | None:
        """The job with the best value so far; None before the first report with a finite value."""
        return self._loop.run(self._handle.best())

    @property
    def jobs(self) -> list[Job]:
        """All jobs in order of creation."""
        return self._loop.run(self._handle.jobs())

    def wait(self, timeout: float | None = None, *, progress: bool | None = None) -> Self:
        """Wait until the search has ended, and return this object. An interrupted wait leaves the search running.

        At Ctrl-C, a hint on stderr says how to continue before KeyboardInterrupt is raised.

        Args:
            timeout: Maximum time to wait in seconds; None: no limit.
            progress: Whether to show the progress; None: in a notebook, or if stderr is a terminal.

        Raises:
            SearchFailed: All jobs failed, the experiment is FAILED, or no job has reported a finite value of the metric. A search that
                was stopped never raises this.
            TimedOut: The timeout has passed.
        """
        wait_with_progress(
            self._loop, lambda heard: self._handle.follow(heard, timeout), progress, self._handle.continuation
        )
        return self

    def results(self, *, reports: bool = False) -> pd.DataFrame | Results:
        """Return the results as a table: a pandas DataFrame if pandas is installed, else `hopyard.results.Results`.

        Args:
            reports: Whether the table has one row per report; otherwise it has one row per job.
        """
        return self._loop.run(self._handle.results(reports=reports))

    def plot(self, kind: str | None = None, *, over: str | None = None) -> Figure:
        """Return a plot of the search as a matplotlib figure, which a notebook shows. It needs the extra `plot`.

        Args:
            kind: The kind of plot, such as "curves" or "gantt" (docs/plots.md); None: "curves", if a job has reported.
            over: "position" or "time": the quantity on the x axis of learning curves; None: the default of the kind.

        Raises:
            InvalidInput: There is no such kind, or the search lacks the data for it.
            NotFound: No job has reported what the plot shows.
            Unsupported: matplotlib, or the package that reads the journal for this kind, is not installed.
        """
        return self._loop.run(self._handle.plot(kind, over=over))

    def stop(self) -> Experiment:
        """End the search and terminate its jobs. The snapshot of the best job is kept. No effect if the search has ended.

        The call returns the experiment before running jobs have ended; `wait` waits for that.
        """
        return self._loop.run(self._handle.stop())

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._handle.experiment!r}>"

    def _repr_html_(self) -> str:
        return self._handle.experiment._repr_html_()
