"""Validation of an imported stream: its records are applied to a core other than the scheduler's before AppStat is written."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Final

from hopyard._runtime.untrusted.tar_members import RefusedArchive
from hopyard._runtime.untrusted.zstd_frames import FedDecompressor
from hopyard.errors import Conflict, InvalidInput
from hopyard.policy.vocabulary import ExperimentState, StreamId
from hopyard.v1 import appstat_pb2
from hopyard_engine.core import CLUSTER_STREAM, Core
from hopyard_engine.core.effects import ExperimentChanged, JobChanged, ReportAccepted
from hopyard_engine.core.events import ClusterEvent, ExperimentJoined, Imported, StreamCreated, StreamEvent
from hopyard_engine.core.state.stream import Stream
from hopyard_engine.journal.codec import encode, event_of, kind_of
from hopyard_engine.journal.format import FORMAT, RecordError, StoredRecord
from hopyard_scheduler.experiments.id_translation import renamed
from hopyard_scheduler.experiments.import_bounds import check_numbers, check_time
from hopyard_scheduler.experiments.program import program_of
from hopyard_scheduler.runtime.projections import Changes, statistics
from hopyard_scheduler.search_plan.projection import PlanRows

MAX_LINE_BYTES: Final = 20 * 1024 * 1024
MAX_JOURNAL_BYTES: Final = 8 * 1024 * 1024 * 1024
"""Maximum size of an imported journal after decompression."""

_ID: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,99}")
_BATCH_BYTES: Final = 4 * 1024 * 1024
_ROWS: Final = 200
_PAYLOAD: Final = ("name", "spec", "bundle", "interpreter", "request")


def check_id(name: str, place: str) -> str:
    """Return an experiment id if it is valid. The id becomes part of file paths.

    Args:
        name: The id.
        place: The name of the input field, for the error message.

    Raises:
        InvalidInput: The id is not made of 1 to 100 small letters, digits and dashes, begins with a dash, or is
            reserved.
    """
    if _ID.fullmatch(name) is None or name == CLUSTER_STREAM:
        raise InvalidInput(
            f"{place}: found {name!r:.120}, allowed is an id of small letters, digits and dashes, such as digits-2"
        )
    return name


class LineReader:
    """Splits the lines of a journal that is compressed with Zstandard and arrives in chunks, with bounded memory.

    Call `feed` for each chunk and then `lines` until it returns none; after the last chunk call `end`. `lines` blocks while it
    decompresses: call it in a thread.
    """

    def __init__(self) -> None:
        self._plain = FedDecompressor(MAX_JOURNAL_BYTES)
        self._text = bytearray()
        self._start = 0  # The beginning of the next line.
        self._searched = 0  # Where the search for its end continues.

    def feed(self, chunk: bytes) -> None:
        """Add a chunk of the compressed text."""
        self._plain.feed(chunk)

    def lines(self, most: int) -> list[bytes]:
        """Return the next complete lines, without line ends; none: another chunk is needed.

        Args:
            most: Maximum number of lines. Fewer are returned if they have more than about 4 MiB.

        Raises:
            InvalidInput: The data is damaged or not compressed with Zstandard, exceeds `MAX_JOURNAL_BYTES` or another limit of
                `FedDecompressor`, or a line is longer than about `MAX_LINE_BYTES`.
        """
        found: list[bytes] = []
        size = 0
        while len(found) < most and size < _BATCH_BYTES:
            end = self._text.find(b"\n", self._searched)
            if end >= 0:
                found.append(bytes(self._text[self._start : end]))
                size += len(found[-1])
                self._start = self._searched = end + 1
            elif not self._read():
                break
        return found

    def end(self) -> None:
        """Raise InvalidInput unless the compressed text is complete and ends with a line end."""
        if not self._plain.complete or self._start < len(self._text):
            raise InvalidInput("journal: it ends in the middle of an event")

    def _read(self) -> bool:
        """Decompress more of the text. Return False if there is no more compressed data."""
        del self._text[: self._start]
        self._start, self._searched = 0, len(self._text)
        if self._searched > MAX_LINE_BYTES:
            raise InvalidInput(f"journal: found a line of more than {MAX_LINE_BYTES} bytes, which no event has")
        try:
            piece = self._plain.read()
        except RefusedArchive as error:
            raise InvalidInput(f"journal: {error}") from error
        self._text += piece
        return bool(piece)


class StreamImport:
    """Validates the records of an imported stream by applying them to a new core, and computes their rows for AppStat.

    The new core is independent of the scheduler's core. Call `take` for all lines in order, then `at_rest` and
    `finish`.

    Args:
        target: The new id of the experiment; empty: its original id.

    Attributes:
        at: The time of the latest event, in seconds since the Unix epoch.
        experiments: The ids, after translation, of the experiments found so far.
        bundles: The hashes of their code bundles. The dict serves as an ordered set.
    """

    def __init__(self, target: str = "") -> None:
        self._target = check_id(target, "id") if target else ""
        self._core = Core()
        self._changes = Changes()
        self._source = ""
        self._number = 0
        self.at = 0.0
        self.experiments: list[str] = []
        self.bundles: dict[str, None] = {}

    @property
    def experiment(self) -> Stream:
        """The state of the stream after the applied events.

        Raises:
            InvalidInput: No event was applied.
        """
        if not self.experiments:
            raise InvalidInput("journal: it has no events")
        return self._core.streams[StreamId(self.experiments[0])]

    def take(self, lines: Sequence[bytes]) -> appstat_pb2.ImportJournalRequest:
        """Apply the next events. Return their journal records and the statistics rows with their reports, to be written to AppStat.

        Args:
            lines: The exported records, one per line, as JSON.

        Raises:
            InvalidInput: A record is invalid. The message has its number.
        """
        part = appstat_pb2.ImportJournalRequest()
        for line in lines:
            self._number += 1
            try:
                at, record = _record_of(line, StreamId(self._source or "the imported experiment"), self._number)
                self._apply(self._checked(_event_of(record)), at, part)
            except RecordError:
                raise
            except InvalidInput as error:
                raise InvalidInput(f"journal: event {self._number}: {error}") from error
            except Exception as error:  # Invalid events may cause any error in the core.
                raise InvalidInput(
                    f"journal: event {self._number} cannot be applied: {type(error).__name__}: {error}"
                ) from error
        return part

    def at_rest(self) -> None:
        """Raise Conflict unless all experiments of the stream are paused or finished at the end of the journal."""
        moving = [
            m for m in self.experiment.experiments.values() if not (m.state.ended or m.state is ExperimentState.PAUSED)
        ]
        if moving:
            named = ", ".join(f"{m.id} is {m.state.value}" for m in moving)
            raise Conflict(f"the journal ends while {named}: pause it where it runs, and export it again")

    def finish(self, imported: Imported) -> Iterator[appstat_pb2.ImportJournalRequest]:
        """Apply the final event. Yield its journal record, and the rows of experiments and jobs, to be written to AppStat.

        Args:
            imported: The event that records the import.

        Raises:
            InvalidInput: No rows can be computed, because the specification in the journal contradicts its events.
        """
        part = appstat_pb2.ImportJournalRequest()
        self._number += 1
        self._apply(imported, imported.at, part)
        yield part
        try:
            rows = self._changes.rows(self._core, imported.at, PlanRows())
        except Exception as error:  # Invalid contents may cause any error.
            raise InvalidInput(
                f"journal: what follows from it cannot be written: {type(error).__name__}: {error}"
            ) from error
        for start in range(0, len(rows), _ROWS):
            yield appstat_pb2.ImportJournalRequest(projections=rows[start : start + _ROWS])

    def _checked(self, event: StreamEvent) -> StreamEvent:
        """Raise InvalidInput unless an event is valid at its place in the stream. Return it with the new id of the experiment."""
        if self._number == 1 and isinstance(event, StreamCreated):
            self._source = check_id(event.stream, "experiment")
        elif self._number == 1 or isinstance(event, StreamCreated):
            raise InvalidInput("a journal begins with StreamCreated, and has no second one")
        if event.stream != self._source:
            raise InvalidInput(f"found an event of experiment {event.stream!r}, the stream is {self._source!r}'s")
        if isinstance(event, StreamCreated | ExperimentJoined):
            self._met(event)
        return renamed(event, self._source, self._target) if self._target else event

    def _met(self, event: StreamCreated | ExperimentJoined) -> None:
        payload = event.payload
        if not isinstance(payload, dict) or any(not isinstance(payload.get(field), str) for field in _PAYLOAD):
            raise InvalidInput(f"payload: needed are texts called {', '.join(_PAYLOAD)}")
        program_of(payload)
        if isinstance(event, StreamCreated):
            self.experiments.append(self._target or event.stream)
        else:
            if self._target:
                raise InvalidInput(
                    f"{event.experiment} joins here: experiments of one group share a journal that names each of them, "
                    "so they keep their ids; import them without a new one"
                )
            self.experiments.append(check_id(event.experiment, "experiment"))
        if payload["bundle"]:
            self.bundles[payload["bundle"]] = None

    def _apply(self, event: StreamEvent, at: float, part: appstat_pb2.ImportJournalRequest) -> None:
        """Apply an event to the core of this object, and add its record and its statistics to a message.

        Args:
            event: The event, with the new id of its experiment.
            at: Unix time in seconds at which it was first journalled.
            part: The message.
        """
        reports = []
        for effect in self._core.restore(event):
            match effect:
                case ReportAccepted():
                    reports.append(effect)
                case JobChanged() | ExperimentChanged():
                    self._changes.note(effect)
                case _:
                    pass
        part.projections.extend(statistics(reports, at))
        self.at = max(self.at, event.at)
        part.records.add(
            stream=event.stream,
            position=self._number,
            at=at,
            kind=kind_of(event),
            payload=encode(event),
            version=FORMAT,
        )


def _record_of(line: bytes, stream: StreamId, number: int) -> tuple[float, StoredRecord]:
    """Parse a line of an exported journal.

    Args:
        line: The line.
        stream: The id of the stream, for the record.
        number: The position of the record in its stream.

    Returns:
        The time at which the record was journalled, and the record.

    Raises:
        InvalidInput: The line is not a record, or its time is not between 1970 and the year 9999.
    """
    try:
        raw = json.loads(line)
        if raw["position"] != number:
            raise ValueError(f"position: found {raw['position']!r:.40}, needed is {number}: a record is missing")
        payload = json.dumps(raw["payload"], separators=(",", ":")).encode()
        at = float(raw["at"])
        record = StoredRecord(stream, number, raw.get("version", 0), str(raw["kind"]), payload)
    except (AttributeError, KeyError, OverflowError, TypeError, ValueError) as error:
        raise InvalidInput(
            f"{type(error).__name__}: {error!s:.200}; needed is a record as hopyard export writes it"
        ) from error
    return check_time(at), record


def _event_of(record: StoredRecord) -> StreamEvent:
    """Decode the event of a record.

    Raises:
        InvalidInput: The event concerns the cluster (nodes and slots), not an experiment, or a number of it is beyond its bounds.
        RecordError: The record cannot be decoded by this version.
    """
    event = event_of(record)
    if isinstance(event, ClusterEvent):
        raise InvalidInput(f"{record.kind} belongs to a cluster, not to an experiment")
    check_numbers(event)
    return event
