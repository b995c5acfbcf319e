"""On which nodes machines are of use: where the data lie, or, with fewer machines than that, where something is left to do."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from hopyard.policy import Cluster, Data, JobView


class Places:
    """Narrows where machines are wanted when they do not hold all of the data between them.

    That follows from what jobs have left, and not from the machines that it has just got: two experiments after the same machine would
    take it from each other for ever.

    Args:
        jobs: Those that train or wait to.
        left: The partitions that a job is still to be trained or evaluated on in its epoch.
    """

    def __init__(
        self, jobs: Callable[[Cluster], Sequence[JobView]], left: Callable[[JobView, Data], Collection[str]]
    ) -> None:
        self._jobs, self._left = jobs, left
        self._narrow = False

    def look(self, cluster: Cluster, data: Data) -> None:
        """Takes note of the machines that there are."""
        there = {machine.node for machine in cluster.machines.values()}
        if not all(there.intersection(each.nodes) for each in (*data.train, *data.evaluate) if each.nodes):
            self._narrow = True
        elif self._narrow and self._awaited(cluster, data) == _holders(data):
            self._narrow = False

    def nodes(self, cluster: Cluster) -> set[str] | None:
        """Where machines are of use; None: anywhere."""
        data = cluster.data
        if data is None or any(each.anywhere for each in (*data.train, *data.evaluate)):
            return None
        return (self._awaited(cluster, data) if self._narrow else _holders(data)) or None

    def _awaited(self, cluster: Cluster, data: Data) -> set[str]:
        """The nodes that hold what is left to do; all, if that is nothing."""
        nodes = {each.name: each.nodes for each in (*data.train, *data.evaluate)}
        every, found = _holders(data), set[str]()
        for job in self._jobs(cluster):
            found.update(node for name in self._left(job, data) for node in nodes[name])
            if len(found) == len(every):
                break
        return found or every


def _holders(data: Data) -> set[str]:
    """The nodes that hold any of the data."""
    return {node for each in (*data.train, *data.evaluate) for node in each.nodes}
