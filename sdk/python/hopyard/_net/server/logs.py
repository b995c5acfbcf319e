"""Logging of services to stderr, one line for each entry, as text or JSON."""

from __future__ import annotations

import enum
import json
import logging
import re
import sys
import time
from typing import Any, Final, TextIO

from hopyard._common.formatting import printable


class LogFormat(enum.StrEnum):
    """The format of log entries: text, or one JSON object per line."""

    TEXT = "text"
    JSON = "json"


_SECRET: Final = re.compile(r"(hop_[a-z]+_)[A-Za-z0-9_.=-]+")


class _TerseTracebacks(logging.Filter):
    """Removes the traceback from entries of gRPC about what a caller has sent. It is the same for each, and callers need no token."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Change the entry, and return True: it is logged."""
        if record.name == "grpc._cython.cygrpc" and record.exc_info and isinstance(record.exc_info[1], UnicodeError):
            record.exc_info = None
        return True


def _redacted(text: str) -> str:
    """Return the text without tokens. Hopyard logs none, but libraries log what callers send, such as headers that are not text."""
    return _SECRET.sub(r"\1***", text)


class _TextFormatter(logging.Formatter):
    converter = staticmethod(time.gmtime)

    def __init__(self, service: str) -> None:
        super().__init__(
            f"%(asctime)s.%(msecs)03dZ %(levelname)s {service} %(name)s: %(message)s", datefmt="%Y-%m-%dT%H:%M:%S"
        )

    def format(self, record: logging.LogRecord) -> str:
        return printable(_redacted(super().format(record)))

    def formatMessage(self, record: logging.LogRecord) -> str:
        # Each entry is one line, even if the message contains line breaks; only a traceback adds lines.
        return super().formatMessage(record).replace("\n", "\\n")


class _JsonFormatter(logging.Formatter):
    def __init__(self, service: str) -> None:
        super().__init__()
        self._service = service

    def format(self, record: logging.LogRecord) -> str:
        entry: dict[str, Any] = {
            "at": record.created,
            "level": record.levelname,
            "service": self._service,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            entry["traceback"] = self.formatException(record.exc_info)
        return _redacted(json.dumps(entry, ensure_ascii=False))


def set_up_logging(
    service: str, *, format: LogFormat = LogFormat.TEXT, level: str = "INFO", stream: TextIO | None = None
) -> None:
    """Send this process's log to a stream, replacing the earlier configuration.

    Args:
        service: Name of the process in each entry.
        format: Text, or one JSON object per line.
        level: Lowest level that is logged, such as "INFO".
        stream: Target; None: stderr.
    """
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.addFilter(_TerseTracebacks())
    handler.setFormatter(_JsonFormatter(service) if format is LogFormat.JSON else _TextFormatter(service))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
