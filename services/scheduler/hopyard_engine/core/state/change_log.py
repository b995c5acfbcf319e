"""What has changed since somebody looked, without a look at everything that has not."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import takewhile


class Recent:
    """Names in the order in which they were touched last. Each reader keeps the count at which it looked.

    Attributes:
        count: Touches so far.
    """

    def __init__(self) -> None:
        self.count = 0
        self._touched: dict[str, int] = {}

    def touch(self, name: str) -> None:
        """Something of this name is other than it was."""
        self.count += 1
        self._touched.pop(name, None)
        self._touched[name] = self.count

    def since(self, count: int) -> Iterator[str]:
        """The names touched since the count was this, the newest first. Nothing may be touched meanwhile."""
        newest = reversed(self._touched.items())
        return (name for name, _ in takewhile(lambda item: item[1] > count, newest))
