"""Runs that are to go on beyond their `until`, while it is not known yet whether they do."""

from __future__ import annotations

from hopyard.policy import AnswerReady, Cluster, JobState


class Amendments:
    """The amendments of a policy that are under way: at most one for each job, the last one that was asked for."""

    def __init__(self) -> None:
        self._tickets: dict[str, str] = {}

    def __contains__(self, job: str) -> bool:
        """Whether a job's run is to go on."""
        return job in self._tickets

    def amend(self, cluster: Cluster, job: str, until: int) -> None:
        """Has a job's run go on up to a position."""
        self._tickets[job] = cluster.amend_run(job, until=until)

    def forget(self, job: str) -> None:
        """The job's run is over, or what was asked for it is refused."""
        self._tickets.pop(job, None)

    def heard(self, cluster: Cluster, answer: AnswerReady) -> str | None:
        """Takes an answer. A run that waits in memory and cannot go on is suspended.

        Returns:
            Its job; empty: the run goes on, or leaves by itself; None: the answer is to something else.
        """
        job = next((job for job, ticket in self._tickets.items() if ticket == answer.ticket), None)
        if job is None:
            return None
        del self._tickets[job]
        accepted = isinstance(answer.result, dict) and answer.result.get("accepted") is True
        view = cluster.jobs[job]
        if accepted or view.state is not JobState.RUNNING or not view.parked:
            return ""
        cluster.suspend_job(job)
        return job
