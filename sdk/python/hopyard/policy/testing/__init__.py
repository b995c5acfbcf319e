"""A virtual-time cluster for the authors of policies: see `VirtualCluster`. Needs nothing but this SDK.

The suite that every policy passes is `hopyard.policy.conformance`; it drives policies on this cluster.
"""

from hopyard.policy.testing.history import Entry, difference, replay
from hopyard.policy.testing.view import IllegalCommand, Moment, UpCallView
from hopyard.policy.testing.virtual import SpinningError, StalledError, VirtualCluster
from hopyard.policy.testing.world import (
    Curve,
    Delays,
    Generator,
    RunLog,
    Step,
    TrainingFailed,
    Unanswered,
    counting,
    steady,
)

__all__ = [
    "Curve",
    "Delays",
    "Entry",
    "Generator",
    "IllegalCommand",
    "Moment",
    "RunLog",
    "SpinningError",
    "StalledError",
    "Step",
    "TrainingFailed",
    "Unanswered",
    "UpCallView",
    "VirtualCluster",
    "counting",
    "difference",
    "replay",
    "steady",
]
