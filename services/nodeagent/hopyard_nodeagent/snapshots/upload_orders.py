"""Uploads ordered by the scheduler, of snapshots that no run here refers to."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from hopyard.policy.vocabulary import RunKey, StreamId
from hopyard.v1 import resource_manager_pb2 as wire
from hopyard_nodeagent.snapshots.uploads import Shipment, Uploader


class UploadOrders:
    """Carries out each order once, and keeps its result until the scheduler acknowledges it."""

    def __init__(self, say: Callable[[wire.SnapshotShipped], None]) -> None:
        """Send results to `say`. They may get lost; unacknowledged ones are sent again in the next session."""
        self._say = say
        self._answers: dict[tuple[str, int], wire.SnapshotShipped] = {}
        self.shipper: Uploader | None = None

    def take(self, orders: Iterable[wire.ShipmentOrder]) -> None:
        """Carry out orders; repeat the results of those that are done."""
        for order in orders:
            answer = self._answers.get((order.experiment, order.number))
            if answer is not None:
                self._say(answer)
            elif self.shipper is not None:
                run = RunKey(StreamId(order.experiment), order.job, 0, 0)
                self.shipper.ship(Shipment(run, order.position, order.sha256, order.number))

    def shipped(self, shipment: Shipment, error: str) -> None:
        """Record that an ordered snapshot was stored, or why its upload was given up."""
        order = wire.ShipmentOrder(
            experiment=shipment.run.stream,
            number=shipment.order,
            job=shipment.run.job,
            position=shipment.position,
            sha256=shipment.sha256,
        )
        answer = self._answers[order.experiment, order.number] = wire.SnapshotShipped(order=order, error=error)
        self._say(answer)

    def acknowledged(self, experiment: str, number: int) -> None:
        """Drop an acknowledged result."""
        self._answers.pop((experiment, number), None)

    def unacknowledged(self) -> list[wire.SnapshotShipped]:
        """Return the unacknowledged results."""
        return list(self._answers.values())
