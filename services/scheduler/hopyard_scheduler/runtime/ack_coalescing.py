"""Which acknowledgements of a batch are sent: one takes in all before it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from hopyard_engine.core.effects import Acknowledge, Effect, ForgetSnapshot


def acknowledged(effects: Iterable[Effect]) -> Iterator[Effect]:
    """The effects of a batch in order, with each run's last acknowledgement only, and the last before a snapshot is let go.

    An agent that does not know yet that the scheduler has heard of a snapshot keeps its copy when it is told to let it go, and for
    good: it may have been taken anew.
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
