"""A policy that uses a solver."""

from __future__ import annotations

from typing import Any

from hopyard.policy import AnswerReady, Cluster
from hopyard_policies.default import DefaultPolicy


class Asking(DefaultPolicy):
    """Asks a solver first, and trains its jobs once it has all answers.

    Args:
        kind: Name of the solver.
        payloads: The problems, one question each.
        seconds: The time limit of each question.
    """

    def __init__(self, kind: str, payloads: list[Any], seconds: float = 60.0) -> None:
        super().__init__()
        self._asks = [(kind, payload, seconds) for payload in payloads]
        self._open: set[str] = set()
        self.heard: list[AnswerReady] = []

    def allocate_jobs(self, cluster: Cluster) -> None:
        asks, self._asks = self._asks, []
        for kind, payload, seconds in asks:
            self._open.add(cluster.ask(kind, payload, seconds=seconds))
        if not self._open:
            super().allocate_jobs(cluster)

    def on_answer(self, cluster: Cluster, answer: AnswerReady) -> None:
        self._open.remove(answer.ticket)
        self.heard.append(answer)
        self.allocate_jobs(cluster)
