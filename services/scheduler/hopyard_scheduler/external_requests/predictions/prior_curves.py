"""Learning curves of earlier experiments on the same space, for predictors that read curves.

Two experiments match if their hyperparameters have the same names and kinds of domains, hyperparameters with a constant
domain have the same value, and their metrics, modes and units of positions are equal. The ranges of hyperparameters may
differ. The curves are from the newest matching experiments that ended before the present one was created. They are
constant while the scheduler runs. A restarted scheduler reads them again and may find fewer, because only the newest
experiments are searched. Replays do not depend on them: the journal has the answers of predictors.

If AppStat does not answer in time, predictions are made without these curves.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakValueDictionary

from hopyard.client.types import Experiment, Job
from hopyard.client.wire import converters
from hopyard.errors import HopyardError
from hopyard.spec import ExperimentSpec, spec_from_json
from hopyard.spec.errors import SpecError
from hopyard.traces.recorder import Recorder
from hopyard.traces.trace import Trace
from hopyard.v1 import appstat_pb2, experiment_pb2
from hopyard_engine.core.actions.prediction_requests import thinned
from hopyard_scheduler.external_requests.negative_cache import Failure, failed

if TYPE_CHECKING:
    from hopyard.v1 import appstat_pb2_grpc

_LOG = logging.getLogger(__name__)

CURVES: Final = 100
"""Maximum number of curves: the longest of the newest experiment first, then those of the one before it."""

POINTS: Final = 100
"""Maximum number of points of a curve; longer ones are thinned evenly."""

LOOKED_AT: Final = 200
"""Number of experiments to search, the newest first."""

REPORTS: Final = 50_000
"""Approximate maximum number of reports to read."""

SECONDS: Final = 30.0
"""Time limit of reading, in seconds."""

_PAGE: Final = 2000


class PriorCurves:
    """Reads the curves for an experiment on first use and caches them until the experiment ends.

    Args:
        stub: Client of AppStat.
        seconds: Time limit of reading, in seconds.
        clock: Returns monotonic seconds.
    """

    def __init__(
        self,
        stub: appstat_pb2_grpc.AppStatServiceAsyncStub,
        seconds: float = SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._stub = stub
        self._seconds = seconds
        self._clock = clock
        self._found: dict[str, str] = {}
        self._failures: dict[str, Failure] = {}
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def curves(self, experiment: str, spec: ExperimentSpec, before: float) -> str:
        """Return the curves of earlier experiments that match an experiment, as a JSON list.

        Experiments match if their metric, mode and unit of positions are equal, and their hyperparameters have the same
        names, kinds of domains and constant values. If the curves cannot be read, the list is empty, a warning is logged
        once, and later calls retry with backoff.

        Args:
            experiment: The id of the experiment.
            spec: Its specification.
            before: The time of its creation, in seconds since the Unix epoch. Only experiments that had ended then are
                used.
        """
        async with self._locks.setdefault(experiment, asyncio.Lock()):
            failure = self._failures.get(experiment)
            if experiment not in self._found and (failure is None or self._clock() >= failure.until):
                try:
                    async with asyncio.timeout(self._seconds):
                        self._found[experiment] = json.dumps(await self._read(spec, before), separators=(",", ":"))
                    self._failures.pop(experiment, None)
                except TimeoutError:
                    self._failed(experiment, f"it took longer than {self._seconds:g} s")
                except HopyardError as error:
                    self._failed(experiment, str(error))
            return self._found.get(experiment, "[]")

    def forget(self, experiment: str) -> None:
        """Release the cached curves of an ended experiment."""
        self._found.pop(experiment, None)
        self._failures.pop(experiment, None)

    def _failed(self, experiment: str, error: str) -> None:
        before = self._failures.get(experiment)
        now = self._failures[experiment] = failed(before, error, self._clock())
        if before is None:
            _LOG.warning(
                "experiment %s is predicted without the curves of earlier ones, which cannot be read: %s; "
                "this is tried again after %g s at the earliest",
                experiment,
                error,
                now.pause,
            )

    async def _read(self, spec: ExperimentSpec, before: float) -> list[dict[str, Any]]:
        key, found, reports = _key(spec), list[dict[str, Any]](), 0
        for message in await self._ended(before):
            if reports >= REPORTS or len(found) >= CURVES:
                break
            if not _is_like(message.spec_json, key):
                continue
            traces, read = await self._traces(converters.experiment(message), REPORTS - reports)
            reports += read
            traces.sort(key=lambda trace: -trace.positions[-1])
            found += [_curve(trace) for trace in traces[: CURVES - len(found)]]
        return found

    async def _ended(self, before: float) -> list[experiment_pb2.Experiment]:
        """Return the ended experiments, in descending order of creation.

        Only the `LOOKED_AT` experiments that were created last are searched.

        Args:
            before: The latest time at which an experiment may have ended, in seconds since the Unix epoch.
        """
        request = appstat_pb2.QueryExperimentsRequest(page_size=LOOKED_AT)
        page = await self._stub.QueryExperiments(request)
        return [message for message in page.experiments if 0 < message.ended_at <= before]

    async def _traces(self, experiment: Experiment, most: int) -> tuple[list[Trace], int]:
        """Return the learning curves of an experiment and the number of reports read.

        Args:
            experiment: The experiment.
            most: Number of reports after which reading stops. AppStat returns reports in
                pages of `_PAGE`, so up to one page more is read.
        """
        recorder, reports = Recorder(), 0
        request = appstat_pb2.QueryStatisticsRequest(experiment=experiment.id, page_size=_PAGE)
        while reports < most:
            page = await self._stub.QueryStatistics(request)
            recorder.add(converters.statistic(one) for one in page.statistics)
            reports += len(page.statistics)
            request.page_token = page.next_page_token
            if not request.page_token:
                break
        return recorder.traces(experiment, await self._jobs(experiment.id)), reports

    async def _jobs(self, experiment: str) -> list[Job]:
        jobs, request = list[Job](), appstat_pb2.QueryJobsRequest(experiment=experiment, page_size=_PAGE)
        while True:
            page = await self._stub.QueryJobs(request)
            jobs += map(converters.job, page.jobs)
            request.page_token = page.next_page_token
            if not request.page_token:
                return jobs


def _is_like(spec_json: str, key: tuple[Any, ...]) -> bool:
    try:
        return _key(spec_from_json(spec_json)) == key
    except SpecError:  # Written by another version; a specification that this version cannot read does not match.
        return False


def _key(spec: ExperimentSpec) -> tuple[Any, ...]:
    """Return the values in which two experiments must be equal, so that the curves of one can serve predictions for the other.

    These are the metric, the mode, the unit of positions and, for each hyperparameter, the constant value or the kind of domain.
    """
    space = {
        name: spec.space[name].to_data() if spec.space[name].kind == "constant" else spec.space[name].kind
        for name in spec.space
    }
    return spec.metric.name, spec.metric.mode, spec.unit, space


def _curve(trace: Trace) -> dict[str, Any]:
    points = thinned(list(zip(trace.positions, trace.metrics, strict=True)), POINTS)
    return {
        "positions": [position for position, _ in points],
        "values": [value for _, value in points],
        "hyperparameters": trace.hyperparameters,
        "ended": True,
    }
