"""The ladder of an experiment: the positions of all its rungs, its brackets, and the jobs in them.

A *bracket* is one competition of successive halving. It has the rungs of the ladder from rung s; s is its early-stopping rate.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

from hopyard.policy import ENDLESS
from hopyard.policy.rungs import Rung, RungEntry, rung_positions
from hopyard_policies.base.job_creation import need_at_most
from hopyard_policies.base.parameters import need_whole
from hopyard_policies.halving.bracket import Bracket
from hopyard_policies.halving.rungs import LIMIT, MOST_RUNGS, extended, least, rising


class Ladder:
    """The rungs of an experiment, its brackets, and the bracket of each job.

    The *next rung* of a job is the rung at which its result is due, from its start or promotion until that result is reported.

    Args:
        eta: The reduction factor, at least 2.
        rungs: The maximum number of rungs, from which r follows, or the list of their positions; None: 5. Not with `r`.
        r: The value of the attribute `r`.
        brackets: The early-stopping rates that the user gave; None: the policy's standard ones (see `rates`).

    Raises:
        ValueError: An argument is out of range, or both `rungs` and `r` are given.

    Attributes:
        eta: The reduction factor.
        r: The least training of a configuration in bracket 0, in the experiment's unit; None: it follows from the maximum
            position.
        positions: The positions of the rungs, ascending; empty before `reach`.
        brackets: The brackets, in the order in which they were opened.
        infinite: Whether the rungs go up from r, independently of the maximum position (see `rungs.rising`); at first False. They also
            go up if there is no maximum position. Otherwise they go down from it (see `rung_positions`).
    """

    def __init__(
        self, eta: int, rungs: int | Sequence[int] | None, r: int | None, brackets: Sequence[int] | None
    ) -> None:
        need_whole("eta", eta, 2)
        if r is not None:
            need_whole("r", r)
        self._listed = _listed(rungs)
        self._most = MOST_RUNGS
        if rungs is not None and self._listed is None:
            need_whole("rungs", rungs)
            assert isinstance(rungs, int)
            self._most = rungs
        need_at_most("rungs", self._most, LIMIT)
        if rungs is not None and r is not None:
            raise ValueError(f"rungs is {rungs} and r is {r}; give one of them: the other follows")
        self.eta, self.r = eta, r
        self.positions: tuple[int, ...] = ()
        self.brackets: list[Bracket] = []
        self.infinite = False
        self._rates = _rates(brackets)
        # The early-stopping rate s of each bracket: its bottom rung is rung s of the ladder.
        self._begins: list[int] = []
        self._home: dict[str, int] = {}

    def variant(self, eta: int | None = None, rungs: int | None = None) -> Ladder:
        """Return a ladder without rungs and brackets that has another reduction factor or maximum number of rungs; None: the same."""
        found = Ladder(eta or self.eta, self._listed, self.r, self._rates)
        found.infinite, found._most = self.infinite, rungs or self._most
        return found

    @property
    def most(self) -> int:
        """The maximum number of rungs; 1 if it does not determine the rungs, because `r` or their positions are given."""
        return self._most if self.r is None and self._listed is None else 1

    @property
    def lengths(self) -> list[int]:
        """The number of rungs of each bracket."""
        return [len(self.positions) - s for s in self._begins]

    def reach(self, R: int) -> bool:
        """Create the rungs up to the maximum position R, or extend them if R has grown; return whether the rungs changed.

        Raises:
            ValueError: The experiment has no maximum position (R is at least `ENDLESS`) and neither r nor the rungs are given, or
                the last of the given rungs is not R.
        """
        before = self.positions
        self.positions = self._higher(R) if before else self._first(R)
        if before == self.positions:
            return False
        for bracket, length in zip(self.brackets, self.lengths, strict=True):
            bracket.heighten(length)
        return True

    def _first(self, R: int) -> tuple[int, ...]:
        if self._listed is not None:
            if self._listed[-1] != R:
                limit = "is not given" if R >= ENDLESS else f"is {R}"
                raise ValueError(
                    f"rungs is {list(self._listed)}, but stop.max_iterations {limit}; the last rung must be there"
                )
            return self._listed
        if self.r is None:
            if R >= ENDLESS:
                raise ValueError("the rungs follow from stop.max_iterations, which is not given: give it, or r")
            return rung_positions(R, least(R, self.eta, self._most), self.eta)
        r = min(self.r, R)
        return rising(R, r, self.eta) if self._goes_up(R) else rung_positions(R, r, self.eta)

    def _higher(self, R: int) -> tuple[int, ...]:
        if self._goes_up(R):
            return (*self.positions, *rising(R, self.positions[-1] * self.eta, self.eta))
        return extended(self.positions, R, self.eta)

    def _goes_up(self, R: int) -> bool:
        """Return whether the rungs go up from r, without a top rung at the maximum position R."""
        return self.infinite or R >= ENDLESS

    def rates(self, standard: Callable[[int], Sequence[int]]) -> Sequence[int]:
        """Return the early-stopping rates of the brackets, ascending: the rates given by the user, or the standard ones.

        The bracket with rate s starts at rung s of the ladder.

        Args:
            standard: Returns the standard rates for a number of rungs.

        Raises:
            ValueError: A rate is not below the number of rungs.
        """
        rates, most = self._rates or standard(len(self.positions)), len(self.positions) - 1
        if rates[-1] > most:
            at = ", ".join(map(str, self.positions))
            raise ValueError(
                f"brackets is {list(rates)}, but the rungs are at {at}: bracket s begins at rung s, so the largest is {most}"
            )
        return rates

    def open(self, bracket: Bracket, s: int) -> None:
        """Add a bracket that starts at rung s of the ladder."""
        self.brackets.append(bracket)
        self._begins.append(s)

    def enter(self, job: str, bracket: int) -> None:
        """Add a new configuration, given by the id of its job, to the bracket with the index `bracket`.

        The configuration's next rung is the bottom rung of the bracket.
        """
        self._home[job] = bracket
        self.brackets[bracket].add(job)

    def knows(self, job: str) -> bool:
        """Return whether a job is in a bracket."""
        return job in self._home

    def home(self, job: str) -> Bracket:
        """Return the bracket of a job; a job that is in no bracket raises `KeyError`."""
        return self.brackets[self._home[job]]

    def goal(self, job: str) -> int | None:
        """Return the position of a job's next rung, at which its result is due; None: the job has no next rung."""
        bracket = self._home.get(job)
        rung = None if bracket is None else self.brackets[bracket].heading(job)
        return None if bracket is None or rung is None else self.positions[self._begins[bracket] + rung]

    def shown(self, width: Callable[[int, int], int | None]) -> tuple[Rung, ...]:
        """Return all rungs for display, by bracket, from the bottom.

        Args:
            width: Takes the indices of a bracket and a rung. Returns the maximum number of jobs at this rung; None: no limit.
        """
        return tuple(
            Rung(
                bracket=index,
                number=number,
                position=self.positions[self._begins[index] + number],
                standings=tuple(RungEntry(job, rung.values[job], job in rung.promoted) for _, _, job in rung.results),
                awaited=tuple(rung.awaited),
                width=width(index, number),
            )
            for index, bracket in enumerate(self.brackets)
            for number, rung in enumerate(bracket.rungs)
        )


def _listed(given: int | Sequence[int] | None) -> tuple[int, ...] | None:
    """Return the positions of the rungs if the parameter `rungs` lists them; None: it does not."""
    if not isinstance(given, list | tuple):
        return None
    rising_from_one = all(type(p) is int for p in given) and all(low < high for low, high in pairwise((0, *given)))
    if not given or len(given) > LIMIT or not rising_from_one:
        raise ValueError(
            f"rungs is {given!r}; it must be the maximum number of rungs, or a list of 1 to {LIMIT} ascending positions"
        )
    return tuple(given)


def _rates(given: Sequence[int] | None) -> tuple[int, ...] | None:
    if given is None:
        return None
    if not isinstance(given, list | tuple) or not given or any(type(s) is not int or s < 0 for s in given):
        raise ValueError(
            f"brackets is {given!r}; it must be a list of early-stopping rates, not how many brackets there are: [0] is the "
            "one that stops earliest, [0, 1, 2] are three"
        )
    if len(set(given)) < len(given):
        raise ValueError(f"brackets is {given!r}; an early-stopping rate can be there once")
    return tuple(sorted(given))
