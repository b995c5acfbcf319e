"""A change log: lists the names that changed since a reader last looked, without visiting the unchanged ones."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import takewhile


class Recent:
    """Names ordered by their last change. A reader remembers the `count` at which it last looked.

    Attributes:
        count: Number of changes so far.
    """

    def __init__(self) -> None:
        self.count = 0
        self._touched: dict[str, int] = {}

    def touch(self, name: str) -> None:
        """Records a change of this name."""
        self.count += 1
        self._touched.pop(name, None)
        self._touched[name] = self.count

    def since(self, count: int) -> Iterator[str]:
        """Returns the names that changed after `count` had this value, the newest first. Call `touch` only after the iteration."""
        newest = reversed(self._touched.items())
        return (name for name, _ in takewhile(lambda item: item[1] > count, newest))
