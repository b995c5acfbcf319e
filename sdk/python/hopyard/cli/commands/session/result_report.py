"""Prints the result of an experiment at the end of `run`, `resume` and `extend --watch`, and determines their exit code."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hopyard.cli.commands.experiments.hints import mended
from hopyard.cli.commands.inspect.trace_export import TraceFile
from hopyard.cli.errors import EXIT_DONE, EXIT_FAILED
from hopyard.cli.interrupts import Interrupts
from hopyard.cli.live.model import LiveModel
from hopyard.cli.output import emit, emit_json, height, say, width
from hopyard.client.async_client import AsyncClient
from hopyard.client.display.outcome import ended_error, incomplete_search_note, metric_error
from hopyard.client.submission import Submission, missing_file_note
from hopyard.client.types import Experiment, ExperimentState, Job, JobState
from hopyard.policy.vocabulary.reasons import ReasonCode


class ResultReport:
    """Prints how an experiment stands when a command ends that has shown it.

    Args:
        where: The options with which other commands find the cluster, with a leading blank; empty: none needed.
        interrupts: What ended the command, if anything did.
        submission: The experiment that the command created; None: it existed already.
        traces: The file to write the traces to; None: no traces.
    """

    def __init__(
        self, where: str, interrupts: Interrupts, submission: Submission | None = None, traces: TraceFile | None = None
    ) -> None:
        self._where = where
        self._interrupts = interrupts
        self._submission = submission
        self._traces = traces

    async def result(self, client: AsyncClient, experiment: Experiment, model: LiveModel, json: bool) -> int:
        """Print the result of an experiment that has ended or was suspended, and return the exit code of the command.

        Args:
            client: Queries the present state.
            experiment: The experiment.
            model: The model of the view that the command has shown.
            json: Whether to print the result as JSON.

        Returns:
            The exit code as `RunSession.follow` describes it.
        """
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

    async def ended(self, client: AsyncClient, experiment: Experiment, json: bool) -> int:
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

    async def left(self, client: AsyncClient, experiment: Experiment, json: bool) -> int:
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

    async def _outcome(self, client: AsyncClient, present: Experiment, jobs: Sequence[Job]) -> int:
        """Print how the experiment ended, or how to continue it if it was suspended, and return the exit code of the command.

        Args:
            client: Queries reports for the messages.
            present: The experiment in its current state, ended or suspended.
            jobs: Its jobs.

        Returns:
            0: it ended without an error. 1: it failed, its policy or generator failed, no report contains its metric, or its first jobs
            failed from the same cause. Else it was suspended: `Interrupts.exit_code`.
        """
        if present.state.ended:
            return await self._verdict(client, present, jobs)
        if present.reason_code in (ReasonCode.POLICY_ERROR, ReasonCode.GENERATOR_FAILED):
            say(f"error: {present.reason}")
            remedy = (
                mended(present) if present.reason_code is ReasonCode.POLICY_ERROR else "after a fix, continue with:"
            )
            say(f"{remedy} {self.resume_command(present)}")
            return EXIT_FAILED
        if present.reason_code is ReasonCode.METRIC_MISSING:
            say(f"error: {present.reason}")
            change = f"hopyard set {present.id} --metric {present.reason_args['name']}{self._where}"
            say(f"change the metric: {change}; then: {self.resume_command(present)}")
            return EXIT_FAILED
        if present.reason_code is ReasonCode.CODE_MISSING:
            say(f"error: {present.reason}")
            say(f"send it again: hopyard resend {present.id} FOLDER{self._where}; then: {self.resume_command(present)}")
            return EXIT_FAILED
        if present.reason_code is ReasonCode.JOBS_FAIL_ALIKE:
            say(f"error: {present.reason}")
            self._tell_missing_file(present.reason)
            say(f"its output: hopyard logs {present.id} --job {present.reason_args['job']}{self._where}")
            say(
                f"its jobs keep their code: run changed code anew; after any other remedy: {self.resume_command(present)}"
            )
            return EXIT_FAILED
        if trouble := await metric_error(client, present, jobs):
            say(f"warning: {trouble}")
        say(f"suspended{self._interrupts.because}; resume it with: {self.resume_command(present)}")
        return self._interrupts.exit_code

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
        if failed is not None:
            self._tell_missing_file(failed.reason)
        if jobs and all(job.state is JobState.FAILED for job in jobs):
            say(f"its output: hopyard logs {experiment.id} {jobs[0].id}{self._where}")
        return EXIT_FAILED

    def _tell_missing_file(self, reason: str) -> None:
        """Print a note if a failure is about a file that exists here and was not packed for the nodes."""
        if self._submission and (note := missing_file_note(self._submission, reason)):
            say(f"note: {note}")

    def resume_command(self, experiment: Experiment) -> str:
        """Return the command line that continues the experiment later."""
        return f"hopyard resume {experiment.id}{self._where}"


def _document(experiment: Experiment, jobs: Sequence[Job]) -> dict[str, Any]:
    best = next((job for job in jobs if job.id == experiment.best_job), None)
    return {"experiment": experiment, "best": best, "jobs": jobs}
