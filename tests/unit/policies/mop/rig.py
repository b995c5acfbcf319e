"""Data sets and checks for the tests of model hopper parallelism (the policy `mop`)."""

from __future__ import annotations

import json
import random
from collections import Counter, defaultdict
from collections.abc import Sequence

from hopyard.policy import Data, JobState, Partition, RunEndReason, RunMode
from hopyard.policy.testing import VirtualCluster
from hopyard.policy.vocabulary import Ask, Predict, RunEnd, StartJob
from hopyard_policies.mop.milp_plans import KIND
from hopyard_policies.mop.schedule.planning import randomized
from hopyard_policies.mop.schedule.problem import from_plain


def placed(
    holders: Sequence[Sequence[int]], evaluate: Sequence[Sequence[int]] = (), examples: int | None = 100
) -> Data:
    """Return a data set; `holders` and `evaluate` give, for each partition, the slots (numbered from 1) whose nodes store it."""

    def partitions(split: str, lying: Sequence[Sequence[int]]) -> tuple[Partition, ...]:
        return tuple(
            Partition(f"{split}/{number}", examples, 1000, tuple(f"node-m{slot:02}" for slot in sorted(slots)))
            for number, slots in enumerate(lying)
        )

    return Data("digits", partitions("train", holders), partitions("eval", evaluate))


def ring(count: int, replicas: int = 1, parts: int = 0) -> Data:
    """Return a data set with one training partition per slot, replicas on the following slots, and `parts` evaluation partitions."""
    lying = [sorted({(first + more) % count + 1 for more in range(replicas)}) for first in range(count)]
    return placed(lying, [lying[number % count] for number in range(parts)])


def planned(question: Predict | Ask) -> object:
    """Return a random valid plan in the format of the exact solver's answer."""
    assert isinstance(question, Ask)
    assert question.kind == KIND
    plan = randomized(from_plain(json.loads(json.dumps(question.payload))), random.Random(7))
    return {"placed": [[*each.unit, each.slot] for each in plan.placed]}


def trained(cluster: VirtualCluster) -> dict[str, dict[int, str]]:
    """Return, by job and position, the partition on which the job trained, without units that were lost.

    The history must contain no refused commands.
    """
    starts: dict[tuple[str, int], StartJob] = {}
    attempts: Counter[str] = Counter()
    kept: dict[str, dict[int, str]] = defaultdict(dict)
    for entry in cluster.history:
        call = entry.call
        if isinstance(call, RunEnd) and call.mode is RunMode.TRAIN and call.reason is not RunEndReason.TERMINATED:
            began = starts[call.job, call.attempt]
            assert began.until is not None
            if call.resume_position >= began.until:
                for number, slot in enumerate(reversed(began.slots), 1):
                    kept[call.job][began.until - number] = began.inputs[slot]
        for command in entry.commands:
            if isinstance(command, StartJob):
                attempts[command.job] += 1
                starts[command.job, attempts[command.job]] = command
    return kept


def check_epochs(cluster: VirtualCluster, data: Data) -> None:
    """Assert that each configuration visited each partition exactly once in each epoch that it trained.

    The visits of a fork before its start are those of its parent.
    """
    epoch = len(data.train)
    names = {each.name for each in data.train}
    visits = trained(cluster)
    for job in cluster.jobs.values():
        assert job.position == cluster.terms.max_position or job.state is not JobState.COMPLETED
        for first in range(0, job.position, epoch):
            owner = job
            while first < owner.fork_position:
                owner = cluster.jobs[owner.parent]
            visited = [visits[owner.id][position] for position in range(first, min(first + epoch, job.position))]
            assert len(set(visited)) == len(visited)
            assert set(visited) == names or len(visited) < epoch
