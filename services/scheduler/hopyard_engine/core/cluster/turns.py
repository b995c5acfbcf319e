"""Turns: which streams get slots if there are too few for each stream to have one.

The streams that can use slots are in a queue. In a division, those at the front are served first (`fair_share.water_fill`), so each
stream gets a slot, or a gang, before any stream gets more. A stream that is served begins a turn. At the end of its turn it moves to
the back of the queue. If slots are too few, it gives its slots to the next stream; otherwise it is served again at once and nothing
changes.

Bound on the wait. Let T be the length of the longest turn that a stream may have (`length`), and H the time in which it gives up its
slots: its grace period, then the time until its processes have left. A stream that waits is behind at most all others. Each of them is
ahead of it for one turn at most, because it moves to the back then, and the stream at the front is always served. So a stream waits
at most for the sum of T + H over all other streams. If all streams can use each of s slots one at a time, s streams are served at any
time of the wait, and the bound is this sum divided by s.

H is longer for runs that a smaller share does not preempt: those that are not preemptible, and those that would lose their training
again (`Stream.must_finish`). A loss of slots, and a restart of the scheduler, begin the turns again. A stream that can use no slot
leaves the queue, and joins it at the back when it can use one again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

TURN_SECONDS = 300.0
"""Length of the turn of the stream with the lowest weight, in seconds. Turns are in proportion to weights."""


def length(weight: float, lowest: float) -> float:
    """Return the length of a turn in seconds.

    Args:
        weight: Weight of the stream (> 0).
        lowest: The lowest weight of all streams in the queue (> 0, at most `weight`).
    """
    return TURN_SECONDS * weight / lowest


class Turns:
    """The queue of the streams that can use slots, and the ends of their turns."""

    def __init__(self) -> None:
        self._ends: dict[str, float | None] = {}
        """End of the turn of each stream in the queue, in the order of the queue; None: its turn has not begun."""

    def order(self, at: float, able: Iterable[str]) -> list[str]:
        """Bring the queue up to date and return it.

        Args:
            at: Current time in seconds since the Unix epoch.
            able: The streams that can use slots. New ones join at the back, in this order.
        """
        wanted = dict.fromkeys(able)
        present = {name: end for name, end in self._ends.items() if name in wanted}
        ended = [name for name, end in present.items() if end is not None and end <= at]
        waiting = {name: end for name, end in present.items() if name not in ended}
        self._ends = {**waiting, **{name: None for name in wanted if name not in present}, **dict.fromkeys(ended)}
        return list(self._ends)

    def begin(self, at: float, shares: Mapping[str, int], holders: Mapping[str, float]) -> None:
        """Begin the turns of the streams that have a share and slots now, and end those of streams without a share.

        Args:
            at: Current time in seconds since the Unix epoch.
            shares: Number of slots that each stream may use.
            holders: The length of a turn of each stream to which slots are granted, in seconds.
        """
        for name, end in self._ends.items():
            if not shares.get(name):
                self._ends[name] = None
            elif end is None and name in holders:
                self._ends[name] = at + holders[name]

    def next_end(self) -> float | None:
        """Return the time of the next end of a turn in seconds since the Unix epoch; None: no turn has begun."""
        return min((end for end in self._ends.values() if end is not None), default=None)
