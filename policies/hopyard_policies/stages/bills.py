"""Who wants what runs train, of the experiments of a group: they pay for it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from hopyard.policy import Cluster, JobView
from hopyard_policies.stages.books import Books
from hopyard_policies.tuning.trials import Errand, TrialState

Errands = Sequence[tuple[TrialState, Errand]]


def bill(books: Books, cluster: Cluster, errands: Errands, begun: Collection[str]) -> None:
    """Says of each run who wants what it trains, if that has changed.

    Args:
        books: The runs, and what was said of them.
        cluster: Takes the commands.
        errands: What running experiments want.
        begun: Trials whose runs begin just now.
    """
    for trial, wanted in _wanted(books, cluster.jobs, errands).items():
        run, job = books.runs[trial], cluster.jobs[trial]
        if not job.state.live and trial not in begun:
            continue
        position = job.position if job.state.live else run.start
        ahead = tuple(sorted((name, until) for name, until in wanted.items() if until > position))
        if ahead != tuple((name, until) for name, until in run.wanted if until > position):
            run.wanted = ahead
            cluster.bill_run(trial, ahead)


def _wanted(books: Books, jobs: Mapping[str, JobView], errands: Errands) -> dict[str, dict[str, int]]:
    """For each run that goes on or begins, up to where on its way each experiment wants it trained."""
    wanted: dict[int, dict[str, int]] = {}  # By node; those before it are wanted whole.
    for state, errand in errands:
        experiment, until = jobs[state.id].experiment, errand.until
        for node in books.plan.node(state.id, until).path():
            here = wanted.setdefault(id(node), {})
            if here.get(experiment, 0) >= min(until, node.end):
                break
            here[experiment] = min(until, node.end)
    found: dict[str, dict[str, int]] = {}
    for run in books.runs.values():
        if not run.leaving:
            mine = found[run.trial] = dict[str, int]()
            for node in books.plan.leaf(run.trial).path():
                mine.update((name, to) for name, to in wanted.get(id(node), {}).items() if name not in mine)
    return found
