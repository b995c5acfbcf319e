"""The state machine of a run: positions, decisions and amendments, without I/O.

A run is either inside an iteration or at a boundary: the point right after a report. `RunControl` receives events (an
iteration ended, a snapshot was taken, a decision or an amendment arrived) and returns the action at each boundary:

    start --> Train --> [report] --> Save? --> Wait? --> Train ...
                                        |         '----> End
                                        '--------------> End

- Below `allowed` the run never waits. At `allowed` or beyond, it waits for a decision on the reported position.
- At `until` or beyond (or when the trainer has finished), it is parked: it waits regardless of `allowed`. CONTINUE ends
  the run there, unless `until` has been moved. PARK keeps it waiting, and a later move of `until` lets it continue
  without a decision.
- SUSPEND and TERMINATE take effect at the next boundary, whatever position they name, and cannot be revoked.
- A save point is a position at which the run must take a snapshot. Snapshots are taken right after the report, before any
  wait. A save point or an `until` inside an iteration takes effect at the first boundary after it.
- An amendment moves `until` or adds save points while the run is in progress.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any, Final

from hopyard.policy.vocabulary import DecisionKind, RunEndReason

_TRIES: Final = 3
"""Number of boundaries at which a run to be suspended tries to save before it ends without a snapshot."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPlan:
    """The settings with which a run starts. A field other than `position` and `evaluate` has the name of a field of `StartRun`.

    Attributes:
        position: Start position (>= 0): that of its snapshot, 0 from scratch.
        until: Position at which the run parks, that is, waits for a decision or a new `until`; 0: none.
        allowed: Position up to which the run trains without a decision: only reports at or beyond it wait.
        snapshot_at: Positions at which the run saves and continues.
        snapshot_every: The run saves whenever this many units have passed since its last snapshot; 0: never.
        evaluate: The run evaluates (or profiles) once at `position`; it discards its training and saves nothing.
        completes: The run saves and ends at `until` (or when the trainer has finished) without a decision. After an amendment has
            moved `until`, the run waits there for a decision.
    """

    position: int = 0
    until: int = 0
    allowed: int = 0
    snapshot_at: frozenset[int] = frozenset()
    snapshot_every: int = 0
    evaluate: bool = False
    completes: bool = False

    @classmethod
    def of(cls, options: object, *, position: int, evaluate: bool, **changes: Any) -> RunPlan:
        """Return the plan of a run from an object with its options.

        Args:
            options: Has the options of the run as attributes: a `StartRun`, or the engine's `Start`.
            position: Start position: that of the snapshot to resume from, 0 from scratch.
            evaluate: Whether the run evaluates or profiles instead of training.
            changes: Options that replace those of `options`, by name.
        """
        names = {field.name for field in fields(cls)} - {"position", "evaluate"} - set(changes)
        named = {name: getattr(options, name) for name in names} | changes
        return cls(position=position, evaluate=evaluate, **{**named, "snapshot_at": frozenset(named["snapshot_at"])})


@dataclass(frozen=True, slots=True)
class Train:
    """The action: train one iteration, which should not pass the position `limit` (None: no limit).

    The limit is `until` or an earlier position at which the run must save.
    """

    limit: int | None


@dataclass(frozen=True, slots=True)
class Restate:
    """The action: report the present position without metrics, because there is nothing to train."""


@dataclass(frozen=True, slots=True)
class Save:
    """The action: take a snapshot of the present position."""


@dataclass(frozen=True, slots=True)
class Wait:
    """The action: wait for a decision or an amendment."""


@dataclass(frozen=True, slots=True)
class EndRun:
    """The action: end the run for `reason`. If `snapshot` is true, the run ends with the snapshot taken at the present position."""

    reason: RunEndReason
    snapshot: bool


Action = Train | Restate | Save | Wait | EndRun


@dataclass(frozen=True, slots=True)
class AmendAnswer:
    """The reply to an amendment.

    Attributes:
        accepted: Whether the amendment was accepted; False: it was too late, and nothing has changed.
        position: If accepted, the run's position. If not, the position that `until` and all positions to save
            at must exceed.
    """

    accepted: bool
    position: int


class RunControlError(Exception):
    """Raised if the training loop calls methods of `RunControl` in the wrong order: a bug of the runner, not of the user's code."""


