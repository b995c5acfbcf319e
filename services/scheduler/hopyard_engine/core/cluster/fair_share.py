"""Fair shares: weighted max-min division (water-filling) with caps, in whole slots."""

from __future__ import annotations

import heapq
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Claim:
    """The claim of one stream in a division of slots.

    Attributes:
        name: Id of the stream.
        weight: Weight (> 0).
        cap: Maximum number of slots (>= 0).
    """

    name: str
    weight: float
    cap: int


Rank = tuple[float, float, int, str]
"""Position of a claim in the order in which slots are given; the smallest is served first (`rank`)."""


def rank(claim: Claim, held: int, turn: int) -> Rank:
    """Return the rank of a claim for its next slots.

    The claim with the lowest level (slots per weight) is first. At equal levels it is the lightest one, which rises most by a slot,
    then the first one by name. Claims without slots are served in the order of their turns (`turns.Turns`) instead.

    Args:
        claim: The claim.
        held: Number of slots that it has in the division so far.
        turn: Its place in the order of turns.
    """
    return (held / claim.weight, claim.weight, 0, claim.name) if held else (0.0, 0.0, turn, claim.name)


def water_fill(slots: int, claims: list[Claim]) -> dict[str, int]:
    """Divide slots by weight. Slots that a claim cannot use are divided between the others (ASHA paper, section 5.3).

    Each slot goes to the first claim by `rank`. The result is the weighted max-min fair division in whole slots: of all divisions
    that respect the caps, it has the lexicographically greatest list of levels (slots per weight), sorted from the lowest. For each
    slot is given at the lowest level, so a claim that gives a slot back is at most at the level of those that could take it, and no
    exchange improves the list. With fewer slots than claims, the lowest level is 0 in each division; then the first claims get one
    slot each. Levels are floating-point numbers. Each slot takes logarithmic time in the number of claims.

    Args:
        slots: Number of slots to divide.
        claims: The claims, with different names, in the order of their turns.

    Returns:
        The number of slots of each claim, by name.
    """
    shares = {claim.name: 0 for claim in claims}
    heap = [(rank(claim, 0, turn), turn) for turn, claim in enumerate(claims) if claim.cap > 0]
    heapq.heapify(heap)
    left = slots
    while left > 0 and heap:
        turn = heap[0][1]
        claim = claims[turn]
        shares[claim.name] += 1
        left -= 1
        if shares[claim.name] < claim.cap:
            heapq.heapreplace(heap, (rank(claim, shares[claim.name], turn), turn))
        else:
            heapq.heappop(heap)
    return shares
