"""What a run does next: the semantic of positions, decisions and amendments, without I/O.

A run stands either inside an iteration or at a boundary: the point right after a report. `RunControl` is told what
happened (an iteration ended, a snapshot was taken, a decision or an amendment came) and says at each boundary what to
do:

    start --> Train --> [report] --> Save? --> Wait? --> Train ...
                                        |         '----> End
                                        '--------------> End

- Below `allowed` it never waits. At `allowed` or beyond it waits for a decision on the reported position.
- At `until` or beyond (or when the trainer finished) it is parked: it waits whatever `allowed` says. CONTINUE ends
  it there, unless `until` was moved meanwhile; PARK keeps it, and a later move of `until` then releases it by itself.
- SUSPEND and TERMINATE hold from the next boundary on, whatever position they name, and are never taken back.
- Save points are served right after their report, before anything waits. A save point or an `until` that falls
  inside an iteration is served at the first boundary behind it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any, Final

from hopyard.policy.vocabulary import DecisionKind, RunEndReason

_TRIES: Final = 3
"""At so many boundaries a run that is to be suspended tries to save; then it leaves without."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPlan:
    """What a run was started with. A field other than `position` and `evaluate` is the option of the run with its name.

    Attributes:
        position: where it starts (>= 0): its snapshot's position, 0 from scratch.
        until: trains to here, then parks; 0: no end of its own.
        allowed: reports below it need no decision.
        snapshot_at: positions at which it saves and goes on.
        snapshot_every: saves whenever this many units have passed since the last snapshot; 0: never.
        evaluate: evaluates (or profiles) once at `position`, trains nothing that is kept and saves nothing.
        completes: ends at `until` (or when the trainer finished), saved, without waiting for a decision; but not at an `until`
            that was moved.
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
        """The plan of a run.

        Args:
            options: Has the options of the run as attributes: a `StartRun`, or the engine's `Start`.
            position: As in the class.
            evaluate: As in the class.
            changes: Options with other values.
        """
        names = {field.name for field in fields(cls)} - {"position", "evaluate"} - set(changes)
        named = {name: getattr(options, name) for name in names} | changes
        return cls(position=position, evaluate=evaluate, **{**named, "snapshot_at": frozenset(named["snapshot_at"])})


@dataclass(frozen=True, slots=True)
class Train:
    """Train one iteration that should not pass `limit`, if there is one."""

    limit: int | None


@dataclass(frozen=True, slots=True)
class Restate:
    """There is nothing to train: report the position the run stands at."""


@dataclass(frozen=True, slots=True)
class Save:
    """Take a snapshot at this position."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Wait for a decision or an amendment."""


@dataclass(frozen=True, slots=True)
class EndRun:
    """End the run; with `snapshot` the one that was taken at this position is its last state."""

    reason: RunEndReason
    snapshot: bool


Action = Train | Restate | Save | Wait | EndRun


@dataclass(frozen=True, slots=True)
class AmendAnswer:
    """Answer to an amendment: whether it was in time, and where the run stood (what lies at or before it is passed)."""

    accepted: bool
    position: int


class RunControlError(Exception):
    """The training loop called out of order: a mistake in the runner, not in the user's code."""


class RunControl:
    """The control of one run; not thread-safe, the caller holds its own lock."""

    def __init__(self, plan: RunPlan) -> None:
        """Start at the plan's position, before the first iteration."""
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
        """The last position that was reached."""
        return self._position

    @property
    def parked(self) -> bool:
        """Whether the run stands at its `until` (or finished) and was not released."""
        return self._parked

    def started(self, *, finished: bool) -> None:
        """The state is loaded; `finished`: the trainer says that nothing is left to train."""
        self._finished = finished

    def next(self) -> Action:
        """What to do at this boundary; asked again after each `saved`, decision or amendment."""
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
        """An iteration began; `committed`: where it will end, from a trainer that stops exactly where it was told."""
        if self._in_flight:
            raise RunControlError(f"began() twice at position {self._position}")
        self._in_flight = True
        self._reported = False
        self._committed = self._position if committed is None else committed - 1

    def reached(self, position: int, *, finished: bool, savable: bool = True, only_leaving: bool = False) -> bool:
        """An iteration ended (or a `Restate` is due) at `position`; returns the report's `at_until`.

        Without `savable` no snapshot can be taken at this boundary: save points wait for the next one that is, and a run
        that ends here ends without. With `only_leaving` one is taken if the run ends here to go on later, and save points wait.
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
        """A snapshot of the present position was taken."""
        self._saved_at = self._last_snapshot = self._position
        self._unsaved = 0
        self._points = {point for point in self._points if point > self._position}

    def unsaved(self, *, again: bool = True) -> None:
        """The snapshot that was to be taken could not be: there is none at this boundary.

        Save points wait for the next one. A run that is to be suspended trains on to that, and tries there; after some vain tries,
        or if another one would be as vain (`again` False), it leaves without.
        """
        self._savable = False
        self._unsaved = self._unsaved + 1 if again else _TRIES

    @property
    def free(self) -> int:
        """Reports below this position find nothing that they would have to wait for, as things stand."""
        if self._stop is not None:
            return self._position
        every = 0 if self._only_leaving else self._plan.snapshot_every
        ahead = [self._allowed, self._limit(), self._last_snapshot + every if every else None]
        return min(stop for stop in ahead if stop is not None)

    def decide(self, decision: DecisionKind, position: int, allowed: int) -> None:
        """A decision came; `allowed` 0 leaves the run's own unchanged, and it never sinks."""
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
        """Move `until` (0: leave it) and add save points; all of it in time, or nothing of it happens."""
        points = set(snapshot_at)
        passed = max(self._position, self._committed)
        until_ok = until == 0 or until > passed or (until == self._position and self._parked)
        # At a boundary the present position can still be saved.
        points_ok = all(point > passed or (point == self._position and self._reported) for point in points)
        ahead = until > self._position or any(point > self._position for point in points)
        if not (until_ok and points_ok) or self._completing or self._plan.evaluate or (self._finished and ahead):
            return AmendAnswer(False, passed)
        if until:
            self._until, self._completes = until, False  # It is not the end that it was.
        self._points |= points
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
        # A periodic snapshot of a run that is being terminated serves nobody; a save point that was asked for may be
        # forked.
        return self._stop is not DecisionKind.TERMINATE and 0 < every <= self._position - self._last_snapshot

    def _end_saved(self, reason: RunEndReason) -> Action:
        for_good = reason is RunEndReason.UNTIL and self._completes
        if not self._takes_snapshots() or (self._only_leaving and for_good):
            return EndRun(reason, snapshot=False)
        return EndRun(reason, snapshot=True) if self._saved_at == self._position else Save()
