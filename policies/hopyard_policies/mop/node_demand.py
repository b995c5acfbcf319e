"""The nodes on which slots are useful: all nodes with data or, if slots are few, nodes with remaining work."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from hopyard.policy import Cluster, Data, JobView


class NodeDemand:
    """Tells the scheduler on which nodes the policy can use slots. Restricts them if the present slots do not cover all partitions.

    Normally, all nodes with data are useful. Restricted, only those with remaining work of present epochs are. The restriction
    depends on the remaining work of jobs, not on the slots just received: otherwise two experiments that need the same slot
    would take it from each other forever.

    Args:
        jobs: Returns the jobs that train or wait to train.
        left: Returns the names of the partitions that a job must still be trained or evaluated on in its epoch.
    """

    def __init__(
        self, jobs: Callable[[Cluster], Sequence[JobView]], left: Callable[[JobView, Data], Collection[str]]
    ) -> None:
        self._jobs, self._left = jobs, left
        self._narrow = False

    def look(self, cluster: Cluster, data: Data) -> None:
        """Start or end the restriction of `nodes` to the nodes with remaining work. Call it when the slots may have changed.

        The restriction starts when some available partition is on no node of the present slots. It ends when the nodes with remaining
        work are all nodes with data.

        Args:
            cluster: The view of the up-call.
            data: The partitions and their nodes.
        """
        there = {slot.node for slot in cluster.slots.values()}
        if not all(there.intersection(each.nodes) for each in (*data.train, *data.evaluate) if each.nodes):
            self._narrow = True
        elif self._narrow and self._awaited(cluster, data) == _holders(data):
            self._narrow = False

    def nodes(self, cluster: Cluster) -> set[str] | None:
        """Return the names of the nodes on which slots are useful; None: any node.

        None is returned if the data are not known, if any node can fetch some partition when it needs it, or if no known node has
        data.
        """
        data = cluster.data
        if data is None or any(each.anywhere for each in (*data.train, *data.evaluate)):
            return None
        return (self._awaited(cluster, data) if self._narrow else _holders(data)) or None

    def _awaited(self, cluster: Cluster, data: Data) -> set[str]:
        """Return the nodes with partitions that jobs must still be trained or evaluated on; if none, all nodes with data.

        Args:
            cluster: The view of the up-call.
            data: The partitions and their nodes.
        """
        nodes = {each.name: each.nodes for each in (*data.train, *data.evaluate)}
        every, found = _holders(data), set[str]()
        for job in self._jobs(cluster):
            found.update(node for name in self._left(job, data) for node in nodes[name])
            if len(found) == len(every):
                break
        return found or every


def _holders(data: Data) -> set[str]:
    """Return the names of the nodes that hold at least one partition.

    Args:
        data: The partitions and their nodes.
    """
    return {node for each in (*data.train, *data.evaluate) for node in each.nodes}
