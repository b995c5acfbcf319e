"""Detection of changed waiting reasons for watchers. The reason why a job waits may change although the job does not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Final

from hopyard.policy.vocabulary.reasons import Reason
from hopyard.v1 import experiment_pb2
from hopyard_engine.core import Core
from hopyard_engine.core.state.entities import Job
from hopyard_engine.core.state.experiment import Experiment
from hopyard_engine.core.state.stream import Stream
from hopyard_engine.explain.waiting_reasons import WaitingReasons
from hopyard_scheduler.converters import experiment_to_proto, job_to_proto

AGAIN_SECONDS: Final = 1.0
"""Interval in seconds at which a watcher gets changed reasons."""

MAX_NEWS: Final = 100
"""Maximum number of jobs with changed reasons in one interval; others follow in the next."""

_LOOK_SECONDS: Final = 0.1
"""Seconds for which a watcher reuses one computation of waiting reasons."""


class WatcherState:
    """The waiting reasons that one watcher of an experiment has received. It finds those that have changed since.

    Args:
        core: The state machine of the engine, which has the experiment.
        stream: The stream of the experiment.
        experiment: The experiment.
        clock: Returns seconds since the Unix epoch.
        absent: Returns why no process is connected for the experiment's policy; None: one is connected or none is
            needed.
    """

    def __init__(
        self,
        core: Core,
        stream: Stream,
        experiment: Experiment,
        clock: Callable[[], float],
        absent: Callable[[], Reason | None] = lambda: None,
    ) -> None:
        self._absent = absent
        self._core = core
        self._stream = stream
        self._experiment = experiment
        self._clock = clock
        self._jobs: dict[str, Reason | None] = {}
        self._reason: Reason | None = None
        self._looked_at = clock()
        self._waiting = WaitingReasons(stream, core.cluster, self._looked_at, absent())
        self._news_at = self._looked_at

    def job(self, job: Job) -> experiment_pb2.WatchExperimentResponse:
        """Return the message with a job and its waiting reason, and remember the reason as sent."""
        return self._tell(job, self._look().job(job))

    def experiment(self) -> experiment_pb2.WatchExperimentResponse:
        """Return the message with the experiment and its waiting reason, and remember the reason as sent."""
        self._reason = self._look().experiment(self._experiment)
        shown = experiment_to_proto(self._stream, self._experiment, self._clock(), self._reason)
        return experiment_pb2.WatchExperimentResponse(experiment=shown)

    def news(self) -> Iterator[experiment_pb2.WatchExperimentResponse]:
        """Yield messages for the experiment and its unfinished jobs whose waiting reasons differ from those sent last.

        The first step finds the jobs, at most `MAX_NEWS`; later calls yield the others. Each message is prepared when it is requested.
        Nothing is yielded if less than `AGAIN_SECONDS` have passed since the jobs were last compared, or if the experiment has ended.
        """
        now = self._clock()
        if self._experiment.state.ended or 0 <= now - self._news_at < AGAIN_SECONDS:
            return
        self._news_at = self._looked_at = now
        self._waiting = waiting = WaitingReasons(self._stream, self._core.cluster, now, self._absent())
        open_jobs = (job for job in self._stream.open.values() if job.experiment is self._experiment)
        different = (job for job in open_jobs if job.id not in self._jobs or waiting.job(job) != self._jobs[job.id])
        reason_changed = waiting.experiment(self._experiment) != self._reason
        for job in list(islice(different, MAX_NEWS)):
            yield self.job(job)
        if reason_changed:
            yield self.experiment()

    def _look(self) -> WaitingReasons:
        now = self._clock()
        if not 0 <= now - self._looked_at < _LOOK_SECONDS:
            self._looked_at = now
            self._waiting = WaitingReasons(self._stream, self._core.cluster, now, self._absent())
        return self._waiting

    def _tell(self, job: Job, reason: Reason | None) -> experiment_pb2.WatchExperimentResponse:
        if job.state.ended:
            self._jobs.pop(job.id, None)
        else:
            self._jobs[job.id] = reason
        return experiment_pb2.WatchExperimentResponse(job=job_to_proto(self._stream, job, reason))
