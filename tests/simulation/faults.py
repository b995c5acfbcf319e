"""The kinds of faults and their rates: each schedule draws its own mix, so that rare combinations occur too."""

from __future__ import annotations

import random
from dataclasses import dataclass

LEASE = 10.0


@dataclass(frozen=True, slots=True)
class Rates:
    """Probabilities of faults by message or run, and mean seconds between faults of the cluster (0: never)."""

    lost: float
    duplicated: float
    reordered: float
    late: float
    crash: float
    user_failure: float
    slow_answer: float
    repeated_answer: float
    failed_answer: float
    session_drop: float
    partition: float
    node_death: float
    agent_restart: float
    scheduler_crash: float
    person: float
    not_stored: float
    drain: float
    thinking: float
    too_long: float


def draw(rng: random.Random) -> Rates:
    """Draw the rates of a schedule: each kind is off, mild or heavy."""

    def pick(mild: float, heavy: float, off: float = 0.3) -> float:
        return rng.choices([0.0, mild, heavy], [off, 0.45, 0.55 - off / 2])[0]

    return Rates(
        lost=pick(0.004, 0.02),
        duplicated=pick(0.02, 0.1),
        reordered=pick(0.01, 0.05),
        late=pick(0.004, 0.01),
        crash=pick(0.003, 0.015),
        user_failure=pick(0.002, 0.006),
        slow_answer=pick(0.1, 0.4),
        repeated_answer=pick(0.03, 0.1),
        failed_answer=pick(0.05, 0.2),
        session_drop=pick(20.0, 8.0),
        partition=pick(50.0, 20.0),
        node_death=pick(60.0, 20.0),
        agent_restart=pick(60.0, 20.0),
        scheduler_crash=pick(50.0, 15.0),
        person=pick(60.0, 25.0),
        not_stored=pick(0.01, 0.05, off=0.5),
        drain=pick(120.0, 60.0, off=0.6),
        thinking=pick(0.02, 0.15),
        too_long=pick(0.02, 0.1),
    )
