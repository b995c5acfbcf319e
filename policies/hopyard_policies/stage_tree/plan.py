"""The search plan: a tree of the common prefixes of trials, with what was trained and saved (Hippo, section 3.2).

A node is a range of positions that the same trials pass. Two trials share a node where their training is the same;
where they diverge, the node ends. Nodes are never removed. A new trial splits the node within which it diverges. The path of a trial is
the sequence of nodes from the root to its last node.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass, field

from hopyard.policy.vocabulary import Hyperparameters
from hopyard_policies.stage_tree.prefix_equality import PrefixEquality

Available = Callable[[str, int], bool]
"""Takes a job id and a position. Returns whether the job's snapshot at that position can be loaded now."""


@dataclass(eq=False, slots=True)
class StageNode:
    """A range of positions, from `start` (exclusive) to `end` (inclusive), in which the same trials train the same.

    Attributes:
        start: The end of its parent.
        end: The position where its trials diverge, or the last position of any.
        parent: The node before it; None for the root, which is position 0.
        children: The nodes after it, in order of creation.
        heads: The children by a key of the hyperparameter values that they use at their first position. Only children with equal
            keys can train the same there, so `SearchPlan.add` compares a new trial only with those.
        member: A trial whose path contains the node.
        saves: The jobs with a snapshot, by position.
        reached: The furthest position in the node to which any job has trained; at most `start`: no job has trained in the node.
        by: The job that trained to `reached`; empty: none.
    """

    start: int
    end: int
    parent: StageNode | None
    member: str
    children: list[StageNode] = field(default_factory=list)
    saves: dict[int, list[str]] = field(default_factory=dict)
    reached: int = 0
    by: str = ""
    heads: dict[Hashable, list[StageNode]] = field(default_factory=dict)

    def path(self) -> list[StageNode]:
        """Return the nodes from this one back to the root, without the root."""
        found, node = [], self
        while node.parent is not None:
            found.append(node)
            node = node.parent
        return found


Nodes = dict[int, StageNode]
"""Nodes of the search plan by their identity."""


@dataclass(frozen=True, slots=True)
class PlannedTrial:
    """A trial: its configuration, and the position up to which it trains (`limit`).

    A forked trial trains with the configurations of its parent up to the position of the fork, then with its own.

    Attributes:
        id: The id of its job.
        pieces: (end position, configuration that is trained up to it), by ascending position. The first piece begins at 0, each other
            one at the end of the piece before. A trial that is not forked has one piece.
        family: Trials of different families never share training, such as those of experiments that train differently.
    """

    id: str
    pieces: tuple[tuple[int, Hyperparameters], ...]
    family: str = ""

    @property
    def limit(self) -> int:
        """The position at which the trial is complete."""
        return self.pieces[-1][0]

    @property
    def begins(self) -> int:
        """The position of the trial's last fork, from which its own configuration is trained; 0: it is not forked."""
        return self.pieces[-2][0] if len(self.pieces) > 1 else 0

    def longer(self, job: str, limit: int) -> PlannedTrial:
        """Return a trial of the job `job` that trains the same as this one up to this one's limit and ends at `limit`."""
        return PlannedTrial(job, (*self.pieces[:-1], (limit, self.pieces[-1][1])), self.family)

    def forked(self, job: str, position: int, hyperparameters: Hyperparameters, limit: int) -> PlannedTrial:
        """Return a trial that is forked from this one.

        Args:
            job: The id of the new trial's job.
            position: The position of the fork, at most this trial's `limit`; up to it the new trial trains as this one.
            hyperparameters: The configuration that is trained after the fork.
            limit: The position at which the new trial is complete.
        """
        before = tuple((min(end, position), given) for end, given in self.pieces if end < position)
        within = next(given for end, given in self.pieces if end >= position)
        return PlannedTrial(job, (*before, (position, within), (limit, hyperparameters)), self.family)


