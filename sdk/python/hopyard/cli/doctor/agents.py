"""Checks the data folders of node agents: snapshots that belong to another cluster."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Final

from hopyard._common import formatting
from hopyard._runtime.snapshot_folder import size_of
from hopyard._runtime.snapshot_record import CLUSTER_FILE, snapshots_elsewhere
from hopyard.cli.doctor.check_result import Finding, problem

MOST_NAMED: Final = 3
"""Maximum number of snapshots that a finding names."""

_NAME: Final = "agent snapshots"
_ADVICE: Final = (
    "the agent neither uses nor deletes them: start it once with --adopt (hopyard up, hopyard agent) to let all of them belong to its "
    "cluster, or move them and their records in the folder needs away"
)


def snapshots(data: Path) -> list[Finding]:
    """Return a finding for each other cluster to which snapshots of an agent belong, because somebody has copied them into its folder.

    No snapshot is changed, and an agent may use the folder meanwhile.

    Args:
        data: The data directory of a cluster, with the folders of its agents in it, or the data folder of one agent.
    """
    found: list[Finding] = []
    for agent in (data, *sorted(data.glob("agent*"))):
        try:
            if (agent / CLUSTER_FILE).is_file():
                found += _of_agent(agent)
        except OSError as error:
            found.append(problem(_NAME, f"{error.filename or agent}: {error.strerror or error}", "make it readable"))
    return found


def _of_agent(agent: Path) -> list[Finding]:
    """Return the findings of one agent's folder.

    Raises:
        OSError: A file in the folder cannot be read.
    """
    clusters: dict[str, list[str]] = defaultdict(list)
    for sha256, cluster in snapshots_elsewhere(agent).items():
        if (agent / "snapshots" / sha256).exists():
            clusters[cluster].append(sha256)
    return [_finding(agent, cluster, sorted(hashes)) for cluster, hashes in sorted(clusters.items())]


def _finding(agent: Path, cluster: str, hashes: list[str]) -> Finding:
    size = sum(size_of(agent / "snapshots" / sha256) for sha256 in hashes)
    named = ", ".join(hashes[:MOST_NAMED]) + (", ..." if len(hashes) > MOST_NAMED else "")
    belong = "belongs" if len(hashes) == 1 else "belong"
    what = f"{formatting.count(len(hashes), 'snapshot')}, {formatting.size(size)}"
    return problem(_NAME, f"{agent}: {what}, {belong} to another cluster, {cluster}: {named}", _ADVICE)
