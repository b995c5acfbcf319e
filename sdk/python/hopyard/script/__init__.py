"""Script mode: what an existing training script calls, on a cluster and alone.

    import hopyard

    hopyard.report(accuracy=0.93)

On a cluster `report` tells the run's agent, and returns when the script may train on. Alone it prints a line.
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
from hopyard.trainer.validation import is_whole, plain_metrics

if TYPE_CHECKING:
    from hopyard.script.mailbox import MailboxSession
    from hopyard.script.session import ScriptSession

__all__ = ["checkpoint", "hyperparameters", "report", "seed"]

_FURTHEST: Final = 2**31 - 1
_lock = threading.RLock()
_session: ScriptSession | MailboxSession | None = None
_alone_at = 0
"""The position of a script that runs alone."""


def report(
    metrics: Mapping[str, float] | None = None,
    /,
    *,
    position: int | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    **more: float,
) -> None:
    """Report the metrics of an iteration that ended; train on when it returns.

    When the run is to end here (it reached what it was to reach, is suspended or terminated), SystemExit is raised after
    all was told and saved: leave it alone, or clean up and let it pass.

    Args:
        metrics: Metrics by name; for names that are no Python names.
        position: How far the job has trained, in units; None: one more than before. Each report's is above the last one's.
        checkpoint: A file or folder that holds the training state at this position. It is packed before this returns, and only
            if a snapshot is wanted. Without one a job that is suspended goes on from its processes where a node can dump them
            (docs/process-snapshots.md), else begins again from scratch.
        **more: Metrics by name. NaN and infinities are legal and count as worst.

    Raises:
        ValueError: A metric is no number, the position is not above the last one's, or there is no such checkpoint.
        RuntimeError: Another process speaks for the run.
        SystemExit: The run ends here.
    """
    global _alone_at
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
        if session is not None:
            session.report(now, values, state)
        else:
            _alone_at = now
            shown = " ".join(f"{name}={value:.6g}" for name, value in values.items())
            sys.stdout.write(f"position {now}: {shown}\n")


def checkpoint() -> Path | None:
    """The file or folder, as it was given to `report`, from which to go on; None: begin from scratch.

    It comes before the first report, whose position then follows the checkpoint's.

    Raises:
        RuntimeError: Something was reported already, or another process speaks for the run.
        SystemExit: There is nothing left to train.
    """
    with _lock:
        session = _attached(resume=True)
        return session.checkpoint() if session is not None else None


def hyperparameters() -> dict[str, Any]:
    """The job's hyperparameters; alone, those in $HOPYARD_HYPERPARAMETERS (a JSON object), else none.

    Raises:
        ValueError: The variable holds something else.
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
    """The job's training seed: the same for equal configurations of an experiment; alone, $HOPYARD_SEED, else 0.

    Raises:
        ValueError: The variable holds no whole number.
    """
    text = os.environ.get("HOPYARD_SEED", "0")
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"HOPYARD_SEED needs a whole number, found {text[:200]!r}") from None


def _is_state(checkpoint: str | os.PathLike[str]) -> bool:
    # The empty path is the working directory for Path, and a mistake in a script.
    return bool(os.fspath(checkpoint)) and (Path(checkpoint).is_file() or Path(checkpoint).is_dir())


def _attached(*, resume: bool) -> ScriptSession | MailboxSession | None:
    """The session with the run's agent, begun on the first call; None: this script runs alone.

    Raises:
        RuntimeError: This is not the process that speaks for the run.
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
        # Children that a script forks (data loaders) do not use gRPC, which would warn of them otherwise.
        os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "false")
        # Only now: a script that runs alone needs no gRPC.
        from hopyard.script.session import ScriptSession

        _session = ScriptSession(os.environ, began=IMPORTED_AT, resume=resume)
        _session.begin()
    return _session
