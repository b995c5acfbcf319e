"""Writes results to MLflow: one run per job, with parameters, metrics by step, and tags. It needs the extra `mlflow`."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import urlsplit

from hopyard._common.optional_import import need
from hopyard.client.types import Experiment, Job, JobState, Statistic
from hopyard.errors import HopyardError, Unavailable
from hopyard.policy.vocabulary.reasons import ReasonCode
from hopyard.results.publisher import values
from hopyard.results.rows import flatten

EXPERIMENT_TAG: Final = "hopyard.experiment"
JOB_TAG: Final = "hopyard.job"

_BATCH: Final = 1000
_PARAMETERS: Final = 100
_NOT_ALLOWED: Final = re.compile(r"[^\w./ :-]")
_STATUS: Final = {
    JobState.COMPLETED: "FINISHED",
    JobState.TERMINATED: "FINISHED",  # MLflow shows KILLED as a failure.
    JobState.FAILED: "FAILED",
    JobState.RUNNING: "RUNNING",
}


class MlflowSink:
    """Writes the curves of an experiment to the MLflow experiment with the same name, which is created if it is missing.

    The tags `hopyard.experiment` and `hopyard.job` identify the run of a job. A repeated export therefore adds only the points
    that the run does not have.

    Args:
        to: A tracking URI, such as http://host:5000 or sqlite:///mlflow.db; or a folder for the database `mlflow.db`.
        experiment: The experiment.

    Raises:
        Unsupported: mlflow is not installed.
        Unavailable: MLflow is not reachable, or rejects a request.
    """

    def __init__(self, to: str, experiment: Experiment) -> None:
        self._mlflow = need("mlflow", "mlflow")
        logging.getLogger("mlflow.store.db").setLevel(logging.WARNING)  # It logs each table that it creates.
        self._experiment = experiment
        self._uri = tracking_uri(to)
        self._runs: dict[str, Any] = {}
        self._there: dict[str, set[tuple[str, int]]] = {}
        with self._minded():
            self._client = self._mlflow.MlflowClient(tracking_uri=self._uri)
            found = self._client.get_experiment_by_name(experiment.name)
            self._id = found.experiment_id if found is not None else self._client.create_experiment(experiment.name)
            token = None
            while True:
                page = self._client.search_runs(
                    [self._id], f"tags.`{EXPERIMENT_TAG}` = '{experiment.id}'", page_token=token
                )
                self._runs.update({run.data.tags[JOB_TAG]: run for run in page if JOB_TAG in run.data.tags})
                token = page.token
                if not token:
                    break

    def __enter__(self) -> Self:
        """Return the sink."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Do nothing, since the sink has nothing to close."""

    def update(self, job: Job, statistics: Sequence[Statistic]) -> int:
        """Write the new points of a job's curves and its state to its run, which is created if it is missing.

        Args:
            job: The job.
            statistics: All its reports.

        Returns:
            Number of points that the run did not have.

        Raises:
            Unavailable: MLflow is not reachable, or rejects a request.
        """
        with self._minded():
            run = self._runs.get(job.id) or self._begin(job, statistics)
            there = self._known(job, run)
            metric = self._mlflow.entities.Metric
            new = [
                metric(_name(point.metric), point.value, _milliseconds(point.at), point.position)
                for point in values(statistics)
                if (_name(point.metric), point.position) not in there
            ]
            for start in range(0, len(new), _BATCH):
                self._client.log_batch(run.info.run_id, metrics=new[start : start + _BATCH])
            there.update((one.key, one.step) for one in new)
            self._tell_state(job, run, statistics)
            return len(new)

    def _begin(self, job: Job, statistics: Sequence[Statistic]) -> Any:
        experiment = self._experiment
        begun = min((one.at for one in statistics), default=experiment.created_at)
        tags = {EXPERIMENT_TAG: experiment.id, JOB_TAG: job.id}
        tags |= {"hopyard.parent": f"{job.parent} at {job.fork_position}"} if job.parent is not None else {}
        run = self._client.create_run(
            self._id, start_time=_milliseconds(begun), tags=tags, run_name=f"{experiment.name} {job.id}"
        )
        self._runs[job.id] = run
        return run

    def _known(self, job: Job, run: Any) -> set[tuple[str, int]]:
        """Return the points that the run has, as pairs of metric name and position. They are queried from MLflow once per job.

        The first call for a job also adds its hyperparameters to the parameters of the run, unless the run has them.

        Args:
            job: The job.
            run: Its MLflow run.
        """
        if job.id not in self._there:
            # Also for an existing run: an earlier export may have been interrupted before all parameters were written.
            param = self._mlflow.entities.Param
            wanted = {_name(name): _text(value) for name, value in flatten("", job.hyperparameters).items()}
            missing = [param(name, value) for name, value in wanted.items() if name not in run.data.params]
            for start in range(0, len(missing), _PARAMETERS):
                self._client.log_batch(run.info.run_id, params=missing[start : start + _PARAMETERS])
            history = [self._client.get_metric_history(run.info.run_id, name) for name in run.data.metrics]
            self._there[job.id] = {(one.key, one.step) for points in history for one in points}
        return self._there[job.id]

    def _tell_state(self, job: Job, run: Any, statistics: Sequence[Statistic]) -> None:
        status = _STATUS.get(job.state, "SCHEDULED")
        if job.state is JobState.TERMINATED and job.reason_code is ReasonCode.STOPPED_BY_PERSON:
            status = "KILLED"
        if job.state.ended:
            ended = max((one.at for one in statistics), default=self._experiment.created_at)
            self._client.set_terminated(run.info.run_id, status, _milliseconds(ended))
        else:
            self._client.update_run(run.info.run_id, status)
        self._client.set_tag(run.info.run_id, "hopyard.state", job.state.value)

    @contextmanager
    def _minded(self) -> Iterator[None]:
        """Return a context manager that converts exceptions of MLflow to `Unavailable`."""
        try:
            yield
        except HopyardError:
            raise
        except self._mlflow.exceptions.MlflowException as error:
            first = (str(error).splitlines() or [type(error).__name__])[0]
            raise Unavailable(self._without_password(f"MLflow at {self._uri}: {first}")) from error

    def _without_password(self, text: str) -> str:
        password = urlsplit(self._uri).password
        return text.replace(f":{password}@", ":***@") if password else text


def tracking_uri(to: str) -> str:
    """Return the tracking URI for the argument of the option `-o` of `hopyard results`.

    A text that contains `://` is a URI and is returned unchanged. Any other text is the path of a folder, which is created if it is
    missing; the result is then the URI of the database `mlflow.db` in it.
    """
    if "://" in to:
        return to
    folder = Path(to).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    return f"sqlite:///{folder / 'mlflow.db'}"


def _name(name: str) -> str:
    """Return a name with the characters that MLflow does not allow replaced by underscores."""
    return _NOT_ALLOWED.sub("_", name)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _milliseconds(seconds: float) -> int:
    return int(seconds * 1000)
