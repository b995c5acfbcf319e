"""Who wants what runs train, of the experiments of a group: they pay for it."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from hopyard.policy import Cluster
from hopyard_policies.stage_tree.incremental_tree import TreeBranch
from hopyard_policies.stage_tree.state import Books


def bill(books: Books, cluster: Cluster, branches: Mapping[int, TreeBranch], begun: Collection[str]) -> None:
    """Says of each run who wants what it trains, if that has changed.

    Args:
        books: The runs, and what was said of them.
        cluster: Takes the commands.
        branches: What there is to train.
        begun: Trials whose runs begin just now.
    """
    for run in books.runs.values():
        job = cluster.jobs[run.trial]
        if run.leaving or (not job.state.live and run.trial not in begun):
            continue
        position = job.position if job.state.live else run.start
        wanted = branches[books.plan.branch(run.trial)].wanted(run.trial)
        ahead = tuple(sorted((name, until) for name, until in wanted.items() if until > position))
        if ahead != tuple((name, until) for name, until in run.wanted if until > position):
            run.wanted = ahead
            cluster.bill_run(run.trial, ahead)
