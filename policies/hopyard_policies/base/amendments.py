"""Pending amendments: requests to extend a run beyond the position at which it would end, its `until`."""

from __future__ import annotations

from collections.abc import Sequence

from hopyard.policy import AnswerReady, Cluster, JobState


class Amendments:
    """The pending amendments of a policy: requests to the engine to change `until`, the position at which a job's run ends.

    For each job at most the latest request is recorded.
    """

    def __init__(self) -> None:
        self._tickets: dict[str, str] = {}

    def __contains__(self, job: str) -> bool:
        """Return whether a job has a pending amendment: a request to change the end of its run without an answer yet."""
        return job in self._tickets

    def amend(self, cluster: Cluster, job: str, until: int, snapshot_at: Sequence[int] = ()) -> None:
        """Request that the run of a job ends at another position. Pass the engine's answer to `heard` when it arrives.

        The request replaces the record of an earlier one for this job.

        Args:
            cluster: The view of the up-call.
            job: The job.
            until: The position at which the run ends instead.
            snapshot_at: Positions at which the run saves and continues.
        """
        self._tickets[job] = cluster.amend_run(job, until=until, snapshot_at=snapshot_at)

    def forget(self, job: str) -> None:
        """Delete a job's pending amendment, because its run ended or the amendment was refused."""
        self._tickets.pop(job, None)

    def heard(self, cluster: Cluster, answer: AnswerReady) -> str | None:
        """Handle the engine's answer to an amendment, a request to change the position at which a job's run ends.

        If the amendment came too late and the run is parked, the run is suspended.

        Returns:
            The job whose run was suspended. An empty string if no action was needed: the amendment was accepted, or the run is
                not parked. None if the answer does not belong to a pending amendment of this object.
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
