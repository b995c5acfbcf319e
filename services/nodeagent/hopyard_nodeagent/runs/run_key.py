"""The key of a run on this node."""

from __future__ import annotations

from typing import NamedTuple

from hopyard.v1 import common_pb2


class RunKey(NamedTuple):
    """One process of one attempt of one job; identifies a channel."""

    experiment: str
    job: str
    attempt: int
    rank: int

    @classmethod
    def of(cls, run: common_pb2.RunRef) -> RunKey:
        """Convert a key from the wire."""
        return cls(run.experiment, run.job, run.attempt, run.rank)

    def to_proto(self) -> common_pb2.RunRef:
        """Convert the key for the wire."""
        return common_pb2.RunRef(experiment=self.experiment, job=self.job, attempt=self.attempt, rank=self.rank)

    def __str__(self) -> str:
        rank = f" rank {self.rank}" if self.rank else ""
        return f"run {self.attempt} of job {self.job} of experiment {self.experiment}{rank}"
