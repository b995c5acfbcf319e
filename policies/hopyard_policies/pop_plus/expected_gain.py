"""The expected gain of training a job: the probability of reaching the target, and the training time that it costs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from hopyard_policies.pop.expected_remaining_time import epochs_within


class Prospect(NamedTuple):
    """The expected outcome of training a job until it reaches the target or ends.

    Attributes:
        chance: The probability that it reaches the target, in [0, 1].
        seconds: The expected training time until it reaches the target or ends, >= 0.
    """

    chance: float
    seconds: float

    def worth(self, lead: float = 0.0) -> float:
        """Return the probability of reaching the target that is gained per second of slot time (at least 1e-9 seconds).

        Args:
            lead: Seconds of slot time before the training starts, such as for loading.
        """
        return self.chance / max(self.seconds + lead, _INSTANT)


_INSTANT = 1e-9


def prospect_of(reaches: Sequence[float], left: float, epoch: float) -> Prospect:
    """Return the prospect of a job, given the probabilities at future epochs. An epoch is the training up to the next report.

    The probability of success is the running maximum of P(y(m) >= target): a job that has reached the target is successful,
    whatever it reports later. Epochs after the experiment's time limit are ignored.

    Args:
        reaches: P(y(m) >= target) for m = 1, 2, ...
        left: Seconds until the experiment's time limit; infinite: no limit.
        epoch: Mean seconds of an epoch of the job; 0: unknown, so no epoch is ignored and the expected training time is 0.
    """
    reached = seconds = 0.0
    for chance in reaches[: epochs_within(len(reaches), left, epoch)]:
        seconds += (1 - reached) * epoch
        reached = max(reached, min(chance, 1.0))
    return Prospect(reached, seconds)
