"""Snapshots that the scheduler orders this node to ship: no run here knows of them any more."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from hopyard.v1 import resource_manager_pb2 as wire
from hopyard_nodeagent.runs.run_key import RunKey
from hopyard_nodeagent.snapshots.uploads import Shipment, Uploader


class UploadOrders:
    """Carries out each order once, and keeps its answer until the scheduler has taken it over."""

    def __init__(self, say: Callable[[wire.SnapshotShipped], None]) -> None:
        """Give answers to `say`, which need not reach the scheduler: what it has not acknowledged is to be said again."""
        self._say = say
        self._answers: dict[tuple[str, int], wire.SnapshotShipped] = {}
        self.shipper: Uploader | None = None

    def take(self, orders: Iterable[wire.ShipmentOrder]) -> None:
        """Ship what is ordered; what was answered is answered again."""
        for order in orders:
            answer = self._answers.get((order.experiment, order.number))
            if answer is not None:
                self._say(answer)
            elif self.shipper is not None:
                run = RunKey(order.experiment, order.job, 0, 0)
                self.shipper.ship(Shipment(run, order.position, order.sha256, order.number))

    def shipped(self, shipment: Shipment, error: str) -> None:
        """What was ordered is stored, or was given up because of `error`."""
        order = wire.ShipmentOrder(
            experiment=shipment.run.experiment,
            number=shipment.order,
            job=shipment.run.job,
            position=shipment.position,
            sha256=shipment.sha256,
        )
        answer = self._answers[order.experiment, order.number] = wire.SnapshotShipped(order=order, error=error)
        self._say(answer)

    def acknowledged(self, experiment: str, number: int) -> None:
        """The scheduler has taken an answer over."""
        self._answers.pop((experiment, number), None)

    def unacknowledged(self) -> list[wire.SnapshotShipped]:
        """The answers that it has not."""
        return list(self._answers.values())
