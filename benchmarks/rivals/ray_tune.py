"""Ray Tune's contender of benchmarks/asha_rivals.py: ASHAScheduler, which stops trials and never promotes a stopped one."""

from __future__ import annotations

import json
import sys
from typing import Any

import ray
from ray import tune
from ray.tune.schedulers import ASHAScheduler
from task import iteration


def main() -> None:
    given = json.loads(sys.argv[1])

    def train(config: dict[str, Any]) -> None:
        for position in range(1, given["R"] + 1):
            tune.report({"loss": iteration(config["index"], position)})

    ray.init(num_cpus=given["workers"], include_dashboard=False, _temp_dir=given["folder"], log_to_driver=False)
    scheduler = ASHAScheduler(max_t=given["R"], grace_period=given["r"], reduction_factor=given["eta"], brackets=1)
    tuner = tune.Tuner(
        tune.with_resources(train, {"cpu": 1}),
        param_space={"index": tune.grid_search(list(range(given["configurations"])))},
        tune_config=tune.TuneConfig(
            metric="loss", mode="min", scheduler=scheduler, max_concurrent_trials=given["workers"]
        ),
        run_config=tune.RunConfig(storage_path=given["folder"] + "/results", verbose=0),
    )
    results = tuner.fit()
    if results.errors:
        sys.exit(f"{len(results.errors)} trials failed, the first with: {results.errors[0]}")


main()
