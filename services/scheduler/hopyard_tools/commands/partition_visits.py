"""Extracts from a journal which jobs ran on which data partitions (visits), and the bytes that were transferred for them."""

from __future__ import annotations

from dataclasses import replace

from hopyard.plots.model import PartitionReplicas, PlottedVisit
from hopyard.policy.vocabulary import RunMode
from hopyard_engine.core.events import Event, RunMessage
from hopyard_engine.core.handlers.run_messages import end_reason
from hopyard_engine.core.state.entities import Run
from hopyard_engine.core.state.stream import Stream


class PartitionVisits:
    """Collects the visits of jobs to data partitions, event by event. Times are those of the events, in seconds since the Unix epoch.

    A visit is the run of a job on one partition.

    Attributes:
        told: The visits by id of the experiment.
        moved: Tuples (time, bytes from node to node, bytes from the store, bytes to the store). The numbers of bytes are
            totals of all snapshot transfers of the stream until that time. There is one tuple for each event that changed
            a total.
        held: The size in bytes and the nodes of each partition by its name.
    """

    def __init__(self) -> None:
        self.told: dict[str, list[PlottedVisit]] = {}
        self.moved: list[tuple[float, int, int, int]] = []
        self.held: dict[str, PartitionReplicas] = {}
        self._live: dict[str, tuple[Run, list[PlottedVisit], range]] = {}
        self._amounts = (0, 0, 0)

    def take(self, stream: Stream, event: Event) -> None:
        """Add the changes of an event.

        Args:
            stream: The state of the stream after the event.
            event: The event.
        """
        if stream.data is None:
            return
        amounts = (stream.hops.direct_bytes, stream.hops.fetched_bytes, stream.hops.stored_bytes)
        if amounts != self._amounts:
            self.moved.append((event.at, *amounts))
        if isinstance(event, RunMessage) and event.job in self._live:
            self._started(event, amounts[0] - self._amounts[0], amounts[1] - self._amounts[1])
        self._amounts = amounts
        for job, (run, visits, those) in list(self._live.items()):
            if stream.live.get(job) is not run:
                del self._live[job]
                reason = end_reason(run, run.ended).value if run.ended is not None else None
                for index in those:
                    visits[index] = replace(visits[index], end=event.at, reason=reason)
        for job, run in stream.live.items():
            if job not in self._live and run.inputs and run.mode is not RunMode.PROFILE:
                visits = self.told.setdefault(stream.jobs[job].experiment.id, [])
                evaluates, first = run.mode is RunMode.EVALUATE, len(visits)
                visits += [
                    PlottedVisit(rank.slot, rank.node, job, run.inputs.get(rank.slot, ""), evaluates, event.at)
                    for rank in run.ranks
                ]
                self._live[job] = run, visits, range(first, len(visits))
        self._hold(stream)

    def _started(self, event: RunMessage, direct: int, fetched: int) -> None:
        run, visits, those = self._live[event.job]
        if run.attempt != event.attempt or not run.ranks[event.rank].started:
            return
        index = those[event.rank]
        if visits[index].began is None:
            got, from_store = max(direct, fetched), fetched > 0
            visits[index] = replace(visits[index], began=event.at, got=got, from_store=from_store)

    def _hold(self, stream: Stream) -> None:
        """Record the nodes that have each partition. If no node has it at present, the last recorded nodes remain."""
        assert stream.data is not None
        for one in stream.data.partitions.values():
            nodes = tuple(sorted({*one.places, *one.homes}))
            if nodes or one.name not in self.held:
                self.held[one.name] = PartitionReplicas(one.name, one.size, nodes)
