"""Scheduling policies: the base class, the views that a policy receives, and the types of its up-calls and commands.

`hopyard.policy.conformance` contains the test suite that every policy must pass. The names of this package are imported
on first use, because agents and training processes need only `hopyard.policy.vocabulary`.
"""

from typing import TYPE_CHECKING, Final

from hopyard._common.first_use import from_modules

if TYPE_CHECKING:
    from hopyard.policy.base import (
        Policy,
        capabilities_of,
        hears_statistics,
        make_up_call,
        serves_requests,
        useful_nodes,
    )
    from hopyard.policy.cluster import Cluster
    from hopyard.policy.rungs import Rung, RungEntry
    from hopyard.policy.stages import StageState, StageView
    from hopyard.policy.views import CommandError, CurvePoint, ExperimentView, Incumbent, JobView, SlotView
    from hopyard.policy.vocabulary import (
        CONTINUE,
        ENDLESS,
        PARK,
        SUSPEND,
        TERMINATE,
        AnswerReady,
        ApplicationStat,
        Data,
        Decision,
        ExperimentChange,
        GeneratorExhausted,
        IterationFinish,
        JobCreated,
        JobState,
        Partition,
        PolicyCapabilities,
        PredictionReady,
        Reason,
        ReasonCode,
        Report,
        RequestMade,
        RunEnd,
        RunEndReason,
        RunMode,
        ShareChange,
        SlotsChange,
        TimerFired,
        Verdict,
    )

__all__ = [
    "CONTINUE",
    "ENDLESS",
    "PARK",
    "SUSPEND",
    "TERMINATE",
    "AnswerReady",
    "ApplicationStat",
    "Cluster",
    "CommandError",
    "CurvePoint",
    "Data",
    "Decision",
    "ExperimentChange",
    "ExperimentView",
    "GeneratorExhausted",
    "Incumbent",
    "IterationFinish",
    "JobCreated",
    "JobState",
    "JobView",
    "Partition",
    "Policy",
    "PolicyCapabilities",
    "PredictionReady",
    "Reason",
    "ReasonCode",
    "Report",
    "RequestMade",
    "RunEnd",
    "RunEndReason",
    "RunMode",
    "Rung",
    "RungEntry",
    "ShareChange",
    "SlotView",
    "SlotsChange",
    "StageState",
    "StageView",
    "TimerFired",
    "Verdict",
    "capabilities_of",
    "hears_statistics",
    "make_up_call",
    "serves_requests",
    "useful_nodes",
]

_MODULES: Final = ("vocabulary", "base", "cluster", "rungs", "stages", "views")
"""The modules that define the names, the cheapest to import first."""

if not TYPE_CHECKING:  # A type checker that sees this function would accept any name.
    __getattr__ = from_modules(globals(), _MODULES)


def __dir__() -> list[str]:
    """Return all public names of the package, imported or not, and all other names that are already defined in it."""
    return sorted(set(globals()) | set(__all__))
