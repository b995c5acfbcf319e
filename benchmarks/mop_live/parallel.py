"""The data-parallel contenders of benchmarks/mop_live.py: one process per slot, each with its part of the images.

    python parallel.py ddp|averaging RANK WORLD PORT SEED EPOCHS TRAIN.npz EVALUATION.npz LOG

* ddp: one configuration after another on all slots; gradients are averaged at each step (DistributedDataParallel over gloo). The batch
  size is the configuration's, divided among the slots.
* averaging: one configuration after another on all slots; each slot trains a copy of the model on its part for one epoch, then the
  copies (weights and momentum) are averaged.

The first process evaluates after each epoch and writes a line to LOG: configuration, epoch, accuracy, time.
"""

from __future__ import annotations

import sys
import time
from itertools import chain
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from mop_network import CONFIGURATIONS, Batch, accuracy, network, optimizer_of, read, train_pass
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def average(model: nn.Module, optimizer: torch.optim.Optimizer, world: int) -> None:
    momentum = (state["momentum_buffer"] for state in optimizer.state.values())
    for tensor in chain((weights.data for weights in model.parameters()), momentum):
        dist.all_reduce(tensor)
        tensor /= world


def shards(data: Batch, world: int) -> Batch:
    """Cut the data to the same number of images in each process, because gradients are averaged only if all processes do a step."""
    counts = torch.tensor([len(data[1])])
    dist.all_reduce(counts, op=dist.ReduceOp.MIN)
    return data[0][: int(counts)], data[1][: int(counts)]


def search(kind: str, rank: int, world: int, seed: int, epochs: int, train: Batch, held: Batch, log: Path) -> None:
    for number, hyperparameters in enumerate(CONFIGURATIONS):
        torch.manual_seed(seed)
        model = network()
        trained: Any = DistributedDataParallel(model) if kind == "ddp" else model
        optimizer = optimizer_of(model, hyperparameters)
        torch.manual_seed(seed * 1000 + rank)  # a different order of the images in each process
        size = hyperparameters["batch_size"] // (world if kind == "ddp" else 1)
        for epoch in range(1, epochs + 1):
            train_pass(trained, optimizer, train, size)
            if kind == "averaging":
                average(model, optimizer, world)
            if rank == 0:
                with log.open("a") as out:
                    out.write(f"{number} {epoch} {accuracy(model, held)!r} {time.time()!r}\n")


def main() -> None:
    kind, rank, world, port, seed, epochs, train, held, log = sys.argv[1:]
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=int(rank), world_size=int(world))
    data = shards(read(Path(train)), int(world))
    search(kind, int(rank), int(world), int(seed), int(epochs), data, read(Path(held)), Path(log))
    dist.destroy_process_group()


main()
