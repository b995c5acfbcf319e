"""Import of experiments that another cluster exported.

The exported journal is a blob in the store. Its records are applied to a new core (the state machine of the engine),
which is not that of the scheduler. The records, and the rows computed from them, are written to AppStat in one
transaction. Then the experiment is loaded like any other. An import is therefore atomic, and only the journal is
imported: everything else is computed from it here.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection
from typing import TYPE_CHECKING, Final

from hopyard.client.transfer.blobs import BUNDLE_OWNER
from hopyard.errors import AlreadyExists, Conflict
from hopyard.v1 import appstat_pb2
from hopyard_engine.core.events import Imported
from hopyard_scheduler.experiments.stream_import import LineReader, StreamImport
from hopyard_scheduler.request_ids import check_request_id

if TYPE_CHECKING:
    from hopyard.v1 import appstat_pb2_grpc
    from hopyard_scheduler.experiments.commands import ExperimentCommands
    from hopyard_scheduler.runtime.runtime import Runtime

_SECONDS: Final = 3600.0
_AT_ONCE: Final = 500
_HASHES: Final = 1000


class Importer:
    """Imports experiments. A call waits until earlier calls have ended.

    Args:
        runtime: The event loop of the scheduler.
        commands: Claims the ids of experiments, and loads experiments into the core.
        stub: Client of AppStat.
    """

    def __init__(
        self, runtime: Runtime, commands: ExperimentCommands, stub: appstat_pb2_grpc.AppStatServiceAsyncStub
    ) -> None:
        self._runtime = runtime
        self._commands = commands
        self._stub = stub
        self._one = asyncio.Lock()

    async def take(self, journal: str, target: str, request: str) -> tuple[str, int]:
        """Import the experiment whose journal is a blob in the store.

        Args:
            journal: The hash of the blob with the journal.
            target: The id for the experiment; empty: its original id.
            request: Idempotency key: a repeated call with the same key imports nothing and returns the same id.

        Returns:
            The id of the imported experiment (of a group: of its first experiment), and the number of snapshots that
            its stream has in the store.

        Raises:
            InvalidInput: The journal is invalid or cannot be read by this version, or the idempotency key is empty.
            AlreadyExists: Another experiment has the id.
            Conflict: The experiment was neither paused nor finished at the end of the journal, or its code bundle is
                not in the store.
        """
        check_request_id(request)
        async with self._one:
            stream = StreamImport(target)
            claimed: list[str] = []
            done = False
            try:
                done = await self._write(stream, journal, request, claimed)
            finally:
                if not done:
                    self._commands.give_back(claimed)
            imported, _ = await self._commands.loaded(stream.experiments[0])
            return imported.id, len({entry.info.sha256 for entry in imported.snapshots.entries()})

    async def _write(self, stream: StreamImport, journal: str, request: str, claimed: list[str]) -> bool:
        """Write the records of the journal, and the rows computed from them, to AppStat in one transaction.

        Args:
            stream: Applies the records to a core that is not the scheduler's, and computes the rows.
            journal: The hash of the blob that contains the journal.
            request: The idempotency key, which is stored with the experiment.
            claimed: Receives the id of each experiment that this call has claimed.

        Returns:
            True if this call has written the experiment; False if an earlier call with the same key has.

        Raises:
            HopyardError: The import is refused, or AppStat failed. Nothing is written then.
        """
        call = self._stub.ImportJournal(timeout=_SECONDS)
        written = False
        try:
            await call.write(appstat_pb2.ImportJournalRequest(epoch=self._runtime.journal.epoch))
            async for lines in self._lines(journal):
                part = await asyncio.to_thread(stream.take, lines)
                for name in stream.experiments[len(claimed) :]:
                    if not await self._commands.claim(name):
                        await self._need_same(name, request)
                        return False
                    claimed.append(name)
                await call.write(part)
            stream.at_rest()
            await self._need_code(stream.bundles)
            here = await self._own(stream)
            at = max(self._runtime.clock(), stream.at)
            for part in stream.finish(Imported(at, stream.experiment.id, request, here)):
                await call.write(part)
            await call.write(appstat_pb2.ImportJournalRequest(complete=True))
            await call.done_writing()
            await call
            written = True
            return True
        finally:
            if not written:
                call.cancel()

    async def _lines(self, journal: str) -> AsyncIterator[list[bytes]]:
        """Yield the lines of the journal in lists of at most `_AT_ONCE`.

        Args:
            journal: The hash of the blob.

        Raises:
            InvalidInput: The blob is not a compressed text of lines, or a line is too long.
            HopyardError: The blob cannot be read, or its bytes do not match its hash. Lines may have been yielded
                before.
        """
        text = LineReader()
        async for response in self._stub.GetBlob(appstat_pb2.GetBlobRequest(sha256=journal)):
            text.feed(response.data)
            while lines := await asyncio.to_thread(text.lines, _AT_ONCE):
                yield lines
        text.end()

    async def _need_same(self, name: str, request: str) -> None:
        stream, _ = await self._commands.loaded(name)
        if request not in stream.requests:
            raise AlreadyExists(
                f"experiment {name} is here already; import it under another id (hopyard import FILE --as ID)"
            )

    async def _need_code(self, bundles: Collection[str]) -> None:
        missing = set(bundles).difference(await self._there(list(bundles), BUNDLE_OWNER))
        if missing:
            raise Conflict(f"its code {min(missing)} is not in the store; put it there first (PutBlob)")

    async def _own(self, stream: StreamImport) -> tuple[str, ...]:
        """Make an imported stream an owner of its snapshots in the store. Return the hashes of those that the store has."""
        hashes = sorted({entry.info.sha256 for entry in stream.experiment.snapshots.entries()})
        return tuple(await self._there(hashes, stream.experiment.id))

    async def _there(self, hashes: list[str], owner: str) -> list[str]:
        there: list[str] = []
        for start in range(0, len(hashes), _HASHES):
            request = appstat_pb2.HasBlobsRequest(sha256=hashes[start : start + _HASHES], owner=owner)
            there += (await self._stub.HasBlobs(request, timeout=_SECONDS)).sha256
        return sorted(there)
