"""Events of runs and their snapshots: the messages of training processes, and snapshots that nodes receive."""

from __future__ import annotations

from dataclasses import dataclass

from hopyard.policy.vocabulary import Report, RunEndReason, StreamId
from hopyard.policy.vocabulary.reasons import Reason, ReasonCode
from hopyard_engine.core.types import SnapshotInfo


@dataclass(frozen=True, slots=True)
class Started:
    """A process of a run has attached to its agent and loaded its state (message of a run).

    Attributes:
        position: Position at which it starts.
        fetched: Bytes of the snapshot that the agent transferred for it; 0: no transfer was needed.
        from_store: Whether the transfer was from the store; else it was from another agent.
    """

    position: int
    fetched: int = 0
    from_store: bool = False


@dataclass(frozen=True, slots=True)
class Reports:
    """New reports of a run, ordered by position (message of a run). There is at least one."""

    reports: tuple[Report, ...]


@dataclass(frozen=True, slots=True)
class Amended:
    """The answer of a run to an `Amend` command (message of a run).

    Attributes:
        ticket: Ticket of the command.
        accepted: Whether the run applies the amendment.
        position: Position of the run when it answered.
    """

    ticket: str
    accepted: bool
    position: int


@dataclass(frozen=True, slots=True)
class SnapshotTaken:
    """A snapshot was written to the disk of the run's node (message of a run). `SnapshotStored` reports its upload."""

    snapshot: SnapshotInfo


@dataclass(frozen=True, slots=True)
class SnapshotStored:
    """The result of the upload of a snapshot of the run (message of a run). The message may arrive after the run has ended.

    Attributes:
        position: Position of the snapshot.
        sha256: Hash of its contents.
        error: Why the upload failed permanently; empty: the snapshot is in the store.
    """

    position: int
    sha256: str
    error: str = ""


@dataclass(frozen=True, slots=True)
class Ended:
    """A process of a run has ended and left its slot (message of a run).

    Attributes:
        reason: How the run ended.
        position: The position that it reached.
        snapshot: The snapshot that it saved at the end; None: none.
        user_code: Whether user code caused a failure.
        cause: The cause of the end, from the agent or from the engine; None: unknown.
        snapshot_missing: Whether the process could not load its snapshot, because neither a node nor the store had it.
        finished: Whether the program ended by itself and has nothing more to train.
        unable: Whether the program failed repeatedly in a way that would make every job fail on that node.
        fingerprint: Identifies the cause of a failure in user code: equal ones mean the same cause. It has no other meaning. Empty: the
            cause is unknown.
        permanent: Whether user code failed in a way that another run of the job on that node would repeat.
        code_missing: Whether neither the node nor the store had an undamaged copy of the code.
        missing_at: With `snapshot_missing`: names of other nodes that were asked and do not have an undamaged copy either.
    """

    reason: RunEndReason
    position: int
    snapshot: SnapshotInfo | None = None
    user_code: bool = False
    cause: Reason | None = None
    snapshot_missing: bool = False
    finished: bool = False
    unable: bool = False
    fingerprint: str = ""
    permanent: bool = False
    code_missing: bool = False
    missing_at: tuple[str, ...] = ()

    @property
    def detail(self) -> Reason:
        """The cause of the end; a reason with an empty message if the cause is unknown."""
        return self.cause or Reason.of(ReasonCode.RUN_MESSAGE, message="")


RunBody = Started | Reports | Amended | SnapshotTaken | SnapshotStored | Ended


@dataclass(frozen=True, slots=True)
class RunMessage:
    """A message of one process of a run.

    Attributes:
        at: Time at which the scheduler received it, in seconds since the Unix epoch.
        stream: Id of the stream.
        job: Id of the job.
        attempt: Attempt number of the run.
        rank: Rank of the process.
        sequence: Sequence number in the channel of the process, from 1.
        body: The content of the message.
    """

    at: float
    stream: StreamId
    job: str
    attempt: int
    rank: int
    sequence: int
    body: RunBody


@dataclass(frozen=True, slots=True)
class SnapshotShipped:
    """The answer of a node to an upload order.

    Attributes:
        at: Time of the event in seconds since the Unix epoch.
        stream: Id of the stream.
        node: Name of the node.
        order: Number of the order (`ShipmentOrder`).
        job: Id of the job.
        position: Position of the snapshot.
        sha256: Hash of its contents.
        error: Why the upload failed permanently; empty: the snapshot is in the store.
    """

    at: float
    stream: StreamId
    node: str
    order: int
    job: str
    position: int
    sha256: str
    error: str = ""
