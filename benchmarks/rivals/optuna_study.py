"""Optuna's contender of benchmarks/asha_rivals.py: SuccessiveHalvingPruner, which stops trials and never promotes a stopped one.

There is one process per worker. They share the storage that Optuna recommends for several processes: a journal in a file.
"""

from __future__ import annotations

import json
import multiprocessing
import sys
from typing import Any

import optuna
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import TrialState
from task import iteration


def opened(given: dict[str, Any]) -> optuna.Study:
    return optuna.create_study(
        study_name="rivals",
        storage=JournalStorage(JournalFileBackend(given["folder"] + "/journal.log")),
        load_if_exists=True,
        sampler=optuna.samplers.RandomSampler(seed=0),
        pruner=optuna.pruners.SuccessiveHalvingPruner(min_resource=given["r"], reduction_factor=given["eta"]),
    )


def work(given: dict[str, Any], left: Any) -> None:
    """Train the enqueued configurations one after another, in a worker process, until `left` is 0."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = opened(given)
    while True:
        with left.get_lock():
            if left.value == 0:
                return
            left.value -= 1
        trial = study.ask()
        index = trial.suggest_int("index", 0, given["configurations"] - 1)
        state, value = TrialState.COMPLETE, 0.0
        for position in range(1, given["R"] + 1):
            value = iteration(index, position)
            trial.report(value, position)
            if position < given["R"] and trial.should_prune():
                state = TrialState.PRUNED
                break
        study.tell(trial, value if state is TrialState.COMPLETE else None, state)


def main() -> None:
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    given = json.loads(sys.argv[1])
    study = opened(given)
    for index in range(given["configurations"]):
        study.enqueue_trial({"index": index})
    left = multiprocessing.Value("i", given["configurations"])
    workers = [multiprocessing.Process(target=work, args=(given, left)) for _ in range(given["workers"])]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    if any(worker.exitcode for worker in workers):
        sys.exit("a worker failed")


if __name__ == "__main__":
    main()
