"""Upkeep beside a running service: at its start and every hour."""

from __future__ import annotations

import threading
from collections.abc import Callable

import structlog

logger = structlog.get_logger(__name__)

SECONDS = 3600.0


class Hourly:
    """Does some work again and again, in a thread of its own; several processes may do so on one database.

    Args:
        name: of the thread.
        work: told what is set once there is no time left; whatever is left to do then is left to the next start.
        failed: what is logged where it fails.
    """

    def __init__(self, name: str, work: Callable[[threading.Event], None], failed: str) -> None:
        self._work, self._failed = work, failed
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._watch, name=name, daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End soon."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(1.0)

    def _watch(self) -> None:
        while not self._stopping.is_set():
            try:
                self._work(self._stopping)
            except Exception as error:  # noqa: BLE001 - such as a database that is away: there is another time
                logger.warning(self._failed, error=type(error).__name__)
            self._stopping.wait(SECONDS)
