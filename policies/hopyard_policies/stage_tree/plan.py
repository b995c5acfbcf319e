"""The search plan: a tree of what trials have in common, and what was trained and saved along its paths (Hippo, section 3.2).

A node is a range of positions that the same trials pass through. Two trials share a node exactly where their trainings are
the same; where they part, the node ends. Nodes are never removed. A new trial splits the node within which it leaves it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass, field

from hopyard.policy.vocabulary import Hyperparameters
from hopyard_policies.stage_tree.prefix_equality import Sameness

Available = Callable[[str, int], bool]
"""Whether a job's snapshot at a position can be loaded now."""


@dataclass(eq=False, slots=True)
class StageNode:
    """What the same trials train from `start` (exclusive) up to `end`.

    Attributes:
        start: Where it begins: its parent's end.
        end: Where its trials part, or the last position of any.
        parent: The node before it; None for the root, which is position 0.
        children: The nodes behind it, in the order in which they came.
        heads: The same by what is in force where they begin.
        member: A trial that passes through it.
        saves: Who has a snapshot, by position.
        reached: How far it was trained, `start` for not at all, and by whom.
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
        """The nodes from here back to the root, which is left out."""
        found, node = [], self
        while node.parent is not None:
            found.append(node)
            node = node.parent
        return found


Nodes = dict[int, StageNode]
"""Nodes of the search plan by their identity."""


@dataclass(frozen=True, slots=True)
class Trial:
    """A configuration, trained up to `limit`. One that was forked trains as its parent did up to a position.

    Attributes:
        id: Its job.
        pieces: (where it ends, configuration in force up to there), rising; the last ends at `limit`.
        family: Trials of different families have nothing in common, such as those of different experiments.
    """

    id: str
    pieces: tuple[tuple[int, Hyperparameters], ...]
    family: str = ""

    @property
    def limit(self) -> int:
        """Where it is complete."""
        return self.pieces[-1][0]

    @property
    def begins(self) -> int:
        """From where on its own job can train it: what comes before was trained with another configuration."""
        return self.pieces[-2][0] if len(self.pieces) > 1 else 0

    def longer(self, job: str, limit: int) -> Trial:
        """Another trial that trains as this one and goes on beyond its end."""
        return Trial(job, (*self.pieces[:-1], (limit, self.pieces[-1][1])), self.family)

    def forked(self, job: str, position: int, hyperparameters: Hyperparameters, limit: int) -> Trial:
        """Another trial that begins with this one's training up to a position."""
        before = tuple((min(end, position), given) for end, given in self.pieces if end < position)
        within = next(given for end, given in self.pieces if end >= position)
        return Trial(job, (*before, (position, within), (limit, hyperparameters)), self.family)


class SearchPlan:
    """All trials, and along their paths what was trained and saved.

    Args:
        sameness: Says how far two configurations train alike.

    Attributes:
        moves: Rises when any trial is trained further.
    """

    def __init__(self, sameness: Sameness) -> None:
        self._sameness = sameness
        self._trials: dict[str, Trial] = {}
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

    def __getitem__(self, trial: str) -> Trial:
        return self._trials[trial]

    def add(self, trial: Trial) -> None:
        """Takes a trial into the tree; splits the node in which it parts from the others."""
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

    def _next(self, node: StageNode, trial: Trial) -> tuple[StageNode | None, int]:
        for child in node.heads.get(self._head(trial, node.end), ()):
            same = min(self._common(self._trials[child.member], trial), child.end)
            if same > node.end:
                return child, same
        return None, node.end

    def _head(self, trial: Trial, position: int) -> Hashable:
        given = next(given for end, given in trial.pieces if end > position)
        return trial.family, self._sameness.head(given, position)

    def _common(self, one: Trial, other: Trial) -> int:
        """How far two trials are the same."""
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
        """Cuts a node in two; answers the upper one. The lower one stays what it is to its children and trials."""
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
        """Where a trial ends."""
        return self._leaves[trial]

    def node(self, trial: str, position: int) -> StageNode:
        """The node on a trial's path that a position (> 0) lies in: start < position <= end."""
        node = self._leaves[trial]
        while node.start >= position:
            assert node.parent is not None
            node = node.parent
        return node

    def branch(self, trial: str) -> int:
        """The number of a trial's branch: those that are on different ones have nothing in common."""
        return self._branches[trial]

    def changes(self, branch: int) -> int:
        """How often a branch got a trial, or a snapshot of one. What is gone is not counted."""
        return self._changes[branch]

    def savers(self, branch: int) -> Iterable[str]:
        """All who ever saved something on a branch."""
        return self._savers[branch]

    def passes(self, trial: str, node: StageNode) -> bool:
        """Whether a trial passes through a node."""
        way: StageNode | None = self._leaves[trial]
        while way is not None and way is not node:
            way = way.parent
        return way is not None

    def common(self, one: str, other: str) -> int:
        """How far two trials are the same."""
        mine = {id(node) for node in self._leaves[one].path()}
        node: StageNode | None = self._leaves[other]
        while node is not None and id(node) not in mine:
            node = node.parent
        return node.end if node is not None else 0

    # --------------------------------------------------------------------------------------------------------- progress

    def stir(self, trial: str) -> None:
        """Something is known of a trial that was not, such as that it is complete."""
        self.moves += 1
        self._moved[self._branches[trial]] = self.moves

    def moved(self, trial: str, since: int) -> bool:
        """Whether a trial may have been trained further, by whomever, since there were so many `moves`."""
        return self._moved.get(self._branches[trial], 0) > since

    def trained(self, trial: str, position: int) -> None:
        """A trial was trained, by its own job, up to a position."""
        for node in self._leaves[trial].path():
            reached = min(position, node.end)
            if reached > node.reached:
                node.reached, node.by = reached, trial
                self.stir(trial)
            elif node.start < position:
                return

    def saved(self, trial: str, position: int) -> None:
        """A trial's job has a snapshot at a position (> 0)."""
        noted = self._noted.setdefault(trial, set())
        if position in noted:
            return
        noted.add(position)
        self.node(trial, position).saves.setdefault(position, []).append(trial)
        branch = self._branches[trial]
        self._changes[branch] += 1
        self._savers[branch][trial] = None

    def known(self, trial: str, limit: int) -> tuple[int, str]:
        """How far at most up to `limit` anybody has trained what a trial trains, and who did (empty: nobody)."""
        node: StageNode | None = self._leaves[trial]
        while node is not None:
            if node.reached > node.start and node.start < limit:
                return min(node.reached, limit), node.by
            node = node.parent
        return 0, ""

    def saves(self, node: StageNode, available: Available) -> Iterator[tuple[int, str]]:
        """Snapshots in a node that can be loaded: position, and the first who has it. What is gone is forgotten."""
        for position, owners in list(node.saves.items()) if node.saves else ():
            for owner in [owner for owner in owners if not available(owner, position)]:
                owners.remove(owner)
                self._noted[owner].discard(position)
            if owners:
                yield position, owners[0]
            else:
                del node.saves[position]
