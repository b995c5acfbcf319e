"""The ladder of an experiment: where its rungs are, which brackets begin at them, and who is on the way to which."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hopyard.policy import ENDLESS
from hopyard.policy.rungs import Rung, Standing
from hopyard_policies.base.job_creation import need_at_most
from hopyard_policies.base.parameters import need_whole
from hopyard_policies.halving.bracket import Bracket
from hopyard_policies.halving.rungs import LIMIT, MOST_RUNGS, extended, least, positions


class Ladder:
    """Rungs, brackets and their jobs. The parameters are those of `HalvingPolicy`.

    Attributes:
        eta: The reduction factor.
        r: What a configuration of bracket 0 trains at least, if that is given.
        positions: Of the rungs, rising; empty before `reach`.
        brackets: In the order in which they were opened.
    """

    def __init__(self, eta: int, rungs: int | None, r: int | None, brackets: Sequence[int] | None) -> None:
        need_whole("eta", eta, 2)
        for name, value in (("rungs", rungs), ("r", r)):
            if value is not None:
                need_whole(name, value)
        need_at_most("rungs", rungs or 1, LIMIT)
        if rungs is not None and r is not None:
            raise ValueError(f"rungs is {rungs} and r is {r}; give one of them: the other follows")
        self.eta, self.r = eta, r
        self.positions: tuple[int, ...] = ()
        self.brackets: list[Bracket] = []
        self._most = rungs or MOST_RUNGS
        self._rates = _rates(brackets)
        self._begins: list[
            int
        ] = []  # Of each bracket its early-stopping rate s: its bottom rung is rung s of the ladder.
        self._home: dict[str, int] = {}

    @property
    def lengths(self) -> list[int]:
        """How many rungs each bracket has."""
        return [len(self.positions) - s for s in self._begins]

    def reach(self, R: int) -> bool:
        """Makes rungs up to R, once; later adds some if R is further than it was. Returns whether it has.

        Raises:
            ValueError: R is not known, and no r is given.
        """
        if not self.positions:
            if self.r is None and R >= ENDLESS:
                raise ValueError("the rungs follow from stop.max_iterations, which is not given: give it, or r")
            r = least(R, self.eta, self._most) if self.r is None else min(self.r, R)
            self.positions = positions(R, r, self.eta)
            return True
        if self.positions[-1] >= R:
            return False
        self.positions = extended(self.positions, R, self.eta)
        for bracket, length in zip(self.brackets, self.lengths, strict=True):
            bracket.heighten(length)
        return True

    def rates(self, standard: Callable[[int], Sequence[int]]) -> Sequence[int]:
        """The early-stopping rates of the brackets, rising: those given, else the standard ones of so many rungs.

        Raises:
            ValueError: There are not so many rungs.
        """
        rates, most = self._rates or standard(len(self.positions)), len(self.positions) - 1
        if rates[-1] > most:
            at = ", ".join(map(str, self.positions))
            raise ValueError(
                f"brackets is {list(rates)}, but the rungs are at {at}: bracket s begins at rung s, so the largest is {most}"
            )
        return rates

    def open(self, bracket: Bracket, s: int) -> None:
        """Adds a bracket that begins at rung s."""
        self.brackets.append(bracket)
        self._begins.append(s)

    def enter(self, job: str, bracket: int) -> None:
        """A new configuration is on its way to the bottom rung of a bracket."""
        self._home[job] = bracket
        self.brackets[bracket].add(job)

    def knows(self, job: str) -> bool:
        """Whether a job has entered a bracket."""
        return job in self._home

    def home(self, job: str) -> Bracket:
        """The bracket that a job has entered."""
        return self.brackets[self._home[job]]

    def goal(self, job: str) -> int | None:
        """The position of the rung that a job is on its way to; None: it is on none."""
        bracket = self._home.get(job)
        rung = None if bracket is None else self.brackets[bracket].heading(job)
        return None if bracket is None or rung is None else self.positions[self._begins[bracket] + rung]

    def shown(self, width: Callable[[int, int], int | None]) -> tuple[Rung, ...]:
        """Who stands where, by bracket, from the bottom; `width` is how many may ever stand at a rung of a bracket."""
        return tuple(
            Rung(
                bracket=index,
                number=number,
                position=self.positions[self._begins[index] + number],
                standings=tuple(Standing(job, rung.values[job], job in rung.promoted) for _, _, job in rung.results),
                awaited=tuple(rung.awaited),
                width=width(index, number),
            )
            for index, bracket in enumerate(self.brackets)
            for number, rung in enumerate(bracket.rungs)
        )


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