class RunControl:
    """The state machine of one run: records events and returns the next action. Not thread-safe; the caller must hold a lock.

    A new object is at the start position of its plan, before the first iteration.

    Args:
        plan: Settings of the run.
    """

    def __init__(self, plan: RunPlan) -> None:
        self._plan = plan
        self._position = plan.position
        self._until = plan.until
        self._allowed = plan.allowed
        self._points = {point for point in plan.snapshot_at if point > plan.position}
        self._last_snapshot = plan.position
        self._saved_at: int | None = None
        self._released = -1
        self._in_flight = False
        self._committed = plan.position
        self._reported = False
        self._finished = False
        self._savable = True
        self._only_leaving = False
        self._unsaved = 0
        self._parked = False
        self._park_decided = False
        self._completing = False
        self._completes = plan.completes
        self._stop: DecisionKind | None = None

    @property
    def position(self) -> int:
        """The last position that the run has reached; before the end of the first iteration, its start position."""
        return self._position

    @property
    def parked(self) -> bool:
        """Whether the run is at its `until` (or has finished) and must wait for a decision or a moved `until`."""
        return self._parked

    def started(self, *, finished: bool) -> None:
        """Record that the run's state is loaded.

        Args:
            finished: Whether nothing is left to train.
        """
        self._finished = finished

    def next(self) -> Action:
        """Return the action at this boundary. Call it again after each call of `saved`, `unsaved`, `decide` or `amend`.

        Raises:
            RunControlError: An iteration is in progress.
        """
        if self._in_flight:
            raise RunControlError(f"next() inside the iteration that began at position {self._position}")
        if not self._reported:
            return Restate() if self._nothing_to_train() else Train(self._limit())
        if self._save_point_due():
            return Save()
        if self._stop is DecisionKind.TERMINATE:
            return EndRun(RunEndReason.TERMINATED, snapshot=False)
        if self._stop is DecisionKind.SUSPEND:
            again = 0 < self._unsaved < _TRIES and not self._savable and not self._at_end()
            return Train(self._limit()) if again else self._end_saved(RunEndReason.SUSPENDED)
        if self._parked:
            return self._end_saved(RunEndReason.UNTIL) if self._completing else Wait()
        if self._position >= self._allowed and self._position > self._released:
            return Wait()
        return Train(self._limit())

    def began(self, *, committed: int | None = None) -> None:
        """Record that an iteration began.

        Args:
            committed: Position at which the iteration will end, if the trainer stops exactly at its limit; None: unknown.

        Raises:
            RunControlError: An iteration is already in progress.
        """
        if self._in_flight:
            raise RunControlError(f"began() twice at position {self._position}")
        self._in_flight = True
        self._reported = False
        self._committed = self._position if committed is None else committed - 1

    def reached(self, position: int, *, finished: bool, savable: bool = True, only_leaving: bool = False) -> bool:
        """Record that an iteration ended at `position`, or that the run reports its present position again.

        Args:
            position: The position reached.
            finished: Whether nothing is left to train.
            savable: False: no snapshot can be taken at this boundary. A requested snapshot is taken at the next one; a run
                that ends here has no snapshot.
            only_leaving: True: a snapshot is taken only if the run ends here and the job continues later. A requested
                snapshot is taken at the next boundary.

        Returns:
            Whether the run is now parked; the report's field `at_until` has this value.

        Raises:
            RunControlError: The iteration did not increase the position.
        """
        if self._in_flight and not self._plan.evaluate and position <= self._position:
            raise RunControlError(f"an iteration led from position {self._position} to {position}")
        self._in_flight = False
        self._reported = True
        self._position = self._committed = position
        self._finished = finished
        self._savable = savable
        self._only_leaving = only_leaving
        self._parked = self._plan.evaluate or self._at_end()
        self._park_decided = False
        self._completing = self._completes and self._at_end()
        return self._parked

    def saved(self) -> None:
        """Record that a snapshot of the present position was taken."""
        self._saved_at = self._last_snapshot = self._position
        self._unsaved = 0
        self._points = {point for point in self._points if point > self._position}

    def unsaved(self, *, again: bool = True) -> None:
        """Record that a snapshot of the present position could not be taken.

        A requested snapshot is taken at the next boundary instead. A run to be suspended trains until there and tries again;
        after three successive failures it ends without a snapshot.

        Args:
            again: False: another attempt is useless; a run to be suspended ends without a snapshot.
        """
        self._savable = False
        self._unsaved = self._unsaved + 1 if again else _TRIES

    @property
    def free(self) -> int:
        """The position below which the run can report and continue without a command of the agent.

        It follows from the decisions and amendments so far. If a decision orders the run to end, it is the present position.
        """
        if self._stop is not None:
            return self._position
        every = 0 if self._only_leaving else self._plan.snapshot_every
        ahead = [self._allowed, self._limit(), self._last_snapshot + every if every else None]
        return min(stop for stop in ahead if stop is not None)

    def decide(self, decision: DecisionKind, position: int, allowed: int) -> None:
        """Apply a decision on the report of `position`.

        SUSPEND and TERMINATE take effect at the next boundary, whatever `position` is. CONTINUE and PARK with an earlier position than
        the present one change only `allowed`.

        Args:
            decision: The decision.
            position: The reported position to which it refers.
            allowed: New position up to which the run trains without a decision; a value smaller than the present one, such as 0, does
                not change it.
        """
        self._allowed = max(self._allowed, allowed)
        if decision is DecisionKind.TERMINATE:
            self._stop = decision
        elif decision is DecisionKind.SUSPEND:
            self._stop = self._stop or decision
        elif decision is DecisionKind.PARK:
            self._park_decided |= self._parked and position >= self._position
        else:
            self._proceed(position)

    def amend(self, until: int, snapshot_at: Iterable[int]) -> AmendAnswer:
        """Apply an amendment; if any part of it is too late, nothing changes.

        Args:
            until: New position at which the run parks; 0: unchanged.
            snapshot_at: Further positions at which the run must save.

        Returns:
            Whether the amendment was accepted, and a position: that of the run, or, if it was refused, the one to exceed.
        """
        points = set(snapshot_at)
        passed = max(self._position, self._committed)
        until_ok = until == 0 or until > passed or (until == self._position and self._parked)
        # At a boundary, the present position can still be saved.
        points_ok = all(point > passed or (point == self._position and self._reported) for point in points)
        ahead = until > self._position or any(point > self._position for point in points)
        if not (until_ok and points_ok) or self._completing or self._plan.evaluate or (self._finished and ahead):
            return AmendAnswer(False, passed)
        if until:
            self._until, self._completes = until, False  # `completes` applies only to the original `until`.
        self._points |= points - {self._saved_at}
        if self._parked and until > self._position and self._park_decided:
            self._release()
        return AmendAnswer(True, self._position)

    def _proceed(self, position: int) -> None:
        self._released = max(self._released, position)
        if not self._parked or position < self._position:
            return
        self._park_decided = False
        if self._plan.evaluate or self._at_end():
            self._completing = True
        else:
            self._release()

    def _release(self) -> None:
        self._parked = self._park_decided = False
        self._released = max(self._released, self._position)

    def _at_end(self) -> bool:
        return self._finished or 0 < self._until <= self._position

    def _nothing_to_train(self) -> bool:
        return not self._plan.evaluate and self._at_end()

    def _limit(self) -> int | None:
        ahead = [stop for stop in (self._until, *self._points) if stop > self._position]
        return min(ahead, default=None)

    def _takes_snapshots(self) -> bool:
        return self._savable and not self._plan.evaluate

    def _save_point_due(self) -> bool:
        if not self._takes_snapshots() or self._only_leaving or self._saved_at == self._position:
            return False
        if any(point <= self._position for point in self._points):
            return True
        every = self._plan.snapshot_every
        # A periodic snapshot of a terminated run is useless; one at a requested save point may be forked.
        return self._stop is not DecisionKind.TERMINATE and 0 < every <= self._position - self._last_snapshot

    def _end_saved(self, reason: RunEndReason) -> Action:
        for_good = reason is RunEndReason.UNTIL and self._completes
        if not self._takes_snapshots() or (self._only_leaving and for_good):
            return EndRun(reason, snapshot=False)
        return EndRun(reason, snapshot=True) if self._saved_at == self._position else Save()
