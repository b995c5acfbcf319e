"""Operations of clients on slots: list, reserve and release."""

from __future__ import annotations

from hopyard.errors import Conflict, Exhausted, NotFound
from hopyard.policy.vocabulary import ExperimentId, ReleaseSlot, StreamId
from hopyard.v1 import resource_manager_pb2 as pb
from hopyard_engine.core import UnknownStreamError
from hopyard_engine.core.events import JobOperated, SlotReserved
from hopyard_scheduler.runtime.runtime import Runtime, experiment_of


class SlotReservations:
    """Lists, reserves and releases slots on behalf of clients.

    Args:
        runtime: Provides the state of the cluster and handles the resulting events.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    async def reserve_idle(self, experiment: str, request: str) -> str:
        """Reserve an idle slot of an experiment, so that the policy cannot use it: the one with the lowest id.

        Args:
            experiment: The id of the experiment.
            request: Idempotency key: a repeated call returns the same slot while it is reserved.

        Returns:
            The id of the slot.

        Raises:
            NotFound: The experiment does not exist, or ended so long ago that the scheduler no longer has it in memory.
            Exhausted: The experiment has no idle slot that is not reserved, or the engine refused the reservation.
        """
        stream, _ = experiment_of(self._runtime.core, ExperimentId(experiment))
        if (reserved := stream.reservation(request)) is not None:
            return reserved.id
        idle = sorted(slot.id for slot in stream.slots.values() if slot.idle and not slot.reserved)
        if not idle:
            raise Exhausted(f"experiment {stream.id} has no idle slot; it holds {len(stream.slots)}")
        try:
            refused = await self._runtime.operate(SlotReserved(self._runtime.clock(), stream.id, idle[0], request))
        except UnknownStreamError:
            raise NotFound(f"there is no experiment {experiment!r} in memory: it has ended or was deleted") from None
        if refused:
            raise Exhausted(refused)
        return idle[0]

    async def release(self, name: str) -> None:
        """Release a reserved slot. An idle slot that is not reserved, or is assigned to no experiment, is not changed.

        Args:
            name: The id of the slot.

        Raises:
            NotFound: The slot does not exist.
            Conflict: A job runs on the slot, so the engine refuses the release.
        """
        slot = self._runtime.core.cluster.slots.get(name)
        if slot is None:
            raise NotFound(f"there is no slot {name!r}")
        if slot.holder:
            event = JobOperated(self._runtime.clock(), StreamId(slot.holder), ReleaseSlot(name))
            try:
                refused = await self._runtime.operate(event)
            except UnknownStreamError:
                return  # The experiment has ended and left memory, so it has no slots.
            if refused:
                raise Conflict(refused)

    def show_all(self) -> list[pb.Slot]:
        """Return all slots of the cluster, sorted by id."""
        return [self._slot(name) for name in sorted(self._runtime.core.cluster.slots)]

    def of_node(self, node: str) -> list[pb.Slot]:
        """Return the slots of the node with this id, sorted by id; empty: it is not connected."""
        slots = self._runtime.core.cluster.slots
        return [self._slot(name) for name in sorted(slots) if slots[name].node == node]

    def _slot(self, name: str) -> pb.Slot:
        slot = self._runtime.core.cluster.slots[name]
        spec = slot.spec
        message = pb.Slot(id=name, node=slot.node, cpus=spec.cpus, gpus=spec.gpus, hardware=spec.hardware)
        message.experiment = slot.holder
        stream = self._runtime.core.streams.get(StreamId(slot.holder))
        held = stream.slots.get(name) if stream is not None else None
        if stream is not None and held is not None and held.run is not None:
            message.job, message.attempt = held.run.job, held.run.attempt
            message.experiment = stream.jobs[held.run.job].experiment.id
            message.rank, message.world = held.run.slots.index(name), len(held.run.ranks)
        return message
