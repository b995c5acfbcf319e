"""A change log of names. A reader gets the names that changed since its previous read, in time proportional to their number."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import takewhile


class ChangeLog:
    """A set of names, ordered by the time of their last change.

    To read incrementally, store `count` after each read and pass the stored value to `since` in the next one.

    Attributes:
        count: Number of changes so far.
    """

    def __init__(self) -> None:
        self.count = 0
        self._touched: dict[str, int] = {}

    def touch(self, name: str) -> None:
        """Record a change of `name`, which becomes the newest entry."""
        self.count += 1
        self._touched.pop(name, None)
        self._touched[name] = self.count

    def since(self, count: int) -> Iterator[str]:
        """Iterate over the names that changed after change number `count`, the newest change first.

        Each name occurs once. `touch` must not be called during the iteration.

        Args:
            count: A former value of `ChangeLog.count`; 0 gives all names.
        """
        newest = reversed(self._touched.items())
        return (name for name, _ in takewhile(lambda item: item[1] > count, newest))
