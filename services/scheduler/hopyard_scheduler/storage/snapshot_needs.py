"""Which experiment needs which snapshot and which code bundle."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from hopyard.client.transfer.blobs import BUNDLE_OWNER
from hopyard.policy.vocabulary import StreamId

if TYPE_CHECKING:
    from hopyard.v1 import experiment_pb2
    from hopyard_scheduler.experiments.queries import ExperimentQueries
    from hopyard_scheduler.runtime.runtime import Runtime


class SnapshotNeeds:
    """Answers which owner needs which blob, from the core's present state and the rows of finished experiments in AppStat.

    Call `list_experiments` first, and `read` before questions about owners that may not be in the core. An owner is the id of a
    stream.

    Args:
        runtime: Provides the core.
        queries: Reads finished experiments.
        for_others: True: snapshots that a finished experiment keeps only for reuse are treated as needed by it. False:
            as not needed, so that they can be deleted.
    """

    def __init__(self, runtime: Runtime, queries: ExperimentQueries, *, for_others: bool = True) -> None:
        self._runtime = runtime
        self._queries = queries
        self._for_others = for_others
        self._finished: dict[str, set[str]] = {}
        # By owner: the training time of snapshots kept only for reuse, by hash.
        self._prices: dict[str, dict[str, float]] = {}
        self.experiments: dict[str, list[str]] = {}  # By group, because groups own snapshots.
        self.bundles: set[str] = set()

    async def list_experiments(self) -> None:
        """Read the ids of all experiments and the hashes of their code bundles."""
        for found in await self._queries.show_all():
            self.experiments.setdefault(found.group or found.id, []).append(found.id)
            self.bundles.add(found.bundle)

    async def read(self, experiments: Iterable[str]) -> None:
        """Read the snapshots of those of the given owners that are not in the core.

        It repeats until none is missing, because an experiment may leave the core during a read.

        Args:
            experiments: Ids of experiments and groups. Unknown ids are ignored.
        """
        known = [name for name in experiments if name in self.experiments]
        while unread := [n for n in known if n not in self._runtime.core.streams and n not in self._finished]:
            for name in unread:
                jobs = [job for experiment in self.experiments[name] for job in await self._queries.jobs(experiment)]
                self._note(name, jobs)

    async def price(self, owner: str) -> dict[str, float]:
        """Return, by hash, the seconds of training to reproduce each snapshot that an owner keeps only for reuse.

        The result is empty if `list_experiments` did not find the owner.
        """
        if owner in self.experiments and owner not in self._prices:
            jobs = [job for experiment in self.experiments[owner] for job in await self._queries.jobs(experiment)]
            self._prices[owner] = _prices(jobs)
        return self._prices.get(owner, {})

    def releases_reusable(self, owner: str) -> bool:
        """Return True if snapshots that an owner keeps only for reuse are treated as not needed, and so are deleted.

        False also for an owner whose snapshots `read` has not read.
        """
        return not self._for_others and owner in self._finished

    def _note(self, name: str, jobs: Sequence[experiment_pb2.Job]) -> None:
        held = {snapshot.sha256 for job in jobs for snapshot in job.snapshots}
        self._prices[name] = _prices(jobs)
        self._finished[name] = held if self._for_others else held - self._prices[name].keys()

    def has(self, owner: str, sha256: str) -> bool:
        """Return True if an owner needs a blob.

        Args:
            owner: The id of a stream that is in the core or that `read` has read; or `BUNDLE_OWNER`, for code bundles. Empty: the
                blob was stored without a named owner, and is treated as needed.
            sha256: The hash of the blob.
        """
        if owner == BUNDLE_OWNER:
            return sha256 in self.bundles or self._code_of_one_in_the_core(sha256)
        stream = self._runtime.core.streams.get(StreamId(owner))
        if stream is not None:
            return stream.snapshots.holds(sha256)
        return owner == "" or sha256 in self._finished.get(owner, ())

    def held(self, sha256: str) -> bool:
        """Return True if a stream in the core or a finished experiment that `read` has read needs a snapshot.

        Args:
            sha256: The hash of the snapshot.
        """
        books = self._runtime.core.streams.values()
        return any(stream.snapshots.holds(sha256) for stream in books) or any(
            sha256 in held for held in self._finished.values()
        )

    def _code_of_one_in_the_core(self, sha256: str) -> bool:
        streams = self._runtime.core.streams.values()
        return any(
            experiment.payload["bundle"] == sha256 for stream in streams for experiment in stream.experiments.values()
        )


def _prices(jobs: Iterable[experiment_pb2.Job]) -> dict[str, float]:
    """Return, by hash, the seconds of training to reproduce each snapshot that the jobs keep only for reuse.

    A snapshot that one of the jobs needs for itself too is omitted.
    """
    found: dict[str, float] = {}
    own = set[str]()
    for snapshot in (snapshot for job in jobs for snapshot in job.snapshots):
        if not snapshot.for_others:
            own.add(snapshot.sha256)
        else:
            found[snapshot.sha256] = min(snapshot.seconds_again, found.get(snapshot.sha256, snapshot.seconds_again))
    return {sha256: seconds for sha256, seconds in found.items() if sha256 not in own}
