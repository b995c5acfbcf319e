"""Records and writes traces for `hopyard trace` and `hopyard run --export-trace`.

A trace is the learning curve of one job with the training time of each report.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

from hopyard._common.formatting import count
from hopyard.cli.output import say
from hopyard.errors import os_error_text
from hopyard.traces import need_writable, write_traces

if TYPE_CHECKING:
    from hopyard.client.async_client import AsyncClient
    from hopyard.client.types import Experiment
    from hopyard.traces import Trace


@dataclass(frozen=True, slots=True)
class Recording:
    """The traces of an experiment at one time, ready to be written to a file.

    Attributes:
        experiment: The experiment.
        traces: One trace for each job that has reported.
        left_out: Number of jobs without a trace, because they have not reported anything.
    """

    experiment: Experiment
    traces: list[Trace]
    left_out: int

    def write(self, path: Path) -> bool:
        """Write the traces to the file `path`, and return True. If there are none, write nothing and return False.

        Raises:
            OSError: The file cannot be written.
        """
        return bool(self.traces) and write_traces(path, self.traces) > 0

    def counts(self) -> dict[str, int]:
        """Return the numbers of jobs with traces ("jobs"), of their reports ("reports"), and of jobs without a trace ("left_out")."""
        reports = sum(len(trace.metrics) for trace in self.traces)
        return {"jobs": len(self.traces), "reports": reports, "left_out": self.left_out}

    def told(self) -> str:
        """Return a sentence with the numbers of jobs with traces, of their reports, and of jobs without a trace."""
        if not self.traces:
            return f"{self.experiment.name} ({self.experiment.id}) has no traces: no job has reported anything yet"
        counts = self.counts()
        left = f"; {count(self.left_out, 'job')} without a report left out" if self.left_out else ""
        return f"traces of {count(counts['jobs'], 'job')}, {count(counts['reports'], 'report')}{left}"


class TraceFile:
    """The output file of `hopyard run --export-trace`. The constructor checks that it can be written.

    Args:
        path: The file.

    Raises:
        AlreadyExists: The file exists and does not contain traces.
        InvalidInput: The file cannot be written.
    """

    def __init__(self, path: Path) -> None:
        need_writable(path)
        self._path = path
        self._told = False

    async def write(self, client: AsyncClient, experiment: Experiment, where: str) -> bool:
        """Write the current traces of an experiment, and print a message on the number of traces or the error.

        Args:
            client: Queries the reports.
            experiment: The experiment.
            where: The options with which another command finds the same cluster, with a leading blank; empty: none needed.

        Returns:
            False: the file could not be written. True: it was written, or there were no traces to write.
        """
        found = await record(client, experiment)
        try:
            written = found.write(self._path)
        except OSError as error:
            say(f"error: {os_error_text(error)}")
            self.tell_missing(experiment, where)
            return False
        self._told = True
        say(f"{found.told()}: {self._path}" if written else found.told())
        return True

    def tell_missing(self, experiment: Experiment, where: str) -> None:
        """Unless the traces were written, print the command that writes them later. Further calls print nothing.

        `where` are the options with which that command finds the same cluster, with a leading blank; empty: none needed.
        """
        if not self._told:
            self._told = True
            say(f"no traces were written; hopyard trace {experiment.id} -o {quote(str(self._path))}{where} writes them")


async def record(client: AsyncClient, experiment: Experiment) -> Recording:
    """Query the reports of an experiment with `client`, and return its current traces; none before the first report."""
    traces = await client.traces(experiment)
    jobs = await client.jobs(experiment)
    return Recording(experiment, traces, len(jobs) - len(traces))
