"""Searches with an objective function, from a script that has no guard against being imported."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from hopyard.client.display.outcome import STARTS_OVER
from tests.timing import HANG_SECONDS

SCRIPT = """
import json
import sys
import warnings

from hopyard import Client, Trial
from hopyard.search import SearchFailed

DECAY = {"factor": 0.5}


def decayed(x):
    return x * DECAY["factor"]


def saving(trial: Trial) -> float:
    state = trial.checkpoint()
    x = float(state.read_text()) if state else trial["x"]
    while x > 1.0:
        x = decayed(x)
        with open("state.txt", "w") as file:
            file.write(repr(x))
        trial.report(x, checkpoint="state.txt")
    return x


def forgetful(config):
    x = config["x"]
    for _ in range(2):
        x = decayed(x)
        hopyard.report(loss=x)


def broken(trial):
    return trial["y"]


import hopyard

rounds = {"name": "default", "barrier": True, "epoch": 1}
framework = {"provider": "framework"}
found = {}
with Client.local(sys.argv[1], slots=2) as client, warnings.catch_warnings(record=True) as caught:
    space = {"x": {"choice": [8.0, 16.0, 32.0]}}
    shared = {"metric": "loss", "mode": "min", "generator": "grid", "policy": rounds, "snapshot": framework, "slots": 2}
    search = client.search(saving, space, **shared)
    search.wait(progress=True)
    found["saving"] = [[job.position, job.best_value, job.attempt > 1, job.state.value] for job in search.jobs]
    found["steps"] = [len(client.curve(search.experiment, job.id)) for job in search.jobs]
    found["best"] = [search.best.best_value, len(search.results())]
    found["warned"] = [str(one.message) for one in caught]
    again = client.search(forgetful, space, **shared).wait()
    found["forgetful"] = [[job.position, job.best_value, job.state.value] for job in again.jobs]
    found["warned again"] = [str(one.message) for one in caught]
    try:
        client.search(broken, space, metric="loss", mode="min", jobs=1, stop={"max_failures": 0}).wait()
    except SearchFailed as error:
        found["broken"] = str(error)
    endless = client.search(saving, {"x": {"uniform": [2.0, 3.0]}}, metric="loss", mode="min", max_time="1h")
    endless.stop()
    found["stopped"] = endless.wait().experiment.state.value
print(json.dumps(found))
"""


def test_functions_of_a_script_are_searched(tmp_path: Path) -> None:
    script = tmp_path / "tune.py"
    script.write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path / "hopyard-data")],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=2 * HANG_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    # Suspended after each epoch, and continued from its checkpoint: every step was trained and reported once.
    assert found["saving"] == [[3, 1.0, True, "COMPLETED"], [4, 1.0, True, "COMPLETED"], [5, 1.0, True, "COMPLETED"]]
    assert found["steps"] == [3, 4, 5]
    assert found["best"] == [1.0, 3]
    assert found["warned"] == []
    assert found["forgetful"] == [[2, 2.0, "COMPLETED"], [2, 4.0, "COMPLETED"], [2, 8.0, "COMPLETED"]]
    assert set(found["warned again"]) <= {STARTS_OVER}  # a watch may miss the state that says so
    assert "every job failed" in found["broken"]
    assert 'return trial["y"]' in found["broken"]
    assert found["broken"].endswith("KeyError: 'y'")
    assert found["stopped"] == "STOPPED"
    assert "3 jobs ended, best loss 1" in done.stderr
