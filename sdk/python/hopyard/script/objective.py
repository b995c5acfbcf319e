"""The program of a job whose search has an objective function: calls the function, and reports the value that it returns.

    python -m hopyard.script.objective MODULE FUNCTION METRIC

The module is imported from the working directory, which is the code of the search.
"""

from __future__ import annotations

import importlib
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, NoReturn

from hopyard import script
from hopyard.script.trial import Trial
from hopyard.trainer.validation import plain_metrics


def main(arguments: Sequence[str]) -> None:
    """Call the objective function of this job's search, and report the value that it returns.

    Args:
        arguments: Name of the module, name of the function in it, and name of the metric.

    Raises:
        SystemExit: The run ends at a report (see `hopyard.report`); or the exit code is 1: the function raised an error, whose
            traceback was printed, or it returned something that cannot be reported, which a message on stderr says.
    """
    module, name, metric = arguments
    try:
        function: Callable[[Trial], Any] = getattr(importlib.import_module(module), name)
        returned = function(Trial(script.hyperparameters(), metric=metric))
    except Exception as error:  # noqa: BLE001 - any error of the user's function is printed and ends the process
        _fail(error)
    try:
        metrics = returned_metrics(returned, metric, script.reached_position(), script.last_reported())
        if metrics:
            script.report(metrics)
    except ValueError as error:
        sys.exit(f"hopyard: {name}() of {module}: {error}")


def returned_metrics(
    returned: object, metric: str, position: int, reported: Mapping[str, float] | None
) -> dict[str, float]:
    """Return the metrics to report after an objective function has returned; empty: there is nothing to report.

    If the function has reported the metric, its returned value is not reported, because a job that is resumed from its last checkpoint
    could not tell whether this value repeats the last report.

    Args:
        returned: What the function returned.
        metric: Name of the metric that the search optimizes.
        position: Last position that the job has reported, in this process or in an earlier one; 0: none.
        reported: Metrics of the last report of this process; None: it has not reported.

    Raises:
        ValueError: The function returned neither a number, a mapping of metrics nor None; or it returned None although the job has
            reported nothing; or the metrics to report do not contain `metric`.
    """
    if returned is None:
        if position == 0:
            raise ValueError(
                f"it returned None and has reported nothing; allowed: return the value of {metric}, return a dict of metrics, "
                "or call trial.report(value) after each iteration"
            )
        return {}
    metrics = plain_metrics(dict(returned) if isinstance(returned, Mapping) else {metric: returned}, "it returned")
    if position > 0 and (reported is None or metric in reported):
        return {}
    if metric not in metrics:
        raise ValueError(f"it returned the metrics {', '.join(metrics) or 'none'}; needed: {metric}")
    return metrics


def _fail(error: Exception) -> NoReturn:
    """Print the traceback of an error without the frames of this module and of the import system, and exit with code 1."""
    error.__traceback__ = _own_frames(error.__traceback__)
    traceback.print_exception(error)
    sys.exit(1)


def _own_frames(trace: TracebackType | None) -> TracebackType | None:
    hidden = (__file__, importlib.__file__)
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        if file not in hidden and not file.startswith("<frozen importlib"):
            break
        trace = trace.tb_next
    return trace


if __name__ == "__main__":
    main(sys.argv[1:])
