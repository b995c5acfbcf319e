"""Removal of superseded acknowledgements: an acknowledgement confirms all earlier messages of its channel."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from hopyard_engine.core.effects import Acknowledge, Effect, ForgetSnapshot


def acknowledged(effects: Iterable[Effect]) -> Iterator[Effect]:
    """Yield the effects of a batch in order, without superseded acknowledgements.

    Per channel, only the acknowledgement with the highest sequence number remains. `ForgetSnapshot` effects (which
    delete a snapshot from its nodes) split the batch into sections, and each section retains its last acknowledgement
    per channel. Reason: an agent ignores a `ForgetSnapshot` while its own message about the same snapshot is
    unacknowledged, because it may have saved the snapshot again. The acknowledgement must therefore precede the
    `ForgetSnapshot`; otherwise the agent would never delete the snapshot.
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
