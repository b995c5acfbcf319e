"""Fair shares: weighted max-min division (water-filling) with caps, in whole slots."""

from __future__ import annotations

import heapq
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Claim:
    """The claim of one stream: its `weight` (> 0) and its maximum number of slots, `cap`."""

    name: str
    weight: float
    cap: int


def water_fill(slots: int, claims: list[Claim]) -> dict[str, int]:
    """Divides slots by weight; slots that a claim cannot use are divided among the others (ASHA paper, section 5.4).

    Each slot goes to the claim that has the lowest level (slots per weight) with it, and among equals to the first one. The result is
    the weighted max-min fair division in integers. The claims are in a heap, so each slot takes logarithmic time.
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
