"""Fair shares of slots: weighted max-min (water-filling) with caps, in whole slots."""

from __future__ import annotations

import heapq
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Claim:
    """What one experiment may get: `weight` > 0 and at most `cap` slots."""

    name: str
    weight: float
    cap: int


def water_fill(slots: int, claims: list[Claim]) -> dict[str, int]:
    """Divides slots by weight; what one cannot use is divided among the others (ASHA paper, section 5.4).

    Whole slots are handed out one by one to the claim with the lowest level (slots per weight) after getting it, ties in
    the order given: that is the weighted max-min fair division in integers. The claims wait in a heap, so a slot costs the
    logarithm of their number.
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
