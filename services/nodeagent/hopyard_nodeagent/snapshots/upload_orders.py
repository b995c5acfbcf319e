"""Executes upload orders, by which the scheduler requests uploads of single snapshots that are on this node.

The runs that took these snapshots are over: no run on this node refers to the snapshots any more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from hopyard.policy.vocabulary import RunKey, StreamId
from hopyard.v1 import resource_manager_pb2 as wire
from hopyard_nodeagent.snapshots.uploads import Shipment, Uploader


class UploadOrders:
    """Executes each upload order once, and stores its result until the scheduler acknowledges it.

    An order is identified by its experiment and its number.

    Args:
        say: Sends a result to the scheduler. A result may get lost; unacknowledged results are sent again in the next session.

    Attributes:
        shipper: Uploads the snapshots; None: orders are ignored.
    """

    def __init__(self, say: Callable[[wire.SnapshotShipped], None]) -> None:
        self._say = say
        self._answers: dict[tuple[str, int], wire.SnapshotShipped] = {}
        self.shipper: Uploader | None = None

    def take(self, orders: Iterable[wire.ShipmentOrder]) -> None:
        """Execute orders; for an order whose result is stored already, send the result again."""
        for order in orders:
            answer = self._answers.get((order.experiment, order.number))
            if answer is not None:
                self._say(answer)
            elif self.shipper is not None:
                run = RunKey(StreamId(order.experiment), order.job, 0, 0)
                self.shipper.ship(Shipment(run, order.position, order.sha256, order.number))

    def shipped(self, shipment: Shipment, error: str) -> None:
        """Store the result of an order, and send it to the scheduler.

        Args:
            shipment: The snapshot, and the number of the order.
            error: Why the upload was abandoned; empty: the snapshot is stored.
        """
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
        """Drop the result of the experiment's order with this number, if it is stored."""
        self._answers.pop((experiment, number), None)

    def discard(self) -> None:
        """Drop all results: the present scheduler may give their order numbers to other uploads."""
        self._answers.clear()

    def unacknowledged(self) -> list[wire.SnapshotShipped]:
        """Return the results that the scheduler has not acknowledged."""
        return list(self._answers.values())
