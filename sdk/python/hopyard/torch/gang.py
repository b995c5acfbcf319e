"""Exchange of gradients and sums between the ranks of a gang that train one PyTorch model.

The module is imported only for runs with several ranks, because some builds of PyTorch have no `torch.distributed`.
"""

# No postponed annotations, because PyTorch inspects the annotations of a communication hook.
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from datetime import timedelta
from typing import Any, Final

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from hopyard.torch.network import reachable
from hopyard.trainer import GangError, GangNotMetError, TrainerContext

_GLOO: Final = "gloo/"
"""Source path in every message of gloo. It identifies gloo's errors, which have no separate type."""


class TorchGang:
    """One rank's membership in the PyTorch process group of a run.

    A batch is divided into one part per rank, with sizes that differ by at most one. Together the parts are the batch
    that a single process would train on. Gradients are averaged over the examples of the batch, not over the ranks,
    because parts can have different sizes. A rank with an empty part has weight 0.

    The constructor joins the process group at the run's rendezvous (`MASTER_ADDR`, `MASTER_PORT`).

    Args:
        context: Context of a run with several ranks.
        device: Device of this rank. NCCL connects GPUs, gloo connects CPUs.
        seconds: Maximum seconds that a rank waits for another, in the constructor and in each exchange.

    Raises:
        GangNotMetError: The ranks did not meet in that time, or the port is in use.
    """

    def __init__(self, context: TrainerContext, device: torch.device, seconds: float) -> None:
        self.rank, self.size = context.rank, context.world_size
        self._device = device
        self._seconds = seconds
        self._share = 0.0
        self.exchanges = 0
        """Number of gradient exchanges so far."""
        if dist.is_initialized():  # An earlier run failed in the middle of an exchange.
            dist.destroy_process_group()
        on_gpu = device.type == "cuda"
        if on_gpu:
            torch.cuda.set_device(device)
        place = f"{os.environ.get('MASTER_ADDR', '')}:{os.environ.get('MASTER_PORT', '')}"
        try:
            with reachable(context.addresses, self.rank) if not on_gpu else nullcontext():
                dist.init_process_group(
                    "nccl" if on_gpu else "gloo",
                    init_method="env://",
                    rank=self.rank,
                    world_size=self.size,
                    timeout=timedelta(seconds=seconds),
                )
        except RuntimeError as error:
            raise GangNotMetError(
                f"rank {self.rank} of {self.size} did not meet the others at {place} within {seconds:g} s (exchange_timeout): "
                f"{_first_line(error)}"
            ) from error

    def wrapped(
        self, model: torch.nn.Module, *, find_unused_parameters: bool, shares_buffers: bool = True
    ) -> DistributedDataParallel:
        """Wrap a model so that each `backward()` computes the gradients of the complete batch.

        All ranks start with rank 0's weights.

        Args:
            model: The model, on this rank's device.
            find_unused_parameters: Search in every step for parameters without a gradient.
            shares_buffers: Whether each call of the model copies rank 0's buffers to all ranks; all ranks must then call it
                equally often.
        """
        devices = [self._device] if self._device.type == "cuda" else None
        parallel = DistributedDataParallel(model, device_ids=devices, find_unused_parameters=find_unused_parameters)
        parallel.broadcast_buffers = shares_buffers  # The name of the constructor argument differs between versions.
        parallel.register_comm_hook(None, self._added)
        return parallel

    def part(self, indices: torch.Tensor) -> torch.Tensor:
        """Return this rank's part of a batch.

        Args:
            indices: Indices of the examples of the batch.

        Returns:
            The indices of the part; if it is empty, one index of another rank's example, which must get weight 0.
        """
        mine = torch.tensor_split(indices, self.size)[self.rank]
        return mine if len(mine) else indices[:1]

    def begin(self, indices: torch.Tensor) -> int:
        """Set the weight of the next gradients to this rank's share of a batch.

        Args:
            indices: Indices of the examples of the whole batch.

        Returns:
            Number of examples in this rank's part; 0 if the part is empty, although `part` then returns one index.
        """
        mine = len(torch.tensor_split(indices, self.size)[self.rank])
        self.weigh(mine / len(indices))
        return mine

    def weigh(self, share: float) -> None:
        """Set the weight of the next gradients: the share (0 to 1) of the batch that this rank trains on; 0: they are ignored."""
        self._share = share

    def gathered(self, numbers: Sequence[int]) -> list[list[int]]:
        """Return the integers that each rank passes, ordered by rank. All ranks must pass the same number of integers.

        It waits until all ranks have called it. If one does not in time, an error of PyTorch is raised, which `exchanging`
        converts to `GangError`.
        """
        mine = torch.tensor(numbers, dtype=torch.int64, device=self._device)
        found = [torch.empty_like(mine) for _ in range(self.size)]
        dist.all_gather(found, mine)
        return [row.tolist() for row in found]

    def summed(self, sums: Mapping[str, float] | Mapping[str, float | torch.Tensor]) -> dict[str, float]:
        """Return the sums over all ranks, by name. All ranks must pass the same names; tensors must have one element.

        It waits until all ranks have called it. If one does not in time, an error of PyTorch is raised, which `exchanging`
        converts to `GangError`.
        """
        names = sorted(sums)
        values = torch.tensor([float(sums[name]) for name in names], dtype=torch.float64, device=self._device)
        dist.all_reduce(values)
        return dict(zip(names, values.tolist(), strict=True))

    @contextmanager
    def exchanging(self) -> Iterator[None]:
        """Convert errors of an exchange in the `with` block to `GangError`, since the user's code did not cause them.

        Raises:
            GangError: Another rank has ended, or did not take part in time.
        """
        try:
            yield
        except RuntimeError as error:
            if not isinstance(error, dist.DistError) and _GLOO not in str(error):
                raise
            raise GangError(
                f"rank {self.rank} of {self.size}: another rank is gone, or did not come to an exchange within {self._seconds:g} s "
                f"(exchange_timeout): {_first_line(error)}"
            ) from error

    def close(self) -> None:
        """Leave the process group. Safe to call twice.

        Release `wrapped` models first. While one exists, the process group ends only when the model is deleted, while Python's
        interpreter lock is held. It then waits for an internal thread that may need the lock to release a tensor.
        """
        if dist.is_initialized():
            dist.destroy_process_group()

    def _added(self, _: object, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:  # type: ignore[name-defined]
        gradients = bucket.buffer()
        self.exchanges += 1
        if self._share:
            gradients.mul_(self._share)
        else:  # This is the gradient of the example with weight 0, which may not be finite.
            gradients.zero_()
        future: Any = dist.all_reduce(gradients, async_op=True).get_future()
        return future.then(lambda done: done.value()[0])  # type: ignore[no-any-return]


def _first_line(error: RuntimeError) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)
