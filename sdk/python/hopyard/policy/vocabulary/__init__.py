"""The types that policies and the engine exchange: up-calls, decisions, commands, and the values in them.

All types are frozen dataclasses or enumerations from the standard library. The deterministic engine, the processes in which policies
run, the simulator and tests of policies use them without conversion. The corresponding messages are in
`hopyard/v1/policy.proto`. The names of this package are imported on first use: clients and training processes need few of them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from hopyard.policy.vocabulary.capabilities import PolicyCapabilities
    from hopyard.policy.vocabulary.downcalls import (
        MOST_SECONDS,
        AmendRun,
        Answer,
        AnswerJob,
        Ask,
        BillRun,
        Command,
        CreateJob,
        EndExperiment,
        ForkJob,
        KeepSnapshots,
        LabelJob,
        Predict,
        ReleaseSlot,
        ReserveSlot,
        StartJob,
        SuspendJob,
        TerminateJob,
        Verdict,
        WakeAt,
    )
    from hopyard.policy.vocabulary.reasons import Reason, ReasonCode
    from hopyard.policy.vocabulary.upcalls import (
        AllocateJobs,
        AnswerReady,
        ApplicationStat,
        Call,
        ExperimentChange,
        GeneratorExhausted,
        IterationFinish,
        JobCreated,
        PredictionReady,
        RequestMade,
        RunEnd,
        ShareChange,
        SlotsChange,
        TimerFired,
    )
    from hopyard.policy.vocabulary.values import (
        CONTINUE,
        ENDLESS,
        PARK,
        SUSPEND,
        TERMINATE,
        Data,
        Decision,
        DecisionKind,
        ExperimentId,
        ExperimentState,
        Hyperparameters,
        JobState,
        Metrics,
        Partition,
        Report,
        RunEndReason,
        RunKey,
        RunMode,
        StreamId,
    )

__all__ = [
    "CONTINUE",
    "ENDLESS",
    "MOST_SECONDS",
    "PARK",
    "SUSPEND",
    "TERMINATE",
    "AllocateJobs",
    "AmendRun",
    "Answer",
    "AnswerJob",
    "AnswerReady",
    "ApplicationStat",
    "Ask",
    "BillRun",
    "Call",
    "Command",
    "CreateJob",
    "Data",
    "Decision",
    "DecisionKind",
    "EndExperiment",
    "ExperimentChange",
    "ExperimentId",
    "ExperimentState",
    "ForkJob",
    "GeneratorExhausted",
    "Hyperparameters",
    "IterationFinish",
    "JobCreated",
    "JobState",
    "KeepSnapshots",
    "LabelJob",
    "Metrics",
    "Partition",
    "PolicyCapabilities",
    "Predict",
    "PredictionReady",
    "Reason",
    "ReasonCode",
    "ReleaseSlot",
    "Report",
    "RequestMade",
    "ReserveSlot",
    "RunEnd",
    "RunEndReason",
    "RunKey",
    "RunMode",
    "ShareChange",
    "SlotsChange",
    "StartJob",
    "StreamId",
    "SuspendJob",
    "TerminateJob",
    "TimerFired",
    "Verdict",
    "WakeAt",
]

_MODULES: Final = ("values", "reasons", "capabilities", "downcalls", "upcalls")
"""The modules that define the names, those with the values that clients and training processes use first."""

if not TYPE_CHECKING:  # A type checker that sees this function would accept any name.

    def __getattr__(name: str) -> object:
        """Import a public name of this package from its module on first use (PEP 562). The vocabulary imports nothing else of Hopyard.

        Raises:
            AttributeError: The package has no such public name.
        """
        if name in __all__:
            for module in _MODULES:
                home = import_module(f"{__name__}.{module}")
                if hasattr(home, name):
                    globals()[name] = found = getattr(home, name)
                    return found
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """Return all public names of the package, imported or not, and all other names that are already defined in it."""
    return sorted(set(globals()) | set(__all__))
