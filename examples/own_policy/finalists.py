"""Try many configurations for some time, then train only the best ones to their ends."""

import math

from hopyard.policy import Cluster, ExperimentChange, JobState, JobView, Policy, TimerFired


class Finalists(Policy):
    """Trains each job for `trial` units and suspends it. After `seconds`, trains the best jobs to their ends.

    Args:
        seconds: The time in which new jobs are created for trials; running trials are then completed.
        trial: The number of units of a trial.
        finalists: The number of jobs that train to their ends; all others are terminated.
    """

    def __init__(self, seconds: float = 600, trial: int = 2, finalists: int = 3) -> None:
        if seconds <= 0 or trial < 1 or finalists < 1:
            raise ValueError(f"seconds, trial and finalists must be above 0; found {seconds}, {trial}, {finalists}")
        self.seconds, self.trial, self.finalists = seconds, trial, finalists
        self.bell, self.rung, self.final = "", False, False

    def allocate_jobs(self, cluster: Cluster) -> None:
        self.bell = self.bell or cluster.wake_at(cluster.now + self.seconds)
        room = 0 if self.rung or self.final else cluster.experiment.jobs_left
        trials = [job for job in cluster.open_jobs() if job.state.live or job.position < self.trial]
        if not (self.final or room or trials):
            ranked = sorted(cluster.open_jobs(), key=lambda job: self.value(cluster, job), reverse=True)
            for job in ranked[self.finalists :]:
                cluster.terminate_job(job.id)
            self.final = True
        ready = [job for job in cluster.idle_jobs() if self.final or job.position < self.trial]
        for job, slot in zip(ready, cluster.idle_slots(), strict=False):
            until = job.max_position if self.final else min(self.trial, job.max_position)
            cluster.start_job(job.id, slot.id, until=until, allowed=until)  # no report before `until` waits
        for _ in range(min(room, len(cluster.idle_slots()) - cluster.count(JobState.CREATING))):
            cluster.create_job()

    def on_timer(self, cluster: Cluster, timer: TimerFired) -> None:
        self.rung = self.rung or timer.ticket == self.bell

    def on_experiment_change(self, cluster: Cluster, change: ExperimentChange) -> None:
        if change.change == "extended" and cluster.experiment.jobs_left:
            self.bell, self.rung, self.final = "", False, False

    def demand(self, cluster: Cluster) -> int | None:
        return len(cluster.open_jobs()) if self.final else None

    def value(self, cluster: Cluster, job: JobView) -> float:
        """Return the job's best rated value so far; larger is better in both modes."""
        return max(cluster.ratings(job.id).values(), default=-math.inf)
