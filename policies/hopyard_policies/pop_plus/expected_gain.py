"""What a job's next seconds on a machine promise."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from hopyard_policies.pop.expected_remaining_time import epochs_within


class Prospect(NamedTuple):
    """A job that is trained until it reaches the target, or its end.

    Attributes:
        chance: That it reaches the target, in [0, 1].
        seconds: Expected until then, >= 0: those of training in vain included.
    """

    chance: float
    seconds: float

    def worth(self, lead: float = 0.0) -> float:
        """Chance for a second of machine time, `lead` seconds going by before training begins."""
        return self.chance / max(self.seconds + lead, _INSTANT)


_INSTANT = 1e-9


def prospect_of(reaches: Sequence[float], left: float, epoch: float) -> Prospect:
    """The prospect of a job from the chances at its future epochs.

    As for POP (`outlook_of`) the chance to have reached the target is the running maximum of P(y(m) >= target), and nothing counts that
    comes after the experiment's time.

    Args:
        reaches: P(y(m) >= target) for m = 1, 2, ...
        left: Seconds until the experiment's time is over; infinite: it has no end.
        epoch: Mean seconds of one of the job's epochs, >= 0.
    """
    reached = seconds = 0.0
    for chance in reaches[: epochs_within(len(reaches), left, epoch)]:
        seconds += (1 - reached) * epoch
        reached = max(reached, min(chance, 1.0))
    return Prospect(reached, seconds)
