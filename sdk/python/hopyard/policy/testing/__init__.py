"""A cluster in virtual time for tests of policies; see `VirtualCluster`. It needs only this SDK.

`hopyard.policy.conformance`, the test suite for policies, uses it.
"""

from hopyard.policy.testing.history import HistoryEntry, difference, replay
from hopyard.policy.testing.view import IllegalCommand, UpCallMoment, UpCallView
from hopyard.policy.testing.virtual import SpinningError, StalledError, VirtualCluster
from hopyard.policy.testing.world import (
    Curve,
    Delays,
    Generator,
    RunLog,
    TrainingFailed,
    Unanswered,
    VirtualStep,
    counting,
    steady,
)

__all__ = [
    "Curve",
    "Delays",
    "Generator",
    "HistoryEntry",
    "IllegalCommand",
    "RunLog",
    "SpinningError",
    "StalledError",
    "TrainingFailed",
    "Unanswered",
    "UpCallMoment",
    "UpCallView",
    "VirtualCluster",
    "VirtualStep",
    "counting",
    "difference",
    "replay",
    "steady",
]
