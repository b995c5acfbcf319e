"""Script mode: the functions that an existing training script calls. They also work if no cluster started the script.

    import hopyard

    hopyard.report(accuracy=0.93)

On a cluster, `report` sends the metrics to the run's agent, and returns when the script may continue to train. If a person started
the script without Hopyard, `report` prints a line.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from hopyard._version import IMPORTED_AT
from hopyard.script import mailbox_files
from hopyard.trainer.validation import MetricValue, is_whole, plain_metrics

if TYPE_CHECKING:
    from hopyard.script.mailbox import MailboxSession
    from hopyard.script.session import ScriptSession

__all__ = ["checkpoint", "hyperparameters", "report", "seed"]

_FURTHEST: Final = 2**31 - 1
_lock = threading.RLock()
_session: ScriptSession | MailboxSession | None = None
_alone_at = 0
"""The last reported position of a script that no cluster started."""

_reported: dict[str, float] | None = None
"""The metrics of the last report of this process; None: it has not reported."""


def report(
    metrics: Mapping[str, MetricValue] | None = None,
    /,
    *,
    position: int | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    **more: MetricValue,
) -> None:
    """Report the metrics of an iteration that ended; returns when the script may continue to train.

    If no cluster started the script, the metrics are printed and the checkpoint is ignored.

    If the run ends here (it reached its end position, or is suspended or terminated), SystemExit is raised after everything was
    reported and saved. Do not catch it, or clean up and raise it again.

    Example:
        for epoch in range(3):
            report({"val/loss": 0.5 / (1 + epoch)}, accuracy=0.9)

    Args:
        metrics: Metrics by name, for names that are not Python identifiers. A value is a number, or a tensor or array with one number.
        position: How far the job has trained, in the experiment's unit; None: one more than at the last report. It must
            increase with each report.
        checkpoint: A file or folder with the training state at this position. It is packed before this function returns, and only
            if a snapshot is needed. Without a checkpoint, a suspended job continues from its processes where a node can dump them
            (docs/process-snapshots.md), else it starts from scratch.
        **more: Metrics by name. NaN and infinities are allowed and are treated as the worst value.

    Raises:
        ValueError: A metric is not a number, the position is not larger than the last one, or the checkpoint does not exist.
        RuntimeError: Another process makes the reports of this run.
        SystemExit: The run ends here.
    """
    global _alone_at, _reported
    values = plain_metrics({**(metrics or {}), **more}, "hopyard.report() got")
    state = None if checkpoint is None else Path(checkpoint)
    if checkpoint is not None and not _is_state(checkpoint):
        raise ValueError(
            f"hopyard.report(): checkpoint {os.fspath(checkpoint)!r} is not there; allowed: a file or a folder"
        )
    with _lock:
        session = _attached(resume=False)
        reached = session.position if session is not None else _alone_at
        now = reached + 1 if position is None else position
        if not is_whole(now, least=reached + 1) or now > _FURTHEST:
            raise ValueError(
                f"hopyard.report(): position is {position!r}; allowed: a whole number above the last one's, {reached}, "
                f"and at most {_FURTHEST}"
            )
        _reported = values
        if session is not None:
            session.report(now, values, state)
        else:
            _alone_at = now
            shown = " ".join(f"{name}={value:.6g}" for name, value in values.items())
            sys.stdout.write(f"position {now}: {shown}\n")


def checkpoint() -> Path | None:
    """Return the checkpoint from which the script must continue, as it was passed to `report`; None: it starts from scratch.

    Call it before the first report, whose position then follows that of the checkpoint. Always None if no cluster started the
    script.

    Example:
        state = checkpoint()
        done = int(state.read_text()) if state else 0
        for epoch in range(done, 3):
            with open("last.txt", "w") as file:
                file.write(str(epoch + 1))
            report(accuracy=0.9, checkpoint="last.txt")

    Raises:
        RuntimeError: The script has already reported, or another process makes the reports of this run.
        SystemExit: There is nothing left to train, or the checkpoint could not be loaded.
    """
    with _lock:
        session = _attached(resume=True)
        return session.checkpoint() if session is not None else None


def hyperparameters() -> dict[str, Any]:
    """Return the job's hyperparameters by name. A sequence has its written form (`hopyard.sequences.values_at` evaluates it).

    They are the JSON object in the environment variable HOPYARD_HYPERPARAMETERS, which the cluster sets. A person who starts the
    script without a cluster can set it too; if it is not set, the result is empty.

    Example:
        lr = hyperparameters().get("lr", 0.1)

    Raises:
        ValueError: The variable does not contain a JSON object.
    """
    text = os.environ.get("HOPYARD_HYPERPARAMETERS", "{}")
    try:
        values = json.loads(text)
    except ValueError as error:
        raise ValueError(f"HOPYARD_HYPERPARAMETERS is no JSON: {error}; found {text[:200]!r}") from None
    if not isinstance(values, dict):
        raise ValueError(f'HOPYARD_HYPERPARAMETERS needs a JSON object such as {{"lr": 0.1}}, found {text[:200]!r}')
    return values


def seed() -> int:
    """Return the job's training seed, which is equal for equal configurations of an experiment.

    It is the integer in the environment variable HOPYARD_SEED, which the cluster sets. A person who starts the script without a
    cluster can set it too; if it is not set, the seed is 0.

    Example:
        rng = random.Random(seed())

    Raises:
        ValueError: The variable does not contain an integer.
    """
    text = os.environ.get("HOPYARD_SEED", "0")
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"HOPYARD_SEED needs a whole number, found {text[:200]!r}") from None


def last_reported() -> dict[str, float] | None:
    """Return the metrics of the last report of this process, or None if it has not reported."""
    return _reported


def reached_position() -> int:
    """Return the position of the last report of this process; before one, that of the checkpoint from which it continues.

    0: there is neither a report nor a checkpoint.
    """
    return _session.position if _session is not None else _alone_at


def _is_state(checkpoint: str | os.PathLike[str]) -> bool:
    # Path treats an empty path as the working directory; in a script, it is a mistake.
    return bool(os.fspath(checkpoint)) and (Path(checkpoint).is_file() or Path(checkpoint).is_dir())


def _attached(*, resume: bool) -> ScriptSession | MailboxSession | None:
    """Return the session with the run's agent, which the first call begins; None if no cluster started this script.

    Args:
        resume: For the first call: whether the script continues from the checkpoint, if there is one; else positions begin at 0.

    Raises:
        RuntimeError: Another process makes the reports of this run.
        SystemExit: In the first call: nothing is left to train, or the checkpoint could not be loaded.
    """
    global _session
    if _session is not None:
        _session.need_own_process()
        return _session
    if mailbox_files.VARIABLE in os.environ:
        from hopyard.script.mailbox import MailboxSession

        _session = MailboxSession(Path(os.environ[mailbox_files.VARIABLE]), began=IMPORTED_AT)
        return _session
    if "HOPYARD_TOKEN" in os.environ or "HOPYARD_SPEAKER" in os.environ:
        # Without this, gRPC warns about each child that a script forks (data loaders), although they do not use gRPC.
        os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "false")
        # Imported here, because a script that no cluster started needs no gRPC.
        from hopyard.script.session import ScriptSession

        _session = ScriptSession(os.environ, began=IMPORTED_AT, resume=resume)
        _session.begin()
    return _session
