"""Fair shares of machines: weighted max-min (water-filling) with caps, in whole machines."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Claim:
    """What one experiment may get: `weight` > 0 and at most `cap` machines."""

    name: str
    weight: float
    cap: int


def water_fill(machines: int, claims: list[Claim]) -> dict[str, int]:
    """Divides machines by weight; what one cannot use is divided among the others (ASHA paper, section 5.4).

    Whole machines are handed out one by one to the claim with the lowest level (machines per weight) after getting it, ties in
    the order given: that is the weighted max-min fair division in integers.
    """
    shares = {claim.name: 0 for claim in claims}
    for _ in range(machines):
        open_claims = [c for c in claims if shares[c.name] < c.cap]
        if not open_claims:
            break
        lowest = min(open_claims, key=lambda c: (shares[c.name] + 1) / c.weight)
        shares[lowest.name] += 1
    return shares
