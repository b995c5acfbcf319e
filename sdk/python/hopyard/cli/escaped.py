"""Makes renderables of rich safe for a terminal."""

from __future__ import annotations

from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.segment import Segment

from hopyard._common.formatting import printable


@dataclass(frozen=True, slots=True)
class Escaped:
    """Shows a renderable with the control characters in its texts replaced by hexadecimal escapes, except line breaks and tabs.

    Texts of agents and policies, such as the name of a node, must not move the cursor of a terminal or set its colours. Colours and
    styles of the renderable itself are kept.

    Attributes:
        renderable: The renderable.
    """

    renderable: RenderableType

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the segments of the renderable with escaped texts."""
        for segment in console.render(self.renderable, options):
            yield segment if segment.control else Segment(printable(segment.text), segment.style)
