"""Coalescing of acknowledgements: an acknowledgement covers all earlier messages of its channel."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from hopyard_engine.core.effects import Acknowledge, Effect, ForgetSnapshot


def acknowledged(effects: Iterable[Effect]) -> Iterator[Effect]:
    """Yields the effects of a batch in order, without superseded acknowledgements.

    Of each channel it keeps the last acknowledgement, and the last one before each `ForgetSnapshot`. An agent keeps a
    snapshot that it is ordered to forget while its message about the snapshot is unacknowledged, because it may have
    taken the snapshot again. Such a copy would never be deleted.
    """
    waiting: list[Effect] = []
    for effect in effects:
        if isinstance(effect, ForgetSnapshot):
            yield from _once(waiting)
            waiting = []
        waiting.append(effect)
    yield from _once(waiting)


def _once(effects: Sequence[Effect]) -> Iterator[Effect]:
    acks = sorted((effect for effect in effects if isinstance(effect, Acknowledge)), key=lambda ack: ack.sequence)
    last = {ack.run: ack for ack in acks}
    for effect in effects:
        if not isinstance(effect, Acknowledge) or last[effect.run] is effect:
            yield effect
