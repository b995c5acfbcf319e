"""Ray Tune's contender of benchmarks/stage_tree_live.py: the same trials as a grid, or with ASHAScheduler.

A trial gets the values of its hyperparameters for each epoch. It uses the same PyTorch as Hopyard.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

import ray
from ray import tune
from ray.tune.schedulers import ASHAScheduler, FIFOScheduler


def train(config: dict[str, Any], trials: list[Any], seed: int) -> None:
    sys.path += [os.environ["EPOCHS_CODE"], os.environ["EPOCHS_TORCH"]]  # after the packages of Ray's environment
    import torch
    from network import accuracy, evaluation_images, line, network, train_images
    from torch.nn import functional as F

    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    torch.manual_seed(seed)
    model = network()
    values = trials[config["index"]]
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    (x, y), (held_x, held_y) = train_images(), evaluation_images()
    for position, (lr, batch_size, momentum) in enumerate(values, 1):
        began = time.time(), time.process_time()
        optimizer.param_groups[0].update(lr=lr, momentum=momentum)
        model.train()
        for batch in torch.split(torch.randperm(len(y)), batch_size):
            optimizer.zero_grad(set_to_none=True)
            loss = F.cross_entropy(model(x[batch]), y[batch])
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        model.eval()
        with torch.no_grad():
            outputs = [model(part) for part in torch.split(held_x, 512)]
        found = accuracy(torch.cat(outputs), held_y).item()
        line(str(config["index"]), position, found, *began)
        tune.report({"accuracy": found})


def main() -> None:
    given = json.loads(sys.argv[1])
    ray.init(num_cpus=given["slots"], include_dashboard=False, _temp_dir=given["folder"], log_to_driver=False)
    scheduler: Any = FIFOScheduler()
    if given["search"] == "sha":
        scheduler = ASHAScheduler(
            max_t=given["epochs"], grace_period=given["r"], reduction_factor=given["eta"], brackets=1
        )
    tuner = tune.Tuner(
        tune.with_resources(tune.with_parameters(train, trials=given["trials"], seed=given["seed"]), {"cpu": 1}),
        param_space={"index": tune.grid_search(list(range(len(given["trials"]))))},
        tune_config=tune.TuneConfig(
            metric="accuracy", mode="max", scheduler=scheduler, max_concurrent_trials=given["slots"], reuse_actors=True
        ),
        run_config=tune.RunConfig(storage_path=given["folder"] + "/results", verbose=0),
    )
    results = tuner.fit()
    if results.errors:
        sys.exit(f"{len(results.errors)} trials failed, the first with: {results.errors[0]}")


main()
