"""Divides the cost of a run among the experiments of a group that need its results."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from hopyard.policy import Cluster
from hopyard_policies.stage_tree.incremental_tree import TreeBranch
from hopyard_policies.stage_tree.state import PolicyState


def bill(books: PolicyState, cluster: Cluster, branches: Mapping[int, TreeBranch], begun: Collection[str]) -> None:
    """Submit the command `bill_run` for each run whose set of paying experiments, or the position up to which one pays, has changed.

    The command divides the slot time of a run among the experiments that need its training.

    Args:
        books: The runs, with the last submitted bill of each; updated.
        cluster: Receives the commands.
        branches: The branches of the stage tree.
        begun: Trials whose runs start in the present up-call.
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
