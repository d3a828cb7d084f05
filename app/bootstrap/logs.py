"""Log lines: JSON on standard error, of this program and of its libraries."""

from __future__ import annotations

import logging
import sys
from contextlib import suppress
from typing import TextIO, cast

import structlog

from app.bootstrap.clock import TIME_FORMAT

logger = structlog.get_logger(__name__)


class _LogLines:
    """Standard error for log lines.

    A line that cannot be written (the disk is full, the reader is gone) is dropped: the work that it reports must go
    on, above all a lane that waits for disk space to store its answers.
    """

    def write(self, text: str) -> None:
        with suppress(OSError):
            sys.stderr.write(text)

    def flush(self) -> None:
        with suppress(OSError):
            sys.stderr.flush()


class _LibraryLogs(logging.Handler):
    """Warnings of libraries as log lines like all others: which library, and the type of its error.

    Messages and stack traces of libraries are left out: they could hold anything, such as the values of a statement
    that failed. Only the HTTP server's messages without an error are kept. They are of ports and processes, and one of
    them says that a port is taken.
    """

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[0] if record.exc_info else None
        words = {"words": record.getMessage()} if record.name == "uvicorn.error" and error is None else {}
        logger.warning("a library complains", library=record.name, error=error.__name__ if error else None, **words)


def configure_logs(level: str) -> None:
    """Log JSON lines to standard error, from this level (``debug``, ``info``, ``warning`` or ``error``) on."""
    number = getattr(logging, level.upper())
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt=TIME_FORMAT, utc=True),
            structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.PrintLoggerFactory(cast(TextIO, _LogLines())),
        cache_logger_on_first_use=False,
    )
    root = logging.getLogger()
    if not any(isinstance(handler, _LibraryLogs) for handler in root.handlers):
        root.addHandler(_LibraryLogs(logging.WARNING))
