"""A stream that another cluster wrote, applied to a core of its own: what it means here, before anything is written."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Final

import zstandard

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
from hopyard_scheduler.experiments.program import program_of
from hopyard_scheduler.runtime.projections import Changes, statistics
from hopyard_scheduler.search_plan.projection import PlanRows

MAX_LINE_BYTES: Final = 20 * 1024 * 1024
_ID: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,99}")
_PIECE: Final = 4096
_ROWS: Final = 200
_PAYLOAD: Final = ("name", "spec", "bundle", "interpreter", "request")


def check_id(name: str, place: str) -> str:
    """An experiment's id itself, if it may be one: it becomes part of paths.

    Raises:
        InvalidInput: It may not.
    """
    if _ID.fullmatch(name) is None or name == CLUSTER_STREAM:
        raise InvalidInput(
            f"{place}: found {name!r:.120}, allowed is an id of small letters, digits and dashes, such as digits-2"
        )
    return name


class LineReader:
    """The lines of a compressed text that comes in chunks; no line is longer than `MAX_LINE_BYTES`."""

    def __init__(self) -> None:
        self._zstd = zstandard.ZstdDecompressor(max_window_size=2**27).decompressobj()
        self._rest = bytearray()

    def feed(self, chunk: bytes) -> list[bytes]:
        """Takes a chunk; answers the lines that are complete with it.

        Raises:
            InvalidInput: It is not compressed text, or a line is too long.
        """
        lines: list[bytes] = []
        # In small pieces, since a few bytes may stand for very many.
        for start in range(0, len(chunk), _PIECE):
            try:
                self._rest += self._zstd.decompress(chunk[start : start + _PIECE])
            except zstandard.ZstdError as error:
                raise InvalidInput(f"journal: it is not compressed as it should be: {error}") from error
            *whole, rest = self._rest.split(b"\n")
            lines += [bytes(line) for line in whole]
            self._rest = rest
            if len(self._rest) > MAX_LINE_BYTES:
                raise InvalidInput(f"journal: found a line of more than {MAX_LINE_BYTES} bytes, which no event has")
        return lines

    def end(self) -> None:
        """Nothing more comes.

        Raises:
            InvalidInput: Something is missing.
        """
        if not self._zstd.eof or self._rest:
            raise InvalidInput("journal: it ends in the middle of an event")


class ArrivingStream:
    """Events of one stream, one after the other, on a core apart.

    Args:
        target: Id that the experiment gets; empty: its own.

    Attributes:
        experiments: Ids, as they are here, of the experiments that were met so far.
        bundles: Their code.
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
        """The stream's state after the events that were taken.

        Raises:
            InvalidInput: There was none.
        """
        if not self.experiments:
            raise InvalidInput("journal: it has no events")
        return self._core.streams[StreamId(self.experiments[0])]

    def take(self, lines: Sequence[bytes]) -> appstat_pb2.ImportJournalRequest:
        """Takes the next events; answers them as records, with the statistics that follow from them.

        Raises:
            InvalidInput: Which event cannot be taken, and why.
        """
        part = appstat_pb2.ImportJournalRequest()
        for line in lines:
            self._number += 1
            try:
                at, record = _record_of(line, StreamId(self._source or "the imported experiment"), self._number)
                self._apply(self._checked(_event_of(record)), at, part, self._kept_checksum(record))
            except RecordError:
                raise
            except InvalidInput as error:
                raise InvalidInput(f"journal: event {self._number}: {error}") from error
            except Exception as error:  # whatever the core says to events that never were
                raise InvalidInput(
                    f"journal: event {self._number} cannot be applied: {type(error).__name__}: {error}"
                ) from error
        return part

    def at_rest(self) -> None:
        """It may stay as it is until somebody acts on it.

        Raises:
            Conflict: An experiment of it runs at its end.
        """
        moving = [
            m for m in self.experiment.experiments.values() if not (m.state.ended or m.state is ExperimentState.PAUSED)
        ]
        if moving:
            named = ", ".join(f"{m.id} is {m.state.value}" for m in moving)
            raise Conflict(f"the journal ends while {named}: pause it where it runs, and export it again")

    def finish(self, imported: Imported) -> Iterator[appstat_pb2.ImportJournalRequest]:
        """The last event, and the rows of experiments and jobs as they stand after it.

        Raises:
            InvalidInput: The specification that came along is none that these events can belong to.
        """
        part = appstat_pb2.ImportJournalRequest()
        self._number += 1
        self._apply(imported, imported.at, part)
        yield part
        try:
            rows = self._changes.rows(self._core, imported.at, PlanRows())
        except Exception as error:  # whatever is wrong with what came along
            raise InvalidInput(
                f"journal: what follows from it cannot be written: {type(error).__name__}: {error}"
            ) from error
        for start in range(0, len(rows), _ROWS):
            yield appstat_pb2.ImportJournalRequest(projections=rows[start : start + _ROWS])

    def _checked(self, event: StreamEvent) -> StreamEvent:
        """The event as it is here."""
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

    def _kept_checksum(self, record: StoredRecord) -> str:
        """The checksum of a record that is written as it came; empty: another id or an upgrade changes the record."""
        return "" if self._target or record.version != FORMAT else record.checksum

    def _apply(self, event: StreamEvent, at: float, part: appstat_pb2.ImportJournalRequest, checksum: str = "") -> None:
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
            checksum=checksum,
        )


def _record_of(line: bytes, stream: StreamId, number: int) -> tuple[float, StoredRecord]:
    """When it was journalled, and the record.

    Raises:
        InvalidInput: The line is no record.
    """
    try:
        raw = json.loads(line)
        payload = json.dumps(raw["payload"]).encode()
        checksum = str(raw.get("checksum", ""))
        return float(raw["at"]), StoredRecord(
            stream, number, raw.get("version", 0), str(raw["kind"]), payload, checksum
        )
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise InvalidInput(
            f"{type(error).__name__}: {error}; needed is a record as hopyard export writes it"
        ) from error


def _event_of(record: StoredRecord) -> StreamEvent:
    """The event of a record.

    Raises:
        InvalidInput: The record cannot be read, or is none of an experiment.
    """
    event = event_of(record)
    if isinstance(event, ClusterEvent):
        raise InvalidInput(f"{record.kind} belongs to a cluster, not to an experiment")
    return event
