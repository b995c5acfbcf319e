"""The table of permissions: which kinds of callers may call which method.

A method that is not in the table is denied to everyone. A test compares the table with the methods of all services.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from hopyard._net.auth.principal import CallerKind

_USER: Final = frozenset({CallerKind.USER})
_NODE: Final = frozenset({CallerKind.NODE})
_SERVICE: Final = frozenset({CallerKind.SERVICE})
_RUN: Final = frozenset({CallerKind.RUN})
_TICKET: Final = frozenset({CallerKind.TICKET})

_V1: Final = "/hopyard.v1."

OPEN: Final = frozenset({"/grpc.health.v1.Health/Check", "/grpc.health.v1.Health/List", "/grpc.health.v1.Health/Watch"})
"""The methods that need no token: they say only whether a service is ready."""

IMPORT_OWNER: Final = "import "
"""Prefix of the owners of blobs that users upload for an import, and may release."""


def _methods(service: str, callers: frozenset[CallerKind], names: str) -> dict[str, frozenset[CallerKind]]:
    return {f"{_V1}{service}/{name}": callers for name in names.split()}


PERMISSIONS: Final[Mapping[str, frozenset[CallerKind]]] = {
    # The scheduler.
    **_methods(
        "ExperimentService",
        _USER,
        "CreateExperiment GetExperiment ListExperiments WatchExperiment PauseExperiment ResumeExperiment StopExperiment "
        "CloseExperiment KeepExperiment ExtendExperiment UpdateExperiment RequestJobs ImportExperiment DeleteExperiments "
        "RetryJobs CollectGarbage",
    ),
    **_methods("ExperimentService", _USER | _NODE, "GetCluster"),
    **_methods(
        "JobManagerService",
        _USER,
        "GetIdleJob StartJob ResumeJob SuspendJob TerminateJob PauseJob UnpauseJob LabelJob GetJob ListJobs",
    ),
    **_methods(
        "ResourceManagerService",
        _USER,
        "ReserveIdleMachine ReleaseMachine ListSlots ListNodes DrainNode UndrainNode ForgetNode",
    ),
    **_methods("ResourceManagerService", _NODE, "AgentSession"),
    **_methods("ResourceManagerService", _USER | _NODE, "IssueTicket"),
    **_methods("DataService", _USER, "RegisterData GetData ListData DropData"),
    **_methods("PolicyService", frozenset({CallerKind.USER, CallerKind.POLICY}), "Drive"),
    # AppStat. Only the scheduler writes the journal and deletes blobs.
    **_methods(
        "AppStatService",
        _SERVICE,
        "BeginEpoch AppendJournal ImportJournal ReplaceProjections DeleteBlobs ListBlobs SweepBlobs",
    ),
    **_methods(
        "AppStatService",
        _USER | _SERVICE,
        "ReadJournal ReadProjections ListStreams QueryStatistics WatchStatistics QueryExperiments QueryJobs QueryScaling "
        "QueryStorage",
    ),
    **_methods("AppStatService", _USER | _SERVICE | _NODE, "PutBlob GetBlob HasBlobs"),
    # Users may release blobs only of owners with the prefix IMPORT_OWNER.
    **_methods("AppStatService", _USER | _SERVICE, "ReleaseBlobs"),
    **_methods("SearchPlanService", _USER | _SERVICE, "ListPlanNodes GetPlanNode"),
    **_methods("CatalogService", _USER | _SERVICE, "QueryDataSets"),
    **_methods("CatalogService", _SERVICE, "PutDataSet DeleteDataSet"),
    # The generators.
    **_methods(
        "HyperparameterGeneratorService",
        _SERVICE,
        "OpenGenerator CreateJob ReportPerformance ReportFinalPerformance CloseGenerator",
    ),
    # Node agents.
    **_methods("NodeAgentService", _TICKET, "GetStatus StreamLogs FetchSnapshot JoinGang"),
    **_methods("ApplicationService", _RUN, "Attach SaveState LoadState"),
    # All servers.
    "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo": _USER,
}
"""The kinds of callers that may call a method, by full name of the method. Methods in `OPEN` need no token."""
