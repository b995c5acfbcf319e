"""How much time does the bandit policy save compared with the default policy, and how much worse is its best result?

    python benchmarks/bandit.py [--jobs 24] [--epochs 20] [--boundary 2] [--epsilon 0.5] [--slots 2] [--runs 3] [--json]

Both policies search the same configurations of the digits example, one after the other in the same cluster. There is no target, so each
job that its policy does not terminate trains to the end. Needs torch and scikit-learn.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import yaml

from hopyard import Client
from hopyard.client.types import ExperimentState, JobState

DIGITS = Path(__file__).parents[1] / "examples" / "digits"


def search(client: Client, policy: dict[str, Any], jobs: int, epochs: int) -> dict[str, Any]:
    spec = yaml.safe_load((DIGITS / "experiment.yaml").read_text())
    spec["metric"].pop("target", None)
    spec |= {"policy": policy, "stop": {"jobs": jobs, "max_iterations": epochs}, "snapshot": {"every": epochs}}
    began = time.monotonic()
    experiment = client.wait(client.create(spec, DIGITS))
    seconds = time.monotonic() - began
    if experiment.state is not ExperimentState.COMPLETED:
        sys.exit(f"the experiment is {experiment.state.value}: {experiment.reason}")
    made = client.jobs(experiment)
    return {
        "policy": policy["name"],
        "seconds": seconds,
        "training_seconds": sum(job.seconds for job in made),
        "epochs": sum(len(client.curve(experiment, job.id)) for job in made),
        "jobs_ended_early": sum(job.state is JobState.TERMINATED for job in made),
        "best": max(job.best_value for job in made if job.best_value is not None),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=24)
    parser.add_argument("--epochs", type=int, default=20, help="of each job")
    parser.add_argument("--boundary", type=int, default=2, help="evaluation_boundary, in epochs")
    parser.add_argument("--epsilon", type=float, default=0.5)
    parser.add_argument("--slots", type=int, default=2)
    parser.add_argument("--runs", type=int, default=3, help="searches with each policy; the medians are shown")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    bandit = {"name": "bandit", "evaluation_boundary": arguments.boundary, "epsilon": arguments.epsilon}
    rows = []
    with tempfile.TemporaryDirectory() as data, Client.local(data, slots=arguments.slots) as client:
        for _ in range(arguments.runs):
            for policy in ({"name": "default"}, bandit):
                rows.append(search(client, policy, arguments.jobs, arguments.epochs))
                print(json.dumps(rows[-1]), file=sys.stderr)
    medians = {
        name: {key: statistics.median(row[key] for row in rows if row["policy"] == name) for key in list(rows[0])[1:]}
        for name in ("default", "bandit")
    }
    if arguments.json:
        print(json.dumps({"settings": vars(arguments), "medians": medians, "runs": rows}))
        return
    for key, base in medians["default"].items():
        print(
            f"{key:17} default {base:9.3f}   bandit {medians['bandit'][key]:9.3f}   difference {base - medians['bandit'][key]:9.3f}"
        )


if __name__ == "__main__":
    main()
