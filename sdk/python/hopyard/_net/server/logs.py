"""Logging of services: to stderr, one line an entry, as text or JSON."""

from __future__ import annotations

import enum
import json
import logging
import sys
import time
from typing import Any, TextIO


class LogFormat(enum.StrEnum):
    """How log entries look."""

    TEXT = "text"
    JSON = "json"


class _TextFormatter(logging.Formatter):
    converter = staticmethod(time.gmtime)

    def __init__(self, service: str) -> None:
        super().__init__(
            f"%(asctime)s.%(msecs)03dZ %(levelname)s {service} %(name)s: %(message)s", datefmt="%Y-%m-%dT%H:%M:%S"
        )

    def formatMessage(self, record: logging.LogRecord) -> str:
        # One line an entry, whatever the message quotes; only a traceback below it has lines of its own.
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
        return json.dumps(entry, ensure_ascii=False)


def set_up_logging(
    service: str, *, format: LogFormat = LogFormat.TEXT, level: str = "INFO", stream: TextIO | None = None
) -> None:
    """Send this process's log to `stream` (stderr without one), replacing what was set up before.

    Args:
        service: The process's name in each entry.
        format: Text, or one JSON object a line.
        level: The least severe level that is written.
        stream: Where to.
    """
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(_JsonFormatter(service) if format is LogFormat.JSON else _TextFormatter(service))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
