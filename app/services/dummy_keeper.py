"""Sessions on made-up records do not stay for good: who tries something out forgets to close them."""

from __future__ import annotations

import threading

import structlog

from app.services.datasets import Datasets

log = structlog.get_logger(__name__)

#: How often it is looked which ones are over.
SECONDS = 3600.0


class DummyKeeper:
    """Ends sessions on made-up records that are too old, beside a running service: at its start and every hour.

    Several processes may do so on one database.
    """

    def __init__(self, datasets: Datasets) -> None:
        self._datasets = datasets
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="dummies", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End soon: whatever is left to do is left to the next start."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(1.0)

    def _watch(self) -> None:
        while not self._stopping.is_set():
            try:
                self._datasets.end_old_dummies()
            except Exception as error:  # noqa: BLE001 - such as a database that is away: there is another time
                log.warning("old sessions on made-up records cannot be ended", error=type(error).__name__)
            self._stopping.wait(SECONDS)
