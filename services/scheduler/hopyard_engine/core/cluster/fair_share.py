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


def water_fill(slots: int, claims: list[Claim]) -> dict[str, int]:
    """Divide slots by weight. Slots that a claim cannot use are divided between the others (ASHA paper, section 5.4).

    Each slot goes to the claim that has the lowest level (slots per weight) including this slot, and at equal levels to the first such
    claim. The result is the weighted max-min fair division in integers. Each slot takes logarithmic time in the number of claims.

    Args:
        slots: Number of slots to divide.
        claims: The claims, with different names.

    Returns:
        The number of slots of each claim, by name.
    """
    shares = {claim.name: 0 for claim in claims}
    heap = [(1 / claim.weight, order) for order, claim in enumerate(claims) if claim.cap > 0]
    heapq.heapify(heap)
    left = slots
    while left > 0 and heap:
        _, order = heap[0]
        claim = claims[order]
        shares[claim.name] += 1
        left -= 1
        if shares[claim.name] < claim.cap:
            heapq.heapreplace(heap, ((shares[claim.name] + 1) / claim.weight, order))
        else:
            heapq.heappop(heap)
    return shares
