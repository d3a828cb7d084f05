"""The time as records and log lines have it."""

from __future__ import annotations

import time
from datetime import UTC, datetime

#: How times are written.
TIME_FORMAT = "%Y-%m-%dT%H:%M:%SZ"


def utc_now() -> str:
    """The time in UTC, RFC 3339, whole seconds. Every time that is recorded or sent comes from here."""
    return datetime.fromtimestamp(time.time(), UTC).strftime(TIME_FORMAT)
