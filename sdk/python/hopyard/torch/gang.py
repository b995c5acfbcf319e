"""What the ranks of a gang share when they train one PyTorch model: gradients and sums.

Imported only for runs with several ranks: there are builds of PyTorch without `torch.distributed`.
"""

# No postponed annotations: PyTorch looks at those of a communication hook.
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
"""What stands in each message of gloo, whose errors have no type of their own: the place in its source."""


class TorchGang:
    """One rank's place in a process group that lasts as long as its run.

    A batch is cut into one part for each rank, of sizes that differ by one at most, so that all parts together are the batch that
    one process would train on. Gradients are averaged over its examples, not over ranks: parts may be of different sizes, and a
    rank without one counts nothing.
    """

    def __init__(self, context: TrainerContext, device: torch.device, seconds: float) -> None:
        """Meet the others at the run's rendezvous (`MASTER_ADDR`, `MASTER_PORT`).

        Args:
            context: of a run with several ranks.
            device: where this rank trains; NCCL joins GPUs, gloo CPUs.
            seconds: how long a rank waits for another, here and in each exchange.

        Raises:
            GangNotMetError: they did not come together in that time, or the place is not free.
        """
        self.rank, self.size = context.rank, context.world_size
        self._device = device
        self._seconds = seconds
        self._share = 0.0
        self.exchanges = 0
        """How often gradients were exchanged."""
        if dist.is_initialized():  # A run before this one failed in the middle of an exchange.
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
        """A model whose gradients are those of the whole batch after each `backward()`; every rank begins with rank 0's weights.

        With `shares_buffers` each call gives every rank rank 0's buffers, so all ranks must call it equally often.
        """
        devices = [self._device] if self._device.type == "cuda" else None
        parallel = DistributedDataParallel(model, device_ids=devices, find_unused_parameters=find_unused_parameters)
        parallel.broadcast_buffers = shares_buffers  # The argument has other names, by version.
        parallel.register_comm_hook(None, self._added)
        return parallel

    def part(self, indices: torch.Tensor) -> torch.Tensor:
        """This rank's part of a batch; one example that does not count where there are fewer than ranks."""
        mine = torch.tensor_split(indices, self.size)[self.rank]
        return mine if len(mine) else indices[:1]

    def begin(self, indices: torch.Tensor) -> int:
        """The next gradients are of this rank's part of a batch; returns how many examples of it count."""
        mine = len(torch.tensor_split(indices, self.size)[self.rank])
        self.weigh(mine / len(indices))
        return mine

    def weigh(self, share: float) -> None:
        """The next gradients are of this share (0 .. 1) of a batch: 0 of an example that does not count."""
        self._share = share

    def gathered(self, numbers: Sequence[int]) -> list[list[int]]:
        """The whole numbers of all ranks, by rank; each gives as many."""
        mine = torch.tensor(numbers, dtype=torch.int64, device=self._device)
        found = [torch.empty_like(mine) for _ in range(self.size)]
        dist.all_gather(found, mine)
        return [row.tolist() for row in found]

    def summed(self, sums: Mapping[str, float] | Mapping[str, float | torch.Tensor]) -> dict[str, float]:
        """The sums of all ranks, which all have the same names, added up."""
        names = sorted(sums)
        values = torch.tensor([float(sums[name]) for name in names], dtype=torch.float64, device=self._device)
        dist.all_reduce(values)
        return dict(zip(names, values.tolist(), strict=True))

    @contextmanager
    def exchanging(self) -> Iterator[None]:
        """Says so where an exchange fails in what is done within: the code is not at fault.

        Raises:
            GangError: Another rank is gone, or did not come in time.
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
        """Leave the process group; safe to call twice.

        Models that were `wrapped` are let go of before. With one of them the group would end later, under Python's lock, and wait
        for a thread of its own that may wait for that lock to let go of a tensor.
        """
        if dist.is_initialized():
            dist.destroy_process_group()

    def _added(self, _: object, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:  # type: ignore[name-defined]
        gradients = bucket.buffer()
        self.exchanges += 1
        if self._share:
            gradients.mul_(self._share)
        else:  # Of the example that does not count; it may have none that is finite.
            gradients.zero_()
        future: Any = dist.all_reduce(gradients, async_op=True).get_future()
        return future.then(lambda done: done.value()[0])  # type: ignore[no-any-return]


def _first_line(error: RuntimeError) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)