class SearchPlan:
    """The tree of all trials, with what was trained and saved along their paths.

    Args:
        sameness: Computes up to which position the training of two configurations is the same.

    Attributes:
        moves: A counter, increased when any trial is trained further.
        root: The root of the tree, at position 0.
    """

    def __init__(self, sameness: PrefixEquality) -> None:
        self._sameness = sameness
        self._trials: dict[str, PlannedTrial] = {}
        self._leaves: dict[str, StageNode] = {}
        self._heads: dict[Hashable, int] = {}
        self._branches: dict[str, int] = {}
        self._changes: list[int] = []
        self._savers: list[dict[str, None]] = []
        self._noted: dict[str, set[int]] = {}
        self._moved: dict[int, int] = {}
        self.moves = 0
        self.root = StageNode(0, 0, None, "")

    # -------------------------------------------------------------------------------------------------------- structure

    def __contains__(self, trial: str) -> bool:
        return trial in self._trials

    def __getitem__(self, trial: str) -> PlannedTrial:
        return self._trials[trial]

    def add(self, trial: PlannedTrial) -> None:
        """Add a trial to the tree. The node in which it diverges from other trials is split there."""
        self._trials[trial.id] = trial
        branch = self._branches[trial.id] = self._heads.setdefault(self._head(trial, 0), len(self._heads))
        if branch == len(self._changes):
            self._changes.append(0)
            self._savers.append({})
        self._changes[branch] += 1
        node = self.root
        while True:
            child, same = self._next(node, trial)
            if child is None:
                child = StageNode(node.end, trial.limit, node, trial.id, reached=node.end)
                node.children.append(child)
                node.heads.setdefault(self._head(trial, node.end), []).append(child)
                break
            if same < child.end:
                child = self._split(child, same)
            if same == trial.limit:
                break
            node = child
        self._leaves[trial.id] = child

    def _next(self, node: StageNode, trial: PlannedTrial) -> tuple[StageNode | None, int]:
        for child in node.heads.get(self._head(trial, node.end), ()):
            same = min(self._common(self._trials[child.member], trial), child.end)
            if same > node.end:
                return child, same
        return None, node.end

    def _head(self, trial: PlannedTrial, position: int) -> Hashable:
        given = next(given for end, given in trial.pieces if end > position)
        return trial.family, self._sameness.head(given, position)

    def _common(self, one: PlannedTrial, other: PlannedTrial) -> int:
        """Return the position up to which the training of two trials is the same."""
        if one.family != other.family:
            return 0
        at = first = second = 0
        until = min(one.limit, other.limit)
        while at < until:
            stop = min(one.pieces[first][0], other.pieces[second][0])
            mine, theirs = one.pieces[first][1], other.pieces[second][1]
            same = stop if mine is theirs else self._sameness(mine, theirs, stop)
            if same < stop:
                return max(same, at)
            at = stop
            first += one.pieces[first][0] == stop
            second += other.pieces[second][0] == stop
        return until

    def _split(self, node: StageNode, at: int) -> StageNode:
        """Split a node at a position; return the new upper part, up to `at`. The lower part is the given object, with its children."""
        assert node.parent is not None
        upper = StageNode(node.start, at, node.parent, node.member, [node])
        upper.saves = {p: who for p, who in node.saves.items() if p <= at}
        upper.reached, upper.by = min(node.reached, at), node.by
        member = self._trials[node.member]
        for siblings in (node.parent.children, node.parent.heads[self._head(member, node.start)]):
            siblings[siblings.index(node)] = upper
        upper.heads[self._head(member, at)] = [node]
        node.parent, node.start = upper, at
        node.saves = {p: who for p, who in node.saves.items() if p > at}
        if node.reached <= at:
            node.reached, node.by = at, ""
        return upper

    def leaf(self, trial: str) -> StageNode:
        """Return the last node on a trial's path; a trial that is not in the plan raises `KeyError`."""
        return self._leaves[trial]

    def node(self, trial: str, position: int) -> StageNode:
        """Return the node on a trial's path with start < position <= end, for a position > 0."""
        node = self._leaves[trial]
        while node.start >= position:
            assert node.parent is not None
            node = node.parent
        return node

    def branch(self, trial: str) -> int:
        """Return the number of a trial's branch. Trials that differ at their first position are on different branches."""
        return self._branches[trial]

    def changes(self, branch: int) -> int:
        """Return a counter of the branch with the number `branch`, increased when a trial or a snapshot is added to it."""
        return self._changes[branch]

    def savers(self, branch: int) -> Iterable[str]:
        """Return all jobs that ever saved a snapshot on the branch with the number `branch`."""
        return self._savers[branch]

    def passes(self, trial: str, node: StageNode) -> bool:
        """Return whether a node is on a trial's path."""
        way: StageNode | None = self._leaves[trial]
        while way is not None and way is not node:
            way = way.parent
        return way is not None

    def common(self, one: str, other: str) -> int:
        """Return the position up to which the paths of two trials are the same; 0: they share no node."""
        mine = {id(node) for node in self._leaves[one].path()}
        node: StageNode | None = self._leaves[other]
        while node is not None and id(node) not in mine:
            node = node.parent
        return node.end if node is not None else 0

    # --------------------------------------------------------------------------------------------------------- progress

    def mark_changed(self, trial: str) -> None:
        """Increase the counter `moves` as if a trial had been trained further, so that `moved` returns True for its whole branch.

        The trial's state has changed without further training, for example because the trial is complete.
        """
        self.moves += 1
        self._moved[self._branches[trial]] = self.moves

    def moved(self, trial: str, since: int) -> bool:
        """Return whether a trial may have been trained further, by any job, since `moves` had the value `since`."""
        return self._moved.get(self._branches[trial], 0) > since

    def trained(self, trial: str, position: int) -> None:
        """Record that the trial's own job has trained it up to a position (inclusive)."""
        for node in self._leaves[trial].path():
            reached = min(position, node.end)
            if reached > node.reached:
                node.reached, node.by = reached, trial
                self.mark_changed(trial)
            elif node.start < position:
                return

    def saved(self, trial: str, position: int) -> None:
        """Record that a trial's own job has a snapshot at a position (> 0)."""
        noted = self._noted.setdefault(trial, set())
        if position in noted:
            return
        noted.add(position)
        self.node(trial, position).saves.setdefault(position, []).append(trial)
        branch = self._branches[trial]
        self._changes[branch] += 1
        self._savers[branch][trial] = None

    def known(self, trial: str, limit: int) -> tuple[int, str]:
        """Return how far any job has trained the path of a trial.

        Args:
            trial: The trial.
            limit: The largest position to return.

        Returns:
            The position, and the job that trained it; (0, ""): no job has trained any part of the path.
        """
        node: StageNode | None = self._leaves[trial]
        while node is not None:
            if node.reached > node.start and node.start < limit:
                return min(node.reached, limit), node.by
            node = node.parent
        return 0, ""

    def saves(self, node: StageNode, available: Available) -> Iterator[tuple[int, str]]:
        """Yield position and first job of the snapshots in a node that can be loaded, one for each position.

        Snapshots that cannot be loaded are removed from the node's record (`StageNode.saves`); no files are deleted.

        Args:
            node: The node.
            available: Returns whether a snapshot can be loaded.
        """
        for position, owners in list(node.saves.items()) if node.saves else ():
            for owner in [owner for owner in owners if not available(owner, position)]:
                owners.remove(owner)
                self._noted[owner].discard(position)
            if owners:
                yield position, owners[0]
            else:
                del node.saves[position]
